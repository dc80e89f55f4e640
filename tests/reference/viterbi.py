"""Exhaustive Viterbi search in float64: no beam, no lattice; one matrix of best costs over times and states."""

import numpy as np


def best_words(graph, pdf_of_label, loglikes, scale, word_penalty=0.0):
    """(cost, words) of the cheapest complete path of `graph` (FstArrays) over all frames; cost is inf without one.

    loglikes (T, P); an arc with input label i > 0 costs weight − scale · loglikes[t, pdf_of_label[i]].
    """
    arcs = list(zip(graph.source.tolist(), graph.ilabel.tolist(), graph.olabel.tolist(), graph.weight.tolist(),
                    graph.nextstate.tolist()))  # fmt: skip
    best = {graph.start: (0.0, ())}

    def offer(table, state, cost, words):
        if cost < table.get(state, (np.inf, ()))[0] - 1e-12:
            table[state] = (cost, words)
            return True
        return False

    def close(table):
        changed = True
        while changed:
            changed = False
            for s, i, o, w, n in arcs:
                if i == 0 and s in table:
                    cost = table[s][0] + w + word_penalty * (o > 0)
                    changed |= offer(table, n, cost, table[s][1] + ((o,) if o else ()))
        return table

    best = close(best)
    for frame in np.asarray(loglikes, np.float64):
        following = {}
        for s, i, o, w, n in arcs:
            if i and s in best:
                cost = best[s][0] + w - scale * frame[pdf_of_label[i]] + word_penalty * (o > 0)
                offer(following, n, cost, best[s][1] + ((o,) if o else ()))
        best = close(following)
    ends = [(cost + float(graph.final[s]), words) for s, (cost, words) in best.items()]
    return min(ends, default=(np.inf, ()))
