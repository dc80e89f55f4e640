"""Copying and measuring tables of features."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import check_features, shapes
from ngsgd.kaldi_io.compressed import CompressedMatrix, CompressOptions
from ngsgd.kaldi_io.copying import copy_table, matrix_kind
from ngsgd.kaldi_io.each import require_most
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.tables import Writer, is_table
from ngsgd.options import opt


@dataclass
class CopyFeatsOptions(CompressOptions):
    """How features are copied."""

    write_num_frames: str = opt("", "wspecifier of a table with the number of frames of each utterance")


def copy(rspecifier: str, wspecifier: str, options: CopyFeatsOptions) -> tuple[int, int]:
    """Copy a table; returns (done, failed). Raises DataError as `require_most`; then nothing is written."""
    with ExitStack() as stack:
        counts = None
        if options.write_num_frames:
            counts = stack.enter_context(Writer(options.write_num_frames, "int32"))

        def check(key: str, features: np.ndarray | CompressedMatrix) -> np.ndarray | CompressedMatrix:
            check_features(features.to_dense() if isinstance(features, CompressedMatrix) else features)
            if counts:
                counts.write(key, features.shape[0])
            return features

        return copy_table(rspecifier, wspecifier, matrix_kind(options), check, options)


def write_lengths(rspecifier: str, output: str) -> None:
    """Frames of each entry to a table, or their sum to a file. Raises DataError for an empty input."""
    _write_sizes(rspecifier, output, 0, sum)


def write_dims(rspecifier: str, output: str) -> None:
    """Dimension of each entry to a table, or that of the first to a file. Raises DataError for an empty input."""
    _write_sizes(rspecifier, output, 1, lambda sizes: next(sizes, 0))


def _write_sizes(rspecifier, output, axis, reduce) -> None:
    if is_table(output):
        with Writer(output, "int32") as out:
            for key, shape in shapes(rspecifier):
                out.write(key, shape[axis])
            require_most(out.count, 0, rspecifier)
        return
    total = reduce(shape[axis] for _, shape in shapes(rspecifier))
    if not total:
        raise DataError(f"{rspecifier}: no features, the input is empty")
    with open_text_writer(output) as stream:
        stream.write(f"{total}\n")
