"""Combining, copying, filtering and mapping data directories and their files."""

import re
from pathlib import Path

import pytest

from ngsgd.data.combine import CombineOptions, combine
from ngsgd.data.copy import CopyOptions, copy
from ngsgd.data.datadir import DataDir
from ngsgd.data.split import split
from ngsgd.errors import DataError

LAUNCHERS = {"run.py", "slurm.py", "queue.py"}
UTILS = sorted(p.name for p in (Path(__file__).parents[1] / "utils").glob("*.py") if p.name not in LAUNCHERS)


@pytest.mark.parametrize("tool", UTILS)
def test_every_tool_has_help_and_says_what_is_wrong(tool, run, tmp_path):
    text = run(tool, "--help").stdout
    usage = re.search(rf"^Usage: {tool} (.*)$", text, re.MULTILINE)[1]
    assert re.search(rf"^e\.g\.: .*{tool} ", text, re.MULTILINE) and "Options:" in text
    assert "no-such-option" in run(tool, "--no-such-option", status=2).stderr
    needed = [word for word in usage.split() if not word.startswith("[")]
    if needed:
        run(tool, status=2)
        needed = ["1" if word == "N" else f"none{i}" for i, word in enumerate(needed)]
        if tool == "subset_data_dir.py":
            needed.insert(1, "1")
        message = run(tool, *needed, status=1).stderr.splitlines()
        assert message[-1].startswith(f"ERROR ({tool}) ") and len(message) == 1
    assert not list(tmp_path.iterdir())


@pytest.fixture
def make(tmp_path):
    def make(name, speakers="ab", **changes):
        """A directory of two utterances of each speaker; a change of None removes a file."""
        path = tmp_path / name
        path.mkdir()
        ids = [(f"{s}-{i}", s) for s in speakers for i in (1, 2)]
        files = {
            "utt2spk": "".join(f"{u} {s}\n" for u, s in ids),
            "text": "".join(f"{u} WORD {u}\n" for u, _ in ids),
            "wav.scp": "".join(f"{u} touch {u} |\n" for u, _ in ids),
            "utt2dur": "".join(f"{u} 1.5\n" for u, _ in ids),
            "cmvn.scp": "".join(f"{s} c.ark:{s}\n" for s in speakers),
            **{key.replace("_", "."): text for key, text in changes.items()},
        }
        for file, text in files.items():
            if text is not None:
                (path / file).write_text(text)
        return path

    return make


def test_combine(make, tmp_path, run):
    make("x")
    make("y", "BC", utt2lang="B-1 en\nB-2 en\nC-1 en\nC-2 en\n")
    result = run("combine_data.py", "all", "x", "y")
    assert "utt2lang is left out: x has none" in result.stderr
    made = DataDir.load(tmp_path / "all")
    assert made.utterances == ["B-1", "B-2", "C-1", "C-2", "a-1", "a-2", "b-1", "b-2"]  # the C locale's order
    assert sorted(made.files) == ["cmvn.scp", "spk2utt", "text", "utt2dur", "utt2spk", "wav.scp"]
    assert (tmp_path / "all" / "spk2utt").read_text().splitlines()[1:3] == ["C C-1 C-2", "a a-1 a-2"]
    run("validate_data_dir.py", "--no-feats", "all")


def test_combine_refuses_an_utterance_in_two(make, tmp_path, run):
    make("x", "ab")
    make("y", "bc")
    error = run("combine_data.py", "all", "x", "y", status=1).stderr
    assert "2 utterances are in two directories: 'b-1' in x and y, 'b-2' in x and y; copy_data_dir.py" in error
    assert "to be written and is one of" in run("combine_data.py", "x", "x", "y", status=1).stderr
    assert not (tmp_path / "all").exists()
    run("copy_data_dir.py", "--utt-prefix=n-", "--spk-prefix=n-", "y", "z")
    run("combine_data.py", "all", "x", "z")
    made = DataDir.load(tmp_path / "all")
    assert list(made.spk2utt) == ["a", "b", "n-b", "n-c"]
    assert made.files["utt2uniq"]["n-b-1"] == "b-1" and made.files["utt2uniq"]["a-1"] == "a-1"


