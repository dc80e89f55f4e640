"""Statistics for building decision trees: a Gaussian of the frames of each phone state in each context.

An event (see ngsgd.hmm.tree) says where frames were seen: its pdf-class and the phones of the window around it. Of
context-independent phones it has the central phone only, so that no question about others can ever be asked.

Symbols: n events, N phones of a window, D features. The statistics of an event are one row [count, sum x, sum x^2] of
2 D + 1 numbers, so that those of a set of events are the sum of its rows.

File format: Kaldi's tree statistics (`acc-tree-stats`), byte for byte.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import LengthOptions, check_features
from ngsgd.hmm.phones import split_to_phones
from ngsgd.hmm.transitions import TransitionModel, read_transition_model
from ngsgd.hmm.tree import write_uint32
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_reader, open_writer
from ngsgd.options import opt

ABSENT = -1
_BATCH = 32768  # frames added at once
_MOST_KEYS = 64
_MOST_VALUE = 1 << 24


@dataclasses.dataclass
class ContextOptions:
    """The window of phones that a tree can ask about."""

    context_width: int = opt(3, "phones in the window: 3 for triphones", at_least=1)
    central_position: int = opt(1, "place of the modelled phone in the window, from 0", at_least=0)

    def check(self) -> None:
        """DataError when the central phone is outside the window."""
        if self.central_position >= self.context_width:
            raise DataError(
                f"central position {self.central_position} is outside a window of {self.context_width} phones"
            )


@dataclasses.dataclass
class TreeStatsOptions:
    """What is accumulated."""

    var_floor: float = opt(0.01, "smallest variance when the fit of a Gaussian is judged", above=0)
    ci_phones: str = opt("", "colon-separated phones whose context is not looked at, such as silence")


class TreeStats:
    """Rows of statistics by event.

    events (n, 1 + N) int32: the pdf-class and the phones of the window, ABSENT where the event has none; sorted as
    Kaldi does. rows (n, 2 D + 1) float64. var_floor as in TreeStatsOptions.
    """

    def __init__(self, events: np.ndarray, rows: np.ndarray, var_floor: float):
        self.events = np.asarray(events, dtype=np.int32)
        self.rows = np.asarray(rows, dtype=np.float64)
        self.var_floor = float(var_floor)

    @property
    def dim(self) -> int:
        """D."""
        return self.rows.shape[1] // 2

    def values(self, key: int) -> np.ndarray:
        """(n,) the value of a key (-1: pdf-class, 0 .. N - 1: phone), ABSENT where there is none."""
        if key + 1 >= self.events.shape[1]:
            return np.full(len(self.events), ABSENT, dtype=np.int32)
        return self.events[:, key + 1]

    def select(self, which: np.ndarray) -> TreeStats:
        """The events of a mask or of indices."""
        return TreeStats(self.events[which], self.rows[which], self.var_floor)

    @classmethod
    def read(cls, r: TokenReader) -> TreeStats:
        """Read from a TokenReader, text or binary. DataError for statistics of different dimensions, or of none."""
        r.expect("BTS")
        events, rows, floor = [], [], 0.0
        for _ in range(r.count("events")):
            events.append(_read_event(r))
            if not r.bool():
                raise DataError(f"{r.name}: an event without statistics")
            r.expect("GCL")
            count, floor = r.float64(), r.float64()
            sums = r.matrix(np.float64)
            if sums.shape[0] != 2 or (rows and 2 * sums.shape[1] + 1 != len(rows[0])):
                raise DataError(
                    f"{r.name}: statistics of shape {sums.shape} after {(len(rows[0]) - 1) // 2 if rows else 0}"
                )
            rows.append(np.concatenate([[count], sums.ravel()]))
        if not rows:
            raise DataError(f"{r.name}: no statistics in it: were there alignments for any of the features?")
        if not np.isfinite(rows).all() or min(row[0] for row in rows) < 0:
            raise DataError(f"{r.name}: counts and sums must be finite, counts at least 0")
        return cls.gathered(events, np.array(rows), floor)

    @classmethod
    def gathered(cls, events: list[tuple], rows: np.ndarray, var_floor: float) -> TreeStats:
        """Statistics from events as tuples of (key, value) pairs, which are sorted by key, and their rows."""
        order = sorted(range(len(events)), key=lambda i: events[i])
        width = 2 + max((event[-1][0] for event in events if event), default=-1)
        table = np.full((len(events), max(width, 1)), ABSENT, dtype=np.int32)
        for to, i in enumerate(order):
            for key, value in events[i]:
                table[to, key + 1] = value
        return cls(table, rows[order], var_floor)

    def write(self, w: TokenWriter) -> None:
        """Write to a TokenWriter."""
        w.token("BTS")
        write_uint32(w, len(self.events))
        for event, row in zip(self.events.tolist(), self.rows, strict=True):
            w.token("EV")
            pairs = [(key, value) for key, value in enumerate(event, -1) if value != ABSENT]
            write_uint32(w, len(pairs))
            for pair in pairs:
                w.int32(pair[0])
                w.int32(pair[1])
            w.newline()
            w.bool(True)
            w.token("GCL")
            w.float64(row[0])
            w.float64(self.var_floor)
            w.matrix(row[1:].reshape(2, -1))
        w.newline()


def _read_event(r: TokenReader) -> tuple:
    r.expect("EV")
    pairs = [(r.int32(), r.int32()) for _ in range(r.count("keys of an event"))]
    keys = [key for key, _ in pairs]
    if keys != sorted(set(keys)) or not all(-1 <= k < _MOST_KEYS and 0 <= v < _MOST_VALUE for k, v in pairs):
        raise DataError(f"{r.name}: an event that is none: {pairs}")
    return tuple(pairs)


def read_tree_stats(rxfilename: str) -> TreeStats:
    """Read a file of tree statistics."""
    with open_reader(rxfilename) as r:
        return TreeStats.read(r)


def write_tree_stats(wxfilename: str, stats: TreeStats, binary: bool = True) -> None:
    """Write a file of tree statistics."""
    with open_writer(wxfilename, binary) as w:
        stats.write(w)


def group_sums(rows: np.ndarray, group: np.ndarray, num_groups: int) -> np.ndarray:
    """(num_groups, columns) sums of the rows of each group, added strictly in their order; 0 for a group of none."""
    columns = np.ascontiguousarray(rows.T)
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in columns], axis=1)


def unique_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(different rows, sorted; (n,) which of them each row is) of integers (n, k): np.unique by rows, but quicker."""
    code = np.zeros(len(table), dtype=np.int64)
    for column in table.T.astype(np.int64):
        code = np.unique(code * (column.max() + 2) + column + 1, return_inverse=True)[1]
    _, first = np.unique(code, return_index=True)
    return table[first], code


