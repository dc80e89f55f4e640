"""Forced alignment: which transition of its training graph each frame took.

The graphs carry transition-ids, and no transition probabilities: they are added here, so that those of the current
model count. The cost of a path is

    - sum_t [ acoustic_scale log p(x_t | pdf_t) + scaled log transition probability ]                           (1)

with the scales of TransitionModel.scaled_log_prob. Agrees with Kaldi's gmm-align-compiled (beam, retry, careful).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.viterbi import Searcher
from ngsgd.kaldi_io.fst import FstArrays
from ngsgd.options import opt


@dataclasses.dataclass
class AlignOptions:
    """How utterances are aligned; scales and beams are those of Kaldi's training scripts."""

    beam: float = opt(10.0, "paths that cost this much more than the best are dropped", above=0)
    retry_beam: float = opt(40.0, "beam of a second attempt when the first reaches no end; 0: none", at_least=0)
    careful: bool = opt(False, "refuse utterances that go on after their transcript (rather than squeeze it all in)")
    transition_scale: float = opt(1.0, "scale of transition log-probabilities, other than of self-loops", at_least=0)
    acoustic_scale: float = opt(0.1, "scale of acoustic log-likelihoods", above=0)
    self_loop_scale: float = opt(0.1, "scale of the log-probabilities of staying in and leaving a state", at_least=0)


@dataclasses.dataclass
class Alignment:
    """tids (T,) int32 transition-ids; acoustic: mean log-likelihood per frame, unscaled; retried: with retry_beam."""

    tids: np.ndarray
    acoustic: float
    retried: bool


class Aligner:
    """Aligns utterances under one transition model."""

    def __init__(self, transitions: TransitionModel, options: AlignOptions):
        if options.beam <= 0 or 0 < options.retry_beam <= options.beam:
            raise DataError(f"beams make no sense: beam {options.beam:g}, retry-beam {options.retry_beam:g}")
        self.options = options
        self._transitions = transitions
        self._cost = -transitions.scaled_log_prob(options.transition_scale, options.self_loop_scale)
        self._search = Searcher()

    def align(self, graph: FstArrays, likelihoods: Callable[[np.ndarray], np.ndarray]) -> Alignment:
        """Align one utterance.

        Args:
            graph: the training graph; its input labels are transition-ids, 0 for none.
            likelihoods: called with the sorted pdfs (K,) of the graph, returns their log-likelihoods (T, K) float32.

        Raises DataError saying why there is no alignment.
        """
        tids = graph.ilabel
        if graph.start < 0 or not len(tids):
            raise DataError("its training graph is empty")
        if tids.max() >= len(self._cost):
            raise DataError(
                f"its graph has transition-id {tids.max()}, the model {len(self._cost) - 1}: "
                "graphs and model do not belong together"
            )
        pdfs, column = np.unique(self._transitions.tid_to_pdf[tids[tids > 0]], return_inverse=True)
        columns = np.full(len(tids), -1, dtype=np.int32)
        columns[tids > 0] = column
        loglikes = likelihoods(pdfs)
        if loglikes.shape[1] != len(pdfs):
            raise DataError(f"{loglikes.shape[1]} log-likelihoods a frame for {len(pdfs)} pdfs")
        scores = np.ascontiguousarray(np.float32(self.options.acoustic_scale) * loglikes, dtype=np.float32)
        if not np.isfinite(scores).all():
            raise DataError("a log-likelihood is no finite number")
        weighted = dataclasses.replace(graph, weight=graph.weight + self._cost[tids])
        if self.options.careful:
            weighted, columns = _repeated(weighted, columns)

        path = self._search(weighted, columns, scores, self.options.beam)
        retried = path is None and self.options.retry_beam > 0
        if retried:
            path = self._search(weighted, columns, scores, self.options.retry_beam)
        if path is None:
            raise DataError(self._why_not(graph, len(scores)))
        acoustic = float(loglikes[np.arange(len(path)), columns[path]].mean())
        return Alignment(weighted.ilabel[path], acoustic, retried)

    def _why_not(self, graph: FstArrays, num_frames: int) -> str:
        needed = min_frames(graph)
        if num_frames < needed:
            return f"{num_frames} frames are too short for its transcript, which needs at least {needed}"
        beam = max(self.options.beam, self.options.retry_beam)
        return f"no path through its transcript within beam {beam:g}: transcript and recording may differ"


