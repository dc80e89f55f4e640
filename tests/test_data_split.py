"""Splitting, choosing and joining parts of data directories."""

import pytest

from ngsgd.data.datadir import DataDir
from ngsgd.data.join import JoinOptions, join
from ngsgd.data.split import LimitOptions, balanced, limit_jobs, split
from ngsgd.data.subset import SubsetOptions, subset, ways
from ngsgd.errors import DataError

SIZES = {"a": 5, "b": 1, "c": 1, "d": 7}  # utterances of each speaker


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    utterances = [(f"{s}-{i}", s) for s, n in SIZES.items() for i in range(n)]
    (path / "utt2spk").write_text("".join(f"{u} {s}\n" for u, s in utterances))
    (path / "text").write_text("".join(f"{u} W{u}\n" for u, s in utterances))
    (path / "segments").write_text(
        "".join(f"{u} rec-{s} {i} {i + 1 + (u[-1] == '0')}\n" for i, (u, s) in enumerate(utterances))
    )
    (path / "wav.scp").write_text("".join(f"rec-{s} {s}.wav\n" for s in SIZES))
    (path / "cmvn.scp").write_text("".join(f"{s} c.ark:{i}\n" for i, s in enumerate(SIZES)))
    return path


def parts(target, jobs):
    return [DataDir.load(target / str(j)) for j in range(1, jobs + 1)]


def test_split_keeps_speakers_together(data):
    target = split(data, 2)
    assert target == data / "split2"
    first, second = parts(target, 2)
    assert list(first.spk2utt) == ["a", "b", "c"]
    assert list(second.spk2utt) == ["d"]
    assert list(second.wav) == ["rec-d"]
    assert second.files["cmvn.scp"] == {"d": "c.ark:3"}
    assert len(second.text) == len(second.segments) == 7
    assert (target / "2" / "spk2utt").read_text() == "d " + " ".join(f"d-{i}" for i in range(7)) + "\n"


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 5, 9, 14])
@pytest.mark.parametrize("per_utterance", [False, True])
def test_parts_make_up_the_whole_and_none_is_empty(data, jobs, per_utterance):
    target = split(data, jobs, "per_utt" if per_utterance else "per_spk")
    found = [p.utterances for p in parts(target, jobs)]
    assert all(found)
    assert [u for f in found for u in f] == DataDir.load(data).utterances
    if per_utterance:
        assert {len(f) for f in found} <= {14 // jobs, -(-14 // jobs)}


def test_more_jobs_than_speakers_or_utterances(data, caplog):
    split(data, 5)
    assert "5 jobs for 4 speakers" in caplog.text
    with pytest.raises(DataError, match="15 jobs for 14 utterances"):
        split(data, 15)
    assert limit_jobs(data, 15, LimitOptions()) == 14
    assert "15 jobs for 14 utterances" in caplog.text
    assert limit_jobs(data, 15, LimitOptions(per_spk=True)) == 4
    assert limit_jobs(data, 3, LimitOptions()) == 3


def test_split_keeps_recordings_together(data, caplog, run):
    (data / "segments").write_text((data / "segments").read_text().replace("rec-b", "rec-d"))
    run("split_data_dir.py", "--per-reco", data, 2)
    first, second = parts(data / "split2reco", 2)
    assert (list(first.wav), list(second.wav)) == (["rec-a"], ["rec-c", "rec-d"])
    assert "b-0" in second.utterances
    split(data, 4, "per_reco")
    assert "4 jobs for 3 recordings" in caplog.text
    assert "--per-utt and --per-reco" in run("split_data_dir.py", "--per-reco", "--per-utt", data, 2, status=1).stderr


def test_splitting_again_touches_only_what_changed(data):
    target = split(data, 2)
    before = {p: p.stat().st_mtime_ns for p in target.rglob("*") if p.is_file()}
    (data / "text").write_text((data / "text").read_text().replace("Wa-0", "CHANGED"))
    (data / "cmvn.scp").unlink()
    split(data, 2)
    changed = {str(p.relative_to(target)) for p, t in before.items() if not p.exists() or p.stat().st_mtime_ns != t}
    assert changed == {"1/text", "1/cmvn.scp", "2/cmvn.scp"}
    assert not (target / "1" / "cmvn.scp").exists()


def test_balanced_cuts_are_near_the_shares():
    assert balanced([1] * 10, 4) == [(0, 3), (3, 5), (5, 8), (8, 10)]
    assert balanced([100, 1, 1], 3) == [(0, 1), (1, 2), (2, 3)]
    assert balanced([1, 1, 100], 2) == [(0, 2), (2, 3)]


@pytest.mark.parametrize(
    ("options", "number", "expected"),
    [
        ({"first": True}, 3, ["a-0", "a-1", "a-2"]),
        ({"last": True}, 2, ["d-5", "d-6"]),
        ({"shortest": True}, 3, ["a-1", "a-2", "a-3"]),
    ],
)
def test_subsets(data, tmp_path, options, number, expected):
    part = subset(data, tmp_path / "part", number, SubsetOptions(**options))
    assert part.utterances == expected
    assert DataDir.load(tmp_path / "part").files == part.files


def test_random_subsets_repeat_and_differ_by_seed(data, tmp_path):
    chosen = [subset(data, tmp_path / "part", 5, SubsetOptions(seed=s)).utterances for s in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]) == 5


