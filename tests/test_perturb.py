"""Speed perturbation: lengths, pitch, ids, and what a rerun does."""

import numpy as np
import pytest
import soundfile

from ngsgd.data.datadir import DataDir

RATE = 8000


@pytest.fixture
def source(tmp_path):
    (tmp_path / "src").mkdir()
    tone = (8000 * np.sin(2 * np.pi * 500 * np.arange(2 * RATE) / RATE)).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", tone, RATE)
    for name, text in {
        "wav.scp": f"s-a {tmp_path}/a.wav\ns-b {tmp_path}/missing.wav\n",
        "utt2spk": "s-a s\ns-b s\n",
        "text": "s-a ONE\ns-b TWO\n",
    }.items():
        (tmp_path / "src" / name).write_text(text)
    return tmp_path / "src"


def test_copies(source, run, tmp_path):
    result = run("perturb_speed.py", "--speeds=0.8,1.0,1.25", source, "dst")
    assert "s-b is left out" in result.stderr and "failed 1" in result.stderr
    made = DataDir.load(tmp_path / "dst")
    assert made.utt2spk == {"s-a": "s", "sp0.8-s-a": "sp0.8-s", "sp1.25-s-a": "sp1.25-s"}
    assert set(made.text.values()) == {"ONE"}
    assert made.files["utt2uniq"] == {"s-a": "s-a", "sp0.8-s-a": "s-a", "sp1.25-s-a": "s-a"}
    for utterance, speed in (("s-a", 1), ("sp0.8-s-a", 0.8), ("sp1.25-s-a", 1.25)):
        samples, rate = soundfile.read(made.wav[utterance])
        assert rate == RATE and abs(len(samples) - 2 * RATE / speed) <= 1
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert spectrum.argmax() * RATE / len(samples) == pytest.approx(500 * speed, abs=1)


def test_a_rerun_keeps_what_is_there(source, run, tmp_path):
    run("perturb_speed.py", source, "dst")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "dst").rglob("*") if p.is_file()}
    run("perturb_speed.py", source, "dst")
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "dst").rglob("*") if p.is_file()}


def test_what_an_utterance_is_a_copy_of_survives_further_copies(source, run, tmp_path):
    run("perturb_speed.py", "--speeds=0.8,1.0", source, "slower")
    run("perturb_speed.py", "--speeds=1.0,1.1", "slower", "both")
    run("perturb_volume.py", "both", "louder")
    run("adopt_data_dir.py", "louder", "adopted")
    for name in ("both", "louder", "adopted"):
        originals = DataDir.load(tmp_path / name).files["utt2uniq"]
        assert originals == dict.fromkeys(["s-a", "sp0.8-s-a", "sp1.1-s-a", "sp1.1-sp0.8-s-a"], "s-a")


def test_a_directory_of_copies_from_before_utt2uniq_gets_one_and_keeps_its_features(source, run, tmp_path):
    run("perturb_speed.py", source, "dst")
    (tmp_path / "dst/utt2uniq").unlink()
    (tmp_path / "dst/feats.scp").write_text("".join(f"{u} x:9\n" for u in DataDir.load(tmp_path / "dst").utterances))
    run("perturb_speed.py", source, "dst")
    assert (tmp_path / "dst/feats.scp").is_file()
    assert len(DataDir.load(tmp_path / "dst").files["utt2uniq"]) == 3


@pytest.mark.parametrize("speeds", ["0.1,1", "1,1", "x"])
def test_bad_speeds(source, run, tmp_path, speeds):
    assert "--speeds" in run("perturb_speed.py", f"--speeds={speeds}", source, "dst", status=1).stderr
