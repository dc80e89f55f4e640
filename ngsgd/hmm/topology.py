"""HMM topologies: which states a phone has, which may follow which, and with what initial probabilities.

A topology entry is a list of states; state 0 starts the phone, the last state is the non-emitting end and has
neither a pdf-class nor transitions. A pdf-class is the number by which the decision tree is asked for the pdf of a
state; the pdf of a self-loop may be asked for under another class (chain models), -1 means non-emitting.

File format: Kaldi's `topo` (text) and the `<Topology>` block of its models (binary or text), byte for byte.
"""

from __future__ import annotations

import dataclasses

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader

NO_PDF = -1
_MOST_PHONES = 1 << 24


@dataclasses.dataclass(frozen=True)
class HmmState:
    """One state: its pdf-classes (forward and self-loop, -1 if non-emitting) and [(next state, probability)]."""

    pdf_class: int
    self_loop_pdf_class: int
    transitions: tuple[tuple[int, float], ...]


class Topology:
    """The topology of every phone. `entries[i]` is a list of HmmState, `phone_entry[phone]` its index i."""

    def __init__(self, entries: list[list[HmmState]], phone_entry: dict[int, int], where: str = "topology"):
        self.entries = entries
        self.phone_entry = phone_entry
        self._check(where)

    @property
    def phones(self) -> list[int]:
        """All phones, sorted."""
        return sorted(self.phone_entry)

    @property
    def is_hmm(self) -> bool:
        """True when every state emits its self-loop from the same pdf-class (all but chain models)."""
        return all(s.pdf_class == s.self_loop_pdf_class for entry in self.entries for s in entry)

    def entry(self, phone: int) -> list[HmmState]:
        """The states of a phone; DataError when the phone has none."""
        if phone not in self.phone_entry:
            raise DataError(f"phone {phone} has no entry in the topology (phones {self.phones[0]}..{self.phones[-1]})")
        return self.entries[self.phone_entry[phone]]

    def num_pdf_classes(self, phone: int) -> int:
        """1 + the largest pdf-class of the phone."""
        return 1 + max(max(s.pdf_class, s.self_loop_pdf_class) for s in self.entry(phone))

    def _check(self, where: str) -> None:
        if not self.entries or not self.phone_entry:
            raise DataError(f"{where}: the topology is empty")
        beyond = set(self.phone_entry.values()) - set(range(len(self.entries)))
        if beyond:
            raise DataError(f"{where}: a phone has topology entry {min(beyond)} of {len(self.entries)}")
        if not 0 < min(self.phone_entry) <= max(self.phone_entry) < _MOST_PHONES:
            phones = f"{min(self.phone_entry)}..{max(self.phone_entry)}"
            raise DataError(f"{where}: phones {phones}: expected numbers from 1 to below {_MOST_PHONES}")
        unused = set(range(len(self.entries))) - set(self.phone_entry.values())
        if unused:
            raise DataError(f"{where}: topology entry {min(unused)} belongs to no phone")
        for e, entry in enumerate(self.entries):
            if len(entry) < 2 or entry[-1].transitions or entry[-1].pdf_class != NO_PDF:
                raise DataError(
                    f"{where}: entry {e} must end in a non-emitting state without transitions, "
                    "after at least one emitting state"
                )
            for j, state in enumerate(entry[:-1]):
                total = 0.0
                for dest, prob in state.transitions:
                    if not 0 <= dest < len(entry):
                        raise DataError(f"{where}: entry {e} state {j} leads to state {dest} of {len(entry)}")
                    if prob <= 0.0:
                        raise DataError(
                            f"{where}: entry {e} state {j} has a transition of probability {prob}; leave it out instead"
                        )
                    total += prob
                if not 0.99 < total < 1.01:
                    raise DataError(f"{where}: probabilities out of entry {e} state {j} sum to {total:g}, not 1")

    @classmethod
    def read(cls, r) -> Topology:
        """Read from a TokenReader, text or binary."""
        r.expect("<Topology>")
        entries, phone_entry = (_read_binary if r.binary else _read_text)(r)
        return cls(entries, phone_entry, r.name)

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("<Topology>")
        if w.binary:
            self._write_binary(w)
        else:
            self._write_text(w)
        w.token("</Topology>")
        w.newline()

    def _write_text(self, w) -> None:
        is_hmm = self.is_hmm
        w.newline()
        for e, entry in enumerate(self.entries):
            w.token("<TopologyEntry>")
            w.newline()
            w.token("<ForPhones>")
            w.newline()
            for phone in self.phones:
                if self.phone_entry[phone] == e:
                    w.int32(phone)
            w.newline()
            w.token("</ForPhones>")
            w.newline()
            for j, state in enumerate(entry):
                w.token("<State>")
                w.int32(j)
                if state.pdf_class != NO_PDF:
                    w.token("<PdfClass>" if is_hmm else "<ForwardPdfClass>")
                    w.int32(state.pdf_class)
                    if not is_hmm:
                        w.token("<SelfLoopPdfClass>")
                        w.int32(state.self_loop_pdf_class)
                for dest, prob in state.transitions:
                    w.token("<Transition>")
                    w.int32(dest)
                    w.float32(prob)
                w.token("</State>")
                w.newline()
            w.token("</TopologyEntry>")
            w.newline()

    def _write_binary(self, w) -> None:
        is_hmm = self.is_hmm
        phones = self.phones
        w.int32_vector(phones)
        w.int32_vector([self.phone_entry.get(p, -1) for p in range(phones[-1] + 1)])
        if not is_hmm:
            w.int32(-1)  # announces the self-loop pdf-classes
        w.int32(len(self.entries))
        for entry in self.entries:
            w.int32(len(entry))
            for state in entry:
                w.int32(state.pdf_class)
                if not is_hmm:
                    w.int32(state.self_loop_pdf_class)
                w.int32(len(state.transitions))
                for dest, prob in state.transitions:
                    w.int32(dest)
                    w.float32(prob)


