"""Questions that a decision tree may ask: sets of phones, found by clustering, and sets of pdf-classes.

File format: Kaldi's questions.qst (`compile-questions`), byte for byte; questions as text are one set of phones a line.
"""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.flat_start import read_phone_sets
from ngsgd.hmm.topology import Topology, read_topology
from ngsgd.hmm.tree import PDF_CLASS
from ngsgd.hmm.tree_cluster import c_library_random, divide, k_means
from ngsgd.hmm.tree_stats import ABSENT, ContextOptions, TreeStats, group_sums, read_tree_stats
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_reader, open_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)
_KMEANS_TRIES = 2


@dataclasses.dataclass
class ClusterOptions:
    """How phones are clustered."""

    pdf_class_list: str = opt("1", "colon-separated pdf-classes that are looked at: 1 is the middle of three states")
    mode: str = opt("questions", "questions: sets in a hierarchy; k-means: num-classes sets", ("questions", "k-means"))
    num_classes: int = opt(-1, "number of sets in mode k-means", at_least=2)


@dataclasses.dataclass
class QuestionsOptions:
    """What is compiled with the questions."""

    num_iters_refine: int = opt(0, "passes that refine the question of each split; 0: questions as given", at_least=0)


@dataclasses.dataclass
class Questions:
    """Per key (-1: pdf-class, 0 .. N - 1: phone of the window) sets of values, sorted, and passes of refinement."""

    sets: dict[int, list[np.ndarray]]
    refine: dict[int, int]
    _tables: dict[int, np.ndarray] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def answers(self, key: int, values: np.ndarray) -> np.ndarray:
        """(questions, len(values)) bool: whether each value is in the set of each question about `key`."""
        if key not in self._tables:
            width = 1 + max((int(s[-1]) for s in self.sets[key] if len(s)), default=0)
            table = np.zeros((len(self.sets[key]), width + 1), dtype=bool)  # the last column: values beyond
            for row, values_of_yes in zip(table, self.sets[key], strict=True):
                row[values_of_yes] = True
            self._tables[key] = table
        table = self._tables[key]
        return table[:, np.minimum(values, table.shape[1] - 1)]

    @classmethod
    def read(cls, r: TokenReader) -> Questions:
        """Read from a TokenReader, text or binary."""
        r.expect("<Questions>")
        sets: dict[int, list[np.ndarray]] = {}
        passes: dict[int, int] = {}
        while r.expect("<Key>", "</Questions>") == "<Key>":
            key = r.int32()
            r.expect("<QuestionsForKey>")
            sets[key] = [r.int32_vector() for _ in range(r.count("questions"))]
            if any(len(s) and (s.min() < 0 or (np.diff(s) <= 0).any()) for s in sets[key]):
                raise DataError(f"{r.name}: a question about key {key} is not a sorted set of numbers from 0")
            r.expect("<RefineClustersOptions>")
            passes[key] = r.int32()
            r.int32()
            r.expect("</RefineClustersOptions>")
            r.expect("</QuestionsForKey>")
        if not sets:
            raise DataError(f"{r.name}: no questions")
        return cls(dict(sorted(sets.items())), passes)

    def write(self, w: TokenWriter) -> None:
        """Write to a TokenWriter."""
        w.token("<Questions>")
        for key in sorted(self.sets):
            w.token("<Key>")
            w.int32(key)
            w.token("<QuestionsForKey>")
            w.int32(len(self.sets[key]))
            for question in self.sets[key]:
                w.int32_vector(question)
            w.token("<RefineClustersOptions>")
            w.int32(self.refine[key])
            w.int32(2)  # clusters that a value may move between: yes and no
            w.token("</RefineClustersOptions>")
            w.token("</QuestionsForKey>")
        w.token("</Questions>")


def read_questions(rxfilename: str) -> Questions:
    """Read a questions.qst file."""
    with open_reader(rxfilename) as r:
        return Questions.read(r)


def check_sets(where: str, sets: list[list[int]]) -> list[list[int]]:
    """The sets, sorted. DataError when a phone is twice in one or in two, or is no number above 0."""
    seen: set[int] = set()
    for phones in sets:
        for phone in phones:
            if phone < 1 or phone in seen:
                raise DataError(f"{where}: phone {phone} is {'not a phone' if phone < 1 else 'there twice'}")
            seen.add(phone)
    return [sorted(phones) for phones in sets]