def _repeated(graph: FstArrays, column: np.ndarray) -> tuple[FstArrays, np.ndarray]:
    """The graph followed by a copy of itself in which nothing may end, and the columns of its arcs.

    Audio that goes on after the transcript then takes the path into the copy, and no final state is reached.
    """
    states = graph.num_states
    gate = 2 * states  # the only final state, between the two
    ends = np.flatnonzero(np.isfinite(graph.final))
    source = np.concatenate([graph.source, graph.source + states, ends, [gate]])
    gates = np.full(len(ends), gate)
    target = np.concatenate([graph.nextstate, graph.nextstate + states, gates, [graph.start + states]])
    weight = np.concatenate([graph.weight, graph.weight, graph.final[ends], [0.0]])
    free = np.zeros(len(ends) + 1, dtype=np.int32)
    ilabel = np.concatenate([graph.ilabel, graph.ilabel, free])
    columns = np.concatenate([column, column, free - 1]).astype(np.int32)
    final = np.full(gate + 1, np.inf, dtype=np.float32)
    final[gate] = 0.0
    order = np.argsort(source, kind="stable")
    return FstArrays.from_arcs(graph.start, final, source, ilabel, ilabel, weight, target), columns[order]


def min_frames(graph: FstArrays) -> int:
    """The fewest frames in which the graph can be passed; a huge number when it cannot."""
    distance = np.full(graph.num_states, np.iinfo(np.int32).max, dtype=np.int64)
    distance[graph.start] = 0
    step = (graph.ilabel > 0).astype(np.int64)
    while True:
        before = distance.copy()
        np.minimum.at(distance, graph.nextstate, before[graph.source] + step)
        if np.array_equal(before, distance):
            break
    return int(distance[np.isfinite(graph.final)].min(initial=np.iinfo(np.int32).max))


def equal_align(graph: FstArrays, num_frames: int, rng: np.random.Generator, tries: int = 20) -> np.ndarray:
    """An alignment to start from: a random path through the graph, its self-loops of equal length.

    Returns (num_frames,) int32 transition-ids. Raises DataError when the utterance is too short for its transcript.
    """
    if graph.start < 0:
        raise DataError("its training graph is empty")
    loops = np.full(graph.num_states, -1, dtype=np.int64)
    is_loop = graph.source == graph.nextstate
    loops[graph.source[is_loop]] = np.flatnonzero(is_loop)
    for _ in range(tries):
        states, arcs = _random_path(graph, is_loop, num_frames, rng)
        frames = int((graph.ilabel[arcs] > 0).sum())
        places = [i for i, s in enumerate(states) if loops[s] >= 0]
        if np.isfinite(graph.final[states[-1]]) and (frames == num_frames or (frames < num_frames and places)):
            break
    else:
        raise DataError(
            f"{num_frames} frames are too short for its transcript, which needs at least {min_frames(graph)}"
        )
    extra = num_frames - frames
    bounds = np.arange(len(places) + 1) * extra // max(len(places), 1)
    repeats = np.zeros(len(states), dtype=np.int64)
    repeats[places] = np.diff(bounds)
    # before each step of the path, the self-loops of the state that it leaves
    pieces = []
    for i, state in enumerate(states):
        pieces.append(np.full(repeats[i], graph.ilabel[loops[state]] if repeats[i] else 0, dtype=np.int32))
        if i < len(arcs):
            pieces.append(graph.ilabel[arcs[i] : arcs[i] + 1])
    tids = np.concatenate(pieces)
    return tids[tids > 0].astype(np.int32)


def _random_path(
    graph: FstArrays, is_loop: np.ndarray, num_frames: int, rng: np.random.Generator
) -> tuple[list[int], np.ndarray]:
    """(states, arcs) of a random path without self-loops from the start, all choices alike likely.

    It ends in a final state, or else after more than num_frames frames (silence has cycles).
    """
    state, states, arcs, frames = graph.start, [graph.start], [], 0
    while frames <= num_frames:
        first, last = int(graph.offset[state]), int(graph.offset[state + 1])
        choices = [a for a in range(first, last) if not is_loop[a]]
        can_end = bool(np.isfinite(graph.final[state]))
        if not choices and not can_end:
            raise DataError("its training graph has a dead end")
        pick = int(rng.integers(len(choices) + can_end)) if len(choices) + can_end > 1 else 0
        if pick == len(choices):
            return states, np.array(arcs, dtype=np.int64)
        arcs.append(choices[pick])
        frames += int(graph.ilabel[choices[pick]] > 0)
        state = int(graph.nextstate[choices[pick]])
        states.append(state)
    return states, np.array(arcs, dtype=np.int64)