@pytest.mark.parametrize("file", ["wav.scp", "spk2gender", "reco2dur"])
def test_combine_refuses_what_contradicts(make, tmp_path, file):
    segments = {
        "segments": "a-1 r 0 1\na-2 r 1 2\n",
        "wav_scp": "r touch |\n",
        "spk2gender": "a f\n",
        "reco2dur": "r 9\n",
    }
    x = make("x", "a", **segments)
    same = {name: text.replace("a-", "a-x").replace("segments", "") for name, text in segments.items()}
    ids = "a-x1 a\na-x2 a\n"
    rest = {"utt2spk": ids, "text": ids, "utt2dur": None}
    combine(tmp_path / "both", [x, make("y", "a", **same, **rest)], CombineOptions())
    (tmp_path / "y" / file).write_text({"wav.scp": "r other |\n", "spk2gender": "a m\n", "reco2dur": "r 8\n"}[file])
    with pytest.raises(DataError, match=rf"{file}: '[ar]' has .* in one directory, .* in .*y; copy_data_dir"):
        combine(tmp_path / "none", [x, tmp_path / "y"], CombineOptions())
    assert not (tmp_path / "none").exists()


def test_combine_leaves_out_statistics_of_a_speaker_in_two(make, tmp_path, caplog):
    ids = "a-x1 a\na-x2 a\n"
    y = make(
        "y", "a", utt2spk=ids, text=ids, wav_scp="a-x1 touch |\na-x2 touch |\n", cmvn_scp="a d.ark:7\n", utt2dur=None
    )
    made = combine(tmp_path / "all", [make("x", "a"), y], CombineOptions())
    assert made.spk2utt == {"a": ["a-1", "a-2", "a-x1", "a-x2"]}
    assert "cmvn.scp" not in made.files
    assert "to be made anew" in caplog.text


def test_combine_segments_with_whole_recordings(make, tmp_path):
    x = make("x", "a", segments="a-1 r 0 1\na-2 r 1 -1\n", wav_scp="r touch |\n")
    made = combine(tmp_path / "all", [x, make("y", "b")], CombineOptions())
    assert made.files["segments"] == {"a-1": "r 0 1", "a-2": "r 1 -1", "b-1": "b-1 0 -1", "b-2": "b-2 0 -1"}
    assert sorted(made.wav) == ["b-1", "b-2", "r"]


def test_combine_fixes_unless_told_not_to(make, tmp_path):
    x = make("x", text="a-1 ONE\nb-1 TWO\nb-2 <s>\nz-1 STRAY\n")
    y = make("y", "c")
    assert combine(tmp_path / "fixed", [x, y], CombineOptions()).utterances == ["a-1", "b-1", "c-1", "c-2"]
    whole = combine(tmp_path / "whole", [x, y], CombineOptions(skip_fix=True))
    assert whole.utterances == ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]
    assert "z-1" not in whole.text


@pytest.mark.parametrize(("jobs", "per_utterance"), [(2, False), (3, False), (4, True), (3, True)])
def test_split_and_combined_is_as_before(make, tmp_path, jobs, per_utterance):
    x = make(
        "x",
        segments="".join(f"{u} r{u[0]} 0 1\n" for u in ("a-1", "a-2", "b-1", "b-2")),
        wav_scp="ra touch |\nrb touch |\n",
    )
    (x / "spk2utt").write_text("a a-1 a-2\nb b-1 b-2\n")
    parts = split(x, jobs, "per_utt" if per_utterance else "per_spk")
    combine(tmp_path / "again", [parts / str(j) for j in range(1, jobs + 1)], CombineOptions())
    assert {p.name: p.read_bytes() for p in x.iterdir() if p.is_file()} == {
        p.name: p.read_bytes() for p in (tmp_path / "again").iterdir() if p.is_file()
    }


