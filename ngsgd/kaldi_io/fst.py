"""OpenFst's binary files and numpy: an FST as flat arrays, its bytes, its place in a Kaldi archive.

kaldifst walks arcs one Python object at a time; whole-graph operations of ours (self-loops, symbol and epsilon removal,
weight pushing) work on arrays. The bridge is OpenFst's `const` form, which is two flat tables:

    header   int32 magic, string type, string arc type, int32 version, int32 flags, uint64 properties,
             int64 start, int64 states, int64 arcs                       (string: int32 length, bytes)
    states   float32 final cost, uint32 first arc, uint32 arcs, uint32 input epsilons, uint32 output epsilons
    arcs     int32 input, int32 output, float32 cost, int32 next state

and `vector`, in which each state is followed by its arcs: float32 final cost, int64 arcs, then the arcs as above.
"""

from __future__ import annotations

import io
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import TokenReader

_MAGIC = 2125659606
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED = 1
_FIRST_OF_PAIRS = 0x55555555  # from bit 16 on, "is" and "is not" take turns; neither: unknown
_VERSION = 2
_MAX_STRING = 64
STATE_DTYPE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("iepsilons", "<u4"), ("oepsilons", "<u4")]
)
VECTOR_STATE_DTYPE = np.dtype([("final", "<f4"), ("arcs", "<i8")])
_COUNT = struct.Struct("<q")
ARC_DTYPE = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])


@dataclass
class FstHeader:
    """The header of an FST file; `raw` is its bytes."""

    fst_type: str
    arc_type: str
    version: int
    flags: int
    properties: int
    start: int
    num_states: int
    num_arcs: int
    raw: bytes = b""


def read_header(r: TokenReader) -> FstHeader:
    """Read an FST header. DataError when it is none, or of an FST that these functions do not know."""
    parts: list[bytes] = []

    def exactly(size: int) -> bytes:
        parts.append(r.exactly(size, "the header of an FST"))
        return parts[-1]

    def string() -> str:
        (size,) = struct.unpack("<i", exactly(4))
        if not 0 <= size <= _MAX_STRING:
            raise r.error(f"a string of {size} bytes in the header of an FST: the file is damaged")
        return exactly(size).decode("latin-1")

    (magic,) = struct.unpack("<i", exactly(4))
    if magic != _MAGIC:
        raise r.error(f"expected a binary OpenFst file, found bytes {parts[0]!r}")
    kind, arc = string(), string()
    header = FstHeader(kind, arc, *struct.unpack("<iiQqqq", exactly(40)), raw=b"".join(parts))
    if arc != "standard" or kind not in ("vector", "const"):
        raise r.error(f"expected an FST of type vector or const with standard arcs, found {kind!r}, {arc!r}")
    if header.version != _VERSION:
        raise r.error(f"expected an FST of file version {_VERSION}, found {header.version}")
    if header.properties >> 16 & header.properties >> 17 & _FIRST_OF_PAIRS:
        raise r.error(f"an FST with properties that contradict each other (0x{header.properties:x}): damaged?")
    if header.flags & (_HAS_ISYMBOLS | _HAS_OSYMBOLS | _IS_ALIGNED):
        raise r.error("an FST with symbol tables or alignment inside is not supported")
    if header.num_states < 0 or not -1 <= header.start < max(header.num_states, 1):
        raise r.error(f"an FST of {header.num_states} states that starts in state {header.start} makes no sense")
    if header.fst_type == "const" and header.num_arcs < 0:
        raise r.error(f"an FST of {header.num_arcs} arcs makes no sense")
    return header


def check_states_and_arcs(r: TokenReader, final: np.ndarray, arcs: np.ndarray) -> None:
    """DataError for arcs (ARC_DTYPE) to states that are not there, and for costs that are no numbers."""
    if len(arcs) and not (arcs["nextstate"].min() >= 0 and arcs["nextstate"].max() < len(final)):
        raise r.error(f"the FST has an arc to a state outside its {len(final)}")
    if np.isnan(final).any() or np.isnan(arcs["weight"]).any():
        raise r.error("the FST has a cost that is no number")


