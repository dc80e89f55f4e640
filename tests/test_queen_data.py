"""The recipe egs/queen: container, texts, lists and data directories, on a container built here and on the real one."""

import hashlib
import io
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ngsgd.errors import DataError

RECIPE = Path(__file__).parents[1] / "egs/queen"


@pytest.fixture(scope="module")
def queen():
    """The recipe's modules."""
    sys.path.insert(0, str(RECIPE / "local"))
    import queen_container
    import queen_corpus
    import queen_prepare

    return SimpleNamespace(container=queen_container, corpus=queen_corpus, prepare=queen_prepare)


def padded(body: bytes, text: str, align: int) -> bytes:
    """`body` with a string appended, and padding so that the next one is aligned; an empty one is not padded."""
    body += bytes([len(text)]) + text.encode("latin-1")
    return body + bytes(-len(body) % align) if text else body


Block = list[tuple[int, str]]


def dog(key: int, joe: Block, other: Block, first: str, second: tuple[str, str]) -> bytes:
    """A dialogue of one level: headers, Joe's block at 32 + 96, the other's block, first talk, second talk."""
    body = bytearray(32 + 96)
    joe_start = len(body)
    for ident, text in joe:
        body = bytearray(padded(bytes(body) + struct.pack(">hh", 1, ident), text, 4))
    other_start = len(body)
    for ident, text in other:
        body = bytearray(padded(bytes(body) + struct.pack(">hh", 1, ident), text, 4))
    if first:  # id 0 in Joe's block: here the block has nothing else
        assert not joe and not other
        body = bytearray(padded(bytes(body[:joe_start]) + struct.pack(">hh", 1, 0), first, 2))
        other_start = len(body)
    second_start = len(body)
    body = bytearray(padded(padded(bytes(body), second[0], 2), second[1], 2))
    struct.pack_into(">5h", body, 0, -1, 0, key, len(joe), len(other))
    struct.pack_into(">H", body, 22, other_start)
    struct.pack_into(">H", body, 26, second_start)
    return bytes(20) + bytes(body)


def cut(lines: list[str]) -> bytes:
    """A cut scene with these strings, one an object."""
    body = padded(bytes(12 + 34 * len(lines)), "*FL", 2)
    for line in lines:
        body = padded(body, line, 2)
    header = bytearray(body)
    struct.pack_into(">h", header, 2, -len(lines))
    struct.pack_into(">H", header, 8, 12 + 34 * len(lines))
    return bytes(20) + bytes(header)


def jas(remarks: dict[int, str]) -> bytes:
    """QUEEN2.JAS with remarks at 0-based lines."""
    return "\r\n".join(remarks.get(i, "x") for i in range(1300)).encode("latin-1")


def mp3(seconds: float, pitch: float) -> bytes:
    import soundfile

    t = np.arange(int(11025 * seconds)) / 11025
    out = io.BytesIO()
    soundfile.write(out, 0.3 * np.sin(2 * np.pi * pitch * t), 11025, format="MP3")
    return out.getvalue()


def container_bytes(entries: dict[str, bytes], codec: int = 1) -> bytes:
    table, data = b"", b""
    start = 15 + 21 * len(entries)
    for name, content in entries.items():
        table += struct.pack(">12sBII", name.encode(), 1, start + len(data), len(content))
        data += content
    return b"QTBL" + b"v1.000" + b"\0\0" + bytes([codec]) + struct.pack(">H", len(entries)) + table + data


