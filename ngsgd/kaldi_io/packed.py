"""Symmetric matrices in Kaldi's packed form: `FP` (float32) or `DP` (float64), size, then the lower triangle by rows.

In text, each row of the lower triangle on a line of its own, in brackets.
"""

import numpy as np

from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, format_float


def read_symmetric(reader: TokenReader) -> np.ndarray:
    """(n, n) float64. DataError when it is no packed matrix, or is cut off."""
    if reader.binary:
        dtype = {"FP": "<f4", "DP": "<f8"}[reader.expect("FP", "DP")]
        size = reader.count("a packed matrix")
        count = size * (size + 1) // 2
        values = np.frombuffer(reader.exactly(count * int(dtype[-1]), "a packed matrix"), dtype)
    else:
        values = np.array(reader.bracketed(float, lines=True))
        size = round((2 * len(values) + 0.25) ** 0.5 - 0.5)
        if size * (size + 1) // 2 != len(values):
            raise reader.error(f"a packed matrix of {len(values)} numbers is not a triangle")
    matrix = np.zeros((size, size))
    rows, columns = np.tril_indices(size)
    with np.errstate(invalid="ignore"):  # whoever cannot use NaN says so
        matrix[rows, columns] = matrix[columns, rows] = values
    return matrix


def write_symmetric(writer: TokenWriter, matrix: np.ndarray) -> None:
    """Write (n, n) float32 or float64, of which the lower triangle counts."""
    if writer.binary:
        writer.token("FP" if matrix.dtype == np.float32 else "DP")
        writer.int32(len(matrix))
        writer.raw(matrix[np.tril_indices(len(matrix))].tobytes())
    else:
        rows = ("".join(f"{format_float(v)} " for v in row[: i + 1]) for i, row in enumerate(matrix.tolist()))
        writer.text("[\n" + "\n".join(rows) + "]\n" if len(matrix) else "[ ]\n")
