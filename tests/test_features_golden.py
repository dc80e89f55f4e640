"""Features and the transforms on them against Kaldi's files; `tests.golden_report` prints the same differences."""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ngsgd.data.wave import read_wave
from ngsgd.features.cmvn import CmvnOptions, accumulate, empty_stats, normalise
from ngsgd.features.mfcc import Mfcc, MfccOptions
from ngsgd.features.transform import DeltaOptions, SpliceOptions, add_deltas, splice, transform
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader, read_scp

SETS = ("train", "train_hires", "test", "test_hires")
HIRES = {"num_mel_bins": 40, "num_ceps": 40, "low_freq": 20, "high_freq": -400}


@functools.cache
def kaldis_mfcc(golden: Path, name: str) -> dict[str, CompressedMatrix]:
    """Kaldi's compressed MFCC of a set."""
    made = {}
    for job in (1, 2):
        made.update(SequentialReader(f"ark:{golden}/feats/raw_mfcc_{name}.{job}.ark", "general_matrix"))
    return made


@functools.cache
def our_mfcc(golden: Path, name: str) -> dict[str, np.ndarray]:
    """Ours of the same recordings, not compressed."""
    kind = Mfcc(MfccOptions(dither=0, use_energy=False, **(HIRES if name.endswith("hires") else {})))
    corpus = golden / "corpus"
    scp = read_scp(str(corpus / name.split("_")[0] / "wav.scp"))
    return {key: kind.compute(*read_wave(str(corpus / path)), key) for key, path in scp}


def before_compression(golden: Path, name: str) -> tuple[float, float]:
    """Largest differences from what Kaldi had before it compressed, in units of an utterance's range of values.

    The header of a compressed matrix keeps minimum and range in full precision, and of each column the smallest and
    largest value and the quartiles in 16 bits (steps of 1.5e-5, so that rounding alone makes 7.6e-6).
    """
    limits = quantiles = 0.0
    ours = our_mfcc(golden, name)
    for key, theirs in kaldis_mfcc(golden, name).items():
        made = ours[key]
        limit = np.abs([made.min() - theirs.minimum, np.ptp(made) - theirs.extent]).max() / theirs.extent
        codes = np.frombuffer(theirs.payload, "<u2", count=4 * theirs.cols).reshape(-1, 4)
        frames = len(made)
        ordered = np.sort(made, axis=0)[[0, frames // 4, 3 * (frames // 4), frames - 1]]
        quantile = np.abs((ordered.T - theirs.minimum) / theirs.extent - codes / 65535).max()
        limits, quantiles = max(limits, float(limit)), max(quantiles, float(quantile))
    return limits, quantiles


def compression_steps(golden: Path, name: str) -> tuple[int, float]:
    """(largest difference of the codes when ours are compressed too, part of the codes that differ)."""
    ours, worst, different, total = our_mfcc(golden, name), 0, 0, 0
    assert list(ours) == list(kaldis_mfcc(golden, name))
    for key, theirs in kaldis_mfcc(golden, name).items():
        made = CompressedMatrix.from_dense(ours[key])
        assert (made.kind, made.shape) == (theirs.kind, theirs.shape)
        codes = [np.frombuffer(m.payload, np.uint8, offset=8 * m.cols).astype(int) for m in (made, theirs)]
        steps = np.abs(codes[0] - codes[1])
        worst, different, total = max(worst, int(steps.max())), different + int((steps > 0).sum()), total + len(steps)
    return worst, different / total


def statistics(golden: Path, part: str) -> float:
    """Largest difference of CMVN statistics by speaker, relative to the largest of theirs."""
    kaldi = dict(SequentialReader(f"ark:{golden}/feats/cmvn_{part}.ark", "matrix"))
    ours = {speaker: empty_stats(13) for speaker in kaldi}
    for key, m in sorted(kaldis_mfcc(golden, part).items()):
        accumulate(ours[key.split("-")[0]], m.to_dense())
    return max(float(np.abs(ours[s] - kaldi[s]).max() / np.abs(kaldi[s]).max()) for s in kaldi)


def transformed(golden: Path) -> Iterator[tuple[str, float]]:
    """(what, largest difference relative to the largest value) of CMVN + deltas, + splice, LDA and MLLT, + fMLLR."""
    stats = dict(SequentialReader(f"ark:{golden}/feats/cmvn_train.ark", "matrix"))
    speaker_of = read_map(str(golden / "corpus" / "train" / "utt2spk"))
    normalised = {
        key: normalise(m.to_dense(), stats[speaker_of[key]], CmvnOptions())
        for key, m in kaldis_mfcc(golden, "train").items()
    }

    def reduced(features: np.ndarray, gmm: str) -> np.ndarray:
        with open_reader(str(golden / "gmm" / gmm / "final.mat")) as reader:
            matrix = reader.matrix()
        return transform(splice(features, SpliceOptions()), matrix)

    trans = {}
    for job in (1, 2):
        trans.update(SequentialReader(f"ark:{golden}/gmm/tri3b_ali/trans.{job}", "matrix"))
    ops = golden / "gmm" / "ops"
    for what, path, function in (
        ("CMVN and deltas", ops / "delta.ark.gz", lambda _, x: add_deltas(x, DeltaOptions())),
        ("CMVN, splice, LDA and MLLT", ops / "lda_mllt.ark.gz", lambda _, x: reduced(x, "tri2b")),
        (
            "CMVN, splice, LDA, MLLT and fMLLR",
            golden / "disc" / "feats12.ark",
            lambda key, x: transform(reduced(x, "tri3b"), trans[speaker_of[key]]),
        ),
    ):
        command = f"ark:gunzip -c {path} |" if path.suffix == ".gz" else f"ark:{path}"
        worst = 0.0
        for key, theirs in SequentialReader(command, "matrix"):
            worst = max(worst, float(np.abs(function(key, normalised[key]) - theirs).max() / np.abs(theirs).max()))
        yield what, worst


@pytest.mark.parametrize("name", SETS)
def test_mfcc_before_compression(golden, name):
    limits, quantiles = before_compression(golden, name)
    assert limits < 1e-5
    assert quantiles < 2e-5


@pytest.mark.parametrize("name", SETS)
def test_mfcc_to_compression_accuracy(golden, name):
    worst, different = compression_steps(golden, name)
    assert worst <= 1
    assert different < 0.002


def test_a_wrong_option_would_be_seen(golden):
    kind = Mfcc(MfccOptions(dither=0, use_energy=False, low_freq=21))
    samples, rate = read_wave(str(golden / "corpus" / dict(read_scp(str(golden / "corpus/test/wav.scp")))["s07-000"]))
    theirs = kaldis_mfcc(golden, "test")["s07-000"]
    made = kind.compute(samples, rate, "s07-000")
    assert abs(np.ptp(made) - theirs.extent) / theirs.extent > 1e-4


@pytest.mark.parametrize("part", ["train", "test"])
def test_cmvn_statistics(golden, part):
    assert statistics(golden, part) == 0


def test_transformed_features(golden):
    found = dict(transformed(golden))
    assert len(found) == 3
    assert max(found.values()) < 1e-5, found
