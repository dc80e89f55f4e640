"""One linear or affine transform of features made of two."""

from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import matrix_finder
from ngsgd.kaldi_io.copying import OutputOptions, copy_table
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.kaldi_io.tables import is_table
from ngsgd.options import opt


@dataclass(kw_only=True)
class ComposeOptions(OutputOptions):
    """What the matrices are."""

    b_is_affine: bool = opt(False, "the last column of B is an offset; asked for only where A has one")
    utt2spk: str = opt("", "utt2spk file: the transforms A are by utterance, B by speaker")


def compose(a: np.ndarray, b: np.ndarray, b_is_affine: bool = False) -> np.ndarray:
    """A B, the transform that is B and then A; as Kaldi's compose-transforms.

    a (n, m) and b (m, k) give (n, k), whatever the last column of b is. a (n, m + 1), with an offset, and b (m, k) give
    (n, k) where the last column of b is an offset, else (n, k + 1). Raises DataError for other shapes.
    """
    rows, columns = b.shape
    if a.shape[1] == rows:
        return a @ b
    if a.shape[1] != rows + 1:
        raise DataError(
            f"A has {a.shape[1]} columns, B {rows} rows: expected {rows} columns, or {rows + 1} with an offset"
        )
    extended = np.zeros((rows + 1, columns + (not b_is_affine)), b.dtype)
    extended[:rows, :columns] = b
    extended[-1, -1] = 1.0
    return a @ extended


def compose_files(a: str, b: str, target: str, options: ComposeOptions) -> tuple[int, int]:
    """Write A B, or for each entry of a table its product; returns (done, failed).

    The entries are those of A where it is a table, else of B. Raises DataError for tables and files that do not go
    together, and as `compose`.
    """
    if is_table(target) != (is_table(a) or is_table(b)):
        raise DataError(
            f"expected a table as output where one of the inputs is, else a file; got '{a}', '{b}', '{target}'"
        )
    find_a, find_b = matrix_finder(a), matrix_finder(b, options.utt2spk)
    if not is_table(target):
        product = compose(find_a(""), find_b(""), options.b_is_affine)
        with open_writer(target, options.binary) as writer:
            writer.matrix(product)
        return 1, 0
    if is_table(a):
        return copy_table(a, target, "matrix", lambda key, value: compose(value, find_b(key), options.b_is_affine))
    return copy_table(b, target, "matrix", lambda key, value: compose(find_a(key), value, options.b_is_affine))
