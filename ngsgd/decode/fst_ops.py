"""Graph operations that OpenFst's wheels lack, on flat arrays.

push_special      weights moved so that every state sums to the same, which helps the beam
remove_symbols    input symbols made epsilon, or their arcs dropped
remove_eps_local  epsilons removed where that does not add arcs
"""

from __future__ import annotations

import logging
import math
from itertools import pairwise

import numpy as np

from ngsgd.kaldi_io.fst import FstArrays

log = logging.getLogger(__name__)

_DELTA = 1.0 / 1024.0
_MAX_ITERATIONS = 1000  # Kaldi stops at 200, which for a pruned trigram of 3000 words is not quite enough


def push_special(fst: FstArrays, delta: float = _DELTA) -> FstArrays:
    """Move weights so that exp(-cost) of the arcs and final cost out of each state sum to one number λ for all states.

    With P (S, S): p_ij the probability of all arcs from i to j, the final one of i counted as going to the start I, let
    v be the eigenvector P v = λ v of the largest eigenvalue. Then p_ij v_j / v_i sums to λ over j, and no path's total
    changes. Power iteration v <- P v + 0.1 v; the second term keeps acyclic graphs from oscillating.
    (Hannemann, Povey, Zweig 2013, "Combining forward and backward search in decoding"; Kaldi's fstpushspecial.)
    A logged warning says when the iterations did not bring log(max sum / min sum) below `delta`.
    """
    if fst.num_states == 0:
        return fst
    source, target = fst.source, fst.nextstate
    probability = np.exp(-fst.weight.astype(np.float64))
    final = np.exp(-fst.final.astype(np.float64))
    v = np.full(fst.num_states, 1.0 / np.sqrt(fst.num_states))
    for iteration in range(_MAX_ITERATIONS + 1):
        out = np.bincount(source, probability * v[target], minlength=fst.num_states) + final * v[fst.start]
        sums = out / v
        if iteration % 5 == 1 and iteration > 1 and np.log(sums.max() / sums.min()) <= delta:
            break
        v = out + 0.1 * v
        v /= np.sqrt((v * v).sum())
    else:
        log.warning(
            "weight pushing did not converge in %d iterations; the graph is right, the search less efficient",
            _MAX_ITERATIONS,
        )
    cost = -np.log(v)
    weight = (fst.weight + cost[target] - cost[source]).astype(np.float32)
    pushed_final = (fst.final + cost[fst.start] - cost).astype(np.float32)
    return FstArrays(fst.start, pushed_final, fst.offset, fst.ilabel, fst.olabel, weight, fst.nextstate)


def remove_symbols(fst: FstArrays, symbols) -> FstArrays:
    """Input symbols (disambiguation symbols) replaced by epsilon."""
    ilabel = fst.ilabel.copy()
    ilabel[np.isin(ilabel, np.asarray(symbols, np.int32))] = 0
    return FstArrays(fst.start, fst.final, fst.offset, ilabel, fst.olabel, fst.weight, fst.nextstate)


def drop_output_arcs(fst: FstArrays, symbols) -> FstArrays:
    """The FST without the arcs that have one of these output symbols; states that this cuts off stay."""
    keep = ~np.isin(fst.olabel, np.asarray(symbols, np.int32))
    return FstArrays.from_arcs(
        fst.start,
        fst.final,
        fst.source[keep],
        fst.ilabel[keep],
        fst.olabel[keep],
        fst.weight[keep],
        fst.nextstate[keep],
    )


def remove_eps_local(fst: FstArrays) -> FstArrays:
    """Remove epsilons where it costs no arcs, by joining an arc a with arcs b out of its next state n.

    a and b join where at most one of them has an input symbol and at most one an output symbol.
    1. n is entered by a only: every b that joins moves to a's state. If others stay, cost is moved from them to a, so
       that the probabilities out of n sum to what they did before.
    2. n has one way out only: a is replaced by its join with it, which stays as long as others enter n.
    Agrees with Kaldi's fstrmepslocal.
    States that are cut off stay: connect afterwards.
    """
    return _LocalRemoval(fst).run() if fst.num_states else fst


