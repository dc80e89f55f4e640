"""The numba kernel of `ngsgd.hmm.viterbi`; import it only where it will be used for long."""

from __future__ import annotations

import numpy as np
from numba import njit

from ngsgd.kaldi_io.fst import FstArrays

MIN_ACTIVE = 20  # as FasterDecoder: a beam that would leave fewer tokens is widened, and by how much more
BEAM_DELTA = 0.5


def search_fast(graph: FstArrays, column: np.ndarray, scores: np.ndarray, beam: float) -> np.ndarray | None:
    """As `ngsgd.hmm.viterbi.search_plain`."""
    assert graph.num_arcs == 0 or column.max() < scores.shape[1]
    capacity = 64 * (len(scores) + 1)  # tokens; growing the arrays inside the kernel would slow it down fourfold
    while True:
        path, enough = _search(
            graph.start, graph.final, graph.offset, column, graph.weight, graph.nextstate, scores, beam, capacity
        )
        if enough:
            return path if len(path) == len(scores) else None
        capacity *= 4


@njit(cache=True)
def _cutoff(cost, active, num_active, best, beam, smallest):
    """(cost beyond which tokens are dropped, beam for the next frame): the beam, widened to keep MIN_ACTIVE tokens.

    smallest (MIN_ACTIVE + 1,) is scratch, in which the smallest costs are sorted by insertion.
    """
    if num_active <= MIN_ACTIVE:
        return np.inf, np.inf
    smallest[:] = np.inf
    for i in range(num_active):
        c = cost[active[i]]
        if c < smallest[MIN_ACTIVE]:
            k = MIN_ACTIVE
            while k > 0 and smallest[k - 1] > c:
                smallest[k] = smallest[k - 1]
                k -= 1
            smallest[k] = c
            if smallest[MIN_ACTIVE] <= best + beam:
                return best + beam, beam
    return smallest[MIN_ACTIVE], smallest[MIN_ACTIVE] - best + BEAM_DELTA


@njit(cache=True)
def _search(start, final, offset, column, weight, nextstate, scores, beam, capacity):
    """Token passing. token[s] is the token that stands in state s, previous[k] and arc[k] where token k came from.

    Costs of the current and next frame are kept per state; a token found to be better before its frame is over is
    overwritten in place, which is safe since only tokens of later steps refer to it, and those that came over
    non-consuming arcs are found anew. Returns (path, False if `capacity` was too small for the tokens).
    """
    num_states = len(final)
    num_frames = scores.shape[0]
    infinity = np.inf
    cost = np.full(num_states, infinity)
    new_cost = np.full(num_states, infinity)
    token = np.zeros(num_states, np.int64)
    new_token = np.zeros(num_states, np.int64)
    active = np.empty(num_states, np.int64)
    new_active = np.empty(num_states, np.int64)
    waiting = np.empty(num_states, np.int64)
    is_waiting = np.zeros(num_states, np.bool_)
    has_free = np.zeros(num_states, np.bool_)  # states that non-consuming arcs leave
    for s in range(num_states):
        for a in range(offset[s], offset[s + 1]):
            if column[a] < 0:
                has_free[s] = True
    previous = np.empty(capacity, np.int64)
    arc = np.empty(capacity, np.int64)

    smallest = np.empty(MIN_ACTIVE + 1)

    cost[start] = 0.0
    active[0] = start
    num_active = 1
    previous[0] = -1
    arc[0] = -1
    num_tokens = 1
    cutoff = infinity
    for t in range(num_frames + 1):
        # non-consuming arcs from the tokens that stand here before frame t
        num_waiting = 0
        for i in range(num_active):
            if has_free[active[i]]:
                waiting[num_waiting] = active[i]
                is_waiting[active[i]] = True
                num_waiting += 1
        while num_waiting > 0:
            num_waiting -= 1
            s = waiting[num_waiting]
            is_waiting[s] = False
            if cost[s] > cutoff:
                continue
            for a in range(offset[s], offset[s + 1]):
                if column[a] >= 0:
                    continue
                c = cost[s] + weight[a]
                n = nextstate[a]
                if c > cutoff or c >= cost[n]:
                    continue
                if cost[n] == infinity:
                    active[num_active] = n
                    num_active += 1
                    if num_tokens == capacity:
                        return active[:0], False
                    token[n] = num_tokens
                    num_tokens += 1
                cost[n] = c
                previous[token[n]] = token[s]
                arc[token[n]] = a
                if has_free[n] and not is_waiting[n]:
                    waiting[num_waiting] = n
                    is_waiting[n] = True
                    num_waiting += 1
        if t == num_frames:
            break

        best = infinity
        best_state = -1
        for i in range(num_active):
            if cost[active[i]] < best:
                best = cost[active[i]]
                best_state = active[i]
        if best_state < 0:
            break
        here_cutoff, width = _cutoff(cost, active, num_active, best, beam, smallest)
        cutoff = infinity  # of the tokens after this frame; from the best token first, to be tight early
        for a in range(offset[best_state], offset[best_state + 1]):
            if column[a] >= 0:
                cutoff = min(cutoff, best + weight[a] - scores[t, column[a]] + width)
        num_new = 0
        for i in range(num_active):
            s = active[i]
            if cost[s] < here_cutoff:
                for a in range(offset[s], offset[s + 1]):
                    if column[a] < 0:
                        continue
                    c = cost[s] + weight[a] - scores[t, column[a]]
                    if c >= cutoff:
                        continue
                    cutoff = min(cutoff, c + width)
                    n = nextstate[a]
                    if c >= new_cost[n]:
                        continue
                    if new_cost[n] == infinity:
                        new_active[num_new] = n
                        num_new += 1
                        if num_tokens == capacity:
                            return active[:0], False
                        new_token[n] = num_tokens
                        num_tokens += 1
                    new_cost[n] = c
                    previous[new_token[n]] = token[s]
                    arc[new_token[n]] = a
            cost[s] = infinity
        cost, new_cost = new_cost, cost
        token, new_token = new_token, token
        active, new_active = new_active, active
        num_active = num_new

    best = infinity
    last = -1
    for i in range(num_active):
        s = active[i]
        if cost[s] + final[s] < best:
            best = cost[s] + final[s]
            last = token[s]
    path = np.empty(num_frames, np.int64)
    t = num_frames
    if last >= 0:
        while last > 0:
            if column[arc[last]] >= 0:
                t -= 1
                path[t] = arc[last]
            last = previous[last]
    return path[t:], True
