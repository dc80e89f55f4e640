"""Segments mean the same to every program: past the end, slightly past it, to the end (-1), bad lines."""

import numpy as np
import pytest
import soundfile

from ngsgd.kaldi_io.tables import SequentialReader

RATE = 16000
SECONDS = 2.0
SEGMENTS = {  # utterance -> line behind it, and its length in seconds; None: skipped
    "a-inside": ("r 0.5 1.5", 1.0),
    "a-last": ("r 1.2 2", 0.8),
    "a-clamped": ("r 1.2 2.4", 0.8),
    "a-to-end": ("r 0.25 -1", 1.75),
    "a-whole": ("r 0 -1", 2.0),
    "a-channel": ("r 0 1 0", 1.0),
    "b-begins-past": ("r 2.1 3", None),
    "b-begins-at-end": ("r 2.0 -1", None),
    "b-far-past": ("r 0.5 3", None),
    "b-short": ("r 0.5 0.55", None),
    "b-no-channel": ("r 0 1 3", None),
}
KEPT = {key: length for key, (_, length) in SEGMENTS.items() if length}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    samples = (np.random.default_rng(0).standard_normal(int(SECONDS * RATE)) * 1000).astype(np.int16)
    soundfile.write(tmp_path / "r.wav", samples, RATE)
    (path / "wav.scp").write_text("r r.wav\n")
    keys = sorted(SEGMENTS)
    (path / "segments").write_text("".join(f"{key} {SEGMENTS[key][0]}\n" for key in keys))
    (path / "utt2spk").write_text("".join(f"{key} {key[0]}\n" for key in keys))
    (path / "text").write_text("".join(f"{key} WORD\n" for key in keys))
    return path


def _features(program):
    def lengths(run, tmp_path):
        result = run(program, "--dither=0", "--segments=data/segments", "data/wav.scp", "ark:feats.ark")
        frames = {key: len(feats) for key, feats in SequentialReader(f"ark:{tmp_path}/feats.ark", "matrix")}
        return {key: (n - 1) * 0.01 + 0.025 for key, n in frames.items()}, result.stderr

    return lengths


def _extracted(run, tmp_path):
    result = run("extract-segments", "data/wav.scp", "data/segments", "ark:cut.ark")
    run("wav-to-duration", "ark:cut.ark", "ark,t:durations")
    return _numbers(tmp_path / "durations"), result.stderr


def _perturbed(run, tmp_path):
    result = run("perturb_speed.py", "--speeds=1.0", "data", "copy")
    lines = (tmp_path / "copy" / "wav.scp").read_text().splitlines()
    return {line.split()[0]: soundfile.info(line.split()[1]).duration for line in lines}, result.stderr


def _measured(run, tmp_path):
    result = run("get_utt2dur.py", "data")
    return _numbers(tmp_path / "data" / "utt2dur"), result.stderr


def _numbers(path):
    return {key: float(value) for key, value in map(str.split, path.read_text().splitlines())}


READERS = {
    "make-mfcc": _features("make-mfcc"),
    "make-fbank": _features("make-fbank"),
    "extract-segments": _extracted,
    "perturb_speed.py": _perturbed,
    "get_utt2dur.py": _measured,
}


@pytest.mark.parametrize("reader", READERS)
def test_all_programs_cut_alike(data, run, tmp_path, reader):
    if reader == "get_utt2dur.py":  # reads no samples, and so does not see channels
        lines = (data / "segments").read_text().splitlines(keepends=True)
        (data / "segments").write_text("".join(line for line in lines if "no-channel" not in line))
    found, messages = READERS[reader](run, tmp_path)
    assert found == {key: pytest.approx(length, abs=0.0101) for key, length in KEPT.items()}
    for key in SEGMENTS.keys() - KEPT.keys() - ({"b-no-channel"} if reader == "get_utt2dur.py" else set()):
        assert sum(key in line for line in messages.splitlines()) == 1, (key, messages)


def test_what_is_skipped_is_told_with_both_times(data, run, tmp_path):
    messages = READERS["make-mfcc"](run, tmp_path)[1]
    assert "b-begins-past: the segment begins at 2.1 s, recording r ends at 2.000 s" in messages
    assert "b-far-past: the segment ends at 3 s, recording r at 2.000 s" in messages
    assert "failed 5" in messages
