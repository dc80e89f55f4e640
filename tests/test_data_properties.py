"""What holds of any data directory, however bad: hypothesis makes them."""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from ngsgd.data.check import ValidateOptions, validate
from ngsgd.data.combine import CombineOptions, combine
from ngsgd.data.copy import CopyOptions, copy
from ngsgd.data.datadir import FILES, RECORDING, SPEAKER, DataDir
from ngsgd.data.fix import fix
from ngsgd.data.scan import DAMAGED, ERROR, Scan
from ngsgd.data.split import split
from ngsgd.data.subset import SubsetOptions, subset, ways
from ngsgd.errors import DataError

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
few = hypothesis.settings(max_examples=100, deadline=None)

IDS = ["a-1", "a-2", "b-1", "b-2", "é-1", "B-1", "\U0001f600-1", "\uffee-1"]
VALUES = {
    "utt2spk": ["a", "b", "é", "a b"],
    "spk2utt": ["a-1 a-2", "b-1", "a-1", "é-1 b-2"],
    "text": ["ONE", "ONE TWO", "<s>", "#1", "ÉTÉ", "A\u00a0B", "\u200b", ""],
    "wav.scp": ["touch |", "touch  a   b |", "/none.wav", "~/a.wav", "/dev/null", "/etc/passwd |"],
    "segments": ["a-1 0 1", "r 0 -1", "r 2 1", "r 0", "r x y", "gone 0 1 0"],
    "utt2dur": ["1.5", "nan", "x", "-1"],
    "utt2num_frames": ["7", "1.5", "-"],
    "reco2dur": ["7", "inf"],
    "spk2gender": ["f", "m"],
}
KEYS = {SPEAKER: ["a", "b", "é", "c"], RECORDING: [*IDS, "r", "s"]}
BREAKS = ["\n", "\n", "\n", "\r\n", "\n\n", " \n"]


