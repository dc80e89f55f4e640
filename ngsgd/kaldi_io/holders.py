"""What a table can hold: how each kind of value is read from and written to one entry of an archive.

A holder is an object with `read(reader)` and `write(writer, value)`; their `binary` says which form is meant. One with
`binary_header = False` never has the `\\0B` of binary entries. Other parts register their own (`ngsgd.egs` the training
examples, `ngsgd.data.wave` recordings).
"""

from typing import Any

import numpy as np

from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.fst import fst_bytes, read_fst_from
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, format_float
from ngsgd.registry import Registry

holders = Registry("kind of table")


_TOKENS = {
    **dict.fromkeys(("FM", "DM", "CM", "CM2", "CM3"), "a matrix"),
    **dict.fromkeys(("FV", "DV"), "a vector"),
    **dict.fromkeys(("FP", "DP"), "a packed matrix"),
    "<NnetExample>": "a training example",
}
_SIZE_BYTE = b"\4"


def _expect(reader: TokenReader, wanted: str) -> None:
    """DataError that says wanted and found, for a binary entry that begins as one of another kind."""
    if not reader.binary:
        return
    by_token = wanted in _TOKENS.values()
    if reader.next_byte() == _SIZE_BYTE:
        if by_token:
            raise reader.error(f"expected {wanted}, found integers (an alignment, a posterior, a number)")
        return
    token = reader.peek()
    if _TOKENS.get(token) != wanted:
        raise reader.error(f"expected {wanted}, found {_TOKENS.get(token, 'something else')} ({token[:40]})")


def _single(reader: TokenReader, what: str) -> str:
    words = reader.words()
    if len(words) != 1:
        raise reader.error(f"expected {what}, found {len(words)} words")
    return words[0]


@holders.register("matrix")
class Matrix:
    """(rows, columns) float32 or float64; compressed matrices are expanded."""

    @staticmethod
    def read(reader: TokenReader) -> np.ndarray:
        _expect(reader, "a matrix")
        return reader.matrix()

    @staticmethod
    def write(writer: TokenWriter, value: "np.ndarray | CompressedMatrix") -> None:
        writer.matrix(value)


@holders.register("general_matrix")
class GeneralMatrix(Matrix):
    """As `matrix`, but a compressed matrix stays as it is (a `CompressedMatrix`)."""

    @staticmethod
    def read(reader: TokenReader) -> "np.ndarray | CompressedMatrix":
        _expect(reader, "a matrix")
        return reader.general_matrix()


@holders.register("vector")
class Vector:
    """(n,) float32 or float64."""

    @staticmethod
    def read(reader: TokenReader) -> np.ndarray:
        _expect(reader, "a vector")
        return reader.vector()

    @staticmethod
    def write(writer: TokenWriter, value: np.ndarray) -> None:
        writer.vector(value)


@holders.register("int32_vector")
class Int32Vector:
    """(n,) int32: alignments, transcripts. In binary every element carries its size byte, as in Kaldi."""

    _ELEMENT = np.dtype([("size", "i1"), ("value", "<i4")])

    @classmethod
    def read(cls, reader: TokenReader) -> np.ndarray:
        if not reader.binary:
            return np.array([reader.number(w, int, "integers") for w in reader.words()], dtype=np.int32)
        _expect(reader, "an integer vector")
        count = reader.count("an integer vector")
        data = np.frombuffer(reader.exactly(5 * count, "an integer vector"), cls._ELEMENT)
        if (data["size"] != 4).any():
            raise reader.error("expected a vector of 4-byte integers")
        return data["value"].astype(np.int32)

    @classmethod
    def write(cls, writer: TokenWriter, value: np.ndarray) -> None:
        if writer.binary:
            data = np.empty(len(value), cls._ELEMENT)
            data["size"], data["value"] = 4, value
            writer.int32(len(value))
            writer.raw(data.tobytes())
        else:
            writer.text("".join(f"{v} " for v in np.asarray(value).tolist()) + "\n")


