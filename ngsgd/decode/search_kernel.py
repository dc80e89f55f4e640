"""Numba kernels of the lattice-generating beam search; `search.py` is their face.

Time-synchronous token passing that keeps every link between tokens, not only the best into each (Povey et al. 2012,
"Generating exact lattices in the WFST framework", without the determinization); search and pruning are those of Kaldi's
LatticeFasterDecoder. symbols:

    token   a graph state alive at a time f = 0..T (before frame f), with the cost α of the best path to it
    link    an arc between tokens: consuming frame f, from time f to f + 1, or an epsilon within time f
    w       the cost of a link: graph cost − scale · log-likelihood
    extra   by how much the best path through a token is worse than the best path of all:              (1)
            extra(src) = min over links  extra(dst) + α(src) + w − α(dst)

The search waits for memory, not for arithmetic. So what is used together stands together, and a frame is gone through
in passes that look up what the next one branches on: a mispredicted branch that waits for a look-up costs ten passes.

    first (S + 1, 2) int32   of state s: its first consuming arc, its first epsilon arc; the arcs end at first[s + 1, 0]
    label (A, 4) int32       of an arc: pdf, next state, the graph cost (as a float, in `weight`, the same memory), and
                             whether the next state has epsilon arcs
    state, cost              of a token; its number is its place there
    link (., 4) int32        source token, destination token, arc, frame consumed or -1; link_cost: w
Tokens and links stand in the order of their times. Costs are float64.
"""

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)
_INFINITY = np.inf
_DELTA = 0.5  # what the beam is widened by when the number of tokens decides it, as in Kaldi
PDF, NEXT, COST, EPSILONS = 0, 1, 2, 3  # columns of `label` and `weight`
SRC, DST, ARC, FRAME = 0, 1, 2, 3  # columns of `link`


@jit
def _grown(array, needed):
    """The array in a buffer of at least twice the size, for `needed` elements."""
    larger = np.empty(max(needed, 2 * array.size), array.dtype)
    for i in range(array.size):  # a slice would take seconds to compile
        larger[i] = array[i]
    return larger


@jit
def _grown_rows(array, needed):
    larger = np.empty((max(needed, 2 * array.shape[0]), array.shape[1]), array.dtype)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            larger[i, j] = array[i, j]
    return larger


@jit
def _width(cost, best, widest, count):
    """A beam, at most `widest`, that holds `count` tokens or a few more: found to within a 1000th of `widest`."""
    bins = np.zeros(1024, np.int64)
    for c in cost:
        if c <= best + widest:
            bins[int((c - best) / widest * 1023)] += 1
    total, k = bins[0], 1
    while total < count and k < 1024:
        total += bins[k]
        k += 1
    return min(k / 1023, 1.0) * widest


@jit
def _cutoff(cost, beam, max_active, min_active):
    """(cutoff, beam in use) for tokens of these costs: `beam`, or narrower for max_active, wider for min_active."""
    best, worst = cost[0], cost[0]
    for c in cost:
        best, worst = min(best, c), max(worst, c)
    within = 0
    for c in cost:
        within += c <= best + beam
    if within > max_active:
        width = _width(cost, best, beam, max_active)
    elif within >= min_active:
        return best + beam, beam
    elif cost.size <= min_active:
        return _INFINITY, _INFINITY
    else:
        width = _width(cost, best, worst - best, min_active)
    return best + width, width + _DELTA


@jit
def _close(begin, tokens, links, cutoff, listed, eps, first, label, weight, token_of, state, cost, link, link_cost):
    """Epsilon arcs within a time: first the costs, until none improves, then a link for each arc under the cutoff.

    eps[:listed] are the tokens of this time, from `begin` on, whose states have such arcs. Returns the sizes and the
    arrays that may have moved.
    """
    queue = np.empty(listed + 16, np.int32)
    for i in range(listed):
        queue[i] = eps[i]
    waiting = listed
    while waiting:
        waiting -= 1
        token = queue[waiting]
        here, s = cost[token], state[token]
        end = first[s + 1, 0]
        room = end - first[s, 1]
        if waiting + room > queue.size:
            queue = _grown(queue, waiting + room)
        if listed + room > eps.size:
            eps = _grown(eps, listed + room)
        if tokens + room > state.size:
            state, cost = _grown(state, tokens + room), _grown(cost, tokens + room)
        for a in range(first[s, 1], end):
            total = here + weight[a, COST]
            if total >= cutoff:
                continue
            n = label[a, NEXT]
            other = token_of[n]
            if other < begin:
                other = tokens
                tokens += 1
                state[other], cost[other], token_of[n] = n, total, other
                if label[a, EPSILONS]:
                    eps[listed] = other
                    listed += 1
            elif total < cost[other]:
                cost[other] = total
            else:
                continue
            if label[a, EPSILONS]:
                queue[waiting] = other
                waiting += 1
    for i in range(listed):
        token = eps[i]
        here, s = cost[token], state[token]
        end = first[s + 1, 0]
        room = links + end - first[s, 1]
        if room > link_cost.size:
            link, link_cost = _grown_rows(link, room), _grown(link_cost, room)
        for a in range(first[s, 1], end):
            if here + weight[a, COST] < cutoff:
                link[links, SRC], link[links, DST] = token, token_of[label[a, NEXT]]
                link[links, ARC], link[links, FRAME] = a, -1
                link_cost[links] = weight[a, COST]
                links += 1
    return tokens, links, eps, state, cost, link, link_cost


