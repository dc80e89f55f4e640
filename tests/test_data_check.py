"""Validating and repairing data directories: every disagreement is named with file and line."""

import pytest

from ngsgd.data.check import ValidateOptions, validate
from ngsgd.data.datadir import DataDir
from ngsgd.data.fix import fix
from ngsgd.errors import DataError

GOOD = {
    "utt2spk": "a-1 a\na-2 a\nb-1 b\n",
    "spk2utt": "a a-1 a-2\nb b-1\n",
    "text": "a-1 ONE\na-2 TWO THREE\nb-1 FOUR\n",
    "wav.scp": "a-1 touch |\na-2 touch |\nb-1 touch |\n",
}


@pytest.fixture
def make(tmp_path):
    def make(**files):
        names = {"wav": "wav.scp", "feats": "feats.scp", "cmvn": "cmvn.scp"}
        for name, content in {**GOOD, **{names.get(k, k): v for k, v in files.items()}}.items():
            if content is not None:
                data = content if isinstance(content, bytes) else content.encode()
                (tmp_path / name).write_bytes(data)
        return tmp_path

    return make


def messages(path, **options):
    problems = validate(path, ValidateOptions(**{"no_feats": True, **options}))
    return [str(p).replace(f"{path}/", "") for p in problems]


def test_a_good_directory_has_no_problems(make):
    assert messages(make()) == []


def test_missing_files_and_directory(make, tmp_path):
    path = make()
    (path / "text").unlink()
    assert messages(path) == ["text: no such file (--no-text if that is intended)"]
    assert messages(path, no_text=True) == []
    assert any(m.startswith("feats.scp: no such file") for m in messages(path, no_text=True, no_feats=False))
    with pytest.raises(DataError, match="no such data directory"):
        validate(tmp_path / "none")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"text": "a-1 ONE\na-2 TWO\u00a0THREE\nb-1 FOUR\n"}, "text:2: U+00A0 (NO-BREAK SPACE) at column 8"),
        ({"text": "a-1 ONE\r\na-2 TWO\r\nb-1 FOUR\r\n"}, "text:3: U+000D (CARRIAGE RETURN) at column 9"),
        ({"text": "a-1\tONE\na-2 TWO\nb-1 FOUR\n"}, "text:1: U+0009 (TAB) at column 4"),
        ({"text": "\ufeffa-1 ONE\na-2 TWO\nb-1 FOUR\n"}, "text:1: U+FEFF (BYTE ORDER MARK) at column 1"),
        ({"text": "a-1 ONE\u200b\na-2 TWO\nb-1 FOUR\n"}, "text:1: U+200B (ZERO WIDTH SPACE)"),
        ({"text": "a-1 ONE\na-2 <s> TWO\nb-1 FOUR\n"}, "text:2: 'a-2': the word '<s>'"),
        ({"text": "a-1 ONE\na-2 TWO\nb-1 #0\n"}, "text:3: 'b-1': the word '#0'"),
        ({"text": "a-1 ONE\na-2 \nb-1 FOUR\n"}, "text:2: 'a-2' has nothing behind it"),
        ({"text": b"a-1 ONE\na-2 CAF\xc9\nb-1 FOUR\n"}, "text:2: not UTF-8: byte 0xC9 at byte 8 of the line"),
        ({"text": "a-1 ONE\n\na-2 TWO\nb-1 FOUR\n"}, "text:2: empty line"),
        ({"text": "a-1 ONE\na-2 TWO\na-2 TWO\nb-1 FOUR\n"}, "text:3: 'a-2' is also on line 2, with the same value"),
        ({"text": "a-1 ONE\na-2 TWO\na-2 NO\nb-1 FOUR\n"}, "text:3: 'a-2' is also on line 2, with another value"),
        ({"text": "a-2 TWO\na-1 ONE\nb-1 FOUR\n"}, "text:2: not sorted in the C locale: 'a-1' comes behind 'a-2'"),
        ({"text": "a-1 ONE\na-2 TWO\n"}, "text: 1 of 3 utterance ids in utt2spk are missing: 'b-1'"),
        ({"text": GOOD["text"] + "c-1 FIVE\n"}, "text:4: utterance 'c-1' is not in utt2spk"),
        ({"text": ""}, "text: empty"),
        ({"spk2utt": "a a-1\nb b-1\n"}, "utt2spk:2: utterance 'a-2' is not in spk2utt"),
        ({"spk2utt": "a a-1\nb a-2 b-1\n"}, "spk2utt:2: utterance 'a-2' is of 'b' here, of 'a' in utt2spk:2"),
        ({"spk2utt": "a a-1 a-2 c-9\nb b-1\n"}, "spk2utt:1: utterance 'c-9' of 'a' is not in utt2spk"),
        ({"spk2utt": "a a-1 a-2\nb a-2 b-1\n"}, "spk2utt:2: utterance 'a-2' is listed twice"),
        ({"utt2spk": "a-1 a\na-2 a x\nb-1 b\n"}, "utt2spk:2: 'a-2': expected one value, found 2"),
        ({"wav": "a-1 ~/a.wav\na-2 touch |\nb-1 touch |\n"}, "wav.scp:1: 'a-1': '~' is not expanded"),
        ({"wav": "a-1 no/a.wav\na-2 touch |\nb-1 touch |\n"}, "wav.scp:1: 'a-1': no such file no/a.wav, looked for"),
        ({"segments": "a-1 r 0 1\na-2 r 2 1\nb-1 r 0 1\n"}, "segments:2: 'a-2': expected 0 <= start < end, or end -1"),
        ({"segments": "a-1 a-1 0 1\na-2 r 0 1\nb-1 b-1 0 1\n"}, "wav.scp: 1 of 3 recording ids in segments are"),
        ({"cmvn": "a x:1\nc x:2\n"}, "cmvn.scp:2: speaker 'c' is not in utt2spk"),
        ({"feats": "a-1 x:1\nb-1 x:2\n"}, "feats.scp: 1 of 3 utterance ids in utt2spk are missing: 'a-2'"),
    ],
)
def test_each_problem_is_named(make, files, expected):
    found = messages(make(**files))
    assert any(m.startswith(expected) for m in found), found


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("utt2dur", "a-1 1.5\na-2 long\nb-1 2\n", "utt2dur:2: 'a-2': expected a length in seconds, found 'long'"),
        ("utt2dur", "a-1 1.5\na-2 nan\nb-1 2\n", "utt2dur:2: 'a-2': expected a length in seconds, found 'nan'"),
        ("utt2num_frames", "a-1 1.5\na-2 2\nb-1 2\n", "utt2num_frames:1: 'a-1': expected a number of frames"),
        ("utt2uniq", "a-1 a-1\na-2 a-1 x\nb-1 b-1\n", "utt2uniq:2: 'a-2': expected one value, found 2"),
        ("spk2gender", "a f\n", "spk2gender: 1 of 2 speaker ids in utt2spk are missing: 'b'"),
    ],
)
def test_values_are_checked(make, name, text, expected):
    assert any(m.startswith(expected) for m in messages(make(**{name: text})))