def _read_binary(r) -> tuple[list[list[HmmState]], dict[int, int]]:
    r.int32_vector()  # the phones; the map that follows has them again
    phone_entry = {p: int(e) for p, e in enumerate(r.int32_vector()) if e >= 0}
    count = r.int32()
    is_hmm = count != -1
    if not is_hmm:
        count = r.int32()
    entries = []
    for _ in range(count):
        entry = []
        for _ in range(r.count("the states of a topology entry")):
            forward = r.int32()
            self_loop = forward if is_hmm else r.int32()
            transitions = tuple((r.int32(), r.float32()) for _ in range(r.count("transitions")))
            entry.append(HmmState(forward, self_loop, transitions))
        entries.append(entry)
    r.expect("</Topology>")
    return entries, phone_entry


def _read_text(r) -> tuple[list[list[HmmState]], dict[int, int]]:
    entries, phone_entry = [], {}
    while r.expect("<TopologyEntry>", "</Topology>") == "<TopologyEntry>":
        r.expect("<ForPhones>")
        while (token := r.token()) != "</ForPhones>":
            phone = r.number(token, int, "a phone number between <ForPhones> and </ForPhones>")
            if phone in phone_entry:
                raise r.error(f"phone {phone} is in two topology entries")
            phone_entry[phone] = len(entries)
        entry = []
        while r.expect("<State>", "</TopologyEntry>") == "<State>":
            if (number := r.int32()) != len(entry):
                raise DataError(f"{r.name}: topology states are numbered from 0: expected {len(entry)}, got {number}")
            entry.append(_read_state(r))
        entries.append(entry)
    return entries, phone_entry


def _read_state(r) -> HmmState:
    forward = self_loop = NO_PDF
    transitions = []
    token = r.expect("<PdfClass>", "<ForwardPdfClass>", "<Transition>", "</State>")
    if token == "<PdfClass>":
        forward = self_loop = r.int32()
        token = r.expect("<Transition>", "</State>")
    elif token == "<ForwardPdfClass>":
        forward = r.int32()
        r.expect("<SelfLoopPdfClass>")
        self_loop = r.int32()
        token = r.expect("<Transition>", "</State>")
    while token == "<Transition>":
        dest = r.int32()
        transitions.append((dest, r.float32()))
        token = r.expect("<Transition>", "</State>")
    return HmmState(forward, self_loop, tuple(transitions))


def read_topology(rxfilename: str) -> Topology:
    """Read a topology file such as data/lang/topo."""
    with open_reader(rxfilename) as r:
        return Topology.read(r)