def read_fst_bytes(r: TokenReader) -> bytes:
    """The bytes of one FST from a reader positioned at it, and not one more. DataError when it is damaged."""
    header = read_header(r)
    if header.fst_type == "const":
        states = r.exactly(header.num_states * STATE_DTYPE.itemsize, "the states of an FST")
        arcs = r.exactly(header.num_arcs * ARC_DTYPE.itemsize, "the arcs of an FST")
        table = np.frombuffer(states, STATE_DTYPE)
        ends = np.cumsum(table["arcs"], dtype=np.int64)
        if (table["first"] != ends - table["arcs"]).any() or ends[-1:].sum() != header.num_arcs:
            raise r.error(f"the {header.num_states} states of the FST do not share its {header.num_arcs} arcs")
        check_states_and_arcs(r, table["final"], np.frombuffer(arcs, ARC_DTYPE))
        return header.raw + states + arcs
    heads, arcs = read_vector_states(r, header.num_states)
    check_states_and_arcs(r, np.frombuffer(b"".join(heads), VECTOR_STATE_DTYPE)["final"], as_arcs(arcs))
    return header.raw + b"".join(part for pair in zip(heads, arcs) for part in pair)


def read_vector_states(r: TokenReader, num_states: int) -> tuple[list[bytes], list[bytes]]:
    """For each state of a vector FST, its VECTOR_STATE_DTYPE and the bytes of its arcs. DataError when cut off."""
    read, unpack, size = r.stream.read, _COUNT.unpack_from, VECTOR_STATE_DTYPE.itemsize
    heads, arcs = [], []
    for state in range(num_states):
        head = read(size)
        if len(head) != size:
            raise r.error(f"the FST is cut off: expected state {state} of {num_states}, found {len(head)} bytes")
        (count,) = unpack(head, 4)
        if count < 0:
            raise r.error(f"state {state} of an FST with {count} arcs makes no sense")
        part = read(16 * count) if count < 1 << 16 else r.exactly(16 * count, "the arcs of an FST")
        if len(part) != 16 * count:
            raise r.error(f"the FST is cut off: expected {count} arcs of state {state}, found {len(part)} bytes")
        heads.append(head)
        arcs.append(part)
    return heads, arcs


def as_arcs(parts: list[bytes]) -> np.ndarray:
    """(A,) ARC_DTYPE of the bytes of all states."""
    return np.frombuffer(b"".join(parts), ARC_DTYPE)


