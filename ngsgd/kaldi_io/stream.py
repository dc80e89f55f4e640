"""Token streams: how Kaldi lays out objects, in binary and in text, little-endian.

Binary: a file begins with `\\0B`; a token ends with one space; an integer is one byte of size, then its bytes; a float
the same; a boolean `T` or `F`; an integer vector size byte, int32 count, data; a matrix `FM ` (float32) or `DM `
(float64), rows and columns, data. Text: everything separated by white space, floats to 7 digits.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.files import open_bytes, open_bytes_writer

_DTYPES = {"F": np.dtype("<f4"), "D": np.dtype("<f8")}
_SPACE = b" \t\n\r"
_SPACE_TEXT = " \t\n\r\v\f"
_SPACES = re.compile(f"[{_SPACE_TEXT}]+")


class TokenReader:
    """Reads Kaldi objects from a binary file object that stands at the object's first token.

    `name` appears in messages. Every method raises DataError, naming the place, what was expected and what came.
    """

    def __init__(self, stream: BinaryIO, name: str, binary: bool = True):
        self.stream = stream
        self.name = name
        self.binary = binary
        self._pending: str | None = None

    def error(self, message: str) -> DataError:
        """A DataError that says where in the file."""
        return DataError(f"{self.name}{self._position()}: {message}")

    def _position(self) -> str:
        try:
            return f" at byte {self.stream.tell()}"
        except (OSError, ValueError):
            return ""

    def next_byte(self) -> bytes:
        """The next byte, which stays to be read; empty at the end."""
        return self.stream.peek(1)[:1]

    def detect_mode(self) -> None:
        """Consume the `\\0B` of binary mode, if it is there, and set `binary` accordingly."""
        self.binary = self.next_byte() == b"\0"
        if self.binary and self.exactly(2, "a binary header") != b"\0B":
            raise self.error("expected a binary header '\\0B'")

    def exactly(self, size: int, what: str) -> bytes:
        """`size` bytes of `what`."""
        assert size >= 0
        if size > 1 << 20:
            return bytes(self._large(size, what))
        data = self.stream.read(size)
        if len(data) != size:
            raise self.error(f"{what} is cut off: expected {size} bytes, found {len(data)}")
        return data

    def _large(self, size: int, what: str) -> bytearray:
        """As `exactly`, without allocating more than there is to read."""
        data = bytearray()
        while len(data) < size:
            part = self.stream.read(min(size - len(data), 1 << 22))
            if not part:
                raise self.error(f"{what} is cut off: expected {size} bytes, found {len(data)}")
            data += part
        return data

    def _word(self) -> bytes:
        """The next run of bytes that are no white space; in binary mode the one space behind it is consumed."""
        byte = self.stream.read(1)
        while not self.binary and byte and byte in _SPACE:
            byte = self.stream.read(1)
        word = bytearray()
        while byte not in _SPACE:
            word += byte
            if self.binary and len(word) > 1000:
                raise self.error("expected a token, found over 1000 bytes without a space")
            if not self.binary:
                following = self.next_byte()
                if following and following in _SPACE:
                    break
            byte = self.stream.read(1)
            if self.binary and not byte:
                raise self.error(f"a token is cut off: expected a space behind {bytes(word[:40])!r}, found the end")
        return bytes(word)

    def token(self) -> str:
        """The next token."""
        if self._pending is not None:
            token, self._pending = self._pending, None
            return token
        word = self._word()
        if not word:
            raise self.error("expected a token, found the end" if not self.next_byte() else "expected a token")
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise self.error(f"expected a token, found {word[:20]!r}") from None

    def peek(self) -> str:
        """The next token, which stays to be read."""
        if self._pending is None:
            self._pending = self.token()
        return self._pending

    def expect(self, *tokens: str) -> str:
        """The next token, which must be one of `tokens`."""
        found = self.token()
        if found not in tokens:
            raise self.error(f"expected {' or '.join(tokens)}, found '{found[:40]}'")
        return found

    def at_end(self) -> bool:
        """Whether nothing (in text mode: nothing but white space) follows."""
        if self._pending is not None:
            return False
        while not self.binary and (byte := self.next_byte()) and byte in _SPACE:
            self.stream.read(1)
        return not self.next_byte()

    def words(self) -> list[str]:
        """The words of the rest of the line, in text mode."""
        return split_words(self.line())

    def line(self) -> str:
        """The rest of the line, in text mode, without its end."""
        data = self.stream.readline()
        if not data:
            raise self.error("expected a line, found the end")
        try:
            return data.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise self.error(f"not UTF-8: byte 0x{data[error.start]:02x}") from None

    # Basic types

    def _basic(self, formats: dict[int, str], what: str):
        size = struct.unpack("b", self.exactly(1, what))[0]
        if size not in formats:
            sizes = " or ".join(str(s) for s in sorted({abs(s) for s in formats}))
            raise self.error(f"expected {what} of {sizes} bytes, found a size byte of {size}")
        return struct.unpack("<" + formats[size], self.exactly(abs(size), what))[0]

    def int32(self) -> int:
        """An int32 (or uint32) in Kaldi's basic-type form."""
        if not self.binary:
            return self.number(self.token(), int, "an integer")
        value = self._basic({4: "i", -4: "I"}, "an integer")
        if value >= 1 << 31:
            raise self.error(f"expected an integer below 2147483648, found {value}")
        return value

    def int64(self) -> int:
        """An integer of 1 to 8 bytes."""
        if self.binary:
            return self._basic({8: "q", -8: "Q", 4: "i", -4: "I", 2: "h", -2: "H", 1: "b", -1: "B"}, "an integer")
        return self.number(self.token(), int, "an integer", bits=64)

    def float32(self) -> float:
        """A float, stored as float32 or float64."""
        if self.binary:
            return self._basic({4: "f", 8: "d"}, "a float")
        return self.number(self.token(), float)

    float64 = float32

    def count(self, what: str) -> int:
        """An int32 that is the size of something, so not negative."""
        size = self.int32()
        if size < 0:
            raise self.error(f"{what}: a size of {size} makes no sense")
        return size

    def number(self, word: str, kind: type, what: str = "a number", bits: int = 32):
        """The int (of so many bits) or float that a word of text stands for."""
        try:
            value = kind(word)
        except ValueError:
            raise self.error(f"expected {what}, found '{word[:40]}'") from None
        if "_" in word or (kind is int and not -(1 << bits - 1) <= value < 1 << bits - 1):
            raise self.error(f"expected {what}, found '{word[:40]}'")
        return value

    def bool(self) -> bool:
        """A boolean: T or F."""
        found = self.exactly(1, "a boolean").decode("latin-1") if self.binary else self.token()
        if found not in ("T", "F"):
            raise self.error(f"expected T or F, found '{found[:40]}'")
        return found == "T"

    # Vectors and matrices

    def _int32_records(self, per_record: int, what: str) -> np.ndarray:
        """The binary form of Kaldi's vectors of plain integers: size byte, int32 count, data."""
        size = self.exactly(1, what)[0]
        if size != 4:
            raise self.error(f"expected {what} of 4-byte integers, found {size} bytes each")
        count = struct.unpack("<i", self.exactly(4, what))[0]
        if count < 0:
            raise self.error(f"{what}: a size of {count} makes no sense")
        return np.frombuffer(self.exactly(4 * per_record * count, what), "<i4").astype(np.int32)

    def int32_vector(self) -> np.ndarray:
        """(n,) int32 in the form of Kaldi's WriteIntegerVector: in text `[ 1 2 3 ]`."""
        if not self.binary:
            return np.array(self.bracketed(int), dtype=np.int32)
        return self._int32_records(1, "an integer vector")

    def int32_pairs(self) -> np.ndarray:
        """(n, 2) int32 in the form of Kaldi's WriteIntegerPairVector."""
        if not self.binary:
            self.expect("[")
            pairs = []
            while (word := self.token()) != "]":
                first, comma, second = word.partition(",")
                if not comma:
                    raise self.error(f"expected a pair of integers A,B, found '{word[:40]}'")
                pairs += [self.number(first, int, "an integer"), self.number(second, int, "an integer")]
            return np.array(pairs, dtype=np.int32).reshape(-1, 2)
        return self._int32_records(2, "an integer-pair vector").reshape(-1, 2)

    def bracketed(self, kind: type, lines: bool = False) -> list:
        """The numbers of a text `[ 1 2 3 ]`, which stands on one line unless `lines` allows several."""
        self.expect("[")
        text = self._text_until_bracket()
        if "\n" in text and not lines:
            raise self.error("expected numbers and ] on one line, found several lines, as of a matrix")
        return [self.number(word, kind) for word in text.split()]

    def vector(self, dtype: type | None = None) -> np.ndarray:
        """(n,) of `dtype`; without one float32 or float64 as stored (text: float32)."""
        if not self.binary:
            return _as_type(np.array(self.bracketed(float)), dtype or np.float32)
        kind = self.expect("FV", "DV")
        count = self.count("a vector")
        values = self._floats(_DTYPES[kind[0]], count, "a vector")
        return _as_type(values, dtype)

    def matrix(self, dtype: type | None = None) -> np.ndarray:
        """(rows, columns) of `dtype`; without one as stored: float32 or float64 (text, compressed: float32)."""
        matrix = self.general_matrix(dtype)
        if isinstance(matrix, CompressedMatrix):
            matrix = matrix.to_dense()
        return _as_type(matrix, dtype)

    def general_matrix(self, dtype: type | None = None) -> "np.ndarray | CompressedMatrix":
        """As `matrix`, but a compressed matrix stays compressed."""
        if not self.binary:
            return self._text_matrix(dtype or np.float32)
        kind = self.expect("FM", "DM", "CM", "CM2", "CM3")
        if kind.startswith("CM"):
            return CompressedMatrix.read(kind, self)
        rows, columns = self.count("a matrix"), self.count("a matrix")
        if (rows == 0) != (columns == 0):
            raise self.error(f"a matrix of {rows} x {columns} makes no sense")
        return self._floats(_DTYPES[kind[0]], rows * columns, "a matrix").reshape(rows, columns)

    def _floats(self, dtype: np.dtype, count: int, what: str) -> np.ndarray:
        size = dtype.itemsize * count
        if size > 1 << 24:  # do not trust a header with the allocation
            return np.frombuffer(self._large(size, what), dtype)
        values = np.empty(count, dtype)
        found = self.stream.readinto(memoryview(values).cast("B")) if size else 0
        if found != size:
            raise self.error(f"{what} is cut off: expected {size} bytes, found {found}")
        return values

    def _text_matrix(self, dtype: type) -> np.ndarray:
        self.expect("[")
        text = self._text_until_bracket()
        rows = [row for row in text.split("\n") if row.strip()]
        try:
            values = _as_type(np.array([row.split() for row in rows], dtype=np.float64), dtype)
        except ValueError:
            raise self.error("expected rows of numbers, all of one length") from None
        return values.reshape(len(rows), -1) if rows else np.zeros((0, 0), dtype)

    def _text_until_bracket(self) -> str:
        parts = []
        while data := self.stream.peek(1):
            end = data.find(b"]")
            parts.append(self.stream.read(end if end >= 0 else len(data)))
            if end >= 0:
                self.stream.read(1)
                return b"".join(parts).decode("latin-1")
        raise self.error("expected ], found the end")


