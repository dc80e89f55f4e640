"""Minibatches for training and evaluation, straight from an archive of examples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ngsgd.egs.archive import EgsArchive, read_archive
from ngsgd.errors import DataError


@dataclass(frozen=True)
class Minibatch:
    """N frames in context and their K labels (K = N with one pdf a frame).

    input (N, L+1+R, D+E) float32: features, the i-vector in each row's last E columns; row (K,) int32: the n of the
    label; pdf (K,) int32; weight (K,) float32.
    """

    input: np.ndarray
    row: np.ndarray
    pdf: np.ndarray
    weight: np.ndarray

    @property
    def num_frames(self) -> int:
        """N."""
        return len(self.input)


def read_minibatches(
    rspecifier: str,
    size: int,
    frame: int | None = None,
    seed: int | Sequence[int] | None = None,
    *,
    left_context: int | None = None,
    right_context: int | None = None,
    input_dim: int | None = None,
    ivector_dim: int | None = None,
    num_pdfs: int | None = None,
) -> Iterator[Minibatch]:
    """Minibatches of `size` frames (the last one may be smaller) of an archive of examples.

    frame: take only the frame-th labelled frame of each example, and skip those that have fewer (they are the last of
    an utterance); None takes every labelled frame. seed: shuffle by a permutation drawn from
    np.random.default_rng(seed); None keeps the order of the archive. The rest is what the model has: contexts
    narrower than the examples' are cut out of them; anything that the examples cannot satisfy is a DataError before
    the first minibatch, as are labels out of range, a damaged archive, an empty one, and no example with that frame.
    """
    archive = read_archive(rspecifier)
    return minibatches(
        archive,
        size,
        frame,
        seed,
        left_context=left_context,
        right_context=right_context,
        input_dim=input_dim,
        ivector_dim=ivector_dim,
        num_pdfs=num_pdfs,
    )


def minibatches(
    archive: EgsArchive,
    size: int,
    frame: int | None = None,
    seed: int | Sequence[int] | None = None,
    *,
    left_context: int | None = None,
    right_context: int | None = None,
    input_dim: int | None = None,
    ivector_dim: int | None = None,
    num_pdfs: int | None = None,
) -> Iterator[Minibatch]:
    """As `read_minibatches`, of an archive in memory: for those who go through one several times."""
    if size < 1:
        raise DataError(f"a minibatch has at least one frame, not {size}")
    _check_shape(archive, left_context, right_context, input_dim, ivector_dim)
    archive.check_pdfs(num_pdfs)
    chosen = _choose(archive, frame)
    if seed is not None:
        chosen = chosen[np.random.default_rng(seed).permutation(len(chosen))]
    left = archive.shape.left_context if left_context is None else left_context
    right = archive.shape.right_context if right_context is None else right_context
    return _generate(archive, chosen, size, left, right)


def _check_shape(
    archive: EgsArchive,
    left_context: int | None,
    right_context: int | None,
    input_dim: int | None,
    ivector_dim: int | None,
) -> None:
    """DataError where the model wants what the examples do not have."""
    shape = archive.shape
    for side, wanted, had in (
        ("left", left_context, shape.left_context),
        ("right", right_context, shape.right_context),
    ):
        if wanted is not None and not 0 <= wanted <= had:
            raise DataError(
                f"{archive.name}: the model needs {wanted} frames of {side} context, the examples have {had}"
            )
    if ivector_dim is not None and ivector_dim != shape.ivector_dim:
        raise DataError(
            f"{archive.name}: the model takes i-vectors of dimension {ivector_dim}, "
            f"the examples have {shape.ivector_dim}"
        )
    had = shape.feat_dim + shape.ivector_dim
    if input_dim is not None and input_dim != had:
        raise DataError(
            f"{archive.name}: the model takes {input_dim} inputs a frame, the examples have {had} "
            f"(features {shape.feat_dim}, i-vector {shape.ivector_dim})"
        )


def _choose(archive: EgsArchive, frame: int | None) -> np.ndarray:
    """(N, 2) int64: example and labelled frame within it, in the order of the archive."""
    counts = np.diff(archive.frame_offset)
    if frame is None:
        examples = np.repeat(np.arange(len(archive)), counts)
        return np.stack((examples, np.arange(archive.num_frames) - archive.frame_offset[examples]), axis=1)
    if frame < 0:
        raise DataError(f"frame {frame} of an example: they count from 0")
    examples = np.flatnonzero(counts > frame)
    if not len(examples):
        raise DataError(f"{archive.name}: no example has a frame {frame}; the longest has {counts.max()} frames")
    return np.stack((examples, np.full(len(examples), frame)), axis=1)


def _generate(archive: EgsArchive, chosen: np.ndarray, size: int, left: int, right: int) -> Iterator[Minibatch]:
    skipped = archive.shape.left_context - left
    for begin in range(0, len(chosen), size):
        examples, frames = chosen[begin : begin + size].T
        data = archive.decode(examples, frames + skipped, left + 1 + right)
        yield Minibatch(data, *_labels(archive, archive.frame_offset[examples] + frames))


def _labels(archive: EgsArchive, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """row, pdf and weight of the labels of these frames (numbered through the archive)."""
    begin = archive.label_offset[frames]
    counts = archive.label_offset[frames + 1] - begin
    row = np.repeat(np.arange(len(frames), dtype=np.int32), counts)
    label = np.repeat(begin - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(len(row))
    return row, archive.pdf[label], archive.weight[label]
