"""Normalisation by statistics that move along the utterance: in a sliding window, and online.

    Sliding: frame t by the statistics of a window of W frames around it (centred), or of those up to it.

    Online:  S_t = window_t + a · speaker + b · global       window_t: frames t - W + 1 ... t, n of them
             a = min(W - n, N_s, n_s) / n_s                  n_s, n_g: frames of the speaker's earlier utterances and of
             b = min(W - n - a n_s, N_g) / n_g               the global statistics; N_s, N_g: how many are used at most

as Kaldi's SlidingWindowCmn and OnlineCmvn. Sums are differences of running sums in double precision, so that a frame
is normalised alike in whatever chunks the features come.

One departure: as in `cmvn`, a column that does not vary within its statistics stays at unit scale.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.cmvn import CONSTANT_BELOW, accumulate, empty_stats
from ngsgd.features.stream import map_features, matrix_finder, read_utt2spk
from ngsgd.kaldi_io.tables import is_table
from ngsgd.options import opt


@dataclass
class SlidingCmvnOptions:
    """Options of sliding normalisation, under Kaldi's names."""

    cmn_window: int = opt(600, "frames in the window")
    min_cmn_window: int = opt(100, "frames at the start of an utterance that are normalised by at least as many")
    norm_vars: bool = opt(False, "divide by the standard deviation")
    center: bool = opt(False, "the window is centred on the frame; false: it ends there")


@dataclass
class OnlineCmvnOptions:
    """Options of online normalisation, under Kaldi's names."""

    cmn_window: int = opt(600, "frames in the window, the present one the last")
    speaker_frames: int = opt(600, "frames of the speaker's earlier utterances that fill up the window, at most")
    global_frames: int = opt(200, "frames of the global statistics that fill up the rest, at most")
    norm_means: bool = opt(True, "subtract the mean")
    norm_vars: bool = opt(False, "divide by the standard deviation")
    spk2utt: str = opt("", "spk2utt file: what was heard of a speaker is used in the utterances that follow")

    def check(self) -> None:
        """DataError for sizes that make no sense."""
        if self.cmn_window < 1 or self.speaker_frames < 0 or self.global_frames < 0:
            raise DataError("expected --cmn-window of at least 1, --speaker-frames and --global-frames of at least 0")
        if self.norm_vars and not self.norm_means:
            raise DataError("--norm-vars without --norm-means is not possible")