def test_a_mistake_on_every_line_is_told_once(make, run):
    ids = [f"a-{i:04d}" for i in range(1000)]
    path = make(
        utt2spk="".join(f"{u} a\n" for u in ids),
        spk2utt=f"a {' '.join(ids)}\n",
        wav="".join(f"{u} touch |\n" for u in ids),
        text="".join(f"{u} ONE\r\n" for u in ids),
        utt2lang="".join(f"{u} en\n" for u in ids[:500]) + "".join(f"x{u} en\n" for u in ids[:20]),
    )
    lines = run("validate_data_dir.py", "--no-feats", path, status=1).stderr.replace(f"{path}/", "").splitlines()
    returns = [line for line in lines if "CARRIAGE RETURN" in line]
    assert len(returns) == 11
    assert returns[9].startswith("ERROR (validate_data_dir.py) text:10: U+000D")
    assert returns[10].endswith("text: 990 more: U+000D (CARRIAGE RETURN)")
    assert any(line.endswith("utt2lang:501: utterance 'xa-0000' is not in utt2spk") for line in lines)
    assert any(line.endswith("utt2lang: 10 more: utterance ids not in utt2spk") for line in lines)
    assert "1021 errors, 0 warnings" in lines[-1]


def test_what_validation_may_be_told_to_let_pass(make, run):
    path = make(text="a-1 ONE\na-2 TWO\u00a0THREE\nb-1 FOUR\n")
    result = run("validate_data_dir.py", "--no-feats", "--non-print", path)
    assert "WARNING (validate_data_dir.py)" in result.stderr and "U+00A0" in result.stderr
    path = make(utt2spk="a-1 y\na-2 x\nb-1 y\n", spk2utt="x a-2\ny a-1 b-1\n")
    assert len(messages(path)) == 1
    assert messages(path, no_spk_sort=True) == []


def test_a_stray_pipe_behind_a_file(make):
    path = make()
    (path / "x.wav").write_bytes(b"RIFF")
    path = make(wav=f"a-1 {path}/x.wav |\na-2 touch |\nb-1 touch |\n")
    assert any("is a file, not a command: remove the '|'" in m for m in messages(path))


def test_speakers_that_are_no_prefixes_are_explained(make):
    path = make(utt2spk="a-1 x\na-2 x\nb-1 y\n", spk2utt="x a-1 a-2\ny b-1\n")
    (message,) = messages(path)
    assert "'x' is no prefix of utterance 'a-1' (3 such)" in message
    assert "SPEAKER-" in message
    path = make(utt2spk="a-1 y\na-2 x\nb-1 y\n", spk2utt="x a-2\ny a-1 b-1\n")
    (message,) = messages(path)
    assert message.startswith("utt2spk:2: ")
    assert "('x' comes late)" in message


def test_joiners_and_other_scripts_are_no_problem(make):
    assert messages(make(text="a-1 می\u200cخواهم\na-2 ÉTÉ\nb-1 四\n")) == []