def test_subsets_by_speaker(data, tmp_path, caplog):
    part = subset(data, tmp_path / "part", 2, SubsetOptions(per_spk=True))
    assert {s: len(u) for s, u in part.spk2utt.items()} == {"a": 2, "b": 1, "c": 1, "d": 2}
    assert "speaker 'b' has 1 utterances, 2 asked for" in caplog.text
    part = subset(data, tmp_path / "part", 6, SubsetOptions(speakers=True))
    assert len(part.utterances) >= 6
    assert all(len(u) == SIZES[s] for s, u in part.spk2utt.items())


def test_subsets_by_list(data, tmp_path, caplog):
    (tmp_path / "ids").write_text("d-0 x\na-1\nnobody\n")
    part = subset(data, tmp_path / "part", None, SubsetOptions(utt_list=str(tmp_path / "ids")))
    assert part.utterances == ["a-1", "d-0"]
    assert list(part.wav) == ["rec-a", "rec-d"]
    assert "1 of 3 ids are not in" in caplog.text
    (tmp_path / "ids").write_text("b\nc\n")
    part = subset(data, tmp_path / "part", None, SubsetOptions(spk_list=str(tmp_path / "ids")))
    assert part.utterances == ["b-0", "c-0"]


def test_subsets_shrink_and_are_never_empty(data, tmp_path, caplog):
    for way in ways:
        options = SubsetOptions() if way == "random" else SubsetOptions(**{way: True})
        assert len(subset(data, tmp_path / way, 100, options).utterances) == 14
    assert "100 utterances asked for, 14 there: taking all" in caplog.text
    (tmp_path / "ids").write_text("nobody\n")
    with pytest.raises(DataError, match="no utterance chosen"):
        subset(data, tmp_path / "none", None, SubsetOptions(utt_list=str(tmp_path / "ids")))
    with pytest.raises(DataError, match="--first and --per-spk"):
        subset(data, tmp_path / "none", 1, SubsetOptions(first=True, per_spk=True))
    assert not (tmp_path / "none").exists()


def test_join(tmp_path, caplog):
    (tmp_path / "1").write_text("b x:1\na x:2\n")
    (tmp_path / "2").write_text("c x 3\n")
    (tmp_path / "ids").write_text("a\nb\nc\nd\n")
    sources = [str(tmp_path / "1"), str(tmp_path / "2")]
    join(str(tmp_path / "out"), sources, JoinOptions(expect=str(tmp_path / "ids")))
    assert (tmp_path / "out").read_text() == "a x:2\nb x:1\nc x 3\n"
    assert "1 of 4 ids" in caplog.text
    with pytest.raises(DataError, match=r"'b' is in .*1 and in .*1"):
        join(str(tmp_path / "out2"), [sources[0], sources[0]], JoinOptions())
    (tmp_path / "ids").write_text("e\nf\ng\n")
    with pytest.raises(DataError, match="3 of 3 ids"):
        join(str(tmp_path / "out2"), sources, JoinOptions(expect=str(tmp_path / "ids")))
    assert not (tmp_path / "out2").exists()


def test_programs(data, tmp_path, run):
    run("split_data_dir.py", data, 2)
    run("split_data_dir.py", "--per-utt", data, 3)
    assert (data / "split3utt" / "3" / "utt2spk").exists()
    assert run("limit_jobs.py", data, 99).stdout == "14\n"
    run("split_data_dir.py", data, 0, status=2)
    run("split_data_dir.py", data, 99, status=1)
    run("subset_data_dir.py", "--first", data, 3, tmp_path / "x")
    assert (tmp_path / "x" / "utt2spk").read_text() == "a-0 a\na-1 a\na-2 a\n"
    run("subset_data_dir.py", "--first", data, tmp_path / "y", status=2)
    assert run("utt2spk_to_spk2utt.py", stdin="b-1 b\na-2 a\na-1 a\n").stdout == "a a-1 a-2\nb b-1\n"
    run("utt2spk_to_spk2utt.py", stdin="b-1\n", status=1)
