"""Building a phonetic decision tree: greedy splits of the leaves by the best question, then merging of close leaves.

From a stub (a leaf for each root of the roots file) the leaf is split, again and again, whose best question gains most
likelihood (ngsgd.hmm.tree_cluster, equation 1), while that is more than a threshold and the leaves are fewer than
allowed. Then leaves under the same root are merged where that costs no more than the last split gained. The tree is
Kaldi's: of equally good questions the first is taken, and leaves are numbered in its order.
"""

from __future__ import annotations

import dataclasses
import heapq
import logging
from collections.abc import Callable

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.topology import Topology, read_topology
from ngsgd.hmm.tree import ContextDependency, Leaf, Split, Table, stub_map
from ngsgd.hmm.tree_cluster import merge, objective, refine
from ngsgd.hmm.tree_questions import Questions, check_sets, read_questions
from ngsgd.hmm.tree_stats import ABSENT, ContextOptions, TreeStats, group_sums, read_tree_stats
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class BuildOptions:
    """When splitting stops and what is merged."""

    max_leaves: int = opt(0, "most leaves of the tree; 0: as many as the threshold allows", at_least=0)
    thresh: float = opt(300.0, "least gain of log-likelihood of a split", at_least=0)
    cluster_thresh: float = opt(-1.0, "most loss of merging two leaves; 0: no merging, -1: the gain of the last split")
    round_num_leaves: bool = opt(True, "merge leaves until their number is a multiple of 8")


@dataclasses.dataclass(frozen=True)
class Root:
    """Phones that share a root: one leaf for all their pdf-classes (`shared`) or one each; `split`: may be split."""

    phones: tuple[int, ...]
    shared: bool
    split: bool


def read_roots(rxfilename: str) -> list[Root]:
    """Read a roots file: `shared|not-shared split|not-split PHONE...` a line. DataError names a line that is none."""
    roots = []
    for number, line in enumerate(read_lines(rxfilename), 1):
        words = line.split()
        good = (
            len(words) > 2
            and words[0] in ("shared", "not-shared")
            and words[1] in ("split", "not-split")
            and all(w.isdigit() for w in words[2:])
        )
        if not good:
            raise DataError(
                f"{rxfilename}:{number}: expected 'shared|not-shared split|not-split PHONE...' with phones as numbers, "
                f"got '{line.strip()}'"
            )
        roots.append(Root(tuple(sorted(int(w) for w in words[2:])), words[0] == "shared", words[1] == "split"))
    if not roots:
        raise DataError(f"{rxfilename}: no roots")
    check_sets(rxfilename, [list(root.phones) for root in roots])
    return roots


class _Splitter:
    """A part of the tree above one root, with what is needed to split it further."""

    def __init__(self, leaf: int, stats: TreeStats, which: np.ndarray, questions: Questions):
        self.leaf, self.which = leaf, which
        self._stats, self._questions = stats, questions
        self.yes: _Splitter | None = None
        self.no: _Splitter | None = None
        self.gain, self.key, self.yes_set = np.float32(0), 0, np.zeros(0, np.int32)
        for key in questions.sets:
            gain, yes_set = best_question(stats, which, key, questions)
            if gain > self.gain:
                self.gain, self.key, self.yes_set = gain, key, yes_set

    def split(self, new_leaf: int) -> None:
        """Split the best leaf in this part; "yes" keeps its number, "no" gets new_leaf."""
        if self.yes is None:
            answer = np.isin(self._stats.values(self.key)[self.which], self.yes_set)
            self.yes = _Splitter(self.leaf, self._stats, self.which[answer], self._questions)
            self.no = _Splitter(new_leaf, self._stats, self.which[~answer], self._questions)
        else:
            (self.yes if self.yes.gain >= self.no.gain else self.no).split(new_leaf)
        self.gain = max(self.yes.gain, self.no.gain)

    def event_map(self):
        """The part as nodes of a tree."""
        if self.yes is None:
            return Leaf(self.leaf)
        return Split(self.key, self.yes_set, self.yes.event_map(), self.no.event_map())


