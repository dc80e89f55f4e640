"""The H transducer, from transition-ids to phones in context, and the self-loops that are added after optimisation.

H has a loop state; each phone in context leaves it into the arcs of its HMM, without self-loops, and comes back. An
arc's input is a transition-id, its cost

    -transition_scale · (log p(t) − log(1 − p(self-loop of t's state)))                                             (1)

so that the arcs of an HMM state sum to one. Once H ∘ C ∘ L ∘ G is determinized and minimized, `add_self_loops` gives
each state that is entered by a transition-id of HMM state j the self-loop of j, at the cost −self_loop_scale · log
p(loop), and adds −self_loop_scale · log(1 − p(loop)) to all arcs that leave it: the self-loop follows the forward
transition ("reordered"; both have the same pdf). Agrees with Kaldi's make-h-transducer and add-self-loops
--reorder=true.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.topology import NO_PDF
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency
from ngsgd.kaldi_io.fst import FstArrays


class HTransducer:
    """Builds H for lists of phones in context; HMMs once built are kept for the next list.

    Args:
        transitions, tree: the model; windows of `tree.context_width` phones are looked up in the tree.
        transition_scale: scale of transition log-probabilities in (1).
    """

    def __init__(self, transitions: TransitionModel, tree: ContextDependency, transition_scale: float = 1.0):
        self.transitions = transitions
        self.tree = tree
        leave = transitions.non_self_loop_log_prob()[transitions.tid_to_state]
        self._cost = (-transition_scale * (transitions.log_prob - leave)).astype(np.float32).tolist()
        self._state_to_tid = transitions.state_to_tid.tolist()
        self._by_window: dict[tuple[int, ...], tuple] = {}
        self._by_pdfs: dict[tuple, tuple] = {}

    def _hmm(self, window: tuple[int, ...]) -> tuple:
        """(HMM, key): arcs [(state, next state, transition-id, cost)] of the HMM of a window, the last state its end.

        Windows whose states have the same pdfs share one HMM.
        """
        known = self._by_window.get(window)
        if known is None:
            phone = window[self.tree.central_position]
            classes = range(self.transitions.topology.num_pdf_classes(phone))
            key = (phone, *(self.tree.compute(window, c) for c in classes))
            known = self._by_pdfs.get(key)
            if known is None:
                known = self._by_pdfs[key] = (self._build(phone, key[1:]), key)
            self._by_window[window] = known
        return known

    def _build(self, phone: int, pdfs: Sequence[int]) -> tuple[tuple[int, int, int, float], ...]:
        arcs = []
        for j, state in enumerate(self.transitions.topology.entry(phone)):
            first = 0
            if state.pdf_class != NO_PDF:
                forward, loop = pdfs[state.pdf_class], pdfs[state.self_loop_pdf_class]
                first = self._state_to_tid[self.transitions.transition_state(phone, j, forward, loop)]
            for index, (target, probability) in enumerate(state.transitions):
                if target == j:
                    continue
                if first:
                    arcs.append((j, target, first + index, self._cost[first + index]))
                else:  # a non-emitting state inside the HMM: a probability that is not trained
                    arcs.append((j, target, 0, -float(np.log(probability))))
        return tuple(arcs)

    def build(self, windows: Sequence[Sequence[int]]) -> tuple[FstArrays, list[int]]:
        """H whose output symbols are indexes into `windows`, as `kaldifst.compose_context` returns them.

        Args:
            windows: entry 0 is empty (epsilon); then windows of phones; a single number not above 0 is a disambiguation
                symbol.

        Returns:
            (H, its input symbols that stand for disambiguation symbols, beyond the transition-ids)
        """
        width = self.tree.context_width
        next_disambig = self.transitions.num_transition_ids + 1
        disambig: list[int] = []
        arcs: list[tuple[int, int, int, int, float]] = []  # source, target, input, output, cost
        entered: dict[tuple, tuple[int, int, float]] = {}  # HMM key -> how it is entered: input, cost, target
        num_states = 1
        for label, window in enumerate(windows):
            if label == 0:
                continue
            if len(window) == 1 and window[0] <= 0:
                arcs.append((0, num_states, next_disambig, label, 0.0))
                arcs.append((num_states, 0, 0, 0, 0.0))
                disambig.append(next_disambig)
                next_disambig += 1
                num_states += 1
                continue
            if len(window) != width:
                raise DataError(f"a window of {len(window)} phones in context, but the tree looks at {width}")
            hmm, key = self._hmm(tuple(window))
            if key not in entered:
                entered[key], num_states = _enter(hmm, arcs, num_states)
            symbol, cost, target = entered[key]
            arcs.append((0, target, symbol, label, cost))
        columns = list(zip(*arcs, strict=True)) if arcs else [()] * 5
        source, target, ilabel, olabel, cost = (np.array(c) for c in columns)
        final = np.full(num_states, np.inf, np.float32)
        final[0] = 0.0
        return FstArrays.from_arcs(0, final, source.astype(np.int64), ilabel, olabel, cost, target), disambig


def _enter(hmm, arcs: list, num_states: int) -> tuple[tuple[int, float, int], int]:
    """Lay an HMM out after the loop state 0. Returns (input, cost, target) of the arc that enters it, and the count.

    Where the HMM's first state has a single arc out and none in, that arc itself leaves the loop state.
    """
    end = max(max(source, target) for source, target, _, _ in hmm)
    out = [a for a in hmm if a[0] == 0]
    shared = len(out) == 1 and all(target != 0 for _, target, _, _ in hmm)
    number = {j: num_states + j - shared for j in range(end + 1)}
    for source, target, tid, cost in hmm:
        if not (shared and source == 0):
            arcs.append((number[source], number[target], tid, 0, cost))
    arcs.append((number[end], 0, 0, 0, 0.0))
    entry = (out[0][2], out[0][3], number[out[0][1]]) if shared else (0, 0.0, number[0])
    return entry, num_states + end + 1 - shared


def add_self_loops(fst: FstArrays, transitions: TransitionModel, self_loop_scale: float = 1.0) -> FstArrays:
    """The graph with self-loops; its input symbols are transition-ids (or 0), none of them a self-loop yet.

    A state that is entered by several transition-states, or by one and also by epsilon (the start counts as entered by
    epsilon), gets a state in front of it for each of them, which has the self-loop.
    Raises DataError for input symbols that are no transition-ids (disambiguation symbols left in).
    """
    if fst.num_states == 0:
        return fst
    if fst.num_arcs and not 0 <= int(fst.ilabel.min()) <= int(fst.ilabel.max()) <= transitions.num_transition_ids:
        raise DataError(
            f"a graph with input symbol {int(fst.ilabel.max())}, but the model has transition-ids up to "
            f"{transitions.num_transition_ids}: another model, or disambiguation symbols left in"
        )
    if transitions.is_self_loop[fst.ilabel].any():
        raise DataError("the graph has self-loops already")
    entering = transitions.tid_to_state[fst.ilabel]  # (A,) class of an arc: its transition-state, 0 for epsilon
    nextstate, state_in, num_states = _one_class_a_state(fst, entering)

    source = np.concatenate([fst.source, np.arange(fst.num_states, num_states, dtype=np.int32)])
    extra = num_states - fst.num_states
    final = np.concatenate([fst.final, np.full(extra, np.inf, np.float32)])
    ilabel, olabel = (np.concatenate([x, np.zeros(extra, np.int32)]) for x in (fst.ilabel, fst.olabel))
    weight = np.concatenate([fst.weight, np.zeros(extra, np.float32)])
    leave = (-self_loop_scale * transitions.non_self_loop_log_prob()).astype(np.float32)
    leave[0] = 0.0
    final = final + leave[state_in]
    weight = weight + leave[state_in[source]]

    loop = transitions.self_loop_of[state_in]
    loop[state_in == 0] = 0
    looped = np.flatnonzero(loop).astype(np.int32)
    loop = loop[looped]
    return FstArrays.from_arcs(
        fst.start,
        final,
        np.concatenate([source, looped]),
        np.concatenate([ilabel, loop]),
        np.concatenate([olabel, np.zeros(len(loop), np.int32)]),
        np.concatenate([weight, -np.float32(self_loop_scale) * transitions.log_prob[loop]]),
        np.concatenate([nextstate, looped]),
    )


def _one_class_a_state(fst: FstArrays, entering: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Put a state in front of each state that is entered in more than one class, one per class other than epsilon.

    Returns:
        (next states of the old arcs, then of the epsilon arcs out of the new states; class of each state (S',); S')
    """
    num = fst.num_states
    size = int(entering.max(initial=0)) + 1
    keys = fst.nextstate.astype(np.int64) * size + entering
    present = np.unique(np.append(keys, np.int64(fst.start) * size))  # the start counts as entered by epsilon
    classes = np.bincount(present // size, minlength=num)
    mixed = classes > 1
    state_in = np.zeros(num, np.int32)
    state_in[present // size] = present % size
    state_in[mixed] = 0
    redirected = np.flatnonzero(mixed[fst.nextstate] & (entering != 0))
    new, first, inverse = np.unique(keys[redirected], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # number new states in the order in which arcs meet them
    nextstate = fst.nextstate.copy()
    nextstate[redirected] = num + rank[inverse]
    new = new[np.argsort(first)]
    return (
        np.concatenate([nextstate, (new // size).astype(np.int32)]),
        np.concatenate([state_in, (new % size).astype(np.int32)]),
        num + len(new),
    )
