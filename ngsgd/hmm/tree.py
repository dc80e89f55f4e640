"""Phonetic-context decision trees: from a window of phones and a pdf-class to a pdf.

An event is a dict {key: value}: key -1 is the pdf-class of the HMM state, keys 0..N-1 are the phones of the context
window (0 as a phone: beyond the utterance's edge). A tree is built of three kinds of node (Kaldi's event maps):

    Leaf   "CE"  answers always the same number
    Table  "TE"  looks the value of its key up in a table, entries may be missing
    Split  "SE"  asks whether the value of its key is in a set: yes or no

File format: Kaldi's `tree`, binary or text, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader

PDF_CLASS = -1


class Leaf:
    """A constant answer."""

    def __init__(self, answer: int):
        self.answer = answer

    def map(self, event: dict[int, int]) -> int | None:
        """The answer for an event that gives all keys needed; None where the tree has no entry."""
        return self.answer

    def multi_map(self, event: dict[int, int]) -> Iterator[int]:
        """All answers possible given the keys that the event has (repeats included)."""
        yield self.answer

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("CE")
        w.int32(self.answer)


class Table:
    """A list of children (None where there is none) indexed by the value of `key`."""

    def __init__(self, key: int, children: Sequence):
        self.key = key
        self.children = list(children)

    def map(self, event: dict[int, int]) -> int | None:
        """As Leaf.map."""
        value = event[self.key]
        child = self.children[value] if 0 <= value < len(self.children) else None
        return None if child is None else child.map(event)

    def multi_map(self, event: dict[int, int]) -> Iterator[int]:
        """As Leaf.multi_map."""
        if self.key in event:
            value = event[self.key]
            children = self.children[value : value + 1] if value >= 0 else []
        else:
            children = self.children
        for child in children:
            if child is not None:
                yield from child.multi_map(event)

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("TE")
        w.int32(self.key)
        write_uint32(w, len(self.children))
        w.token("(")
        for child in self.children:
            if child is None:
                w.token("NULL")
            else:
                child.write(w)
        w.token(")")
        w.newline()


class Split:
    """`yes` when the value of `key` is in `yes_set`, else `no`."""

    def __init__(self, key: int, yes_set, yes, no):
        self.key = key
        self.yes_set = frozenset(int(v) for v in yes_set)
        self.yes = yes
        self.no = no

    def map(self, event: dict[int, int]) -> int | None:
        """As Leaf.map."""
        return (self.yes if event[self.key] in self.yes_set else self.no).map(event)

    def multi_map(self, event: dict[int, int]) -> Iterator[int]:
        """As Leaf.multi_map."""
        if self.key in event:
            yield from (self.yes if event[self.key] in self.yes_set else self.no).multi_map(event)
        else:
            yield from self.yes.multi_map(event)
            yield from self.no.multi_map(event)

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("SE")
        w.int32(self.key)
        w.int32_vector(sorted(self.yes_set))
        w.token("{")
        self.yes.write(w)
        self.no.write(w)
        w.token("}")
        w.newline()


def write_uint32(w, value: int) -> None:
    """Kaldi writes a table's size as an unsigned integer, whose size byte is negative."""
    if w.binary:
        w.raw(struct.pack("<bI", -4, value))
    else:
        w.int32(value)


def read_event_map(r):
    """Read one node with all below it from a TokenReader; None for the token NULL."""
    kind = r.expect("CE", "TE", "SE", "NULL")
    if kind == "NULL":
        return None
    if kind == "CE":
        return Leaf(r.int32())
    key = r.int32()
    if kind == "TE":
        size = r.int32()
        r.expect("(")
        children = [read_event_map(r) for _ in range(size)]
        r.expect(")")
        return Table(key, children)
    yes_set = r.int32_vector()
    r.expect("{")
    yes, no = read_event_map(r), read_event_map(r)
    r.expect("}")
    if yes is None or no is None:
        raise DataError(f"{r.name}: a split in the tree has an empty branch")
    return Split(key, yes_set, yes, no)


