"""Alignments of one model turned into alignments of another, with another tree: the same HMM states at each frame."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.phones import is_reordered, split_to_phones
from ngsgd.hmm.transitions import TransitionModel, read_transition_model
from ngsgd.hmm.tree import ContextDependency, read_tree
from ngsgd.hmm.tree_stats import ContextOptions, phone_windows
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class ConvertOptions:
    """What is converted, and how."""

    reorder: bool = opt(True, "self-loops come after the transition that leaves their state (Kaldi's default)")
    phone_map: str = opt("", "file of lines `old-phone new-phone`: the models have different phones of one topology")
    utterances: str = opt("", "convert only utterances that a line of this file begins with, such as a part's text")


class Converter:
    """Converts alignments; remembers what each window of phones becomes.

    DataError when a phone has different topologies in the two models.
    """

    def __init__(
        self,
        old: TransitionModel,
        new: TransitionModel,
        tree: ContextDependency,
        reorder: bool = True,
        phone_map: dict[int, int] | None = None,
    ):
        self._old, self._new, self._tree, self._reorder = old, new, tree, reorder
        self._context = ContextOptions(tree.context_width, tree.central_position)
        phones = np.unique(old.tuples[:, 0])
        self._phone = np.zeros(phones.max() + 1, dtype=np.int32)
        for phone in phones.tolist():
            mapped = phone if phone_map is None else phone_map.get(phone, 0)
            if mapped and old.topology.entry(phone) != new.topology.entry(mapped):
                raise DataError(f"phone {phone} and phone {mapped} of the new model have different topologies")
            self._phone[phone] = mapped
        states = max(len(entry) for entry in new.topology.entries)
        self._first_tid = np.zeros((0, states), dtype=np.int32)
        self._windows: dict[tuple, int] = {}

    def convert(self, tids: np.ndarray) -> np.ndarray:
        """(T,) int32 transition-ids of the new model from those of the old. DataError when they are no alignment."""
        phones, bounds = split_to_phones(self._old, tids)
        mapped = self._phone[phones]
        if not mapped.all():
            raise DataError(f"--phone-map has nothing for phone {phones[mapped == 0][0]}")
        windows = phone_windows(mapped, self._context)
        number = [self._windows.setdefault(tuple(w), len(self._windows)) for w in windows.tolist()]
        if len(self._windows) > len(self._first_tid):
            self._learn()
        frames = np.repeat(number, np.diff(bounds))
        old = self._old
        made = self._first_tid[frames, old.tid_to_hmm_state[tids]] + old.tid_to_index[tids]
        return made if is_reordered(old, tids) == self._reorder else _reversed_visits(old, tids, made)

    def _learn(self) -> None:
        """Extend the first transition-ids by window and HMM state to the windows that are new."""
        done = len(self._first_tid)
        rows = np.zeros((len(self._windows) - done, self._first_tid.shape[1]), dtype=np.int32)
        for row, window in zip(rows, list(self._windows)[done:], strict=True):
            phone = window[self._tree.central_position]
            for number, state in enumerate(self._new.topology.entry(phone)[:-1]):
                if state.pdf_class < 0:
                    continue
                pdfs = (self._tree.compute(window, c) for c in (state.pdf_class, state.self_loop_pdf_class))
                row[number] = self._new.state_to_tid[self._new.transition_state(phone, number, *pdfs)]
        self._first_tid = np.concatenate([self._first_tid, rows])


def _reversed_visits(transitions: TransitionModel, tids: np.ndarray, made: np.ndarray) -> np.ndarray:
    """`made` with the frames of each visit of a state, self-loops and leaving, in the opposite order."""
    loop = transitions.is_self_loop[tids]
    starts = ~loop if is_reordered(transitions, tids) else np.append(True, ~loop[:-1])
    starts[0] = True
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(tids)) - 1
    visit = np.cumsum(starts) - 1
    return made[first[visit] + last[visit] - np.arange(len(tids))]


def read_phone_map(rxfilename: str) -> dict[int, int]:
    """A file of lines `old-phone new-phone`. DataError names a line that is none, or that maps a phone again."""
    mapping: dict[int, int] = {}
    for number, line in enumerate(read_lines(rxfilename), 1):
        words = line.split()
        if len(words) != 2 or not all(w.isdigit() and int(w) > 0 for w in words) or int(words[0]) in mapping:
            raise DataError(f"{rxfilename}:{number}: expected 'OLD-PHONE NEW-PHONE', each old one once, got '{line}'")
        mapping[int(words[0])] = int(words[1])
    return mapping


def convert_alignments(
    old_model: str, new_model: str, tree: str, alignments: str, target: str, options: ConvertOptions
) -> tuple[int, int]:
    """Convert a table of alignments; returns (done, failed), without those that --utterances leaves out."""
    phone_map = read_phone_map(options.phone_map) if options.phone_map else None
    models = read_transition_model(old_model), read_transition_model(new_model)
    converter = Converter(*models, read_tree(tree), options.reorder, phone_map)
    wanted = None
    if options.utterances:
        wanted = {line.split(maxsplit=1)[0] for line in read_lines(options.utterances) if line.strip()}

    def loads():
        for key, tids in SequentialReader(alignments, "int32_vector"):
            if wanted is None or key in wanted:
                yield key, lambda tids=tids: tids

    with Writer(target, "int32_vector") as out:
        done, failed = for_each(loads(), lambda key, tids: out.write(key, converter.convert(tids)))
        require_most(done, failed, alignments)
    if wanted is not None and done + failed < len(wanted):
        log.warning(
            "%d of %d utterances of %s have no alignment", len(wanted) - done - failed, len(wanted), options.utterances
        )
    return done, failed