TEXTS = {
    "BOB1.DOG": dog(
        6,
        [(7, "Who are you?*01I'm *GDlost."), (0x2A, "")],
        [(7, "I'm Bob!*XY12345678901Hello"), (8, "Yes*02")],
        "",
        ("Back again?", "Yes."),
    ),
    "SEC2.DOG": dog(12, [], [], "Hello, secretary.", ("", "")),
    "QUEEN2.JAS": jas({0: "I can't reach it.*05Not 2 times.", 1187: "No way!"}),
    "C1A.CUT": cut(["*", "Hey, you there!*03Stop!", "Too late."]),
}
RECORDED = [
    "060007J1",
    "060007J2",
    "060007P1",
    "060007P2",
    "060008P1",
    "06XXXXP1",
    "06XXXXJ1",
    "12SSSSJ1",
    "JOE00411",
    "JOE00412",
    "JOE00011",
    "C1A__021",
    "C1A__022",
    "C1A__031",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A container of all kinds of entry, and a folder with the three lists."""
    folder = tmp_path_factory.mktemp("queen")
    recordings = {f"{name}.SB": mp3(1.0 + 0.1 * i, 200 + 20 * i) for i, name in enumerate(RECORDED)}
    (folder / "queen.1c").write_bytes(container_bytes({**TEXTS, **recordings, "ZZZZ1.SB": mp3(1, 100)}))
    (folder / "train.ids").write_text("060007J1.SB JOE\n060007J2.SB JOE\n060007P1.SB BOB\n12SSSSJ1.SB JOE\n")
    (folder / "test.ids").write_text("06XXXXP1.SB BOB\n")
    (folder / "unseen.ids").write_text("C1A__021.SB RITA\n")
    return folder


def test_texts_and_speakers_of_all_kinds_of_entry(queen, small):
    lines = queen.container.all_lines(queen.container.Container(small / "queen.1c"))
    assert {name.removesuffix(".SB"): (line.speaker, line.text) for name, line in lines.items()} == {
        "060007J1": ("JOE", "Who are you?"),
        "060007J2": ("JOE", "I'm lost."),
        "060007P1": ("BOB", "I'm Bob!"),
        "060007P2": ("BOB", "Hello"),
        "060008P1": ("BOB", "Yes"),
        "06XXXXP1": ("BOB", "Back again?"),
        "06XXXXJ1": ("JOE", "Yes."),
        "12SSSSJ1": ("JOE", "Hello, secretary."),
        "JOE00411": ("JOE", "I can't reach it."),
        "JOE00412": ("JOE", "Not 2 times."),
        "JOE00011": ("JOE", "No way!"),
        "C1A__021": ("", "Hey, you there!"),
        "C1A__022": ("", "Stop!"),
        "C1A__031": ("", "Too late."),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\"You crash 'em, we cash 'em!\"", "YOU CRASH EM WE CASH EM"),
        ("Prince Alma-what's-his-name resting?", "PRINCE ALMA WHAT'S HIS NAME RESTING"),
        ("Super Soldier Treatment^_...", "SUPER SOLDIER TREATMENT"),
        ("@@ She's the Amazons' @@ (sigh)", "SHE'S THE AMAZONS SIGH"),
        ("GIVE UP (Y/N)?", "GIVE UP Y N"),
        ("...!", ""),
    ],
)
def test_normalised_text(queen, text, words):
    assert " ".join(queen.corpus.normalise(text)) == words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"RIFFxxxx", "expected a container starting with 'QTBL'"),
        (container_bytes({"A.SB": b"x"}, codec=2), r"expected speech codec 1 \(MP3\), got 2"),
        (container_bytes({"A.SB": b"x" * 50})[:-10], "entry A.SB ends at byte .*: cut off"),
        (container_bytes({"A.SB": b""})[:20], "cut off in its table of 1 entries"),
        (container_bytes({"QUEEN2.JAS": b"a\r\nb"}), "QUEEN2.JAS has 2 lines"),
        (container_bytes({**TEXTS, "BOB2.DOG": TEXTS["BOB1.DOG"][:-30]}), "BOB2.DOG is damaged"),
        (container_bytes(TEXTS), "0 recordings, expected 6745.*not the version this recipe is for"),
    ],
)
def test_damaged_and_other_containers_are_refused(queen, tmp_path, data, message):
    (tmp_path / "queen.1c").write_bytes(data)
    with pytest.raises(DataError, match=message):
        queen.corpus.checked_lines(queen.container.Container(tmp_path / "queen.1c"))


@pytest.fixture
def accepted(queen, monkeypatch):
    """The counts of the small container are those expected."""
    counts = {"recordings": 15, "with text": 14, "dialogues and remarks": 11, "characters": 2}
    monkeypatch.setattr(queen.corpus, "EXPECTED", counts)
    return queen


def test_data_directories_vocabulary_and_text(accepted, small, tmp_path, run):
    data = tmp_path / "data"
    assert accepted.prepare.prepare(small / "queen.1c", str(small), str(data), accepted.corpus.QueenOptions()) == 6
    assert (data / "train/text").read_text() == (
        "BOB-060007P1 I'M BOB\nJOE-060007J1 WHO ARE YOU\nJOE-060007J2 I'M LOST\nJOE-12SSSSJ1 HELLO SECRETARY\n"
    )
    assert (data / "test/text").read_text() == "BOB-06XXXXP1 BACK AGAIN\n"
    assert (data / "test_unseen/utt2spk").read_text() == "RITA-C1A__021 RITA\n"
    assert (data / "local/lm/train.txt").read_text().split("\n")[0] == "I'M BOB"
    assert "AGAIN" in (data / "local/lm/vocabulary.txt").read_text().split()
    assert "BACK AGAIN" not in (data / "local/lm/train.txt").read_text()
    assert (data / "local/counts.tsv").read_text().splitlines()[2].split("\t")[-1] == "100.00"
    for name in accepted.corpus.SETS:
        run("validate_data_dir.py", "--no-feats", data / name)


def test_recordings_are_flac_of_the_decoded_mp3_and_a_rerun_changes_nothing(accepted, small, tmp_path):
    import soundfile

    options = accepted.corpus.QueenOptions()
    accepted.prepare.prepare(small / "queen.1c", str(small), str(tmp_path / "data"), options)
    path = tmp_path / "data/local/audio/060007J1.flac"
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == 11025
    assert soundfile.info(path).subtype == "PCM_16"
    container = accepted.container.Container(small / "queen.1c")
    expected, _ = soundfile.read(io.BytesIO(container["060007J1.SB"]), dtype="int16")
    np.testing.assert_array_equal(samples, expected)

    (tmp_path / "data/train/feats.scp").write_text("made later\n")
    (tmp_path / "data/local/audio/060007J2.flac").unlink()
    kept = [path, *(tmp_path / "data").glob("t*/*"), *(tmp_path / "data/local/lm").iterdir()]
    before = {p: p.stat().st_mtime_ns for p in kept}
    accepted.prepare.prepare(small / "queen.1c", str(small), str(tmp_path / "data"), options)
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert not list(path.parent.glob("*.tmp"))
    assert (tmp_path / "data/local/audio/060007J2.flac").is_file()


def test_more_takes_what_is_left_but_no_digits_and_no_test_sentence(accepted, small, tmp_path):
    options = accepted.corpus.QueenOptions(more=True)
    accepted.prepare.prepare(small / "queen.1c", str(small), str(tmp_path), options)
    added = {line.split()[0] for line in (tmp_path / "train/text").read_text().splitlines()}
    assert added == {
        "BOB-060007P1",
        "BOB-060007P2",
        "BOB-060008P1",
        "JOE-060007J1",
        "JOE-060007J2",
        "JOE-06XXXXJ1",
        "JOE-12SSSSJ1",
        "JOE-JOE00011",
        "JOE-JOE00411",
    }


def test_quick_keeps_every_speaker_and_about_the_time_asked_for(queen):
    make = queen.corpus.Utterance
    utterances = [make(f"JOE-{i:03}", f"{i}.SB", "JOE", (f"W{i}",)) for i in range(300)]
    utterances += [make(f"BOB-{i}", f"B{i}.SB", "BOB", (f"B{i}",)) for i in range(2)]
    seconds = {u.recording: 2.0 for u in utterances}
    kept = queen.corpus.shortened(utterances, seconds, minutes=4.0)
    assert sum(seconds[u.recording] for u in kept) == 240.0
    assert {"BOB-0", "BOB-1"} <= {u.id for u in kept}
    assert [u.id for u in kept] == sorted(u.id for u in kept)
    assert kept == queen.corpus.shortened(utterances[::-1], seconds, minutes=4.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [("NOSUCH1.SB JOE", "no text for recording NOSUCH1.SB"), ("060007P1.SB JOE", "spoken by BOB, not by JOE")],
)
def test_lists_that_do_not_fit_the_container(queen, small, tmp_path, line, message):
    (tmp_path / "list").write_text(line + "\n")
    lines = queen.container.all_lines(queen.container.Container(small / "queen.1c"))
    with pytest.raises(DataError, match=message):
        queen.corpus.listed(str(tmp_path / "list"), lines)


def test_the_program_reports_a_wrong_file_in_one_line(run, tmp_path):
    (tmp_path / "queen.1c").write_bytes(b"nonsense")
    result = run(RECIPE / "local/prepare_data.py", "queen.1c", RECIPE / "conf", "data", status=1)
    assert result.stderr.startswith("ERROR (prepare_data.py) queen.1c: expected a container")
    assert not (tmp_path / "data").exists()


def test_lists_are_disjoint_and_every_tested_character_is_known_or_new():
    lists = {
        n: dict(line.split() for line in (RECIPE / f"conf/{n}.ids").read_text().splitlines())
        for n in ("train", "test", "unseen")
    }
    assert {n: len(v) for n, v in lists.items()} == {"train": 3859, "test": 338, "unseen": 65}
    assert not lists["train"].keys() & lists["test"].keys()
    assert set(lists["test"].values()) <= set(lists["train"].values())
    assert not set(lists["unseen"].values()) & set(lists["train"].values())


def test_lists_are_those_that_published_figures_are_for(shared):
    for name in ("train.ids", "test.ids"):
        assert (RECIPE / "conf" / name).read_bytes() == (shared / "queen" / name).read_bytes()


@pytest.fixture(scope="session")
def real_container():
    """The real queen.1c: where the recipe puts it, or QUEEN_CONTAINER."""
    path = Path(os.environ.get("QUEEN_CONTAINER", RECIPE / "corpus/queen.1c"))
    if not path.is_file():
        pytest.skip("the game's data is not here: QUEEN_CONTAINER=FILE, or egs/queen/local/get_corpus.sh")
    return path


@pytest.mark.slow
def test_the_real_corpus_has_the_counts_that_figures_are_for(queen, real_container, tmp_path):
    queen.prepare.prepare(str(real_container), str(RECIPE / "conf"), str(tmp_path), queen.corpus.QueenOptions())
    table = [line.split("\t") for line in (tmp_path / "local/counts.tsv").read_text().splitlines()]
    assert table[1:] == [
        ["train", "3859", "30", "161.54", "23617", "2810", "0.00"],
        ["test", "338", "28", "14.65", "2204", "656", "5.58"],
        ["test_unseen", "65", "8", "2.30", "362", "153", "0.00"],
    ]
    assert len((tmp_path / "local/lm/vocabulary.txt").read_text().split()) == 2913
    sentences = [
        {line.split(" ", 1)[1] for line in (tmp_path / name / "text").read_text().splitlines()}
        for name in queen.corpus.SETS
    ]
    assert not sentences[0] & (sentences[1] | sentences[2])


def make_deb(folder: Path, content: bytes) -> Path:
    """A Debian package that holds `content` where the game's has its data; the folder must allow dpkg-deb."""
    import shutil
    import subprocess

    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb here")
    tree = folder / "tree"
    for path, text in {
        "DEBIAN/control": b"Package: flight-of-the-amazon-queen\nVersion: 1\nArchitecture: all\n"
        b"Maintainer: x <x@x>\nDescription: x\n",
        "usr/share/scummvm/flight-of-the-amazon-queen/queen.1c": content,
        "usr/share/doc/flight-of-the-amazon-queen/copyright": b"free\n",
    }.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(text)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, folder / "x.deb"], check=True, capture_output=True)
    return folder / "x.deb"