def test_copies_under_other_names(make, tmp_path):
    made = copy(
        make("x", "a"), tmp_path / "y", CopyOptions(utt_prefix="p-", utt_suffix="-s", spk_prefix="p-", spk_suffix="+")
    )
    assert made.files == {
        "utt2spk": {"p-a-1-s": "p-a+", "p-a-2-s": "p-a+"},
        "spk2utt": {"p-a+": "p-a-1-s p-a-2-s"},
        "text": {"p-a-1-s": "WORD a-1", "p-a-2-s": "WORD a-2"},
        "wav.scp": {"p-a-1-s": "touch a-1 |", "p-a-2-s": "touch a-2 |"},
        "utt2dur": {"p-a-1-s": "1.5", "p-a-2-s": "1.5"},
        "cmvn.scp": {"p-a+": "c.ark:a"},
        "utt2uniq": {"p-a-1-s": "a-1", "p-a-2-s": "a-2"},
    }
    again = copy(tmp_path / "y", tmp_path / "z", CopyOptions(utt_prefix="q"))
    assert again.files["utt2uniq"] == {"qp-a-1-s": "a-1", "qp-a-2-s": "a-2"}  # still the first originals
    plain = copy(tmp_path / "x", tmp_path / "w", CopyOptions())
    assert "utt2uniq" not in plain.files and plain.text == DataDir.load(tmp_path / "x").text


def test_copies_keep_recordings_of_segments(make, tmp_path):
    x = make("x", "a", segments="a-1 r 0 1\na-2 r 1 -1\n", wav_scp="r touch |\n", reco2dur="r 5\n")
    made = copy(x, tmp_path / "y", CopyOptions(utt_prefix="p-"))
    assert made.files["segments"] == {"p-a-1": "r 0 1", "p-a-2": "r 1 -1"}
    assert made.wav == {"r": "touch |"} and made.files["reco2dur"] == {"r": "5"}


def test_bad_copies(make, tmp_path, run):
    make("x")
    assert (
        "--utt-prefix: expected no white space, got 'a b'"
        in run("copy_data_dir.py", "--utt-prefix=a b", "x", "y", status=1).stderr
    )
    assert "expected another directory" in run("copy_data_dir.py", "x", "./x", status=1).stderr
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "a x 1\nc x 3\n"),
        (["--exclude"], "b y  2\n"),
        (["-f", "2"], "b y  2\n"),
        (["--field=2", "--exclude"], "a x 1\nc x 3\n"),
    ],
)
def test_filter(tmp_path, run, options, expected):
    (tmp_path / "ids").write_text("c ignored\na\ny\n")
    (tmp_path / "in").write_text("a x 1\nb y  2\nc x 3\n")
    assert run("filter_scp.py", *options, "ids", "in").stdout == expected
    run("filter_scp.py", *options, "ids", "in", "out")
    assert (tmp_path / "out").read_text() == expected


def test_filter_of_bad_lines(tmp_path, run):
    (tmp_path / "ids").write_text("a\n")
    assert "in:2: expected at least 2 fields, found 1" in _filtered(run, tmp_path, "a x\nb\n", "-f", "2", status=1)
    assert "kept 0 of 1 lines" in _filtered(run, tmp_path, "b x\n")
    run("filter_scp.py", "-f", "0", "ids", "in", status=2)


def _filtered(run, tmp_path, text, *options, **kwargs):
    (tmp_path / "in").write_text(text)
    return run("filter_scp.py", *options, "ids", "in", **kwargs).stderr


def test_map(tmp_path, run):
    (tmp_path / "map").write_text("x X1 X2\ny\n")
    text = "a x y\nb y\n"
    assert run("apply_map.py", "-f", "2-", "map", stdin=text).stdout == "a X1 X2\nb\n"
    assert "-:1: 'a' is not in map" in run("apply_map.py", "map", stdin=text, status=1).stderr
    assert run("apply_map.py", "--permissive", "map", stdin=text).stdout == "a X1 X2\nb\n"


def test_speakers_turned_round(tmp_path, run):
    assert run("spk2utt_to_utt2spk.py", stdin="b b-2 b-1\na a-1\n").stdout == "a-1 a\nb-1 b\nb-2 b\n"
    assert "'x' is of 'a' and of 'b'" in run("spk2utt_to_utt2spk.py", stdin="a x\nb x\n", status=1).stderr
    assert "found 'a' alone" in run("spk2utt_to_utt2spk.py", stdin="a\n", status=1).stderr
    assert "empty" in run("spk2utt_to_utt2spk.py", stdin="", status=1).stderr
