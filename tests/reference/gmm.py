"""Diagonal GMMs and Viterbi search the slow and obvious way, in float64."""

import math

import numpy as np


def log_likelihood(x, weights, means, variances):
    """log p(x) of one frame x (D,) under one mixture."""
    logs = []
    for w, m, v in zip(weights, means, variances, strict=True):
        logs.append(
            math.log(w)
            - 0.5 * sum(math.log(2 * math.pi * vd) + (xd - md) ** 2 / vd for xd, md, vd in zip(x, m, v, strict=True))
        )
    top = max(logs)
    return top + math.log(sum(math.exp(a - top) for a in logs)), np.exp(np.array(logs) - top)


def statistics(feats, pdfs, mixtures):
    """Per pdf (occ (M,), mean (M, D), var (M, D)); mixtures[p] = (weights, means, variances)."""
    stats = [(np.zeros(len(w)), np.zeros(m.shape), np.zeros(m.shape)) for w, m, _ in mixtures]
    for x, p in zip(feats, pdfs, strict=True):
        _, post = log_likelihood(x, *mixtures[p])
        post = post / post.sum()
        for g, gamma in enumerate(post):
            stats[p][0][g] += gamma
            stats[p][1][g] += gamma * x
            stats[p][2][g] += gamma * x**2
    return stats


def best_path_cost(graph, column, scores):
    """The cost of the cheapest path of a graph that consumes all frames, by dynamic programming over (frame, state)."""
    frames, infinity = len(scores), float("inf")
    cost = np.full((frames + 1, graph.num_states), infinity)
    cost[0, graph.start] = 0.0
    source = graph.source
    for t in range(frames + 1):
        for _ in range(graph.num_states):  # arcs that consume nothing, until nothing changes
            for a in np.flatnonzero(column < 0):
                here = cost[t, source[a]] + graph.weight[a]
                cost[t, graph.nextstate[a]] = min(cost[t, graph.nextstate[a]], here)
        if t == frames:
            break
        for a in np.flatnonzero(column >= 0):
            here = cost[t, source[a]] + graph.weight[a] - scores[t, column[a]]
            cost[t + 1, graph.nextstate[a]] = min(cost[t + 1, graph.nextstate[a]], here)
    return float((cost[frames] + graph.final).min())


def split_targets(occ, target, power, min_count):
    """Give each next Gaussian to the pdf with the largest occ^power / Gaussians that may have another."""
    counts = [1] * len(occ)
    closed = [o <= 0 for o in occ]
    while sum(counts) < target and not all(closed):
        p = max((i for i in range(len(occ)) if not closed[i]), key=lambda i: (occ[i] ** power / counts[i], -i))
        if (counts[p] + 1) * min_count >= occ[p]:
            closed[p] = True
        else:
            counts[p] += 1
    return counts


def fmllr_objective(transform, frames, mixtures):
    """The expected log-likelihood of transformed frames, up to a constant; posteriors are those without the transform.

    transform (D, D + 1); frames: (x (D,), pdf, weight); mixtures as in `statistics`.
    """
    total = 0.0
    for x, p, weight in frames:
        _, post = log_likelihood(x, *mixtures[p])
        post = weight * post / post.sum()
        y = transform @ np.append(x, 1.0)
        total += post.sum() * np.log(abs(np.linalg.det(transform[:, :-1])))
        for gamma, m, v in zip(post, mixtures[p][1], mixtures[p][2], strict=True):
            total -= 0.5 * gamma * ((y - m) ** 2 / v - m**2 / v).sum()
    return total