class _LocalRemoval:
    """Plain lists: `arcs[s]` holds [input, output, cost, next state] lists; a removed arc has next state -1."""

    def __init__(self, fst: FstArrays):
        self.start = fst.start
        flat = [
            list(arc)
            for arc in zip(
                fst.ilabel.tolist(), fst.olabel.tolist(), fst.weight.tolist(), fst.nextstate.tolist(), strict=True
            )
        ]
        ends = fst.offset.tolist()
        self.arcs = [flat[a:b] for a, b in pairwise(ends)]
        self.final = fst.final.tolist()
        entering = np.bincount(fst.nextstate, minlength=fst.num_states)
        entering[fst.start] += 1  # so that the start is never joined away
        self.entering = entering.tolist()
        self.leaving = (np.diff(fst.offset) + np.isfinite(fst.final)).tolist()

    def run(self) -> FstArrays:
        entering, leaving = self.entering, self.leaving
        for state, arcs in enumerate(self.arcs):
            for arc in arcs:  # grows while it is walked
                target = arc[3]
                if target < 0 or target == state:
                    continue
                if leaving[target] == 1:
                    self._bypass(state, arc)
                elif entering[target] == 1 and leaving[target] > 1:
                    self._pull_up(state, arc)
        source = [s for s, arcs in enumerate(self.arcs) for arc in arcs if arc[3] >= 0]
        kept = [arc for arcs in self.arcs for arc in arcs if arc[3] >= 0]
        ilabel, olabel, weight, target = (np.array(c) for c in zip(*kept, strict=True)) if kept else [np.empty(0)] * 4
        return FstArrays.from_arcs(
            self.start, np.array(self.final, np.float32), np.array(source, np.int64), ilabel, olabel, weight, target
        )

    def _make_final(self, state: int, cost: float) -> None:
        if self.final[state] == np.inf:
            self.leaving[state] += 1
        self.final[state] = min(self.final[state], cost)

    def _add(self, state: int, first: list, second: list) -> None:
        """The join of two arcs becomes an arc of `state`."""
        self.arcs[state].append([first[0] or second[0], first[1] or second[1], first[2] + second[2], second[3]])
        self.leaving[state] += 1
        self.entering[second[3]] += 1

    def _remove(self, state: int, arc: list) -> None:
        self.leaving[state] -= 1
        self.entering[arc[3]] -= 1
        arc[3] = -1

    def _bypass(self, state: int, arc: list) -> None:
        """Case 2: the next state has one way out."""
        target = arc[3]
        last = self.entering[target] == 1
        final = self.final[target]
        if final != np.inf:
            if arc[0] or arc[1]:
                return
            self._make_final(state, arc[2] + final)
            if last:
                self.leaving[target] -= 1
                self.final[target] = np.inf
        else:
            onward = next(b for b in self.arcs[target] if b[3] >= 0)
            if (arc[0] and onward[0]) or (arc[1] and onward[1]):
                return
            self._add(state, arc, onward)
            if last:
                self._remove(target, onward)
        self._remove(state, arc)

    def _pull_up(self, state: int, arc: list) -> None:
        """Case 1: only this arc enters the next state, which has several ways out."""
        target = arc[3]
        joined, stay = [], []
        for onward in self.arcs[target]:
            if onward[3] >= 0:
                clash = (arc[0] and onward[0]) or (arc[1] and onward[1])
                (stay if clash else joined).append(onward)
        final = self.final[target]
        is_final, final_joins = final != np.inf, not (arc[0] or arc[1])
        removed = _log_sum([b[2] for b in joined] + [final] * (is_final and final_joins))
        kept = _log_sum([b[2] for b in stay] + [final] * (is_final and not final_joins))
        if removed == np.inf:
            return
        for onward in joined:
            self._add(state, arc, onward)
            self._remove(target, onward)
        if is_final and final_joins:
            self._make_final(state, arc[2] + final)
            self.leaving[target] -= 1
            self.final[target] = np.inf
        if kept == np.inf:
            self._remove(state, arc)
            return
        move = kept - _log_sum([removed, kept])
        arc[2] += move
        for onward in stay:
            onward[2] -= move
        if is_final and not final_joins:
            self.final[target] -= move


def _log_sum(costs: list[float]) -> float:
    """The cost of the sum of the probabilities exp(-cost); inf for none."""
    least = min(costs, default=np.inf)
    return least if least == np.inf else least - math.log(sum(math.exp(least - c) for c in costs))
