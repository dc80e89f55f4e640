"""Numba kernels of lattices: topological order, cheapest path; `lattice.py` is their face."""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)


@jit
def topological_order(num_states, src, dst):
    """A number for each state such that every arc goes to a higher one, or -1 for states on a cycle and behind it."""
    arriving = np.zeros(num_states, np.int64)
    begin = np.zeros(num_states + 2, np.int64)
    for k in range(src.size):
        arriving[dst[k]] += 1
        begin[src[k] + 2] += 1
    for s in range(num_states):
        begin[s + 2] += begin[s + 1]
    destination = np.empty(src.size, np.int64)  # of the arcs, by source: those of s from begin[s], when all are placed
    for k in range(src.size):
        destination[begin[src[k] + 1]] = dst[k]
        begin[src[k] + 1] += 1
    number = np.full(num_states, -1, np.int64)
    ready = np.empty(num_states, np.int64)
    count = 0
    for s in range(num_states):
        if not arriving[s]:
            ready[count] = s
            count += 1
    done = 0
    while done < count:
        s = ready[done]
        number[s] = done
        done += 1
        for k in range(begin[s], begin[s + 1]):
            d = destination[k]
            arriving[d] -= 1
            if not arriving[d]:
                ready[count] = d
                count += 1
    return number


@jit
def shortest_path(num_states, src, dst, cost, final):
    """Arcs of the cheapest path from state 0; arcs sorted by src, states in topological order."""
    best = np.full(num_states, np.inf)
    back = np.full(num_states, -1, np.int64)
    best[0] = 0.0
    for k in range(src.size):
        total = best[src[k]] + cost[k]
        if total < best[dst[k]]:
            best[dst[k]] = total
            back[dst[k]] = k
    at = np.argmin(best + final)
    path = np.empty(num_states, np.int64)
    length = 0
    while back[at] >= 0:
        path[length] = back[at]
        length += 1
        at = src[back[at]]
    return path[:length][::-1].copy()


@jit
def arc_posteriors(num_states, src, dst, consuming, cost, final):
    """(frame, posterior) of each arc: frames consumed before it, share of the paths' exp(-cost) that goes through it.

    Arcs sorted by src, states in topological order.
    """
    forward = np.full(num_states, np.inf)  # minus the logarithm of the sum over the paths to a state
    backward = final.copy()
    time = np.zeros(num_states, np.int32)
    forward[0] = 0.0
    for k in range(src.size):
        forward[dst[k]] = _add(forward[dst[k]], forward[src[k]] + cost[k])
        time[dst[k]] = time[src[k]] + consuming[k]
    for k in range(src.size - 1, -1, -1):
        backward[src[k]] = _add(backward[src[k]], backward[dst[k]] + cost[k])
    return time[src], np.exp(backward[0] - forward[src] - cost - backward[dst])


@jit
def _add(a, b):
    """- log(exp(-a) + exp(-b))."""
    low, high = min(a, b), max(a, b)
    return low if high == np.inf else low - np.log1p(np.exp(low - high))