class ContextDependency:
    """A tree with the size of its context window: `context_width` phones, the modelled one at `central_position`."""

    def __init__(self, context_width: int, central_position: int, to_pdf):
        self.context_width = context_width
        self.central_position = central_position
        self.to_pdf = to_pdf
        self.num_pdfs = 1 + max(to_pdf.multi_map({}))

    def compute(self, phones: Sequence[int], pdf_class: int) -> int:
        """The pdf of a window of `context_width` phones (0 beyond an edge); DataError when the tree has none."""
        event = dict(enumerate(int(p) for p in phones))
        event[PDF_CLASS] = int(pdf_class)
        pdf = self.to_pdf.map(event)
        if pdf is None:
            raise DataError(
                f"the tree has no pdf for phones {[int(p) for p in phones]}, pdf-class {pdf_class}: "
                "it was built for another phone set or topology"
            )
        return pdf

    def pdfs_of(self, phone: int, pdf_class: int) -> list[int]:
        """All pdfs, sorted, that a phone's pdf-class can have in any context."""
        return sorted(set(self.to_pdf.multi_map({self.central_position: phone, PDF_CLASS: pdf_class})))

    def pdf_pairs_of(
        self, phone: int, forward_class: int, self_loop_class: int, phones: Sequence[int]
    ) -> list[tuple[int, int]]:
        """All (forward pdf, self-loop pdf) pairs that occur together in some context of `phones`, sorted.

        Only needed where the two classes differ (chain models); the self-loop pdf is -1 without a self-loop class.
        """
        pairs: set[tuple[int, int]] = set()
        free = sorted(
            (i for i in range(self.context_width) if i != self.central_position),
            key=lambda i: (abs(i - self.central_position), i),
        )

        def visit(event: dict[int, int], depth: int) -> None:
            forward = set(self.to_pdf.multi_map({**event, PDF_CLASS: forward_class}))
            if self_loop_class < 0:
                pairs.update((f, -1) for f in forward)
                return
            loop = set(self.to_pdf.multi_map({**event, PDF_CLASS: self_loop_class}))
            if len(forward) == 1 or len(loop) == 1:
                pairs.update((f, s) for f in forward for s in loop)
                return
            for other in [0, *phones]:
                visit({**event, free[depth]: other}, depth + 1)

        visit({self.central_position: phone}, 0)
        return sorted(pairs)

    @classmethod
    def read(cls, r) -> ContextDependency:
        """Read from a TokenReader, text or binary."""
        r.expect("ContextDependency")
        width, central = r.int32(), r.int32()
        if r.expect("ToPdf", "ToLength") == "ToLength":  # files older than 2011
            read_event_map(r)
            r.expect("ToPdf")
        to_pdf = read_event_map(r)
        r.expect("EndContextDependency")
        if to_pdf is None or not 0 <= central < width:
            raise DataError(
                f"{r.name}: the tree is empty, or its central position {central} is outside its width {width}"
            )
        return cls(width, central, to_pdf)

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("ContextDependency")
        w.int32(self.context_width)
        w.int32(self.central_position)
        w.token("ToPdf")
        self.to_pdf.write(w)
        w.token("EndContextDependency")


def read_tree(rxfilename: str) -> ContextDependency:
    """Read a `tree` file."""
    with open_reader(rxfilename) as r:
        return ContextDependency.read(r)


def stub_map(
    central: int,
    phone_sets: Sequence[Sequence[int]],
    num_pdf_classes: dict[int, int],
    share_roots: Sequence[bool],
    first: int = 0,
):
    """The roots that a tree starts from: sets of phones that share their roots, one leaf a pdf-class (or one in all).

    Args:
        central: key of the central phone.
        phone_sets: disjoint sets of phones; leaves are numbered in their order.
        num_pdf_classes: phone -> number of pdf-classes.
        share_roots: per set, True to give all its pdf-classes one leaf.
        first: number of the first leaf.

    Returns:
        (node, number of the next leaf). A table over phones where every set is one phone, else balanced splits, as
        Kaldi builds them, so that the tree file is the same.
    """
    largest = max(max(s) for s in phone_sets)
    if len(phone_sets) == 1:
        if share_roots[0]:
            return Leaf(first), first + 1
        count = max(num_pdf_classes[p] for p in phone_sets[0])
        return Table(PDF_CLASS, [Leaf(first + i) for i in range(count)]), first + count
    if max(len(s) for s in phone_sets) == 1 and len(phone_sets) <= 2 * largest:
        children = [None] * (largest + 1)
        for phones, share in zip(phone_sets, share_roots, strict=True):
            children[phones[0]], first = stub_map(central, [phones], num_pdf_classes, [share], first)
        return Table(central, children), first
    half = len(phone_sets) // 2
    yes, first = stub_map(central, phone_sets[:half], num_pdf_classes, share_roots[:half], first)
    no, first = stub_map(central, phone_sets[half:], num_pdf_classes, share_roots[half:], first)
    return Split(central, [p for s in phone_sets[:half] for p in s], yes, no), first


def monophone_tree(topology, phone_sets: Sequence[Sequence[int]] | None = None) -> ContextDependency:
    """The context-independent tree: a leaf for each pdf-class of each set of phones (each phone when not given).

    Raises DataError when a set names an unknown phone, a phone twice, or leaves phones of the topology out.
    """
    phones = topology.phones
    sets = [[p] for p in phones] if phone_sets is None else [sorted(s) for s in phone_sets]
    flat = [p for s in sets for p in s]
    if len(flat) != len(set(flat)):
        raise DataError(f"phone sets: phone {next(p for p in flat if flat.count(p) > 1)} is in two sets")
    difference = set(flat) ^ set(phones)
    if difference:
        raise DataError(
            f"phone sets and topology differ in phone {min(difference)}: "
            f"{len(flat)} phones in sets, {len(phones)} in the topology"
        )
    counts = {p: topology.num_pdf_classes(p) for p in phones}
    to_pdf, _ = stub_map(0, sets, counts, [False] * len(sets))
    return ContextDependency(1, 0, to_pdf)