def best_question(stats: TreeStats, which: np.ndarray, key: int, questions: Questions) -> tuple[np.float32, np.ndarray]:
    """(gain float32, values of yes) of the question about `key` that splits the events `which` best.

    0 where nothing gains, or where some of the events don't have the key.
    """
    nothing = np.float32(0), np.zeros(0, dtype=np.int32)
    values = stats.values(key)[which]
    if len(which) < 2 or (values == ABSENT).any():
        return nothing
    present, inverse = np.unique(values, return_inverse=True)
    rows = group_sums(stats.rows[which], inverse.ravel(), len(present))
    yes = questions.answers(key, present)
    number = _different_questions(yes)
    if not len(number):
        return nothing
    yes = yes[number]
    floor = stats.var_floor
    total = rows.sum(axis=0)
    # the smaller part is added up, the larger is the rest
    small = np.where((2 * yes.sum(axis=1) > len(present))[:, None], ~yes, yes)
    sums = small.astype(np.float64) @ rows
    halves = 2 * small.sum(axis=1) == len(present)
    rest = total - sums
    rest[halves] = (~small[halves]).astype(np.float64) @ rows
    gains = (objective(sums, floor) + objective(rest, floor)) - objective(total, floor)
    best = int(gains.argmax())
    gain = gains[best] if gains[best] > 0 else np.float32(0)
    yes_set = questions.sets[key][number[best]] if gain > 0 else nothing[1]
    if questions.refine[key] > 0:
        side = np.isin(present, yes_set).astype(np.int64)
        clusters = group_sums(rows, side, 2)
        gain = np.float32(gain + refine(rows, clusters, side, floor, questions.refine[key], 2))
        unseen = np.setdiff1d(yes_set[yes_set <= present[-1]], present)
        yes_set = np.union1d(unseen, present[side == 1]).astype(np.int32)
    return gain, yes_set


def _different_questions(yes: np.ndarray) -> np.ndarray:
    """Numbers of the questions, rows of answers, that divide the values; the first of those that divide alike."""
    canonical = yes ^ yes[:, :1]  # a question and its opposite divide alike
    dividing = np.flatnonzero(canonical.any(axis=1))
    _, first = np.unique(np.packbits(canonical[dividing], axis=1), axis=0, return_index=True)
    return dividing[np.sort(first)]


def map_leaves(node, change: Callable[[int], object]):
    """A copy of a tree in which each leaf is replaced by change(its number), a node."""
    if node is None:
        return None
    if isinstance(node, Leaf):
        return change(node.answer)
    if isinstance(node, Table):
        return Table(node.key, [map_leaves(child, change) for child in node.children])
    return Split(node.key, node.yes_set, map_leaves(node.yes, change), map_leaves(node.no, change))


def leaf_of_events(node, stats: TreeStats) -> np.ndarray:
    """(n,) int64 the answer of a tree for each event. DataError when it has none for one."""
    answers = np.full(len(stats.events), -1, dtype=np.int64)

    def visit(node, which: np.ndarray) -> None:
        if not len(which):
            return
        if isinstance(node, Leaf):
            answers[which] = node.answer
            return
        if node is None:
            raise _no_answer(stats, which)
        values = stats.values(node.key)[which]
        if (values == ABSENT).any():
            raise DataError(
                f"the tree asks for key {node.key} of the event {stats.events[which[values == ABSENT][0]].tolist()}, "
                "which has none: do tree and statistics have the same context width and central position, and do "
                "phones without context share roots with others?"
            )
        if isinstance(node, Table):
            if values.max() >= len(node.children):
                raise _no_answer(stats, which[values >= len(node.children)])
            for value in np.unique(values):
                visit(node.children[value], which[values == value])
        else:
            answer = np.isin(values, list(node.yes_set))
            visit(node.yes, which[answer])
            visit(node.no, which[~answer])

    visit(node, np.arange(len(stats.events)))
    return answers


def _no_answer(stats: TreeStats, which: np.ndarray) -> DataError:
    event = stats.events[which[0]].tolist()
    return DataError(f"the tree has no leaf for pdf-class {event[0]} of phones {event[1:]}: was it built for others?")


def split_leaves(
    stub, stats: TreeStats, questions: Questions, num_leaves: int, options: BuildOptions
) -> tuple[object, int, np.float32 | None]:
    """(tree, number of leaves, gain of the weakest split or None without any) from a stub of num_leaves leaves."""
    leaf = leaf_of_events(stub, stats)
    parts = [_Splitter(n, stats, np.flatnonzero(leaf == n), questions) for n in range(num_leaves)]
    queue = [(-part.gain, -n) for n, part in enumerate(parts)]
    heapq.heapify(queue)
    weakest, start, gained = None, num_leaves, 0.0
    while -queue[0][0] > np.float32(options.thresh) and not 0 < options.max_leaves <= num_leaves:
        gain, n = -queue[0][0], -queue[0][1]
        weakest = gain if weakest is None else min(weakest, gain)
        gained += float(gain)
        parts[n].split(num_leaves)
        num_leaves += 1
        heapq.heapreplace(queue, (-parts[n].gain, -n))
    frames = max(stats.rows[:, 0].sum(), 1)
    log.info(
        "%d splits of %d roots: %d leaves, log-likelihood %.4f a frame higher",
        num_leaves - start,
        start,
        num_leaves,
        gained / frames,
    )
    if num_leaves < options.max_leaves:
        log.warning(
            "fewer leaves than asked for: %d of %d, no other split gains %g (--thresh)",
            num_leaves,
            options.max_leaves,
            options.thresh,
        )
    return map_leaves(stub, lambda n: parts[n].event_map()), num_leaves, weakest


