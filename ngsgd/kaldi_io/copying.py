"""Copying tables and single objects of any kind: what all copy programs do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressOptions
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.kaldi_io.tables import SequentialReader, Writer, is_table, read_object
from ngsgd.options import opt

_OBJECT_WRITERS = {"matrix": "matrix", "general_matrix": "matrix", "vector": "vector", "int32_vector": "int32_vector"}


@dataclass
class OutputOptions:
    """The form of what is written."""

    binary: bool = opt(True, "write a single object in binary; of a table the specifier says it (ark: or ark,t:)")


@dataclass
class ScaleOptions:
    """What happens to numbers on the way."""

    scale: float = opt(1.0, "multiply by this")


@dataclass
class ElementOptions(ScaleOptions):
    """What happens to the elements of a matrix on the way, in this order."""

    apply_log: bool = opt(False, "then take the natural logarithm")
    apply_exp: bool = opt(False, "then take the exponential")


def matrix_kind(compression: CompressOptions) -> str:
    """The kind of table to read: expanded, unless what is compressed may stay so."""
    return "general_matrix" if compression.compress else "matrix"


def scaled(options: ScaleOptions) -> Callable[[np.ndarray], np.ndarray] | None:
    """The function that multiplies an array, in its own precision; None where nothing is to be done."""
    return None if options.scale == 1.0 else lambda value: value * value.dtype.type(options.scale)


def elementwise(options: ElementOptions) -> Callable[[np.ndarray], np.ndarray] | None:
    """The function from a matrix to the changed one; it raises DataError for the logarithm of what is not positive."""
    if options == ElementOptions():
        return None

    def change(value: Any) -> np.ndarray:
        dense = value if isinstance(value, np.ndarray) else value.to_dense()
        dense = dense * dense.dtype.type(options.scale)
        if options.apply_log:
            if not (dense > 0).all():
                raise DataError(f"the logarithm of {dense[~(dense > 0)][0]} was asked for")
            dense = np.log(dense)
        return np.exp(dense) if options.apply_exp else dense

    return change


def copy(
    source: str,
    target: str,
    kind: str,
    output: OutputOptions | None = None,
    change: Callable[[Any], Any] | None = None,
    compression: CompressOptions | None = None,
) -> tuple[int, int]:
    """Copy a table to a table, or one object to a file, through `change`; returns (done, failed).

    `kind`: as of the table; a single object is a matrix, vector or integer vector. Raises DataError for a table and a
    file, an object that cannot be read, and as `require_most`; then nothing is written.
    """
    if is_table(source) != is_table(target):
        raise DataError(f"expected two tables (ark:..., scp:...) or two files, got '{source}' and '{target}'")
    if is_table(source):
        return copy_table(source, target, kind, lambda _, value: change(value) if change else value, compression)
    if kind not in _OBJECT_WRITERS:
        raise DataError(f"expected tables (ark:..., scp:...), got the files '{source}' and '{target}'")
    value = read_object(source, kind)
    value = change(value) if change else value
    if compression and compression.compress:
        value = compression.apply(value)
    with open_writer(target, output is None or output.binary) as writer:
        getattr(writer, _OBJECT_WRITERS[kind])(value)
    return 1, 0


def copy_table(
    rspecifier: str,
    wspecifier: str,
    kind: str,
    change: Callable[[str, Any], Any],
    compression: CompressOptions | None = None,
) -> tuple[int, int]:
    """Write change(key, value) of each entry; returns (done, failed). Raises as `require_most`; then writes nothing."""
    with Writer(wspecifier, kind, compression or False) as out:
        done, failed = for_each(
            SequentialReader(rspecifier, kind).items(), lambda key, value: out.write(key, change(key, value))
        )
        require_most(done, failed, rspecifier)
    return done, failed