def sum_tree_stats(sources: list[str]) -> TreeStats:
    """The sum of several files. DataError when they have different dimensions."""
    parts = [read_tree_stats(source) for source in sources]
    for source, part in zip(sources, parts, strict=True):
        if part.dim != parts[0].dim:
            raise DataError(f"{source}: features of dimension {part.dim}, those of {sources[0]} have {parts[0].dim}")
    width = max(part.events.shape[1] for part in parts)
    wide = [np.pad(p.events, ((0, 0), (0, width - p.events.shape[1])), constant_values=ABSENT) for p in parts]
    events, which = unique_rows(np.concatenate(wide))
    rows = group_sums(np.concatenate([p.rows for p in parts]), which, len(events))
    return TreeStats.gathered([_pairs(event) for event in events.tolist()], rows, parts[0].var_floor)


def _pairs(event: list[int]) -> tuple:
    return tuple((key, value) for key, value in enumerate(event, -1) if value != ABSENT)


class TreeAccumulator:
    """Adds utterances up; frames are sorted by event in batches."""

    def __init__(self, transitions: TransitionModel, context: ContextOptions, ci_phones: list[int]):
        context.check()
        self._transitions = transitions
        self._context = context
        self._ci = np.asarray(sorted(ci_phones), dtype=np.int32)
        self._index: dict[tuple, int] = {}
        self._rows = np.zeros((0, 0))
        self._feats: list[np.ndarray] = []
        self._events: list[np.ndarray] = []
        self._pending = 0

    def add(self, feats: np.ndarray, tids: np.ndarray) -> None:
        """Add an utterance: feats (T, D), tids (T,). DataError, and nothing added, when the two do not fit."""
        if len(feats) != len(tids):
            raise DataError(f"{len(feats)} frames of features, {len(tids)} in the alignment")
        check_features(feats)
        dim = self._feats[0].shape[1] if self._feats else self._rows.shape[1] // 2
        if dim and feats.shape[1] != dim:
            raise DataError(f"features of dimension {feats.shape[1]}, the utterances before had {dim}")
        self._events.append(self.frame_events(tids))
        self._feats.append(feats)
        self._pending += len(feats)
        if self._pending >= _BATCH:
            self.flush()

    def frame_events(self, tids: np.ndarray) -> np.ndarray:
        """(T, 1 + N) the event of each frame."""
        phones, bounds = split_to_phones(self._transitions, tids)
        windows = phone_windows(phones, self._context)
        central = self._context.central_position
        others = np.arange(windows.shape[1]) != central
        windows = np.where(np.isin(phones, self._ci)[:, None] & others, ABSENT, windows)
        frames = np.repeat(windows, np.diff(bounds), axis=0)
        return np.concatenate([self._transitions.tid_to_pdf_class[tids][:, None], frames], axis=1)

    def flush(self) -> None:
        """Take the frames that have been added into the sums."""
        if not self._pending:
            return
        x = np.concatenate(self._feats)
        squares = np.square(x)  # in float32, as Kaldi squares
        events, local = unique_rows(np.concatenate(self._events))
        self._feats, self._events, self._pending = [], [], 0
        which = np.array([self._index.setdefault(tuple(event), len(self._index)) for event in events.tolist()])
        if len(self._index) > len(self._rows):
            grown = np.zeros((max(2 * len(self._rows), len(self._index)), 2 * x.shape[1] + 1))
            grown[: len(self._rows)] = self._rows.reshape(len(self._rows), grown.shape[1])
            self._rows = grown
        # the sums so far stand first in their group: everything is added in the order of the frames, as Kaldi does
        rows = np.concatenate([self._rows[which], np.concatenate([np.ones((len(x), 1)), x, squares], axis=1)])
        self._rows[which] = group_sums(rows, np.concatenate([np.arange(len(which)), local]), len(which))

    def stats(self, var_floor: float) -> TreeStats:
        """The statistics of everything added."""
        self.flush()
        events = [_pairs(event) for event in self._index]
        return TreeStats.gathered(events, self._rows[: len(events)], float(np.float32(var_floor)))


