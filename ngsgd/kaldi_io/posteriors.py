"""Posteriors as arrays: what the table kind `posterior` holds as lists, a frame at a time, without a loop over frames.

In binary a frame is an int32 (its number n of pairs) and n pairs of int32 and float32, each number with its size byte:
5 + 10 n bytes. Neighbouring frames mostly have the same n, so a run of them is one array of records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngsgd.kaldi_io.holders import Posterior, _expect, holders
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter

_PAIR = np.dtype([("size", "i1"), ("label", "<i4"), ("weight_size", "i1"), ("weight", "<f4")])
_COUNT = np.dtype([("size", "i1"), ("count", "<i4")])


@dataclass
class Posteriors:
    """Weighted labels of T frames: counts (T,) int32, then K of them, frame by frame: label (K,) int32, weight (K,)
    float32."""

    counts: np.ndarray
    label: np.ndarray
    weight: np.ndarray

    def __len__(self) -> int:
        """T."""
        return len(self.counts)

    @property
    def frame(self) -> np.ndarray:
        """(K,) the frame of each label."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @classmethod
    def of_alignment(cls, labels: np.ndarray) -> Posteriors:
        """One label (T,) a frame, of weight 1."""
        return cls(np.ones(len(labels), np.int32), labels, np.ones(len(labels), np.float32))

    def kept(self, keep: np.ndarray) -> Posteriors:
        """The pairs where keep (K,) is true; frames stay, some of them empty."""
        counts = np.bincount(self.frame[keep], minlength=len(self)).astype(np.int32)
        return Posteriors(counts, self.label[keep], self.weight[keep])


@holders.register("posterior_arrays")
class PosteriorArrays:
    """Per frame pairs of a label and a weight, as `Posteriors`."""

    @staticmethod
    def read(reader: TokenReader) -> Posteriors:
        if not reader.binary:
            return _of_lists(Posterior.read(reader))
        _expect(reader, "a posterior")
        left = reader.count("the frames of a posterior")
        counts, runs = [], []
        while left:
            frames, pairs = _run(reader, left)
            counts.append(np.full(frames, len(pairs) // frames, np.int32))
            runs.append(pairs)
            left -= frames
        if not counts:
            return _of_lists([])
        pairs = np.concatenate(runs)
        if (pairs["size"] != 4).any() or (pairs["weight_size"] != 4).any():
            raise reader.error("expected pairs of a 4-byte integer and a 4-byte float in a posterior")
        if np.isnan(pairs["weight"]).any():
            raise reader.error("expected weights, found NaN in a posterior")
        return Posteriors(np.concatenate(counts), pairs["label"].astype(np.int32), pairs["weight"].astype(np.float32))

    @staticmethod
    def write(writer: TokenWriter, value: Posteriors) -> None:
        if not writer.binary:
            pairs = iter(zip(value.label.tolist(), value.weight.tolist()))
            Posterior.write(writer, [[next(pairs) for _ in range(n)] for n in value.counts.tolist()])
            return
        frames = len(value)
        starts = 5 * np.arange(frames) + 10 * (np.cumsum(value.counts, dtype=np.int64) - value.counts)
        data = np.empty(5 * frames + 10 * len(value.label), np.uint8)
        head = np.empty(frames, _COUNT)
        head["size"], head["count"] = 4, value.counts
        data[starts[:, None] + np.arange(5)] = head.view(np.uint8).reshape(-1, 5)
        pairs = np.empty(len(value.label), _PAIR)
        pairs["size"], pairs["weight_size"], pairs["label"], pairs["weight"] = 4, 4, value.label, value.weight
        places = 5 * (value.frame + 1) + 10 * np.arange(len(pairs))
        data[places[:, None] + np.arange(10)] = pairs.view(np.uint8).reshape(-1, 10)
        writer.int32(frames)
        writer.raw(data.tobytes())


def _run(reader: TokenReader, most: int) -> tuple[int, np.ndarray]:
    """(frames, pairs) of the next frame and those after it with as many pairs, as far as they are in the buffer."""
    count = reader.count("the pairs of a frame")
    first = np.frombuffer(reader.exactly(_PAIR.itemsize * count, "the pairs of a frame"), _PAIR)
    size = _COUNT.itemsize + _PAIR.itemsize * count
    buffered = reader.stream.peek(1)
    fit = min(len(buffered) // size, most - 1)
    if not fit:
        return 1, first
    frames = np.frombuffer(buffered, np.dtype([("head", _COUNT), ("pairs", _PAIR, (count,))]), fit)
    same = (frames["head"]["size"] == 4) & (frames["head"]["count"] == count)
    run = fit if same.all() else int(same.argmin())
    reader.exactly(size * run, "frames of a posterior")
    return 1 + run, np.concatenate([first, frames["pairs"][:run].ravel()])


def _of_lists(frames: list[list[tuple[int, float]]]) -> Posteriors:
    pairs = [pair for frame in frames for pair in frame]
    return Posteriors(
        np.array([len(frame) for frame in frames], np.int32),
        np.array([label for label, _ in pairs], np.int32),
        np.array([weight for _, weight in pairs], np.float32),
    )
