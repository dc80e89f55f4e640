"""The steps that make features: what they leave in a data directory, resuming, damaged input."""

import shutil

import numpy as np
import pytest
import soundfile

from ngsgd.kaldi_io.tables import SequentialReader


@pytest.fixture
def corpus(tmp_path):
    """data/x of five utterances of two speakers."""
    data = tmp_path / "data" / "x"
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = ["a-1", "a-2", "a-3", "b-1", "b-2"]
    for i, name in enumerate(names):
        samples = (rng.standard_normal(4000 + 800 * i) * 1000).astype(np.int16)
        soundfile.write(tmp_path / f"{name}.wav", samples, 16000)
    (data / "wav.scp").write_text("".join(f"{n} {n}.wav\n" for n in names))
    (data / "utt2spk").write_text("".join(f"{n} {n[0]}\n" for n in names))
    (data / "spk2utt").write_text("a a-1 a-2 a-3\nb b-1 b-2\n")
    (data / "text").write_text("".join(f"{n} WORD\n" for n in names))
    (tmp_path / "mfcc.conf").write_text("--use-energy=false\n")
    return tmp_path


def make(run, *more, **kwargs):
    return run("make_mfcc.sh", "--mfcc-config", "mfcc.conf", *more, "data/x", "log", "mfcc", **kwargs)


def snapshot(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}


def test_make_mfcc_and_cmvn(corpus, run):
    make(run, "--nj", "2")
    data = corpus / "data" / "x"
    assert sorted(p.name for p in (corpus / "mfcc").iterdir()) == [
        f"raw_mfcc_x.{job}.{form}" for job in (1, 2) for form in ("ark", "scp")
    ]
    feats = [line.split() for line in (data / "feats.scp").read_text().splitlines()]
    assert [key for key, _ in feats] == ["a-1", "a-2", "a-3", "b-1", "b-2"]
    assert feats[0][1] == "mfcc/raw_mfcc_x.1.ark:4"
    assert (data / "utt2num_frames").read_text().split()[:4] == ["a-1", "23", "a-2", "28"]
    assert (data / "utt2dur").read_text().split()[:2] == ["a-1", "0.25"]
    run("compute_cmvn.sh", "data/x", "log", "mfcc")
    assert [line.split()[0] for line in (data / "cmvn.scp").read_text().splitlines()] == ["a", "b"]
    config = (data / "conf" / "mfcc.conf").read_text()
    assert "--use-energy=false\n" in config
    assert "--num-ceps=13\n" in config
    run("make-mfcc", "--config=data/x/conf/mfcc.conf", "data/x/wav.scp", "ark:again.ark")
    assert (corpus / "again.ark").read_bytes().startswith((corpus / "mfcc" / "raw_mfcc_x.1.ark").read_bytes())
    stats = dict(SequentialReader(f"ark:{corpus}/mfcc/cmvn_x.ark", "matrix"))
    assert stats["a"].shape == (2, 14)
    assert stats["a"][0, -1] == 23 + 28 + 33
    run("validate_data_dir.py", "data/x")


def test_only_what_is_missing_or_changed_is_made_again(corpus, run):
    make(run, "--nj", "2")
    before = snapshot(corpus / "mfcc")
    (corpus / "mfcc" / "raw_mfcc_x.2.scp").unlink()  # as if killed before it appeared
    (corpus / "data" / "x" / "feats.scp").unlink()
    make(run, "--nj", "2")
    after = snapshot(corpus / "mfcc")
    assert {name: content for name, (_, content) in after.items()} == {n: content for n, (_, content) in before.items()}
    assert after["raw_mfcc_x.1.ark"] == before["raw_mfcc_x.1.ark"]
    assert after["raw_mfcc_x.2.ark"] != before["raw_mfcc_x.2.ark"]
    assert (corpus / "data" / "x" / "feats.scp").exists()

    make(run, "--nj", "3")  # other jobs, other parts
    make(run, "--nj", "2")
    assert len((corpus / "data" / "x" / "feats.scp").read_text().splitlines()) == 5
    (corpus / "mfcc.conf").write_text("--use-energy=false\n--num-ceps=12\n")
    make(run, "--nj", "2")
    features = dict(SequentialReader(f"ark:{corpus}/mfcc/raw_mfcc_x.1.ark", "matrix"))
    assert features["a-1"].shape == (23, 12)


def test_more_jobs_than_utterances(corpus, run):
    result = make(run, "--nj", "40")
    assert "40 jobs for 5 utterances" in result.stderr
    assert len((corpus / "data" / "x" / "feats.scp").read_text().splitlines()) == 5


def test_a_bad_recording_is_left_out_and_said(corpus, run):
    (corpus / "a-3.wav").write_bytes(b"")
    result = make(run, "--nj", "1")
    assert "1 of 5 ids of data/x/utt2spk are not in data/x/feats.scp: a-3" in result.stderr
    assert "skipped a-3: a-3.wav: empty" in (corpus / "log" / "make_mfcc_x.1.log").read_text()
    run("compute_cmvn.sh", "data/x", "log", "mfcc")
    run("fix_data_dir.py", "data/x")
    run("validate_data_dir.py", "data/x")
    assert len((corpus / "data" / "x" / "text").read_text().splitlines()) == 4


def test_segments(corpus, run):
    data = corpus / "data" / "x"
    shutil.copy(corpus / "b-2.wav", corpus / "r.wav")
    (data / "wav.scp").write_text("r r.wav\n")
    (data / "segments").write_text(
        "".join(f"{n} r 0.{i} -1\n" for i, n in enumerate(["a-1", "a-2", "a-3", "b-1", "b-2"][:3]))
    )
    (data / "utt2spk").write_text("a-1 a\na-2 a\na-3 a\n")
    (data / "spk2utt").write_text("a a-1 a-2 a-3\n")
    (data / "text").write_text("a-1 W\na-2 W\na-3 W\n")
    make(run, "--nj", "2")
    frames = [int(n) for n in (data / "utt2num_frames").read_text().split()[1::2]]
    assert frames == [43, 33, 23]


def test_failures_are_said(corpus, run):
    assert "none.conf" in run("make_mfcc.sh", "--mfcc-config", "none.conf", "data/x", status=1).stderr
    assert (
        "data/none: no such data directory"
        in run("make_mfcc.sh", "--mfcc-config", "mfcc.conf", "data/none", status=1).stderr
    )
    run("make_mfcc.sh", status=2)
    assert "no such file: data/x/feats.scp" in run("compute_cmvn.sh", "data/x", status=1).stderr
    for i in (1, 2, 3):
        (corpus / f"a-{i}.wav").write_bytes(b"x")
    result = make(run, "--nj", "2", status=None)
    assert result.returncode != 0
    assert "1 of 2 jobs failed" in result.stderr + result.stdout
    assert not (corpus / "data" / "x" / "feats.scp").exists()


def test_unless_done(tmp_path, run):
    (tmp_path / "in").write_text("1")
    command = ["unless_done.sh", "marker", "out", "in", "--", "bash", "-c", "date +%N >> out; [ ! -e fail ]"]
    run(*command)
    first = (tmp_path / "out").read_text()
    assert "done already" in run(*command).stdout
    assert (tmp_path / "out").read_text() == first
    (tmp_path / "in").write_text("2")
    (tmp_path / "fail").touch()
    run(*command, status=1)
    assert not (tmp_path / "marker").exists()
    (tmp_path / "fail").unlink()
    run(*command)
    assert len((tmp_path / "out").read_text().split()) == 3
    run("unless_done.sh", "marker", "out", "none", "--", "true", status=1)
    run("unless_done.sh", "marker", status=2)