class RunningSums:
    """Sums Σ x and Σ x² over any of the last frames, (n, 2, D) for n windows; float64."""

    def __init__(self, dim: int, window: int):
        self._window = window
        self._sums = np.zeros((1, 2, dim))  # of the frames before each, from `_from` on
        self._from = 0

    @property
    def frames(self) -> int:
        """So far."""
        return self._from + len(self._sums) - 1

    def add(self, features: np.ndarray) -> None:
        """Take in (n, D) frames; of earlier ones the last `window` stay within reach."""
        values = np.asarray(features, np.float32).astype(np.float64)
        kept = max(0, len(self._sums) - self._window - 1)
        self._sums, self._from = self._sums[kept:], self._from + kept
        new = np.stack([values, values * values], axis=1)
        running = np.cumsum(np.concatenate([self._sums[-1:], new]), axis=0)
        self._sums = np.concatenate([self._sums[:-1], running])

    def between(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """(n, 2, D): of frames first[i] ... end[i] - 1."""
        return self._sums[end - self._from] - self._sums[first - self._from]


def normalise_frames(
    features: np.ndarray, sums: np.ndarray, counts: np.ndarray, norm_means: bool, norm_vars: bool
) -> np.ndarray:
    """(T, D) float32 features, each frame by sums (T, 2, D) of its own over counts (T,) frames."""
    if not norm_means:
        return np.asarray(features, np.float32)
    mean = sums[:, 0] / counts[:, None]
    centred = features - mean
    if norm_vars:
        square = sums[:, 1] / counts[:, None]
        variance = square - mean * mean
        varies = variance > CONSTANT_BELOW * square
        centred *= 1 / np.sqrt(np.where(varies, variance, 1.0))
    return centred.astype(np.float32)


def normalise_sliding(features: np.ndarray, options: SlidingCmvnOptions) -> np.ndarray:
    """(T, D) -> (T, D) float32. Raises DataError for windows that make no sense."""
    window = options.cmn_window
    if window < 1 or options.min_cmn_window < 1:
        raise DataError("expected --cmn-window and --min-cmn-window of at least 1")
    frames = len(features)
    t = np.arange(frames)
    if options.center:
        first = t - window // 2
        end = first + window
    else:
        first, end = t - window, t + 1
    end = np.where(first < 0, end - first, end)
    first = np.maximum(first, 0)
    if not options.center:
        end = np.where(end > t, np.maximum(t + 1, options.min_cmn_window), end)
    first = np.where(end > frames, np.maximum(first - (end - frames), 0), first)
    end = np.minimum(end, frames)
    sums = RunningSums(features.shape[1], frames)
    sums.add(features)
    return normalise_frames(features, sums.between(first, end), end - first, True, options.norm_vars)


class OnlineCmvn:
    """Normalises the features of an utterance as they come.

    global_stats: (2, D + 1), as of compute-cmvn-stats.  speaker_stats: the same of the speaker's earlier utterances.
    After the utterance, `speaker_stats` holds these and it.  Raises DataError for statistics that do not fit.
    """

    def __init__(self, global_stats: np.ndarray, options: OnlineCmvnOptions, speaker_stats: np.ndarray | None = None):
        options.check()
        if global_stats.ndim != 2 or global_stats.shape[0] != 2 or not global_stats[0, -1] > 0:
            raise DataError("global statistics: expected two rows, of at least one frame")
        dim = global_stats.shape[1] - 1
        self._options = options
        self._global = global_stats
        self._before = empty_stats(dim) if speaker_stats is None else speaker_stats
        if self._before.shape != global_stats.shape:
            raise DataError(f"statistics of dimension {self._before.shape[1] - 1} of the speaker, {dim} global ones")
        self.speaker_stats = self._before.copy()
        self._sums = RunningSums(dim, options.cmn_window)
        self._frozen: tuple[np.ndarray, float] | None = None

    def accept(self, features: np.ndarray) -> np.ndarray:
        """The next (n, D) frames normalised, float32. Raises DataError for another dimension."""
        if features.shape[1] != self._global.shape[1] - 1:
            raise DataError(
                f"features of dimension {features.shape[1]}, global statistics of {self._global.shape[1] - 1}"
            )
        if not len(features):
            return np.zeros(features.shape, np.float32)
        accumulate(self.speaker_stats, features)
        start = self._sums.frames
        self._sums.add(features)
        if self._frozen is None:
            sums, counts = self._statistics(np.arange(start, self._sums.frames))
        else:
            sums = np.broadcast_to(self._frozen[0], (len(features), *self._frozen[0].shape))
            counts = np.full(len(features), self._frozen[1])
        return normalise_frames(features, sums, counts, self._options.norm_means, self._options.norm_vars)

    def freeze(self) -> None:
        """From here on, the statistics of the last frame are used for all."""
        last = max(self._sums.frames - 1, -1)
        sums, counts = self._statistics(np.array([last]))
        self._frozen = sums[0], float(counts[0])

    def _statistics(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sums (n, 2, D), counts (n,)) for frames t."""
        options = self._options
        end = t + 1
        first = np.maximum(end - options.cmn_window, 0)
        sums, counts = self._sums.between(first, end), (end - first).astype(np.float64)
        for stats, at_most in (
            (self._before, min(options.speaker_frames, self._before[0, -1])),
            (self._global, options.global_frames),
        ):
            if not stats[0, -1]:
                continue
            added = np.minimum(options.cmn_window - counts, at_most)
            sums = sums + (added / stats[0, -1])[:, None, None] * stats[:, :-1]
            counts = counts + added
        if not counts.all():
            raise DataError("no statistics for the first frame: --global-frames or --speaker-frames must be above 0")
        return sums, counts


def apply_sliding(rspecifier: str, wspecifier: str, options: SlidingCmvnOptions) -> tuple[int, int]:
    """Normalise a table; returns (done, failed). Raises DataError as `map_features`."""
    return map_features(rspecifier, wspecifier, lambda _, features: normalise_sliding(features, options))


def apply_online(stats: str, rspecifier: str, wspecifier: str, options: OnlineCmvnOptions) -> tuple[int, int]:
    """Normalise a table by the global statistics in file `stats`; with --spk2utt each speaker's utterances in the order
    of the table carry on what was heard of the speaker. Returns (done, failed); raises DataError as `map_features`."""
    if is_table(stats):
        raise DataError(f"expected a file of global statistics, got the table '{stats}'")
    global_stats = matrix_finder(stats)("")
    speaker_of = dict(_speakers(read_utt2spk(options.spk2utt))) if options.spk2utt else {}
    heard: dict[str, np.ndarray] = {}

    def normalised(utterance: str, features: np.ndarray) -> np.ndarray:
        if options.spk2utt and utterance not in speaker_of:
            raise DataError(f"not in {options.spk2utt}")
        speaker = speaker_of.get(utterance)
        cmvn = OnlineCmvn(global_stats, options, heard.get(speaker))
        result = cmvn.accept(features)
        if speaker is not None:
            heard[speaker] = cmvn.speaker_stats
        return result

    return map_features(rspecifier, wspecifier, normalised)


def _speakers(spk2utt: dict[str, str]) -> Iterator[tuple[str, str]]:
    for speaker, utterances in spk2utt.items():
        for utterance in utterances.split():
            yield utterance, speaker