@holders.register("int32_lists")
class Int32Lists:
    """A list of int lists: Gaussian selections. In text `3 7 ; 1 ;`, each list ended by its semicolon."""

    @staticmethod
    def read(reader: TokenReader) -> list[list[int]]:
        if reader.binary:
            _expect(reader, "lists of integers")
            return [
                [reader.int32() for _ in range(reader.count("a list of integers"))]
                for _ in range(reader.count("lists of integers"))
            ]
        *lists, rest = reader.line().split(";")
        if rest.strip():
            raise reader.error(f"expected lists of integers, each ended by ';', found '{rest.strip()[:40]}'")
        return [[reader.number(word, int, "an integer") for word in part.split()] for part in lists]

    @staticmethod
    def write(writer: TokenWriter, value: list[list[int]]) -> None:
        if not writer.binary:
            writer.text("".join("".join(f"{v} " for v in part) + "; " for part in value) + "\n")
            return
        writer.int32(len(value))
        for part in value:
            writer.int32(len(part))
            for v in part:
                writer.int32(v)


@holders.register("int32")
class Int32:
    """One integer."""

    @staticmethod
    def read(reader: TokenReader) -> int:
        return reader.int32() if reader.binary else reader.number(_single(reader, "an integer"), int, "an integer")

    @staticmethod
    def write(writer: TokenWriter, value: int) -> None:
        writer.int32(value) if writer.binary else writer.text(f"{value}\n")


@holders.register("float")
class Float:
    """One float."""

    @staticmethod
    def read(reader: TokenReader) -> float:
        return reader.float32() if reader.binary else reader.number(_single(reader, "a number"), float)

    @staticmethod
    def write(writer: TokenWriter, value: float) -> None:
        writer.float32(value) if writer.binary else writer.text(f"{format_float(value)}\n")


@holders.register("token")
class Token:
    """One word; always text."""

    binary_header = False

    @staticmethod
    def read(reader: TokenReader) -> str:
        return _single(reader, "one word")

    @staticmethod
    def write(writer: TokenWriter, value: str) -> None:
        writer.raw(f"{value}\n".encode())


@holders.register("tokens")
class Tokens:
    """A list of words; always text."""

    binary_header = False

    @staticmethod
    def read(reader: TokenReader) -> list[str]:
        return reader.words()

    @staticmethod
    def write(writer: TokenWriter, value: list[str]) -> None:
        writer.raw((" ".join(value) + "\n").encode())


@holders.register("posterior")
class Posterior:
    """Per frame a list of (id, weight) pairs."""

    @staticmethod
    def read(reader: TokenReader) -> list[list[tuple[int, float]]]:
        if reader.binary:
            _expect(reader, "a posterior")
            frames = [
                [(reader.int32(), reader.float32()) for _ in range(reader.count("the pairs of a frame"))]
                for _ in range(reader.count("the frames of a posterior"))
            ]
            if any(weight != weight for frame in frames for _, weight in frame):
                raise reader.error("expected weights, found NaN in a posterior")
            return frames
        before, *blocks = reader.line().split("[")
        frames = []
        for block in blocks:
            content, closed, after = block.partition("]")
            words = content.split()
            if not closed or after.strip() or len(words) % 2:
                raise reader.error(f"expected frames like '[ 3 0.5 7 0.5 ]', found '[{block[:40]}'")
            numbers = [reader.number(w, (int, float)[i % 2]) for i, w in enumerate(words)]
            frames.append(list(zip(numbers[::2], numbers[1::2])))
        if before.strip():
            raise reader.error(f"expected frames like '[ 3 0.5 7 0.5 ]', found '{before[:40]}'")
        return frames

    @staticmethod
    def write(writer: TokenWriter, value: list[list[tuple[int, float]]]) -> None:
        if writer.binary:
            writer.int32(len(value))
            for frame in value:
                writer.int32(len(frame))
                for label, weight in frame:
                    writer.int32(label)
                    writer.float32(weight)
            return
        for frame in value:
            writer.text("[ " + "".join(f"{i} {format_float(w)} " for i, w in frame) + "] ")
        writer.text("\n")


@holders.register("fst")
class Fst:
    """A kaldifst.StdVectorFst in OpenFst's binary form."""

    binary_header = False

    @staticmethod
    def read(reader: TokenReader) -> Any:
        return read_fst_from(reader)

    @staticmethod
    def write(writer: TokenWriter, value: Any) -> None:
        writer.raw(fst_bytes(value))