@jit
def _expand(begin, tokens, limit, first, state, cost):
    """(arc, token it leaves) of all consuming arcs of the tokens from `begin` on that are within the limit."""
    chosen = np.empty(tokens - begin, np.int32)
    low, high = np.empty_like(chosen), np.empty_like(chosen)
    count = 0
    for token in range(begin, tokens):
        chosen[count] = token
        count += cost[token] <= limit
    total = 0
    for i in range(count):
        s = state[chosen[i]]
        low[i], high[i] = first[s, 0], first[s, 1]
        total += high[i] - low[i]
    arc, leaving = np.empty(total, np.int32), np.empty(total, np.int32)
    k = 0
    for i in range(count):
        for a in range(low[i], high[i]):
            arc[k], leaving[k] = a, chosen[i]
            k += 1
    return arc, leaving


@jit
def _consume(
    time, tokens, links, arc, leaving, acoustic, width, label, weight, token_of, eps, state, cost, link, link_cost
):
    """The tokens of time + 1 and the links to them. Returns the sizes, the cutoff, the arrays that may have moved."""
    total = np.empty(arc.size)
    following = np.empty(arc.size, np.int32)
    best = _INFINITY
    for k in range(arc.size):
        a = arc[k]
        total[k] = cost[leaving[k]] + (weight[a, COST] + acoustic[label[a, PDF]])
        following[k] = label[a, NEXT]
        best = min(best, total[k])
    cutoff = best + width
    kept = np.empty(arc.size, np.int32)
    count = 0
    for k in range(arc.size):
        kept[count] = k
        count += total[k] < cutoff or total[k] == best
    new = 0  # at most; and token_of is then near when it decides a branch
    for i in range(count):
        new += token_of[following[kept[i]]] < tokens
    if tokens + new > state.size:
        state, cost = _grown(state, tokens + new), _grown(cost, tokens + new)
    if links + count > link_cost.size:
        link, link_cost = _grown_rows(link, links + count), _grown(link_cost, links + count)
    if new >= eps.size:
        eps = _grown(eps, new + 1)
    end, listed = tokens, 0
    for i in range(count):
        k = kept[i]
        n = following[k]
        other = token_of[n]
        if other < end:
            other = tokens
            tokens += 1
            state[other], cost[other], token_of[n] = n, total[k], other
            eps[listed] = other
            listed += label[arc[k], EPSILONS] != 0
        elif total[k] < cost[other]:
            cost[other] = total[k]
        link[links, SRC], link[links, DST], link[links, ARC], link[links, FRAME] = leaving[k], other, arc[k], time
        link_cost[links] = total[k] - cost[leaving[k]]
        links += 1
    return tokens, links, cutoff, listed, eps, state, cost, link, link_cost