@contextmanager
def _exchange_file() -> Iterator[tuple[int, str]]:
    """(descriptor, path) of a file to exchange bytes with OpenFst, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fst")
        try:
            yield descriptor, f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            yield file.fileno(), file.name


def fst_bytes(fst) -> bytes:
    """The file that kaldifst would write for an FST, as bytes."""
    with _exchange_file() as (descriptor, path):
        if not fst.write(path):
            raise OSError(f"OpenFst could not write {path}")
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def fst_from_bytes(data: bytes, kind: str = "vector"):
    """A kaldifst.StdVectorFst (or, for kind "const", StdConstFst) from the bytes of a file of that kind."""
    import kaldifst

    reader = kaldifst.StdConstFst if kind == "const" else kaldifst.StdVectorFst
    with _exchange_file() as (descriptor, path):
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        fst = reader.read(path)
    if fst is None:
        raise DataError(f"OpenFst could not read an FST of {len(data)} bytes")
    return fst


def read_fst(rxfilename: str):
    """Read an FST of type vector or const into a kaldifst.StdVectorFst. DataError names the file."""
    from ngsgd.kaldi_io.files import open_bytes

    with open_bytes(rxfilename) as stream:
        return read_fst_from(TokenReader(stream, rxfilename))


def read_fst_from(r: TokenReader):
    """Read an FST as `read_fst` from a TokenReader that stands at it."""
    data = read_fst_bytes(r)
    try:
        if data[8:13] == b"const":
            import kaldifst

            return kaldifst.StdVectorFst(fst_from_bytes(data, "const"))
        return fst_from_bytes(data)
    except DataError as error:
        raise r.error(str(error)) from None


def write_fst(wxfilename: str, fst) -> None:
    """Write a kaldifst FST, whole or not at all."""
    from ngsgd.kaldi_io.files import open_bytes_writer

    with open_bytes_writer(wxfilename) as stream:
        stream.write(fst_bytes(fst))


@dataclass
class FstArrays:
    """An FST of S states and A arcs, arcs in the order of their source states.

    final (S,) float32 cost, inf where not final; offset (S + 1,) int64: arcs of state s are offset[s]:offset[s + 1];
    ilabel, olabel, nextstate (A,) int32; weight (A,) float32 cost. start is -1 when there are no states.
    """

    start: int
    final: np.ndarray
    offset: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    weight: np.ndarray
    nextstate: np.ndarray
    _source: np.ndarray | None = field(default=None, repr=False)

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """A."""
        return len(self.ilabel)

    @property
    def source(self) -> np.ndarray:
        """(A,) int32: the state that each arc leaves."""
        if self._source is None:
            self._source = np.repeat(np.arange(self.num_states, dtype=np.int32), np.diff(self.offset))
        return self._source

    @classmethod
    def from_arcs(
        cls,
        start: int,
        final: np.ndarray,
        source: np.ndarray,
        ilabel: np.ndarray,
        olabel: np.ndarray,
        weight: np.ndarray,
        nextstate: np.ndarray,
    ) -> FstArrays:
        """From arcs in any order; those of one state keep theirs."""
        order = np.argsort(source, kind="stable")
        counts = np.bincount(source, minlength=len(final))
        offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(
            int(start),
            np.asarray(final, np.float32),
            offset,
            np.asarray(ilabel, np.int32)[order],
            np.asarray(olabel, np.int32)[order],
            np.asarray(weight, np.float32)[order],
            np.asarray(nextstate, np.int32)[order],
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "FST") -> FstArrays:
        """From the bytes of a `const` file without symbol tables."""
        header = read_header(TokenReader(io.BytesIO(data[:200]), name))
        if header.fst_type != "const":
            raise DataError(f"{name}: expected a const FST, found {header.fst_type}")
        begin = len(header.raw)
        end = begin + header.num_states * STATE_DTYPE.itemsize
        if len(data) < end + header.num_arcs * ARC_DTYPE.itemsize:
            raise DataError(f"{name}: the FST is cut off")
        states = np.frombuffer(data, STATE_DTYPE, header.num_states, begin)
        arcs = np.frombuffer(data, ARC_DTYPE, header.num_arcs, end)
        offset = np.zeros(header.num_states + 1, np.int64)
        np.cumsum(states["arcs"], out=offset[1:])
        return cls(header.start, states["final"].copy(), offset, *(arcs[n].copy() for n in ARC_DTYPE.names))

    @classmethod
    def from_fst(cls, fst) -> FstArrays:
        """From a kaldifst StdVectorFst or StdConstFst."""
        import kaldifst

        if not isinstance(fst, kaldifst.StdConstFst):
            fst = kaldifst.StdConstFst(fst)
        return cls.from_bytes(fst_bytes(fst))

    def const_bytes(self) -> bytes:
        """The bytes of a `const` file."""
        states = np.empty(self.num_states, STATE_DTYPE)
        states["final"] = self.final
        states["first"] = self.offset[:-1]
        states["arcs"] = np.diff(self.offset)
        for name, label in (("iepsilons", self.ilabel), ("oepsilons", self.olabel)):
            total = np.concatenate([[0], np.cumsum(label == 0)])
            states[name] = total[self.offset[1:]] - total[self.offset[:-1]]
        arcs = np.empty(self.num_arcs, ARC_DTYPE)
        for name in ARC_DTYPE.names:
            arcs[name] = getattr(self, name)
        header = struct.pack(
            "<ii5si8siiQqqq",
            _MAGIC,
            5,
            b"const",
            8,
            b"standard",
            _VERSION,
            0,
            _EXPANDED,
            self.start,
            self.num_states,
            self.num_arcs,
        )
        return header + states.tobytes() + arcs.tobytes()

    def to_const(self):
        """A kaldifst.StdConstFst."""
        return fst_from_bytes(self.const_bytes(), "const")

    def to_vector(self):
        """A kaldifst.StdVectorFst."""
        import kaldifst

        return kaldifst.StdVectorFst(self.to_const())
