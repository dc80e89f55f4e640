"""Making training examples from features and alignments.

Agrees with Kaldi's nnet-get-egs: an utterance is cut into stretches of n frames, the last one shorter; each becomes an
example with L and R frames of context, the first and last frame repeated beyond the ends. The key is
`UTTERANCE-FIRSTFRAME`. With i-vectors, an example has the mean of those of its input frames.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ngsgd.egs.example import NnetExample
from ngsgd.errors import DataError
from ngsgd.features.stream import LengthOptions, for_each, read_features, require_most
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.tables import RandomReader, Writer
from ngsgd.options import opt

log = logging.getLogger(__name__)

_DRAWS = 1 << 64


@dataclass
class MakeEgsOptions(LengthOptions):
    """How utterances are cut into examples."""

    left_context: int = opt(4, "frames of input to the left of the labelled ones")
    right_context: int = opt(4, "frames of input to the right of the labelled ones")
    num_frames: int = opt(8, "labelled frames of an example")
    model: str = opt("", "take the alignments for transition-ids of this model, and label with their pdfs")
    ivectors: str = opt("", "table (rspecifier) of online i-vectors, one row for each ivector-period frames")
    ivector_period: int = opt(10, "frames that one row of --ivectors stands for")
    keep: float = opt(1.0, "make only this proportion of the examples, chosen by their keys")
    num_archives: int = opt(0, "spread the examples over so many archives; 0: as many as outputs", at_least=1)
    archives: str = opt("", "numbers, from 1, of the archives that are wanted: one an output; none: all of them")
    seed: int = opt(0, "seed of the distribution over archives, and of the choice by --keep")

    def keeps(self, key: str) -> bool:
        """Whether the example of this key is of the proportion to make."""
        return self.keep >= 1 or _draw(key, self.seed, b"keep") < self.keep * _DRAWS

    def check(self) -> None:
        """DataError for sizes that make no sense."""
        if min(self.left_context, self.right_context, self.length_tolerance) < 0:
            raise DataError("contexts and tolerance are frames, 0 or more")
        if self.num_frames < 1 or self.ivector_period < 1:
            raise DataError("--num-frames and --ivector-period are frames, 1 or more")
        if not 0 < self.keep <= 1:
            raise DataError(f"--keep: expected a proportion above 0, at most 1, got {self.keep}")

    def places(self, outputs: int) -> list[int | None]:
        """For each archive, the output (from 0) that gets it, or None. DataError where they do not fit `outputs`."""
        number = self.num_archives or outputs
        wanted = self.archives.split(",") if self.archives else [str(n + 1) for n in range(number)]
        if len(wanted) != outputs:
            raise DataError(f"expected an output for each of {len(wanted)} archives, got {outputs}")
        places: list[int | None] = [None] * number
        for place, word in enumerate(wanted):
            if not word.isdecimal() or not 1 <= int(word) <= number or places[int(word) - 1] is not None:
                raise DataError(f"--archives: expected different numbers from 1 to {number}, got '{self.archives}'")
            places[int(word) - 1] = place
        return places


def _everything(_: str) -> bool:
    return True


def cut(
    utterance: str,
    feats: np.ndarray,
    pdfs: np.ndarray,
    options: MakeEgsOptions,
    ivectors: np.ndarray | None = None,
    wants: Callable[[str], bool] = _everything,
) -> Iterator[tuple[str, NnetExample]]:
    """(key, example) of one utterance. feats (T, D); pdfs (T,) int32; ivectors (ceil(T / period), E) or None.

    wants: whether the example of this key is to be made.
    """
    starts = {f"{utterance}-{t}": t for t in range(0, len(feats), options.num_frames)}
    wanted = {key: t for key, t in starts.items() if wants(key)}
    inputs = _inputs(feats, np.array(list(wanted.values()), np.int64), options)
    for (key, t), matrix in zip(wanted.items(), inputs):
        labels = [[(pdf, 1.0)] for pdf in pdfs[t : t + options.num_frames].tolist()]
        speaker = np.zeros(0, np.float32)
        if ivectors is not None:
            frames = np.clip(np.arange(matrix.rows) + t - options.left_context, 0, len(feats) - 1)
            speaker = _mean(ivectors[np.minimum(frames // options.ivector_period, len(ivectors) - 1)])
        yield key, NnetExample(labels, matrix, options.left_context, speaker)


def _inputs(feats: np.ndarray, starts: np.ndarray, options: MakeEgsOptions) -> Iterator[CompressedMatrix]:
    """The input of the examples that begin at frames `starts`; the last one may be shorter than the others."""
    from ngsgd.egs import kernels

    feats = np.ascontiguousarray(feats, np.float32)
    whole = starts + options.num_frames <= len(feats)
    for part in (starts[whole], starts[~whole]):
        if not len(part):
            continue
        labelled = min(options.num_frames, len(feats) - part[0])
        rows = int(options.left_context + labelled + options.right_context)
        kind = "CM" if rows > 8 else "CM2"
        out = np.empty((len(part), 16 + CompressedMatrix.payload_size(kind, rows, feats.shape[1])), np.uint8)
        kernels.encode(feats, part - options.left_context, rows, out)
        ranges = out[:, :8].copy().view("<f4").tolist()
        for (minimum, extent), entry in zip(ranges, out):
            yield CompressedMatrix(kind, minimum, extent, rows, feats.shape[1], entry[16:].tobytes())


def _mean(rows: np.ndarray) -> np.ndarray:
    """Mean in float32, summed in Kaldi's order."""
    share = np.float32(1.0 / len(rows))
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total += share * row
    return total


