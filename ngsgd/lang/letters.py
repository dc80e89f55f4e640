"""Which letter of a word is spoken as which phones: expectation-maximisation over a pronunciation dictionary.

Every letter stands for zero, one or two phones, in order: "TH IH NG K S" of "thinks" is t:TH h: i:IH n:NG k:K s:S.
The parameters are the joint probabilities p(letter, phones); EM is exact, and runs over all words of one size at once.

    w      a word, its letters l_1 ... l_I and phones q_1 ... q_J
    A      joint probabilities, (number of letters, number of units); unit 0 is "no phone", then the single phones, then
           the ordered pairs: unit of (q, r) is 1 + P + q P + r with P phones
    f, b   forward and backward sums over alignments, (words, I + 1, J + 1), in the probability domain (float64)

(Joint-sequence models with letters of length 1: Bisani and Ney, "Joint-sequence models for grapheme-to-phoneme
conversion", Speech Communication 2008, section 2; here with at most two phones to a letter.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

STEPS = (0, 1, 2)  # phones that a letter may stand for
PAIR_START = 0.05  # how much less likely than a single phone a pair is taken to be before the first iteration


class Group:
    """Words of one size: letters (N, I) and phones (N, J) as integers, and the positions of the words in the list."""

    def __init__(self, letters: np.ndarray, phones: np.ndarray, index: np.ndarray, num_phones: int) -> None:
        self.letters, self.phones, self.index = letters, phones, index
        self.size = letters.shape[1], phones.shape[1]
        self.units = {0: np.zeros((len(index), self.size[1] + 1), np.int32), 1: phones + 1}
        if self.size[1] > 1:
            self.units[2] = 1 + num_phones + phones[:, :-1] * num_phones + phones[:, 1:]

    def cells(self, i: int, step: int) -> tuple[slice, slice]:
        """The columns j of f that letter i may leave from by `step` phones, and those that it arrives at."""
        rows, cols = self.size
        low = max(0, cols - 2 * (rows - i))
        high = min(2 * i, cols - step)
        return slice(low, high + 1), slice(low + step, high + step + 1)

    def arcs(self, table: np.ndarray, i: int, step: int) -> np.ndarray:
        """A[l_i, unit] for the cells above, (N, cells)."""
        source, _ = self.cells(i, step)
        return table[self.letters[:, i, None], self.units[step][:, source]]


def _groups(words: Sequence[tuple[np.ndarray, np.ndarray]], num_phones: int) -> list[Group]:
    sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for n, (letters, phones) in enumerate(words):
        if 0 < len(phones) <= 2 * len(letters):
            sizes[len(letters), len(phones)].append(n)
    groups = []
    for _, index in sorted(sizes.items()):
        letters, phones = (np.stack([words[n][side] for n in index]) for side in (0, 1))
        groups.append(Group(letters, phones, np.array(index), num_phones))
    return groups


def _steps(group: Group, i: int) -> list[int]:
    return [s for s in STEPS if s in group.units and (c := group.cells(i, s)[0]).stop > c.start]


def _expectation(group: Group, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected uses of each (letter, unit) in a group: (flat indices into the table, counts)."""
    rows, cols = group.size
    width = table.shape[1]
    f = np.zeros((rows + 1, len(group.index), cols + 1))
    b = np.zeros_like(f)
    f[0, :, 0] = b[rows, :, cols] = 1.0
    for i in range(rows):
        for step in _steps(group, i):
            source, target = group.cells(i, step)
            f[i + 1, :, target] += f[i, :, source] * group.arcs(table, i, step)
    total = f[rows, :, cols]
    scale = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
    where, counts = [], []
    for i in reversed(range(rows)):
        for step in _steps(group, i):
            source, target = group.cells(i, step)
            flow = group.arcs(table, i, step) * b[i + 1, :, target]
            b[i, :, source] += flow
            where.append((group.letters[:, i, None] * width + group.units[step][:, source]).ravel())
            counts.append((f[i, :, source] * flow * scale[:, None]).ravel())
    return np.concatenate(where), np.concatenate(counts)


def _best(group: Group, table: np.ndarray) -> np.ndarray:
    """The most likely unit of every letter, (N, I) int32; -1 throughout for a word that has no alignment."""
    rows, cols = group.size
    score = np.zeros((len(group.index), cols + 1))
    score[:, 0] = 1.0
    came_by = np.zeros((rows, len(group.index), cols + 1), np.int8)
    for i in range(rows):
        following = np.zeros_like(score)
        for step in _steps(group, i):
            source, target = group.cells(i, step)
            value = score[:, source] * group.arcs(table, i, step)
            better = value > following[:, target]
            following[:, target] = np.where(better, value, following[:, target])
            came_by[i][:, target] = np.where(better, step, came_by[i][:, target])
        score = following
    units = np.empty((len(group.index), rows), np.int32)
    n = np.arange(len(group.index))
    j = np.full(len(group.index), cols)
    for i in reversed(range(rows)):
        step = came_by[i, n, j]
        j = j - step
        for s, of_step in group.units.items():
            chosen = step == s
            units[chosen, i] = of_step[chosen, j[chosen]]
    units[score[:, cols] == 0.0] = -1
    return units


def align(
    words: Sequence[tuple[np.ndarray, np.ndarray]],
    num_letters: int,
    num_phones: int,
    iterations: int = 6,
    rare: float = 3.0,
) -> list[np.ndarray | None]:
    """Align the letters of words with their phones.

    Args:
        words: (letters (I,), phones (J,)) as integers below `num_letters` and `num_phones`.
        iterations: EM iterations.
        rare: (letter, unit) pairs used less often than this are then forbidden, which leaves odd words unaligned.

    Returns:
        for every word the unit of each letter, (I,) int32, or None where there is no alignment: more than twice as many
        phones as letters, or only by rare pairs.
    """
    result: list[np.ndarray | None] = [None] * len(words)
    groups = _groups(words, num_phones)
    if not groups:
        return result
    table = np.full((num_letters, 1 + num_phones + num_phones**2), 1.0)
    table[:, 1 + num_phones :] *= PAIR_START
    table /= table.sum()
    for _ in range(iterations):
        counts = np.zeros(table.size)
        for group in groups:
            where, amount = _expectation(group, table)
            counts += np.bincount(where, amount, minlength=table.size)
        table = (counts / counts.sum()).reshape(table.shape)
    table[table * counts.sum() < rare] = 0.0
    for group in groups:
        for n, units in zip(group.index, _best(group, table), strict=True):
            result[n] = units if units[0] >= 0 else None
    return result
