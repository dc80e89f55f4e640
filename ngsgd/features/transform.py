"""Features from features: deltas, splicing, linear transforms, choosing and joining columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import check_features, map_features
from ngsgd.kaldi_io.tables import RandomReader
from ngsgd.options import opt


@dataclass
class DeltaOptions:
    """Time derivatives."""

    delta_order: int = opt(2, "highest derivative: 2 gives features, deltas and accelerations")
    delta_window: int = opt(2, "frames on each side that a derivative is made of")


@dataclass
class SpliceOptions:
    """Context windows."""

    left_context: int = opt(4, "frames before")
    right_context: int = opt(4, "frames after")


@dataclass
class TransformOptions:
    """Which matrix belongs to an utterance."""

    utt2spk: str = opt("", "utt2spk file: the transforms are by speaker")


@dataclass
class PasteOptions:
    """Features that are put side by side."""

    length_tolerance: int = opt(0, "frames by which lengths may differ; the longer are cut")


def delta_scales(options: DeltaOptions) -> list[np.ndarray]:
    """The filter of each order, order 0 first: order k is order k-1 convolved with (-W..W) / Σ j²."""
    if options.delta_order < 0 or options.delta_window < 1:
        raise DataError(f"expected --delta-order >= 0 and --delta-window >= 1, got {options}")
    window = options.delta_window
    slope = np.arange(-window, window + 1) / (window * (window + 1) * (2 * window + 1) / 3)
    scales = [np.ones(1)]
    for _ in range(options.delta_order):
        scales.append(np.convolve(scales[-1], slope))
    return scales


def add_deltas(features: np.ndarray, options: DeltaOptions) -> np.ndarray:
    """(T, D) -> (T, D (delta_order + 1)) float32: the features, then each derivative; end frames are repeated."""
    frames = len(features)
    blocks = []
    for scale in delta_scales(options):
        reach = len(scale) // 2
        padded = np.pad(features, ((reach, reach), (0, 0)), mode="edge")
        block = np.zeros_like(features, dtype=np.float32)
        for j, weight in enumerate(scale.astype(np.float32)):
            if weight:
                block += weight * padded[j : j + frames]
        blocks.append(block)
    return np.hstack(blocks)


def splice(features: np.ndarray, options: SpliceOptions) -> np.ndarray:
    """(T, D) -> (T, D (left + 1 + right)): frames t-left ... t+right side by side; end frames are repeated."""
    left, right = options.left_context, options.right_context
    if left < 0 or right < 0:
        raise DataError(f"expected contexts of at least 0, got {left} and {right}")
    padded = np.pad(features, ((left, right), (0, 0)), mode="edge")
    return np.hstack([padded[j : j + len(features)] for j in range(left + 1 + right)])


def transform(features: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(T, D) and (D', D) or, with an offset in the last column, (D', D + 1) -> (T, D') float32.

    Raises DataError for other shapes.
    """
    dim = features.shape[1]
    matrix = np.asarray(matrix, np.float32)
    if matrix.shape[1] == dim:
        return features @ matrix.T
    if matrix.shape[1] == dim + 1:
        return features @ matrix[:, :-1].T + matrix[:, -1]
    columns = matrix.shape[1]
    raise DataError(f"features of dimension {dim}, a transform of {columns} columns; expected {dim} or {dim + 1}")


def columns_of(selection: str) -> list[int]:
    """Column numbers of a selection such as `0,24-22,3-12`: columns from 0, and ranges up or down, both ends included.

    Raises DataError for anything else.
    """
    columns: list[int] = []
    for part in selection.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not match:
            raise DataError(f"expected columns like 0,24-22,3-12, got '{selection}'")
        first, last = int(match[1]), int(match[2] or match[1])
        columns += range(first, last + 1) if last >= first else range(first, last - 1, -1)
    return columns


def select(features: np.ndarray, columns: list[int]) -> np.ndarray:
    """(T, D) -> (T, len(columns)). Raises DataError for a column that is not there."""
    if max(columns) >= features.shape[1]:
        raise DataError(f"column {max(columns)} asked for, the features have {features.shape[1]} (numbered from 0)")
    return features[:, columns]


def paste(rspecifiers: Sequence[str], wspecifier: str, options: PasteOptions) -> tuple[int, int]:
    """Write the features of several tables side by side, in the order of the first; returns (done, failed).

    An utterance that a table lacks, or whose lengths differ by more than the tolerance, is named and left out.  Raises
    DataError as `map_features`.
    """
    others = [RandomReader(rspecifier, "matrix") for rspecifier in rspecifiers[1:]]

    def beside(key: str, features: np.ndarray) -> np.ndarray:
        parts = [features, *(check_features(table[key]) for table in others)]
        lengths = [len(part) for part in parts]
        if max(lengths) - min(lengths) > options.length_tolerance:
            raise DataError(
                f"{' and '.join(map(str, lengths))} frames; at most --length-tolerance={options.length_tolerance} "
                "may they differ by"
            )
        return np.hstack([part[: min(lengths)] for part in parts])

    return map_features(rspecifiers[0], wspecifier, beside)
