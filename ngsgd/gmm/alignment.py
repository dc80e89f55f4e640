"""What the alignment and accumulation programs of GMM training do with archives.

One pass over the data may align, accumulate, or do both while the features are at hand.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

import ngsgd.hmm.graphs  # noqa: F401  registers the table kind "fst_arrays"
from ngsgd.errors import DataError
from ngsgd.features.stream import LengthOptions, check_features, read_features, require_most
from ngsgd.gmm.model import read_model
from ngsgd.gmm.stats import Accumulator, write_stats
from ngsgd.gmm.update import boost_silence, parse_phones
from ngsgd.hmm.align import Aligner, AlignOptions, equal_align
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class BoostOptions:
    """Silence made more likely while aligning."""

    boost_silence: float = opt(1.0, "factor on the mixture weights of the silence phones while aligning")
    silence_phones: str = opt("", "colon-separated phones that are boosted")


@dataclasses.dataclass
class EqualOptions:
    """The random choices of equal alignment."""

    seed: int = opt(0, "seed of the paths chosen (with the utterance's name)")


class Tally:
    """Counts utterances done and failed, and frames per second."""

    def __init__(self, verb: str):
        self.verb = verb
        self.done = self.failed = self.retried = self.frames = 0
        self.like = 0.0
        self._start = time.perf_counter()

    def skip(self, key: str, why: object) -> None:
        """Name and count an utterance that is left out."""
        log.warning("skipped %s: %s", key, why)
        self.failed += 1

    def add(self, frames: int, like: float = 0.0, retried: bool = False) -> None:
        """Count an utterance that was done; like: summed log-likelihood."""
        self.done += 1
        self.frames += frames
        self.like += like
        self.retried += retried

    def finish(self, source: str) -> tuple[int, int]:
        """Log the totals; (done, failed). Raises DataError as `require_most`."""
        require_most(self.done, self.failed, source)
        seconds = max(time.perf_counter() - self._start, 1e-9)
        log.info(
            "%s %d frames, %.0f a second; log-likelihood %.4f a frame; %d utterances retried",
            self.verb,
            self.frames,
            self.frames / seconds,
            self.like / max(self.frames, 1),
            self.retried,
        )
        return self.done, self.failed


def align_archive(
    model: str,
    graphs: str,
    feats: str,
    alignments: str,
    options: AlignOptions,
    boost: BoostOptions | None = None,
    stats: str = "",
) -> tuple[int, int]:
    """Align every utterance that has a graph; with `stats` also accumulate from these alignments under the model.

    Silence is boosted for the alignment only. Returns (done, failed).
    """
    transitions, gmm = read_model(model)
    boosted = gmm
    if boost is not None and boost.boost_silence != 1.0:
        boosted = boost_silence(transitions, gmm, parse_phones(boost.silence_phones), boost.boost_silence)
    aligner = Aligner(transitions, options)
    table = RandomReader(feats, "matrix")
    tally = Tally("aligned")
    with ExitStack() as exits:
        out = exits.enter_context(Writer(alignments, "int32_vector"))
        accumulator = Accumulator(gmm, transitions.tid_to_pdf) if stats else None
        for key, graph in SequentialReader(graphs, "fst_arrays"):
            try:
                x = check_features(table[key])
                found = aligner.align(graph, lambda pdfs, x=x: boosted.log_likelihoods(x, pdfs))
                if accumulator is not None:
                    accumulator.add(x, found.tids)
            except DataError as error:
                tally.skip(key, error)
                continue
            out.write(key, found.tids)
            tally.add(len(x), found.acoustic * len(x), found.retried)
        result = tally.finish(graphs)
    if accumulator is not None:
        accumulator.flush()
        write_stats(stats, accumulator.stats)
    return result


def align_equally(graphs: str, feats: str, alignments: str, options: EqualOptions) -> tuple[int, int]:
    """Divide every utterance evenly among the states of a random path through its graph; returns (done, failed)."""
    lengths = RandomReader(feats, "general_matrix")
    tally = Tally("aligned equally")
    with Writer(alignments, "int32_vector") as out:
        for key, graph in SequentialReader(graphs, "fst_arrays"):
            rng = np.random.default_rng([options.seed, zlib.crc32(key.encode())])
            try:
                tids = equal_align(graph, lengths[key].shape[0], rng)
            except DataError as error:
                tally.skip(key, error)
                continue
            out.write(key, tids)
            tally.add(len(tids))
        return tally.finish(graphs)


def add_aligned(accumulator: Any, feats: str, alignments: str, options: LengthOptions, tally: Tally) -> None:
    """`accumulator.add(x, tids)` for every utterance that has an alignment, `tally` counting; then `flush`."""
    table = RandomReader(alignments, "int32_vector")
    shortened = 0
    for key, load in read_features(feats):
        try:
            if key not in table:
                raise DataError("no alignment")
            x, tids = load(), table[key]
            length = options.common(len(x), len(tids))
            accumulator.add(x[:length], tids[:length])
        except DataError as error:
            tally.skip(key, error)
            continue
        shortened += len(x) != len(tids)
        tally.add(length)
    options.warn(shortened)
    accumulator.flush()


def accumulate_archive(
    model: str, feats: str, alignments: str, stats: str, options: LengthOptions, binary: bool = True
) -> tuple[int, int]:
    """Accumulate from alignments; returns (done, failed).

    Utterances without an alignment, or one of another length than the options tolerate, are counted as failed.
    """
    transitions, gmm = read_model(model)
    tally = Tally("accumulated")
    accumulator = Accumulator(gmm, transitions.tid_to_pdf)
    add_aligned(accumulator, feats, alignments, options, tally)
    tally.like = accumulator.stats.total_like
    result = tally.finish(feats)
    write_stats(stats, accumulator.stats, binary)
    return result


def compute_likes(model: str, feats: str, likes: str) -> tuple[int, int]:
    """Write (T, P) log-likelihoods of all pdfs; returns (done, failed)."""
    _, gmm = read_model(model)
    tally = Tally("computed")
    with Writer(likes, "matrix") as out:
        for key, x in _checked(read_features(feats), tally):
            try:
                result = gmm.log_likelihoods(x)
            except DataError as error:
                tally.skip(key, error)
                continue
            out.write(key, result)
            tally.add(len(x))
        return tally.finish(feats)


def _checked(items, tally: Tally) -> Iterator[tuple[str, np.ndarray]]:
    for key, load in items:
        try:
            value = load()
        except DataError as error:
            tally.skip(key, error)
            continue
        yield key, value