def _as_type(values: np.ndarray, dtype: type | None) -> np.ndarray:
    """In another precision, where one is given; what is too large for it becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values if dtype is None else values.astype(dtype, copy=False)


class TokenWriter:
    """Writes what TokenReader reads; the same bytes as Kaldi."""

    def __init__(self, stream: BinaryIO, binary: bool = True):
        self.stream = stream
        self.binary = binary
        self.position = 0

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.stream.write(data)
        self.position += len(data)

    def text(self, text: str) -> None:
        """Text as it is; only in text mode."""
        assert not self.binary
        self.raw(text.encode())

    def newline(self) -> None:
        """A line end, in text mode only."""
        if not self.binary:
            self.raw(b"\n")

    def token(self, token: str) -> None:
        """A token and the space behind it."""
        self.raw(token.encode() + b" ")

    def int32(self, value: int) -> None:
        """An int32."""
        self.raw(struct.pack("<bi", 4, value) if self.binary else b"%d " % value)

    def int64(self, value: int) -> None:
        """An int64."""
        self.raw(struct.pack("<bq", 8, value) if self.binary else b"%d " % value)

    def float32(self, value: float) -> None:
        """A float32."""
        self.raw(struct.pack("<bf", 4, value) if self.binary else format_float(value).encode() + b" ")

    def float64(self, value: float) -> None:
        """A float64."""
        self.raw(struct.pack("<bd", 8, value) if self.binary else format_float(value).encode() + b" ")

    def bool(self, value: bool) -> None:
        """A boolean."""
        self.raw((b"T" if value else b"F") + (b"" if self.binary else b" "))

    def int32_vector(self, values: np.ndarray) -> None:
        """(n,) int32."""
        values = np.ascontiguousarray(values, dtype="<i4")
        if self.binary:
            self.raw(struct.pack("<bi", 4, len(values)) + values.tobytes())
        else:
            self.raw(("[ " + "".join(f"{v} " for v in values.tolist()) + "]\n").encode())

    def int32_pairs(self, values: np.ndarray) -> None:
        """(n, 2) int32."""
        values = np.ascontiguousarray(values, dtype="<i4").reshape(-1, 2)
        if self.binary:
            self.raw(struct.pack("<bi", 4, len(values)) + values.tobytes())
        else:
            self.raw(("[ " + "".join(f"{a},{b} " for a, b in values.tolist()) + "]\n").encode())

    def vector(self, values: np.ndarray) -> None:
        """(n,) float32 or float64, stored as such."""
        if self.binary:
            self.token("FV" if values.dtype == np.float32 else "DV")
            self.int32(len(values))
            self.raw(np.ascontiguousarray(values).tobytes())
        else:
            self.raw((" [ " + "".join(f"{format_float(v)} " for v in values.tolist()) + "]\n").encode())

    def matrix(self, values: "np.ndarray | CompressedMatrix") -> None:
        """(rows, columns) float32 or float64, stored as such, or a compressed matrix."""
        if isinstance(values, CompressedMatrix):
            if self.binary:
                self.raw(values.to_bytes())
                return
            values = values.to_dense()
        if self.binary:
            self.token("FM" if values.dtype == np.float32 else "DM")
            self.int32(values.shape[0])
            self.int32(values.shape[1])
            self.raw(np.ascontiguousarray(values).tobytes())
        elif values.shape[0] == 0:
            self.raw(b" [ ]\n")
        else:
            rows = ("".join(f"{format_float(v)} " for v in row) for row in values.tolist())
            self.raw((" [" + "".join("\n  " + row for row in rows) + "]\n").encode())


def split_words(text: str, splits: int = 0) -> list[str]:
    """Words between the white space that Kaldi knows, that of ASCII; a no-break space is part of a word."""
    words = _SPACES.split(text.strip(_SPACE_TEXT), splits)
    return words if words != [""] else []


def format_float(value: float) -> str:
    """A float in text as Kaldi's streams print it: seven significant digits."""
    return f"{value:.7g}"


@contextmanager
def open_reader(rxfilename: str) -> Iterator[TokenReader]:
    """A TokenReader over an rxfilename; binary or text is found out from its first bytes."""
    with open_bytes(rxfilename) as stream:
        reader = TokenReader(stream, rxfilename)
        reader.detect_mode()
        yield reader


@contextmanager
def open_writer(wxfilename: str, binary: bool = True) -> Iterator[TokenWriter]:
    """A TokenWriter over a wxfilename; a file appears only when all of it was written."""
    with open_bytes_writer(wxfilename) as stream:
        writer = TokenWriter(stream, binary)
        if binary:
            writer.raw(b"\0B")
        yield writer