def phone_windows(phones: np.ndarray, context: ContextOptions) -> np.ndarray:
    """(n, N) the window of phones around each of n phones, 0 beyond the edges."""
    after = context.context_width - context.central_position - 1
    padded = np.pad(np.asarray(phones, dtype=np.int32), (context.central_position, after))
    return np.lib.stride_tricks.sliding_window_view(padded, context.context_width)


def accumulate_tree_stats(
    model: str,
    feats: str,
    alignments: str,
    target: str,
    options: TreeStatsOptions,
    context: ContextOptions,
    length: LengthOptions,
    binary: bool = True,
) -> tuple[int, int]:
    """Accumulate from alignments and write; returns (done, failed).

    Utterances without an alignment, or one of another length than the options tolerate, are counted as failed.
    """
    from ngsgd.gmm.alignment import Tally, add_aligned
    from ngsgd.gmm.update import parse_phones

    transitions = read_transition_model(model)
    ci_phones = parse_phones(options.ci_phones) if options.ci_phones else []
    accumulator = TreeAccumulator(transitions, context, ci_phones)
    tally = Tally("accumulated tree statistics of")
    add_aligned(accumulator, feats, alignments, length, tally)
    result = tally.finish(feats)
    write_tree_stats(target, accumulator.stats(options.var_floor), binary)
    return result
