"""Decoding a table of features to words, for a grid of language-model weights and word insertion penalties."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ngsgd.decode.acoustic import read_acoustic_model
from ngsgd.decode.lattice import Lattice
from ngsgd.decode.search import DecodingGraph, SearchOptions, search
from ngsgd.errors import DataError
from ngsgd.features.stream import for_each, read_features
from ngsgd.kaldi_io.posteriors import Posteriors
from ngsgd.kaldi_io.tables import RandomReader, Writer
from ngsgd.lang.symbols import SymbolTable
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class DecodeOptions:
    """What goes in beside features, and which hypotheses come out."""

    min_lmwt: int = opt(7, "lowest language-model weight: the acoustic scale of a hypothesis is one over it")
    max_lmwt: int = opt(17, "highest language-model weight")
    word_penalties: str = opt("0.0,0.5,1.0", "word insertion penalties, in the unit of the graph's costs")
    ivectors: str = opt("", "table (rspecifier) of online i-vectors to append to the features")
    ivector_period: int = opt(10, "frames that one row of --ivectors stands for")
    log_likelihoods: bool = opt(False, "the features are log-likelihoods already; the model gives its transitions")
    num_pdfs: int = opt(0, "refuse a model with another number of pdfs, that of the graph; 0: do not check")
    alignments: str = opt("", "also write the transition-ids of the best paths of the search to this wspecifier")
    posteriors: str = opt(
        "", "also write posteriors of transition-ids, of all paths within the lattice beam, to this one"
    )

    def grid(self) -> list[tuple[int, float]]:
        """(language-model weight, word insertion penalty) of each hypothesis. DataError when there is none."""
        try:
            penalties = [float(word) for word in self.word_penalties.split(",")]
        except ValueError:
            raise DataError(f"--word-penalties: expected numbers with commas, got '{self.word_penalties}'") from None
        if not 1 <= self.min_lmwt <= self.max_lmwt:
            raise DataError(f"expected 1 <= min-lmwt <= max-lmwt, got {self.min_lmwt} and {self.max_lmwt}")
        return [(lmwt, wip) for lmwt in range(self.min_lmwt, self.max_lmwt + 1) for wip in penalties]


def hypothesis_key(lmwt: int, wip: float, utterance: str) -> str:
    """The key of a hypothesis in a table of all of the grid: `LMWT_WIP_UTTERANCE`."""
    return f"{lmwt}_{wip}_{utterance}"


def paste_ivectors(feats: np.ndarray, ivectors: np.ndarray, period: int) -> np.ndarray:
    """(T, D) and (ceil(T / period), E) -> (T, D + E). DataError when the lengths do not go together."""
    if abs(len(ivectors) * period - len(feats)) >= 2 * period:
        raise DataError(f"{len(feats)} frames of features, {len(ivectors)} i-vectors of {period} frames each")
    rows = np.minimum(np.arange(len(feats)) // period, len(ivectors) - 1)
    return np.concatenate((feats, ivectors[rows]), axis=1)


@dataclass
class Timing:
    """Frames and seconds, for the log."""

    frames: int = 0
    likelihoods_s: float = 0.0
    search_s: float = 0.0


def decode(
    model: str, hclg: str, words: str, rspecifier: str, wspecifier: str, options: DecodeOptions, width: SearchOptions
) -> tuple[int, int]:
    """Decode each utterance of a table; returns how many were, and how many could not be.

    Writes for each utterance the words of the best path at each point of the grid, under `hypothesis_key`. An
    utterance that cannot be decoded is named and left out; one that ends in no final state is named and kept.
    """
    width.check()
    grid = options.grid()
    acoustic = read_acoustic_model(model, options.log_likelihoods)
    if options.num_pdfs not in (0, acoustic.transitions.num_pdfs):
        raise DataError(
            f"{hclg} was made for {options.num_pdfs} pdfs, {model} has {acoustic.transitions.num_pdfs}: "
            "decode with a graph of the tree that the model was trained with"
        )
    graph = DecodingGraph.read(hclg, acoustic.transitions)
    symbols = SymbolTable.read(words)
    timing = Timing()
    partial = 0
    with ExitStack() as stack:
        out = stack.enter_context(Writer(wspecifier, "tokens"))
        alignments = stack.enter_context(Writer(options.alignments, "int32_vector")) if options.alignments else None
        posteriors = stack.enter_context(Writer(options.posteriors, "posterior_arrays")) if options.posteriors else None

        def work(utterance: str, feats: np.ndarray) -> None:
            nonlocal partial
            start = time.monotonic()
            loglikes = acoustic.log_likelihoods(feats)
            middle = time.monotonic()
            lattice = search(graph, loglikes, width)
            timing.likelihoods_s += middle - start
            timing.search_s += time.monotonic() - middle
            timing.frames += len(loglikes)
            if not lattice.complete:
                partial += 1
                log.warning("%s: no final state reached, kept the best path so far", utterance)
            for key, hypothesis in _hypotheses(utterance, lattice, grid, symbols):
                out.write(key, hypothesis)
            best = lattice.best_path(width.acoustic_scale)
            cost = best.graph_cost + width.acoustic_scale * best.acoustic_cost
            log.info("%s: cost %.4f a frame over %d frames", utterance, cost / len(loglikes), len(loglikes))
            if alignments:
                alignments.write(utterance, best.transition_ids)
            if posteriors:
                frame, tid, weight = lattice.posteriors(width.acoustic_scale)
                counts = np.bincount(frame, minlength=len(loglikes))
                posteriors.write(utterance, Posteriors(counts, tid, weight))

        done, failed = for_each(_features(rspecifier, options), work)
        log.info(
            "%d frames: likelihoods %.1f s, search %.1f s; %d of %d utterances ended in no final state",
            timing.frames, timing.likelihoods_s, timing.search_s, partial, done,
        )  # fmt: skip
        if not done:
            raise DataError(f"{rspecifier}: nothing decoded" + (f", {failed} failed" if failed else ": it is empty"))
    return done, failed


def _features(rspecifier: str, options: DecodeOptions) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """(utterance, load) with the i-vectors appended where there are some."""
    if not options.ivectors:
        yield from read_features(rspecifier)
        return
    ivectors = RandomReader(options.ivectors, "matrix")

    def pasted(utterance: str, load: Callable[[], np.ndarray]) -> np.ndarray:
        if utterance not in ivectors:
            raise DataError("no i-vectors")
        return paste_ivectors(load(), ivectors[utterance], options.ivector_period)

    for utterance, load in read_features(rspecifier):
        yield utterance, lambda utterance=utterance, load=load: pasted(utterance, load)


def _hypotheses(
    utterance: str, lattice: Lattice, grid: list[tuple[int, float]], symbols: SymbolTable
) -> Iterator[tuple[str, list[str]]]:
    for lmwt, wip in grid:
        path = lattice.best_path(1.0 / lmwt, wip)
        yield hypothesis_key(lmwt, wip, utterance), [symbols.symbol(word) for word in path.words.tolist()]