def test_validate_program(make, run):
    path = make(text="a-1 ONE\na-2 TWO\u00a0THREE\nb-1 FOUR\n")
    result = run("validate_data_dir.py", "--no-feats", path, status=1)
    assert "text:2: U+00A0" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("1 errors, 0 warnings; utils/fix_data_dir.py repairs what it can")
    make()
    run("validate_data_dir.py", "--no-feats", path)
    run("validate_data_dir.py", path, status=1)


def test_fix_keeps_what_is_consistent(make, caplog):
    path = make(
        utt2spk="b-1 b\na-1 a\na-2 a\na-3 a\na-4 a\na-5 a\na-1 a\na-6 a\n",
        text=b"a-1\tONE\xc2\xa0ONE \r\na-2 <s>\na-3 CAF\xc9\na-4\nb-1 FOUR\na-6 SIX\nz-9 NINE\n",
        wav="b-1 touch |\na-1 touch a   b |\na-2 touch |\na-3 touch |\na-4 touch |\na-5 touch |\n",
        cmvn="a x:1\nb x:2\nc x:3\n",
        utt2dur="a-1 1.5\n",
    )
    directory, before = fix(path)
    assert (directory.utterances, before) == (["a-1", "b-1"], 7)
    read = {name: (path / name).read_text() for name in ("utt2spk", "spk2utt", "text", "wav.scp", "cmvn.scp")}
    assert read == {
        "utt2spk": "a-1 a\nb-1 b\n",
        "spk2utt": "a a-1\nb b-1\n",
        "text": "a-1 ONE ONE\nb-1 FOUR\n",
        "wav.scp": "a-1 touch a   b |\nb-1 touch |\n",
        "cmvn.scp": "a x:1\nb x:2\n",
    }
    assert not (path / "utt2dur").exists()
    assert (path / ".backup" / "text").read_bytes().startswith(b"a-1\tONE\xc2\xa0")
    for reason in ["'a-2': the word '<s>'", "'a-5': not in text", "'a-6': not in wav.scp", "'z-9': in text (line 7)"]:
        assert reason in caplog.text.replace("recording 'a-6' not", "not")
    assert messages(path) == []


def test_fix_with_segments(make):
    path = make(segments="a-1 r1 0 1\na-2 r2 3 2\nb-1 gone 0 -1\n", wav="r1 touch |\nr2 touch |\nr3 touch |\n")
    fix(path)
    assert (path / "segments").read_text() == "a-1 r1 0 1\n"
    assert (path / "wav.scp").read_text() == "r1 touch |\n"


def test_fix_drops_recordings_that_are_not_there(make, tmp_path, caplog):
    (tmp_path / "there.wav").write_bytes(b"")
    lines = f"a-1 {tmp_path}/there.wav\na-2 {tmp_path}/gone.wav\nb-1 {tmp_path}/there.wav |\n"
    directory, _ = fix(make(wav=lines))
    assert directory.utterances == ["a-1"]
    assert "no such file" in caplog.text and "remove the '|'" in caplog.text


def test_fix_drops_what_its_speaker_or_recording_lacks(make, caplog):
    directory, _ = fix(make(cmvn="a x:1\n"))
    assert directory.utterances == ["a-1", "a-2"]
    assert "dropped 'b-1': speaker 'b': not in cmvn.scp" in caplog.text


def test_fix_drops_a_file_of_nonsense_that_can_be_made_anew(make, caplog):
    directory, _ = fix(make(utt2dur="a-1 1\na-2 x\nb-1 2\n", utt2num_frames="a-1 1\na-2 2\nb-1 2\n"))
    assert directory.utterances == ["a-1", "a-2", "b-1"]
    assert "utt2dur lacks lines or is wrong" in caplog.text
    assert "utt2num_frames" in directory.files and "utt2dur" not in directory.files


def test_fix_backs_up_only_what_changes(make):
    path = make(text="b-1 FOUR\na-1 ONE\na-2 TWO\n")
    fix(path)
    assert [p.name for p in (path / ".backup").iterdir()] == ["text"]


def test_fix_refuses_to_leave_nothing(make):
    path = make(text="x ONE\n")
    with pytest.raises(DataError, match="no utterance is in all of the files") as error:
        fix(path)
    assert "text 1" in str(error.value)
    assert (path / "text").read_text() == "x ONE\n"
    assert not (path / ".backup").exists()


def test_load(make, tmp_path):
    path = make(segments="b-1 r 1 -1\na-2 r 1 2\na-1 r 0 1 1\n", wav="r touch |\n")
    data = DataDir.load(path)
    assert data.utterances == ["a-1", "a-2", "b-1"]
    assert data.spk2utt == {"a": ["a-1", "a-2"], "b": ["b-1"]}
    assert data.text["a-2"] == "TWO THREE"
    assert data.wav == {"r": "touch |"}
    assert (data.segments["b-1"].end, data.segments["a-1"].channel) == (-1, 1)
    make(text="a-1 ONE\na-1 TWO\n")
    with pytest.raises(DataError, match=r"text:2: 'a-1' is also on line 1.*fix_data_dir"):
        DataDir.load(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"found none of utt2spk, segments, wav\.scp"):
        DataDir.load(tmp_path / "empty")