@contextmanager
def scratch():
    """A folder in memory where there is such a thing: every file is flushed to the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        yield Path(folder)


def lines_of(name):
    """Any lines that a file might have: good and bad ids and values, odd spaces, bytes that are no UTF-8."""
    keys = st.sampled_from(KEYS.get(FILES[name], IDS))
    values = st.sampled_from(VALUES.get(name, ["x.ark:5", "y"]))
    spaces = st.sampled_from([" ", " ", " ", "\t", "  ", "\u3000"])
    line = st.builds(lambda k, s, v, b: f"{k}{s}{v}{b}".encode(), keys, spaces, values, st.sampled_from(BREAKS))
    return st.lists(st.one_of(line, line, line, st.sampled_from([b"\xff\n", b" a-1 x\n", b"a-1"])), max_size=9)


GOOD = {
    "utt2spk": b"a-1 a\na-2 a\nb-1 b\nb-2 b\n",
    "text": b"a-1 ONE\na-2 TWO\nb-1 THREE\nb-2 FOUR\n",
    "wav.scp": b"a-1 touch |\na-2 touch |\nb-1 touch |\nb-2 touch |\n",
    "feats.scp": b"a-1 x:1\na-2 x:2\nb-1 x:3\nb-2 x:4\n",
    "cmvn.scp": b"a y:1\nb y:2\n",
    "spk2gender": b"a f\nb m\n",
    "utt2dur": b"a-1 1\na-2 2\nb-1 3\nb-2 4\n",
    "utt2num_frames": b"a-1 1\na-2 2\nb-1 3\nb-2 4\n",
    "utt2uniq": b"a-1 a\na-2 a\nb-1 b\nb-2 b\n",
}


@st.composite
def messes(draw):
    """A good directory in which some lines went, came, or were doubled or moved, and some files went or came."""
    files = {name: lines.splitlines(keepends=True) for name, lines in GOOD.items()}
    for name in draw(st.lists(st.sampled_from(sorted(set(GOOD) - {"utt2spk"})), max_size=3)):
        files.pop(name, None)
    if draw(st.booleans()):
        files["segments"] = [f"{u} {r} 0 1\n".encode() for u, r in zip(IDS[:4], ["r", "r", "s", "b-1"], strict=True)]
        files["wav.scp"] = [b"b-1 touch |\n", b"r touch |\n", b"s touch |\n"]
        files["reco2dur"] = [b"b-1 1\n", b"r 1\n", b"s 2\n"]
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=4)):
        lines, at = files[name], draw(st.integers(0, 4))
        edit = draw(st.sampled_from(["delete", "double", "last", "insert", "replace"]))
        if edit in ("delete", "replace", "last") and at < len(lines):
            gone = lines.pop(at)
            lines += [gone] if edit == "last" else []
        if edit == "double" and lines:
            lines.insert(at, lines[0])
        if edit in ("insert", "replace"):
            lines[at:at] = draw(lines_of(name))[:2]
    return files


dirt = st.fixed_dictionaries(
    {"utt2spk": lines_of("utt2spk")}, optional={name: lines_of(name) for name in FILES if name != "utt2spk"}
)


@few
@hypothesis.given(messes() | dirt)
def test_what_is_fixed_is_valid(mess):
    with scratch() as path:
        for name, lines in mess.items():
            (path / name).write_bytes(b"".join(lines))
        before = {p.name: p.read_bytes() for p in path.iterdir()}
        validate(path)
        try:
            fixed, _ = fix(path)
        except DataError as error:
            hypothesis.event("refused")
            assert "no utterance is in all" in str(error)
            assert {p.name: p.read_bytes() for p in path.iterdir()} == before
            return
        hypothesis.event("fixed")
        there = {f"no_{n.split('.')[0]}": not (path / n).exists() for n in ("wav.scp", "text", "feats.scp")}
        problems = validate(path, ValidateOptions(**there))
        assert problems.count(ERROR, DAMAGED) == 0, list(map(str, problems))
        assert DataDir.load(path).files == fixed.files
        for name in fixed.files:
            ids = [line.split(b" ")[0] for line in (path / name).read_bytes().splitlines()]
            assert ids == sorted(set(ids))  # bytes: the C locale
        once = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
        fix(path)
        assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == once


clean = st.lists(st.sampled_from([b"B-1 x\n", b"a-1 y\n", b"a-1 x\n", b"c-1 y  z\n", b"d-1\n"]), max_size=5)


@few
@hypothesis.given(lines_of("text") | lines_of("wav.scp") | clean, st.booleans())
def test_a_file_read_as_a_whole_says_what_its_lines_say(lines, keep_spacing):
    class ByLine(Scan):
        def _as_a_whole(self, data, keys):
            return False

    with scratch() as path:
        (path / "file").write_bytes(b"".join(lines))
        whole, by_line = (kind(path / "file", keep_spacing) for kind in (Scan, ByLine))
        assert list(whole.values.items()) == list(by_line.values.items())
        assert list(map(str, whole.problems)) == list(map(str, by_line.problems))
        assert [whole.line_of(key) for key in whole.values] == [by_line.line_of(key) for key in by_line.values]


@st.composite
def directories(draw):
    """Files of a consistent data directory: utterance -> speaker, perhaps recordings that several share."""
    utt2spk = draw(
        st.dictionaries(st.text("abé\uffee\U0001f600", min_size=1, max_size=4), st.sampled_from("xyz"), min_size=1)
    )
    files = {
        "utt2spk": utt2spk,
        "text": {u: f"WORD {u}" for u in utt2spk},
        "feats.scp": {u: f"f.ark:{i}" for i, u in enumerate(utt2spk)},
    }
    files["cmvn.scp"] = {s: f"c.ark:{ord(s)}" for s in utt2spk.values()}
    files["utt2num_frames"] = {u: str(draw(st.integers(1, 5))) for u in utt2spk}
    if draw(st.booleans()):
        files["segments"] = {u: f"rec{draw(st.integers(0, 3))} {i} {i + 1}" for i, u in enumerate(utt2spk)}
        files["wav.scp"] = {line.split()[0]: "touch |" for line in files["segments"].values()}
    else:
        files["wav.scp"] = dict.fromkeys(utt2spk, "touch |")
    whole = DataDir(Path(), files)
    return whole.select(whole.utterances)


def contents(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}


@few
@hypothesis.given(directories(), st.integers(1, 5), st.sampled_from(["per_spk", "per_utt", "per_reco"]))
def test_parts_combined_are_the_whole(directory, jobs, unit):
    with scratch() as path:
        directory.write(path / "whole")
        jobs = min(jobs, len(directory.utterances))
        parts = split(path / "whole", jobs, unit)
        combine(path / "again", [parts / str(job) for job in range(1, jobs + 1)], CombineOptions())
        assert contents(path / "again") == contents(path / "whole")
        assert not (path / "again" / ".backup").exists()  # nothing was to be fixed
        copy(path / "whole", path / "copy", CopyOptions())
        assert contents(path / "copy") == contents(path / "whole")


@few
@hypothesis.given(directories(), st.integers(1, 9), st.sampled_from(sorted(ways)), st.integers(0, 3))
def test_a_subset_has_as_many_as_asked_for_and_is_valid(directory, number, way, seed):
    with scratch() as path:
        directory.write(path / "whole")
        options = SubsetOptions(seed=seed) if way == "random" else SubsetOptions(seed=seed, **{way: True})
        part = subset(path / "whole", path / "part", number, options)
        speakers = directory.spk2utt
        if way == "per_spk":
            assert {s: len(u) for s, u in part.spk2utt.items()} == {s: min(number, len(u)) for s, u in speakers.items()}
        elif way == "speakers":
            assert all(part.spk2utt[s] == speakers[s] for s in part.spk2utt)
            assert len(part.utterances) >= min(number, len(directory.utterances))
        else:
            assert len(part.utterances) == min(number, len(directory.utterances))
        assert validate(path / "part").count(ERROR, DAMAGED) == 0
        assert all(list(lines) == sorted(lines, key=str.encode) for lines in part.files.values())
        shutil.rmtree(path / "part")