def _draw(key: str, seed: int, purpose: bytes) -> int:
    """0 .. _DRAWS − 1, all as likely, given by key, seed and purpose."""
    salt = seed.to_bytes(8, "little", signed=True)
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, salt=salt, person=purpose).digest(), "little")


def archive_of(key: str, num_archives: int, seed: int) -> int:
    """The archive, 0..num_archives-1, that an example belongs to: by its key, so whoever makes it."""
    return _draw(key, seed, b"archive") % num_archives


def make_egs(
    feats_rspecifier: str, alignment_rspecifier: str, wspecifiers: list[str] | tuple[str, ...], options: MakeEgsOptions
) -> tuple[int, int]:
    """Examples of all utterances, spread over archives by `archive_of`. Returns utterances done and failed.

    An utterance without an alignment or i-vectors, of another length, or with values that are not finite is named,
    counted and left out. Raises DataError when nothing was done or most failed; then no output appears.
    """
    options.check()
    places = options.places(len(wspecifiers))
    to_pdf = _pdfs_of(options.model)
    alignments = RandomReader(alignment_rspecifier, "int32_vector")
    ivectors = RandomReader(options.ivectors, "matrix") if options.ivectors else None
    shortened = examples = 0

    def place(key: str) -> int | None:
        return places[archive_of(key, len(places), options.seed)]

    def wants(key: str) -> bool:
        return options.keeps(key) and place(key) is not None

    with ExitStack() as stack:
        writers = [stack.enter_context(Writer(w, "nnet_example")) for w in wspecifiers]

        def work(utterance: str, feats: np.ndarray) -> None:
            nonlocal shortened, examples
            if utterance not in alignments:
                raise DataError("no alignment")
            pdfs = to_pdf(alignments[utterance])
            length = options.common(len(feats), len(pdfs))
            shortened += len(feats) != len(pdfs)
            rows = None if ivectors is None else _ivectors_for(utterance, length, ivectors, options.ivector_period)
            for key, example in cut(utterance, feats[:length], pdfs[:length], options, rows, wants):
                writers[place(key)].write(key, example)
                examples += 1

        done, failed = for_each(read_features(feats_rspecifier), work)
        options.warn(shortened)
        log.info("wrote %d examples of %d utterances to %d archives", examples, done, len(writers))
        require_most(done, failed, feats_rspecifier)
    return done, failed


def _ivectors_for(utterance: str, length: int, ivectors: RandomReader, period: int) -> np.ndarray:
    if utterance not in ivectors:
        raise DataError("no i-vectors")
    rows = ivectors[utterance]
    if abs(len(rows) * period - length) >= 2 * period:
        raise DataError(f"{length} frames of features, {len(rows)} i-vectors of {period} frames each")
    return rows


def _pdfs_of(model: str) -> Callable[[np.ndarray], np.ndarray]:
    """From the integers of an alignment to pdfs: nothing to do, or the transition-ids of the model."""
    if not model:
        return lambda alignment: alignment
    from ngsgd.hmm.transitions import read_transition_model

    transitions = read_transition_model(model)

    def convert(alignment: np.ndarray) -> np.ndarray:
        top = transitions.num_transition_ids
        if len(alignment) and not 1 <= alignment.min() <= alignment.max() <= top:
            raise DataError(f"transition-ids {alignment.min()}..{alignment.max()}, the model has 1..{top}")
        return transitions.tid_to_pdf[alignment].astype(np.int32)

    return convert
