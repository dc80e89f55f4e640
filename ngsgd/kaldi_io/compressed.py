"""Kaldi's compressed matrices: CM (one byte, four percentiles a column), CM2 (two bytes), CM3 (one byte).

The bytes are kept as they were read, so that a copy is identical; `codec` has the arithmetic.
"""

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io import codec
from ngsgd.options import opt

if TYPE_CHECKING:
    from ngsgd.kaldi_io.stream import TokenReader

_HEADER = struct.Struct("<ffii")
# Kaldi's numbers of ways to compress: kind ("": by the number of rows), and the minimum and range where they are fixed.
_METHODS: dict[int, tuple[str, tuple[float, float] | None]] = {
    1: ("", None),
    2: ("CM", None),
    3: ("CM2", None),
    4: ("CM2", (-32768.0, 65535.0)),
    5: ("CM3", None),
    6: ("CM3", (0.0, 255.0)),
    7: ("CM3", (0.0, 1.0)),
}


@dataclass(frozen=True)
class CompressedMatrix:
    """A matrix in its compressed form.

    kind: CM, CM2 or CM3. payload: for CM the (cols, 4) uint16 percentile headers, then uint8 by column; for CM2
    uint16, for CM3 uint8, by row.
    """

    kind: str
    minimum: float
    extent: float
    rows: int
    cols: int
    payload: bytes

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, self.cols

    @staticmethod
    def payload_size(kind: str, rows: int, cols: int) -> int:
        """Bytes behind the header."""
        return {"CM": 8 * cols + rows * cols, "CM2": 2 * rows * cols, "CM3": rows * cols}[kind]

    @classmethod
    def read(cls, kind: str, reader: "TokenReader") -> "CompressedMatrix":
        """Read what follows the token `kind`. Raises DataError when it is cut off or senseless."""
        minimum, extent, rows, cols = _HEADER.unpack(reader.exactly(_HEADER.size, "a compressed matrix"))
        if rows < 0 or cols < 0 or (rows == 0) != (cols == 0):
            raise reader.error(f"a compressed matrix of {rows} x {cols} makes no sense")
        if not (math.isfinite(minimum) and 0 <= extent < math.inf):
            raise reader.error(f"a compressed matrix of values from {minimum} over {extent} makes no sense")
        payload = reader.exactly(cls.payload_size(kind, rows, cols), "a compressed matrix")
        return cls(kind, minimum, extent, rows, cols, payload)

    @classmethod
    def from_dense(
        cls, matrix: np.ndarray, kind: str = "", limits: tuple[float, float] | None = None
    ) -> "CompressedMatrix":
        """Compress (rows, columns). `kind`: as stored; empty is Kaldi's choice, CM for more than 8 rows, else CM2.

        With `limits` (minimum, range; not for CM) values beyond are moved to them. Raises DataError for values that are
        not finite.
        """
        if matrix.shape[0] == 0:
            return cls("CM", 0.0, 0.0, 0, 0, b"")
        if not np.isfinite(matrix).all():
            raise DataError("a matrix with NaN or infinite values cannot be compressed")
        kind = kind or ("CM" if matrix.shape[0] > 8 else "CM2")
        minimum, extent, payload = codec.encode(matrix, kind, limits)
        return cls(kind, minimum, extent, *matrix.shape, payload)

    def to_dense(self) -> np.ndarray:
        """(rows, columns) float32."""
        if self.rows == 0:
            return np.zeros((0, 0), np.float32)
        return codec.decode(self.kind, self.minimum, self.extent, self.rows, self.cols, self.payload)

    def to_bytes(self) -> bytes:
        """Token, header and payload."""
        header = _HEADER.pack(self.minimum, self.extent, self.rows, self.cols)
        return self.kind.encode() + b" " + header + self.payload


@dataclass
class CompressOptions:
    """Whether and how matrices are compressed."""

    compress: bool = opt(False, "write compressed matrices; those that this method made stay as they are")
    compression_method: int = opt(
        1,
        "1 automatic: 2 above 8 rows, else 3; 2 one byte for features; 3 two bytes; 4 two bytes, whole numbers "
        "-32768..32767; 5 one byte; 6 one byte, whole numbers 0..255; 7 one byte, 0..1",
        choices=tuple(map(str, _METHODS)),
    )

    def apply(self, value: "np.ndarray | CompressedMatrix") -> CompressedMatrix:
        """The matrix compressed by the method. Raises DataError for values that are not finite."""
        kind, limits = _METHODS[self.compression_method]
        if isinstance(value, CompressedMatrix):
            if kind in ("", value.kind) and limits in (None, (value.minimum, value.extent)):
                return value
            value = value.to_dense()
        return CompressedMatrix.from_dense(value, kind, limits)
