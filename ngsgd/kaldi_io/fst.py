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

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from ngsgd.errors import DataError

_MAGIC = 2125659606
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _IS_ALIGNED = 1, 2, 4
_EXPANDED = 1
_MAX_STRING = 64
STATE_DTYPE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("iepsilons", "<u4"), ("oepsilons", "<u4")]
)
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


def read_header(stream: BinaryIO, name: str) -> FstHeader:
    """Read an FST header. DataError when it is none, or of an FST that these functions do not know."""
    parts: list[bytes] = []

    def exactly(size: int) -> bytes:
        data = stream.read(size)
        if len(data) != size:
            raise DataError(f"{name}: the FST ends in its header")
        parts.append(data)
        return data

    def string() -> str:
        (size,) = struct.unpack("<i", exactly(4))
        if not 0 <= size <= _MAX_STRING:
            raise DataError(f"{name}: a string of {size} bytes in the header of an FST: the file is damaged")
        return exactly(size).decode("latin-1")

    (magic,) = struct.unpack("<i", exactly(4))
    if magic != _MAGIC:
        raise DataError(f"{name}: expected a binary OpenFst file, found bytes {parts[0]!r}")
    kind, arc = string(), string()
    values = struct.unpack("<iiQqqq", exactly(40))
    header = FstHeader(kind, arc, *values, raw=b"".join(parts))
    if arc != "standard" or kind not in ("vector", "const"):
        raise DataError(f"{name}: expected an FST of type vector or const with standard arcs, found {kind}, {arc}")
    return header


def read_fst_bytes(stream: BinaryIO, name: str) -> bytes:
    """The bytes of one FST from a stream positioned at it, and not one more. DataError when it is cut off."""
    header = read_header(stream, name)
    if header.flags & (_HAS_ISYMBOLS | _HAS_OSYMBOLS | _IS_ALIGNED):
        raise DataError(f"{name}: an FST in an archive with symbol tables or alignment inside is not supported")
    parts = [header.raw]

    def exactly(size: int) -> bytes:
        data = stream.read(size)
        if len(data) != size:
            raise DataError(f"{name}: the FST is cut off: expected {size} more bytes, found {len(data)}")
        parts.append(data)
        return data

    if header.fst_type == "const":
        exactly(header.num_states * STATE_DTYPE.itemsize + header.num_arcs * ARC_DTYPE.itemsize)
    else:
        if header.num_states < 0:
            raise DataError(f"{name}: an FST of unknown size cannot be read from a stream")
        for _ in range(header.num_states):
            (arcs,) = struct.unpack_from("<q", exactly(12), 4)
            exactly(arcs * ARC_DTYPE.itemsize)
    return b"".join(parts)


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
        data = read_fst_bytes(stream, rxfilename)
    if data[8:13] == b"const":
        import kaldifst

        return kaldifst.StdVectorFst(fst_from_bytes(data, "const"))
    return fst_from_bytes(data)


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
        import io

        header = read_header(io.BytesIO(data[:200]), name)
        if header.fst_type != "const" or header.flags:
            raise DataError(f"{name}: expected a const FST without symbol tables, found {header.fst_type}")
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
            2,
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
