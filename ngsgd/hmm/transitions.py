"""The transition model: what each transition-id means, and with what probability it is taken.

A transition-state is a distinct (phone, HMM state, forward pdf, self-loop pdf); they are sorted and numbered from 1.
The transitions out of transition-state s have the consecutive transition-ids state_to_tid[s] .. state_to_tid[s+1]-1,
in the order of the topology, numbered from 1. An alignment is a transition-id a frame; it says which pdf, phone and
transition each frame took.

File format: the `<TransitionModel>` block at the start of Kaldi's final.mdl, byte for byte, with triples (forward and
self-loop pdf the same) or tuples (chain topologies). Probabilities are stored as natural logarithms, entry 0 unused.
"""

from __future__ import annotations

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.topology import NO_PDF, Topology
from ngsgd.hmm.tree import ContextDependency
from ngsgd.kaldi_io.stream import open_reader


class TransitionModel:
    """Arrays over transition-ids (R + 1 entries, entry 0 unused) and transition-states (S + 1, entry 0 unused).

    tuples (S, 4) int32: phone, HMM state, forward pdf, self-loop pdf of transition-states 1..S
    state_to_tid (S + 2,): first transition-id of each transition-state, and one past the last
    tid_to_state, tid_to_index, tid_to_pdf, tid_to_pdf_class, tid_to_phone, tid_to_hmm_state (R + 1,) int32
    is_self_loop, is_final (R + 1,) bool; is_final: the transition leaves the phone
    log_prob (R + 1,) float32
    self_loop_of (S + 1,) int32: transition-id of a transition-state's self-loop, 0 without
    """

    def __init__(
        self,
        topology: Topology,
        tuples: np.ndarray,
        log_prob: np.ndarray | None = None,
        where: str = "transition model",
    ):
        self.topology = topology
        self.tuples = np.ascontiguousarray(tuples, dtype=np.int32).reshape(-1, 4)
        self._derive(where)
        if log_prob is None:
            log_prob = np.log(self._initial_prob)
            log_prob[0] = 0.0
        if len(log_prob) != self.num_transition_ids + 1:
            raise DataError(f"{where}: expected {self.num_transition_ids + 1} log-probabilities, found {len(log_prob)}")
        log_prob = np.asarray(log_prob, dtype=np.float32)
        if not np.all(np.isfinite(log_prob)) or log_prob.max() > 1e-3:
            raise DataError(f"{where}: transition log-probabilities must be finite and not above 0")
        self.log_prob = log_prob

    @property
    def num_transition_ids(self) -> int:
        """R: transition-ids are 1..R."""
        return len(self.tid_to_pdf) - 1

    @property
    def num_transition_states(self) -> int:
        """S: transition-states are 1..S."""
        return len(self.tuples)

    @classmethod
    def from_tree(cls, tree: ContextDependency, topology: Topology) -> TransitionModel:
        """A new model with the probabilities of the topology; its pdfs are those of the tree."""
        phones = topology.phones
        tuples = []
        for phone in phones:
            for j, state in enumerate(topology.entry(phone)):
                if state.pdf_class == NO_PDF:
                    continue
                if state.pdf_class == state.self_loop_pdf_class:
                    pairs = [(p, p) for p in tree.pdfs_of(phone, state.pdf_class)]
                else:
                    pairs = tree.pdf_pairs_of(phone, state.pdf_class, state.self_loop_pdf_class, phones)
                if not pairs:
                    raise DataError(
                        f"the tree has no pdf for pdf-class {state.pdf_class} of phone {phone}: "
                        "tree and topology do not belong together"
                    )
                tuples.extend((phone, j, forward, loop) for forward, loop in pairs)
        return cls(topology, np.array(sorted(tuples), dtype=np.int32))

    def _derive(self, where: str) -> None:
        """Lay the topology's transitions out for every transition-state: all arrays named above."""
        topology = self.topology
        phone, hmm_state, forward, loop = self.tuples.T
        if len(phone) == 0:
            raise DataError(f"{where}: no transition-states")
        if not np.isin(phone, topology.phones).all():
            raise DataError(f"{where}: a transition-state has a phone that the topology does not know")

        entry_of = np.full(topology.phones[-1] + 1, -1)
        entry_of[topology.phones] = [topology.phone_entry[p] for p in topology.phones]

        # the transitions of all entries end to end, and where those of (entry, state) begin
        offsets, flat, base = [], [], []
        for entry in topology.entries:
            base.append(len(offsets))
            for j, state in enumerate(entry):
                offsets.append(len(flat))
                for dest, prob in state.transitions:
                    flat.append(
                        (
                            dest,
                            prob,
                            dest == j,
                            dest == len(entry) - 1,
                            state.self_loop_pdf_class if dest == j else state.pdf_class,
                        )
                    )
        offsets = np.array([*offsets, len(flat)])
        entry_size = np.array([len(e) for e in topology.entries])
        if hmm_state.min() < 0 or (hmm_state >= entry_size[entry_of[phone]] - 1).any():  # the last is not emitting
            raise DataError(f"{where}: a transition-state has an HMM state that its phone's topology has not")

        row = np.array(base)[entry_of[phone]] + hmm_state  # (S,) of each transition-state
        count = offsets[row + 1] - offsets[row]
        first = 1 + np.concatenate([[0], np.cumsum(count)])
        self.state_to_tid = np.concatenate([[0], first]).astype(np.int32)
        state = np.repeat(np.arange(1, len(row) + 1), count)  # (R,)
        index = np.arange(len(state)) - (first[:-1] - 1)[state - 1]
        at = offsets[row][state - 1] + index
        table = np.array(flat)

        def with_zero(values, dtype=np.int32):
            return np.concatenate([[0], values]).astype(dtype)

        self.tid_to_state = with_zero(state)
        self.tid_to_index = with_zero(index)
        self._initial_prob = np.concatenate([[1.0], table[at, 1]])
        self.is_self_loop = with_zero(table[at, 2], bool)
        self.is_final = with_zero(table[at, 3], bool)
        self.tid_to_pdf_class = with_zero(table[at, 4])
        self.tid_to_phone = with_zero(phone[state - 1])
        self.tid_to_hmm_state = with_zero(hmm_state[state - 1])
        self.tid_to_pdf = with_zero(np.where(table[at, 2] > 0, loop[state - 1], forward[state - 1]))
        self.self_loop_of = np.zeros(len(row) + 1, dtype=np.int32)
        loops = np.flatnonzero(self.is_self_loop)
        self.self_loop_of[self.tid_to_state[loops]] = loops
        self.num_pdfs = int(max(forward.max(), loop.max())) + 1
        self._state_of_tuple: dict[tuple[int, ...], int] | None = None

    def transition_state(self, phone: int, hmm_state: int, forward_pdf: int, self_loop_pdf: int) -> int:
        """Number (from 1) of a transition-state; DataError when the model has none (wrong tree)."""
        if self._state_of_tuple is None:
            self._state_of_tuple = {tuple(t): i for i, t in enumerate(self.tuples.tolist(), 1)}
        state = self._state_of_tuple.get((phone, hmm_state, forward_pdf, self_loop_pdf))
        if state is None:
            raise DataError(
                f"the model has no transition-state for phone {phone}, HMM state {hmm_state}, pdfs "
                f"{forward_pdf}, {self_loop_pdf}: tree and model do not belong together"
            )
        return state

    def non_self_loop_log_prob(self) -> np.ndarray:
        """(S + 1,) float32: log of one minus the self-loop probability of each transition-state (0 without one)."""
        loop = self.self_loop_of
        rest = 1.0 - np.exp(self.log_prob[loop].astype(np.float64))
        rest = np.where(rest <= 0.0, 1e-10, rest)
        return np.where(loop > 0, np.log(rest), 0.0).astype(np.float32)

    def scaled_log_prob(self, transition_scale: float, self_loop_scale: float) -> np.ndarray:
        """(R + 1,) float32: log-probabilities with self-loops scaled apart, as Kaldi adds them to graphs.

        A self-loop costs self_loop_scale log p; any other transition self_loop_scale log(1 - p_loop) for leaving the
        state plus transition_scale log(p / (1 - p_loop)) for where it goes. Equal scales are just scale log p.
        """
        if transition_scale == self_loop_scale:
            return (self.log_prob * np.float32(transition_scale)).astype(np.float32)
        leave = self.non_self_loop_log_prob()[self.tid_to_state]
        other = np.float32(self_loop_scale) * leave + np.float32(transition_scale) * (self.log_prob - leave)
        result = np.where(self.is_self_loop, np.float32(self_loop_scale) * self.log_prob, other)
        result[0] = 0.0
        return result.astype(np.float32)

    def pdfs_for_phones(self, phones) -> tuple[np.ndarray, bool]:
        """(sorted pdfs of the phones, True if no other phone shares any of them)."""
        mine = np.isin(self.tuples[:, 0], list(phones))
        pdfs = np.unique(self.tuples[mine, 2:])
        return pdfs, not np.isin(self.tuples[~mine, 2:], pdfs).any()

    @classmethod
    def read(cls, r) -> TransitionModel:
        """Read from a TokenReader, text or binary."""
        r.expect("<TransitionModel>")
        topology = Topology.read(r)
        form = r.expect("<Triples>", "<Tuples>")
        width = 3 if form == "<Triples>" else 4
        count = r.count("transition-states")
        tuples = _read_int32s(r, count * width).reshape(count, width)
        if width == 3:
            tuples = np.column_stack([tuples, tuples[:, 2]])
        r.expect("</Triples>" if width == 3 else "</Tuples>")
        r.expect("<LogProbs>")
        log_prob = r.vector()
        r.expect("</LogProbs>")
        r.expect("</TransitionModel>")
        return cls(topology, tuples, log_prob, r.name)

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        width = 3 if self.topology.is_hmm else 4
        name = "Triples" if width == 3 else "Tuples"
        w.token("<TransitionModel>")
        w.newline()
        self.topology.write(w)
        w.token(f"<{name}>")
        w.int32(len(self.tuples))
        w.newline()
        _write_int32_rows(w, self.tuples[:, :width])
        w.token(f"</{name}>")
        w.newline()
        w.token("<LogProbs>")
        w.newline()
        w.vector(self.log_prob)
        w.token("</LogProbs>")
        w.newline()
        w.token("</TransitionModel>")
        w.newline()


_BASIC_INT32 = np.dtype([("size", "i1"), ("value", "<i4")])


def _read_int32s(r, count: int) -> np.ndarray:
    """`count` int32 of Kaldi's basic-type form at once: a large model has hundreds of thousands."""
    if not r.binary:
        return np.array([r.int32() for _ in range(count)], dtype=np.int32)
    records = np.frombuffer(r.exactly(_BASIC_INT32.itemsize * count, "transition-states"), _BASIC_INT32)
    if (records["size"] != 4).any():
        raise r.error("expected integers of 4 bytes in the transition-states")
    return records["value"].astype(np.int32)


def _write_int32_rows(w, rows: np.ndarray) -> None:
    """int32 of Kaldi's basic-type form, in text a line a row."""
    if w.binary:
        records = np.empty(rows.size, _BASIC_INT32)
        records["size"] = 4
        records["value"] = rows.reshape(-1)
        w.raw(records.tobytes())
    else:
        w.raw("".join("".join(f"{v} " for v in row) + "\n" for row in rows.tolist()).encode())


def read_transition_model(rxfilename: str) -> TransitionModel:
    """Read the transition model at the start of a GMM or network model file (the rest is not read)."""
    with open_reader(rxfilename) as r:
        return TransitionModel.read(r)