def test_get_corpus_verifies_and_is_idempotent(run, tmp_path):
    deb = make_deb(tmp_path, b"the data")
    script = (RECIPE / "local/get_corpus.sh").read_text()
    real = "cc91960d133fcd4173eda4bac304e80d2bbdbaa085640287ab9e0507bd603f67"
    assert real in script
    (tmp_path / "get.sh").write_text(script.replace(real, hashlib.sha256(b"the data").hexdigest()))
    first = run("bash", "get.sh", "--deb", deb, "corpus")
    assert "that of queen.1c decides" in first.stderr
    assert sorted(p.name for p in (tmp_path / "corpus").iterdir()) == ["copyright", "queen.1c"]
    assert "its checksum is right" in run("bash", "get.sh", "corpus").stderr
    (tmp_path / "corpus/queen.1c").write_bytes(b"cut")
    again = run("bash", "get.sh", "corpus", env={"QUEEN_DEB": str(deb)})
    assert "wrong checksum: fetching it again" in again.stderr
    assert (tmp_path / "corpus/queen.1c").read_bytes() == b"the data"


def test_get_corpus_refuses_another_version_and_leaves_nothing(run, tmp_path):
    deb = make_deb(tmp_path, b"another version")
    result = run(RECIPE / "local/get_corpus.sh", f"--deb={deb}", "corpus", status=1)
    assert "wrong checksum, expected sha256" in result.stderr
    assert not list((tmp_path / "corpus").iterdir())


def test_get_corpus_without_package_lists_says_what_to_run_as_root(run, tmp_path):
    """apt that knows no package, and an ordinary user."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {"apt-get": "exit 0", "apt-cache": "exit 100", "id": "echo 1000", "dpkg-deb": "exit 0"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    result = run(RECIPE / "local/get_corpus.sh", "corpus", status=1, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert "Run once as root: apt-get update" in result.stderr
    assert not list((tmp_path / "corpus").iterdir())