def merge_leaves(tree, stub, stats: TreeStats, threshold: float = np.inf, leaves_wanted: int = 0):
    """The tree with close leaves under the same leaf of the stub merged (ngsgd.hmm.tree_cluster.merge)."""
    leaf, root = leaf_of_events(tree, stats), leaf_of_events(stub, stats)
    numbers = [np.unique(leaf[root == r]) for r in range(root.max() + 1)]
    by_leaf = group_sums(stats.rows, leaf, leaf.max() + 1)
    merged = merge([by_leaf[n] for n in numbers], stats.var_floor, threshold, leaves_wanted)
    new = {
        old: int(group[cluster])
        for group, clusters in zip(numbers, merged, strict=True)
        for old, cluster in zip(group.tolist(), clusters.tolist(), strict=True)
    }
    return map_leaves(tree, lambda n: Leaf(new.get(n, n)))


def leaves_of(tree) -> list[int]:
    """The numbers of a tree's leaves, sorted."""
    return sorted(set(tree.multi_map({})))


def build(
    stats: TreeStats,
    roots: list[Root],
    questions: Questions,
    topology: Topology,
    options: BuildOptions,
    context: ContextOptions,
) -> ContextDependency:
    """The tree of the module's text.

    Phones never seen are named in the log. DataError when the roots leave out a phone of the topology or of the
    statistics, or name one that it does not have, and when the context does not fit the statistics.
    """
    central = context.central_position
    context.check()
    if stats.events.shape[1] > context.context_width + 1:
        width = stats.events.shape[1] - 1
        raise DataError(f"the statistics have windows of {width} phones, --context-width is {context.context_width}")
    _check_phones(stats, roots, topology, central)
    if not options.max_leaves and not options.thresh:
        raise DataError("neither --max-leaves nor --thresh limits the tree")
    classes = {p: topology.num_pdf_classes(p) for p in topology.phones}
    stub, num_leaves = stub_map(central, [r.phones for r in roots], classes, [r.shared for r in roots])
    fixed = [p for root in roots if not root.split for p in root.phones]
    splittable = stats.select(~np.isin(stats.values(central), fixed))
    tree, num_leaves, weakest = split_leaves(stub, splittable, questions, num_leaves, options)
    threshold = options.cluster_thresh
    if threshold < 0:
        threshold = 0 if weakest is None else weakest
    if threshold != 0:
        tree = merge_leaves(tree, stub, stats, np.float32(threshold))
        log.info("merging by threshold %g: %d leaves", threshold, len(leaves_of(tree)))
    if options.round_num_leaves:
        tree = _rounded(tree, stub, stats)
    place = {old: new for new, old in enumerate(leaves_of(tree))}
    return ContextDependency(context.context_width, central, map_leaves(tree, lambda n: Leaf(place[n])))


def _rounded(tree, stub, stats: TreeStats):
    """The tree with its leaves merged to a multiple of 8; unchanged where there are too few."""
    leaves = leaves_of(tree)
    wanted = len(leaves) // 8 * 8
    unseen = len(leaves) - len(np.unique(leaf_of_events(tree, stats)))  # these stay
    roots = len(np.unique(leaf_of_events(stub, stats)))
    if wanted == len(leaves) or wanted - unseen < roots:
        return tree
    log.info("merging %d leaves to %d, a multiple of 8", len(leaves), wanted)
    return merge_leaves(tree, stub, stats, leaves_wanted=wanted - unseen)


def _check_phones(stats: TreeStats, roots: list[Root], topology: Topology, central: int) -> None:
    phones = {p for root in roots for p in root.phones}
    seen = set(stats.values(central).tolist())
    if ABSENT in seen:
        raise DataError("the statistics have events without a central phone: see --central-position")
    for what, known in (("topology", set(topology.phones)), ("statistics", seen)):
        missing = sorted(known - phones)
        if missing:
            raise DataError(f"the roots leave out phones that the {what} has: {' '.join(map(str, missing))}")
    strangers = sorted(phones - set(topology.phones))
    if strangers:
        raise DataError(f"the roots have phones that the topology does not have: {' '.join(map(str, strangers))}")
    unseen = sorted(phones - seen)
    if unseen:
        log.warning("%d of %d phones were never seen: %s", len(unseen), len(phones), " ".join(map(str, unseen)))


def build_tree(
    stats: str,
    roots: str,
    questions: str,
    topology: str,
    target: str,
    options: BuildOptions,
    context: ContextOptions,
    binary: bool,
) -> None:
    """What build-tree does, on files."""
    sums = read_tree_stats(stats)
    tree = build(sums, read_roots(roots), read_questions(questions), read_topology(topology), options, context)
    frames = group_sums(sums.rows[:, :1], leaf_of_events(tree.to_pdf, sums), tree.num_pdfs)[:, 0]
    few = np.flatnonzero(frames < 100)
    if len(few):
        log.info("%d of %d leaves have less than 100 frames, the least %g", len(few), len(frames), frames.min())
    with open_writer(target, binary) as w:
        tree.write(w)
