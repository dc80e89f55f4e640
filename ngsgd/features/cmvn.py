"""Cepstral mean and variance normalisation: statistics and their use, as Kaldi's compute-cmvn-stats and apply-cmvn.

    S = [ Σ_t x_t    T ]        y_t = (x_t - μ) / σ
        [ Σ_t x_t²   0 ]        μ = S₁ / T,  σ² = max(S₂ / T - μ², 1e-20)

    x_t  features of frame t, (D,);  T  number of frames;  S  statistics, (2, D + 1) float64

Statistics add: those of a speaker are the sum over the utterances.

One departure from Kaldi: a column that does not vary (σ² below 1e-8 of the mean square: digital silence) is left at
unit scale; dividing by a floored σ would blow up nothing but rounding errors.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import (
    check_features,
    for_each,
    is_table,
    map_features,
    matrix_finder,
    read_features,
    read_utt2spk,
    require_most,
)
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.kaldi_io.tables import RandomReader, Writer
from ngsgd.options import opt

log = logging.getLogger(__name__)

VARIANCE_FLOOR = 1e-20
CONSTANT_BELOW = 1e-8  # σ² in units of the mean square; single-precision features carry no smaller variance


@dataclass
class CmvnOptions:
    """What is normalised."""

    norm_means: bool = opt(True, "subtract the mean")
    norm_vars: bool = opt(False, "divide by the standard deviation")
    utt2spk: str = opt("", "utt2spk file: the statistics are by speaker")


@dataclass
class StatsOptions:
    """What is summed up."""

    spk2utt: str = opt("", "spk2utt file: sum by speaker instead of by utterance")
    binary: bool = opt(True, "write the sum over everything in binary (a table says it by itself)")


def empty_stats(dim: int) -> np.ndarray:
    """(2, dim + 1) zeros."""
    return np.zeros((2, dim + 1))


def accumulate(stats: np.ndarray, features: np.ndarray) -> None:
    """Add (T, D) features to (2, D + 1) `stats`. Raises DataError for another dimension.

    Squares are single precision and sums double, frame by frame, so that the bytes are Kaldi's.
    """
    dim = stats.shape[1] - 1
    if features.shape[1] != dim:
        raise DataError(f"features of dimension {features.shape[1]}, those before had {dim}")
    features = np.asarray(features, np.float32)
    for row, values in ((0, features), (1, features * features)):
        stats[row, :-1] = np.add.reduce(np.vstack([stats[row, :-1], values]), axis=0)
    stats[0, -1] += len(features)


def stats_of(features: np.ndarray) -> np.ndarray:
    """(2, D + 1) statistics of (T, D) features."""
    stats = empty_stats(features.shape[1])
    accumulate(stats, features)
    return stats


def mean_and_scale(stats: np.ndarray, options: CmvnOptions) -> tuple[np.ndarray, np.ndarray]:
    """(μ (D,), 1/σ (D,)), zeros and ones where not asked for. Raises DataError for statistics of no frames."""
    if stats.ndim != 2 or stats.shape[0] not in (1, 2):
        raise DataError(f"expected statistics of 2 rows, found {' x '.join(map(str, stats.shape))}")
    count = stats[0, -1]
    if count < 1:
        raise DataError(f"statistics of {count:g} frames, expected at least one")
    mean = stats[0, :-1] / count
    scale = np.ones_like(mean)
    if options.norm_vars:
        if not options.norm_means:
            raise DataError("--norm-vars without --norm-means is not possible")
        if stats.shape[0] == 1:
            raise DataError("--norm-vars, and the statistics have no second row")
        square = stats[1, :-1] / count
        variance = np.maximum(square - mean * mean, VARIANCE_FLOOR)
        varies = variance > CONSTANT_BELOW * square
        scale[varies] = 1 / np.sqrt(variance[varies])
    return (mean if options.norm_means else np.zeros_like(mean)), scale


def normalise(features: np.ndarray, stats: np.ndarray, options: CmvnOptions) -> np.ndarray:
    """(T, D) normalised float32 features. Raises DataError as `mean_and_scale`, and for dimensions that differ."""
    if features.shape[1] != stats.shape[1] - 1:
        raise DataError(f"features of dimension {features.shape[1]}, statistics of {stats.shape[1] - 1}")
    mean, scale = mean_and_scale(stats, options)
    scale32 = scale.astype(np.float32)
    return features * scale32 + (-mean * scale).astype(np.float32)


def write_stats(rspecifier: str, target: str, options: StatsOptions) -> tuple[int, int]:
    """Statistics of each utterance, or with --spk2utt of each speaker, to a table; to a plain file those of everything.

    Returns (done, failed) utterances; a speaker without features is left out, with a warning.  Raises DataError when
    nothing or less than half could be done; then nothing is written.
    """
    if not is_table(target):
        return _write_global(rspecifier, target, options.binary)
    with Writer(target, "matrix") as out:
        if not options.spk2utt:
            done, failed = for_each(read_features(rspecifier), lambda key, feats: out.write(key, stats_of(feats)))
        else:
            done, failed = _write_speakers(rspecifier, read_utt2spk(options.spk2utt), out)
        require_most(done, failed, rspecifier)
    return done, failed


def _total(items: Iterable[tuple[str, Callable[[], np.ndarray]]]) -> tuple[np.ndarray | None, int, int]:
    """(statistics or None when nothing was good, done, failed) over (key, load)."""
    stats: list[np.ndarray] = []

    def add(_: str, features: np.ndarray) -> None:
        if not stats:
            stats.append(empty_stats(features.shape[1]))
        accumulate(stats[0], features)

    done, failed = for_each(items, add)
    return (stats[0] if stats else None), done, failed


def _write_speakers(rspecifier: str, spk2utt: dict[str, str], out: Writer) -> tuple[int, int]:
    table = RandomReader(rspecifier, "matrix")
    done = failed = 0
    for speaker, utterances in spk2utt.items():
        stats, speaker_done, speaker_failed = _total(_look_up(table, utterances.split()))
        done, failed = done + speaker_done, failed + speaker_failed
        if stats is None:
            log.warning("no features of speaker %s: no statistics", speaker)
        else:
            out.write(speaker, stats)
    return done, failed


def _look_up(table: RandomReader, utterances: list[str]) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    for utterance in utterances:
        yield utterance, lambda utterance=utterance: check_features(table[utterance])


def _write_global(rspecifier: str, wxfilename: str, binary: bool) -> tuple[int, int]:
    stats, done, failed = _total(read_features(rspecifier))
    require_most(done, failed, rspecifier)
    with open_writer(wxfilename, binary) as out:
        out.matrix(stats)
    return done, failed


def apply(stats: str, rspecifier: str, wspecifier: str, options: CmvnOptions) -> tuple[int, int]:
    """Normalise a table; `stats` is a table by utterance or (--utt2spk) speaker, or a file of one matrix for all."""
    find = matrix_finder(stats, options.utt2spk)
    return map_features(rspecifier, wspecifier, lambda key, features: normalise(features, find(key), options))
