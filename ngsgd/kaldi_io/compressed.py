"""Kaldi's compressed matrices: CM (one byte, four percentiles a column), CM2 (two bytes), CM3 (one byte).

kaldiio's codec does the arithmetic; this is the only file that imports it. Here are the bookkeeping of sizes, which
it does not check, and the bytes as they were read, so that a copy is identical.
"""

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ngsgd.errors import DataError

if TYPE_CHECKING:
    from ngsgd.kaldi_io.stream import TokenReader

_HEADER = struct.Struct("<ffii")
_KINDS = ("CM", "CM2", "CM3")
_SPEECH_FEATURE, _TWO_BYTE, _ONE_BYTE = 2, 3, 5  # kaldiio's numbers, Kaldi's CompressionMethod
METHODS = {"speech": _SPEECH_FEATURE, "two-byte": _TWO_BYTE, "one-byte": _ONE_BYTE}


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
        payload = reader.exactly(cls.payload_size(kind, rows, cols), "a compressed matrix")
        return cls(kind, minimum, extent, rows, cols, payload)

    @classmethod
    def from_dense(cls, matrix: np.ndarray, method: str = "auto") -> "CompressedMatrix":
        """Compress (rows, columns). `method`: auto (speech for more than 8 rows, else two-byte), or one of METHODS.

        Raises DataError for values that are not finite.
        """
        from kaldiio.compression_header import GlobalHeader, PerColHeader

        if matrix.shape[0] == 0:
            return cls("CM", 0.0, 0.0, 0, 0, b"")
        if not np.isfinite(matrix).all():
            raise DataError("a matrix with NaN or infinite values cannot be compressed")
        matrix = np.asarray(matrix, np.float32)
        number = (_SPEECH_FEATURE if matrix.shape[0] > 8 else _TWO_BYTE) if method == "auto" else METHODS[method]
        header = GlobalHeader.compute(matrix, number)
        if header.type == "CM":
            columns = PerColHeader.compute(matrix, header)
            out = io.BytesIO()
            columns.write(out, header)
            payload = out.getvalue() + columns.float_to_char(matrix.T).tobytes()
        else:
            payload = header.float_to_uint(matrix).tobytes()
        return cls(header.type, float(header.min_value), float(header.range), *matrix.shape, payload)

    def to_dense(self) -> np.ndarray:
        """(rows, columns) float32."""
        from kaldiio.compression_header import GlobalHeader, PerColHeader

        if self.rows == 0:
            return np.zeros((0, 0), np.float32)
        header = GlobalHeader(self.kind, self.minimum, self.extent, self.rows, self.cols)
        if self.kind == "CM":
            columns = PerColHeader.read(io.BytesIO(self.payload[: 8 * self.cols]), header)
            codes = np.frombuffer(self.payload, np.uint8, offset=8 * self.cols).reshape(self.cols, self.rows)
            return np.ascontiguousarray(columns.char_to_float(codes).T, dtype=np.float32)
        codes = np.frombuffer(self.payload, "<u2" if self.kind == "CM2" else np.uint8)
        return np.asarray(header.uint_to_float(codes), np.float32).reshape(self.rows, self.cols)

    def to_bytes(self) -> bytes:
        """Token, header and payload."""
        header = _HEADER.pack(self.minimum, self.extent, self.rows, self.cols)
        return self.kind.encode() + b" " + header + self.payload