def stats_of_sets(stats: TreeStats, sets: list[list[int]], pdf_classes: list[int], central: int) -> np.ndarray:
    """(sets, 2 D + 1) the statistics of the central phones of each set in some pdf-classes.

    Sets without any are named in the log; DataError when all but one have none.
    """
    chosen = stats.select(np.isin(stats.values(PDF_CLASS), pdf_classes))
    phones = chosen.values(central)
    if (stats.values(central) == ABSENT).any():
        raise DataError(f"the statistics have events without phone {central} of the window: see --central-position")
    largest = max(int(stats.values(central).max()), max(max(s) for s in sets))
    by_phone = group_sums(chosen.rows, phones, largest + 1)
    strangers = sorted(set(phones.tolist()) - {p for s in sets for p in s})
    if strangers:
        log.warning("phones in the statistics but in none of the sets: %s", " ".join(map(str, strangers)))
    rows = np.stack([by_phone[s].sum(axis=0) for s in sets])
    unseen = [" ".join(map(str, s)) for s, row in zip(sets, rows, strict=True) if row[0] == 0]
    if unseen:
        log.warning("%d of %d sets of phones were never seen: %s", len(unseen), len(sets), "; ".join(unseen))
    if len(sets) - len(unseen) < 2 <= len(sets):
        raise DataError(
            f"of {len(sets)} sets of phones {len(sets) - len(unseen)} have statistics in pdf-class "
            f"{' '.join(map(str, pdf_classes))}: for topologies of other than three states see --pdf-class-list"
        )
    return rows


def cluster_to_questions(stats: TreeStats, sets: list[list[int]], pdf_classes: list[int], central: int):
    """Sets of phones to ask about: the clusters of a hierarchy from the top, then the sets given; none twice."""
    rows = stats_of_sets(stats, sets, pdf_classes, central)
    nodes = divide(rows, stats.var_floor, c_library_random())
    # from the root down, without the root itself, which asks nothing
    found = [sorted(p for s in points for p in sets[s]) for points, _ in nodes[:-1]][::-1]
    unique = dict.fromkeys(tuple(question) for question in [*found, *sets])
    return [list(question) for question in unique]


def cluster_to_classes(stats: TreeStats, sets: list[list[int]], pdf_classes: list[int], central: int, classes: int):
    """`classes` sets of phones by k-means."""
    rows = stats_of_sets(stats, sets, pdf_classes, central)
    _, assignment = k_means(rows, classes, stats.var_floor, c_library_random(), _KMEANS_TRIES)
    return [sorted(p for s, c in zip(sets, assignment, strict=True) if c == k for p in s) for k in range(classes)]


def cluster_phones(stats: str, sets: str, target: str, options: ClusterOptions, context: ContextOptions) -> int:
    """What cluster-phones does, on files; returns the number of sets written."""
    context.check()
    phone_sets = check_sets(sets, read_phone_sets(sets))
    words = options.pdf_class_list.split(":")
    if not all(w.isdigit() for w in words):
        raise DataError(f"--pdf-class-list: expected numbers like 0:1, got '{options.pdf_class_list}'")
    arguments = (read_tree_stats(stats), phone_sets, sorted({int(w) for w in words}), context.central_position)
    if options.mode == "questions":
        if options.num_classes != -1:
            raise DataError("--num-classes: only in --mode=k-means")
        found = cluster_to_questions(*arguments)
    else:
        if not 2 <= options.num_classes <= len(phone_sets):
            raise DataError(f"--num-classes: expected 2 to {len(phone_sets)}, the sets, got {options.num_classes}")
        found = cluster_to_classes(*arguments, options.num_classes)
    with open_text_writer(target) as out:
        out.writelines(" ".join(map(str, s)) + "\n" for s in found)
    return len(found)


def compile_sets(topology: Topology, questions: list[list[int]], context: ContextOptions, refine: int) -> Questions:
    """Questions about all phones of the window and about pdf-classes.

    Phones that no question is about are named in the log; DataError for questions about phones without topology.
    """
    context.check()
    asked = {p for q in questions for p in q}
    strangers = sorted(asked - set(topology.phones))
    if strangers:
        raise DataError(f"questions about phones that the topology does not have: {' '.join(map(str, strangers))}")
    missing = sorted(set(topology.phones) - asked)
    if missing:
        log.warning("no question is about phones %s", " ".join(map(str, missing)))
    unique = sorted({tuple(sorted(q)) for q in questions})
    if len(unique) < len(questions):
        log.info("%d questions were there twice", len(questions) - len(unique))
    phone_sets = [np.array(q, dtype=np.int32) for q in unique]
    largest = max(topology.num_pdf_classes(p) for p in topology.phones)
    sets = {PDF_CLASS: [np.arange(n, dtype=np.int32) for n in range(1, largest)]}
    sets |= dict.fromkeys(range(context.context_width), phone_sets)
    return Questions(sets, dict.fromkeys(sets, refine))


def compile_questions(
    topology: str, questions: str, target: str, options: QuestionsOptions, context: ContextOptions, binary: bool
) -> None:
    """What compile-questions does, on files."""
    topo, sets = read_topology(topology), read_phone_sets(questions)
    for phones in sets:
        check_sets(questions, [phones])
    with open_writer(target, binary) as w:
        compile_sets(topo, sets, context, options.num_iters_refine).write(w)
