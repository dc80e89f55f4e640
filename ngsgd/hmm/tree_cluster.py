"""Clustering of Gaussian statistics by likelihood: k-means, top-down into a tree, and bottom-up.

A cluster is the sum S of the rows [c, sum x, sum x^2] of its points (ngsgd.hmm.tree_stats). With mean m = sum x / c,
variance v = sum x^2 / c - m^2 and floored variance w = max(v, floor), its objective is the log-likelihood of the frames
under their own Gaussian,

    f(S) = -c/2 [ D log 2 pi + sum_d (log w_d + v_d / w_d) ]                                                     (1)

and what is gained by dividing S into S1 + S2 is f(S1) + f(S2) - f(S), which is never negative.

Objectives are rounded to float32 and compared so: Kaldi does, and at 10^5 frames one step of float32 is large enough
for divisions to be equally good, of which the first is taken. Sums and choices are in Kaldi's order for that reason.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from math import gcd, inf

import numpy as np

_LOG_2PI = 1.8378770664093454835606594728112


def objective(rows: np.ndarray, floor: float) -> np.ndarray:
    """Equation (1) for each row: (..., 2 D + 1) -> (...) float32; 0 for a row of no frames."""
    count = rows[..., 0]
    safe = np.where(count > 0, count, 1.0)[..., None]
    dim = rows.shape[-1] // 2
    mean = rows[..., 1 : dim + 1] / safe
    variance = rows[..., dim + 1 :] / safe - mean * mean
    floored = np.maximum(variance, floor)
    per_frame = (-0.5 * variance / floored).sum(axis=-1) - 0.5 * (np.log(floored).sum(axis=-1) + _LOG_2PI * dim)
    return np.where(count > 0, per_frame * count, 0.0).astype(np.float32)


def added(values: np.ndarray) -> np.float32:
    """The sum of float32 values one after the other in float32."""
    total = np.float32(0)
    for value in values:
        total = np.float32(total + value)
    return total


def c_library_random(seed: int = 1) -> Iterator[int]:
    """The numbers of C's rand() after srand(seed), on Linux: an additive generator over 31 words.

    Kaldi's cluster-phones takes its choices from it, unseeded, so that its questions can be had again.
    """
    words = [seed]
    for _ in range(30):
        words.append(16807 * words[-1] % 2147483647)
    words += words[:3]
    while True:
        words.append((words[-3] + words[-31]) & 0xFFFFFFFF)
        if len(words) > 344:
            yield words[-1] >> 1
            del words[0]


class _Refiner:
    """Points that move, one by one, to the cluster where they fit better."""

    def __init__(self, points: np.ndarray, clusters: np.ndarray, assignment: np.ndarray, floor: float, top: int):
        self.points, self.clusters, self.assignment, self.floor = points, clusters, assignment, floor
        self.objectives = objective(clusters, floor)
        others = min(top, len(clusters)) - 1
        every = np.arange(len(points))
        # distance of each point to each cluster, but for the objective of the point; its own is left out
        gained = objective(clusters[None] + points[:, None], floor)
        distance = self.objectives - gained
        distance[every, assignment] = inf
        self.near = np.argsort(distance, axis=1, kind="stable")[:, :others]
        # slots of the clusters that a point knows: the nearest others, and last its own
        self.near = np.concatenate([self.near, assignment[:, None]], axis=1)

    def refine(self, passes: int) -> np.float32:
        """Visit all points up to `passes` times, until none moves; the objective gained."""
        gain = np.float32(0)
        for _ in range(passes):
            moved, start = False, 0
            while start < len(self.points):
                found = self._first_better(start)
                if found is None:
                    break
                point, to, improvement = found
                gain = np.float32(gain + improvement)
                self._move(point, to)
                moved, start = True, point + 1
            if not moved:
                break
        return gain

    def _first_better(self, start: int):
        """(point, cluster, improvement) of the first point from `start` on that has a better cluster; None: none."""
        points, own = self.points[start:], self.assignment[start:]
        near = self.near[start:]
        without = objective(self.clusters[own] - points, self.floor)
        with_it = objective(self.clusters[near] + points[:, None], self.floor)
        improvement = ((with_it + without[:, None]) - self.objectives[near]) - self.objectives[own][:, None]
        better = (improvement > 0) & (near != own[:, None])
        rows = np.flatnonzero(better.any(axis=1))
        if not len(rows):
            return None
        slot = int(better[rows[0]].argmax())
        return start + int(rows[0]), int(near[rows[0], slot]), improvement[rows[0], slot]

    def _move(self, point: int, to: int) -> None:
        old = self.assignment[point]
        self.assignment[point] = to
        self.clusters[old] -= self.points[point]
        self.clusters[to] += self.points[point]
        changed = [old, to]
        self.objectives[changed] = objective(self.clusters[changed], self.floor)


def refine(
    points: np.ndarray, clusters: np.ndarray, assignment: np.ndarray, floor: float, passes: int = 100, top: int = 5
) -> np.float32:
    """Move points (n, 2 D + 1) between the nearest `top` clusters while that improves the objective.

    Changes clusters (k, 2 D + 1), the sums, and assignment (n,) in place; returns the objective gained, float32.
    """
    if passes <= 0 or min(top, len(clusters)) <= 1:
        return np.float32(0)
    return _Refiner(points, clusters, assignment, floor, top).refine(passes)


def k_means(
    points: np.ndarray, num_clusters: int, floor: float, random: Iterator[int], tries: int, iterations: int = 20
) -> tuple[np.float32, np.ndarray]:
    """(objective gained over one cluster of all, assignment (n,)): the best of `tries` random beginnings."""
    best, best_assignment = np.float32(0), None
    for _ in range(tries):
        n = len(points)
        skip = 1
        if n > 1:
            skip = 1 + next(random) % (n - 1)
            while gcd(skip, n) != 1:
                skip = 1 if skip == n - 1 else skip + 1
        order = np.arange(n) * skip % n
        assignment = np.empty(n, dtype=np.int64)
        assignment[order] = np.arange(n) % num_clusters
        clusters = np.zeros((num_clusters, points.shape[1]))
        np.add.at(clusters, assignment[order], points[order])
        gained = np.float32(added(objective(clusters, floor)) - objective(clusters.sum(axis=0), floor))
        for _ in range(iterations):
            improvement = refine(points, clusters, assignment, floor)
            gained = np.float32(gained + improvement)
            if improvement == 0:
                break
        if best_assignment is None or gained > best:
            best, best_assignment = gained, assignment
    return best, best_assignment


def divide(points: np.ndarray, floor: float, random: Iterator[int], tries: int = 10) -> list[tuple[list[int], int]]:
    """Divide all points in two, always the cluster that gains most, until nothing gains.

    Returns the nodes of the tree as (points, parent), leaves first, each node before its parent and the root, its own
    parent, last.
    """
    leaves: list[dict] = []
    inner: list[dict] = []
    queue: list[tuple] = []

    def look(node: dict) -> None:
        if len(node["points"]) > 1:
            gain, node["split"] = k_means(points[node["points"]], 2, floor, random, tries)
            if gain > 0:
                heapq.heappush(queue, (-gain, len(queue) + len(inner), node))

    root = {"points": list(range(len(points))), "parent": None}
    leaves.append(root)
    root["at"] = 0
    look(root)
    while queue:
        node = heapq.heappop(queue)[2]
        children = []
        for side in (0, 1):
            child = {"points": [p for p, s in zip(node["points"], node["split"], strict=True) if s == side]}
            child["parent"] = node
            children.append(child)
        children[0]["at"], children[1]["at"] = node["at"], len(leaves)
        leaves[node["at"]] = children[0]
        leaves.append(children[1])
        inner.append(node)
        for child in children:
            look(child)
    nodes = leaves + inner[::-1]
    place = {id(node): i for i, node in enumerate(nodes)}
    return [(node["points"], place[id(node["parent"] or node)]) for node in nodes]


def merge(points: list[np.ndarray], floor: float, threshold: float = inf, at_least: int = 0) -> list[np.ndarray]:
    """Merge the two closest clusters of a group, again and again, while they cost at most `threshold`.

    Args:
        points: groups of rows (n_g, 2 D + 1); only clusters of one group are merged.
        threshold: the most objective that a merger may cost.
        at_least: stop at so many clusters in all groups.

    Returns:
        Per group (n_g,) the cluster of each point, numbered from 0 by the places of the points that took others in.
    """
    sums = [group.copy() for group in points]
    alone = [objective(group, floor) for group in sums]
    alive = [np.ones(len(group), dtype=bool) for group in sums]
    went = [np.arange(len(group)) for group in sums]
    distance = [np.zeros((len(group), len(group)), dtype=np.float32) for group in sums]
    queue: list[tuple] = []
    left = sum(map(len, sums))
    below = np.nextafter(np.float32(threshold), np.float32(0))  # later mergers must cost less than the first may

    def look(g: int, i: int, others: np.ndarray, at_most: float) -> None:
        together = objective(sums[g][i] + sums[g][others], floor)
        cost = np.maximum((alone[g][i] + alone[g][others]) - together, np.float32(0))
        distance[g][i, others] = distance[g][others, i] = cost
        for k, c in zip(others.tolist(), cost.tolist(), strict=True):
            if c <= at_most:
                heapq.heappush(queue, (c, g, max(i, k), min(i, k)))

    for g, group in enumerate(sums):
        for i in range(1, len(group)):
            look(g, i, np.arange(i), threshold)
    while left > at_least and queue:
        cost, g, i, j = heapq.heappop(queue)
        stale = not (alive[g][i] and alive[g][j]) or abs(distance[g][i, j] - cost) > 1e-5 * abs(cost)
        if stale:
            continue
        sums[g][i] += sums[g][j]
        alive[g][j] = False
        went[g][j] = i
        left -= 1
        alone[g][i] = objective(sums[g][i], floor)
        look(g, i, np.flatnonzero(alive[g] & (np.arange(len(alive[g])) != i)), below)
    for chain in went:
        for i in range(len(chain)):
            while chain[chain[i]] != chain[i]:
                chain[i] = chain[chain[i]]
    return [np.cumsum(alive[g])[chain] - 1 for g, chain in enumerate(went)]