@jit
def search(
    start, first, label, weight, final, loglikes, scale, beam, max_active, min_active, lattice_beam, prune_interval
):
    """Search T frames.

    Returns (state, time_begin, link, reached_final): tokens and links that survive the pruning; time_begin (T + 2,) is
    the first token of each time. No token at all when the search died.
    """
    num_frames = loglikes.shape[0]
    token_of = np.full(final.size, -1, np.int32)
    state, cost = np.empty(1024, np.int32), np.empty(1024, np.float64)
    link, link_cost = np.empty((1024, 4), np.int32), np.empty(1024, np.float64)
    time_begin, link_begin = np.zeros(num_frames + 2, np.int64), np.zeros(num_frames + 2, np.int64)
    eps = np.zeros(1024, np.int32)
    acoustic = np.empty(loglikes.shape[1])
    state[0], cost[0], token_of[start] = start, 0.0, 0
    tokens, links, cutoff = 1, 0, beam
    listed = 1 if first[start, 1] < first[start + 1, 0] else 0
    for time in range(num_frames + 1):
        begin = time_begin[time]
        link_begin[time] = links
        tokens, links, eps, state, cost, link, link_cost = _close(
            begin, tokens, links, cutoff, listed, eps, first, label, weight, token_of, state, cost, link, link_cost
        )
        time_begin[time + 1], link_begin[time + 1] = tokens, links
        if tokens == begin or time == num_frames:
            break
        if time and time % prune_interval == 0:
            # Not to the beginning each time: what is older was pruned with an interval's foresight, and is at the end.
            since = max(0, time - 2 * prune_interval)
            for token in range(time_begin[since], tokens):
                token_of[state[token]] = -1
            ending = np.zeros(tokens - begin)
            tokens, links = _prune(
                since, time, ending, lattice_beam, state, cost, time_begin, link_begin, link, link_cost
            )
            begin = time_begin[time]
            for token in range(begin, tokens):
                token_of[state[token]] = token
        limit, width = _cutoff(cost[begin:tokens], beam, max_active, min_active)
        for p in range(acoustic.size):
            acoustic[p] = -scale * loglikes[time, p]
        arc, leaving = _expand(begin, tokens, limit, first, state, cost)
        tokens, links, cutoff, listed, eps, state, cost, link, link_cost = _consume(
            time,
            tokens,
            links,
            arc,
            leaving,
            acoustic,
            width,
            label,
            weight,
            token_of,
            eps,
            state,
            cost,
            link,
            link_cost,
        )
    begin = time_begin[num_frames]
    reached_final = False
    if time == num_frames and tokens > begin:
        ending = np.empty(tokens - begin)
        for token in range(begin, tokens):
            reached_final = reached_final or final[state[token]] < _INFINITY
        best = _INFINITY
        for token in range(begin, tokens):
            ending[token - begin] = cost[token] + (final[state[token]] if reached_final else 0.0)
            best = min(best, ending[token - begin])
        for i in range(ending.size):
            ending[i] -= best
        tokens, links = _prune(
            0, num_frames, ending, lattice_beam, state, cost, time_begin, link_begin, link, link_cost
        )
    else:
        tokens = links = 0
    return state[:tokens], time_begin, link[:links], reached_final


@jit
def _extra_costs(since, last, ending, lattice_beam, cost, time_begin, link_begin, link, link_cost):
    """Eq. (1) from time `last`, where it is `ending`, back to `since`: of the tokens, and of the links."""
    token_base, link_base = time_begin[since], link_begin[since]
    extra = np.full(time_begin[last + 1] - token_base, _INFINITY)
    for i in range(ending.size):
        extra[time_begin[last] - token_base + i] = ending[i]
    link_extra = np.empty(link_begin[last + 1] - link_base)
    for time in range(last, since - 1, -1):
        # The consuming links, which stand behind the epsilons, in one pass; the epsilons, which are in no order, until
        # nothing changes.
        low, high = link_begin[time], link_begin[time + 1]
        again = True
        while again:
            again = False
            k = high - 1
            while k >= low:
                s, d = link[k, SRC], link[k, DST]
                worse = max(extra[d - token_base] + cost[s] + link_cost[k] - cost[d], 0.0)
                link_extra[k - link_base] = worse
                if worse <= lattice_beam and worse < extra[s - token_base]:
                    extra[s - token_base] = worse
                    again = again or link[k, FRAME] < 0
                k -= 1
            while high > low and link[high - 1, FRAME] >= 0:
                high -= 1
    return extra, link_extra


@jit
def _prune(since, last, ending, lattice_beam, state, cost, time_begin, link_begin, link, link_cost):
    """Drops what lies from time `since` to `last` and has an extra cost above lattice_beam; at `last` it is `ending`.

    The tokens of time `last` all stay, and those of `since`, to which older links lead (but from the beginning there
    are none). Compacts the arrays in place; returns the numbers of tokens and links left.
    """
    extra, link_extra = _extra_costs(since, last, ending, lattice_beam, cost, time_begin, link_begin, link, link_cost)
    base = time_begin[since]
    moved = np.empty(extra.size, np.int32)
    kept, token = base, base
    for time in range(since, last + 1):
        time_begin[time] = kept
        end = base + extra.size if time == last else time_begin[time + 1]
        stay = time == last or (time == since and since > 0)
        while token < end:
            moved[token - base] = kept
            state[kept], cost[kept] = state[token], cost[token]
            kept += stay or extra[token - base] < _INFINITY
            token += 1
    time_begin[last + 1] = kept
    link_base = link_begin[since]
    kept_links = link_base
    k = link_base
    for time in range(since, last + 1):
        link_begin[time] = kept_links
        end = link_base + link_extra.size if time == last else link_begin[time + 1]
        while k < end:
            link[kept_links, SRC], link[kept_links, DST] = moved[link[k, SRC] - base], moved[link[k, DST] - base]
            link[kept_links, ARC], link[kept_links, FRAME] = link[k, ARC], link[k, FRAME]
            link_cost[kept_links] = link_cost[k]
            kept_links += link_extra[k - link_base] <= lattice_beam
            k += 1
    link_begin[last + 1] = kept_links
    return kept, kept_links
