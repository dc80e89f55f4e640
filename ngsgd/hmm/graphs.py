"""Training graphs straight from an archive into flat arrays.

Alignment needs arrays, not FST objects, and reads every graph in every pass, so the detour through OpenFst is spared:
the `vector` form of kaldi_io/fst.py is parsed here. Importing this module registers the table kind "fst_arrays".
"""

from __future__ import annotations

import struct

import numpy as np

from ngsgd.kaldi_io.fst import ARC_DTYPE, FstArrays, read_header
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenReader

_STATE = struct.Struct("<fq")  # final cost, number of arcs


def read_fst_arrays(r: TokenReader) -> FstArrays:
    """Read one FST of type vector from a TokenReader. DataError for another type, or when it is damaged."""
    header = read_header(r.stream, r.name)
    if header.fst_type != "vector" or header.flags & 3 or header.num_states < 0:
        raise r.error(f"expected a vector FST of known size without symbol tables, found {header.fst_type}")
    read, unpack, size = r.stream.read, _STATE.unpack, _STATE.size
    final, counts, parts = [], [], []
    for state in range(header.num_states):
        head = read(size)
        if len(head) != size:
            raise r.error(f"the FST is cut off in state {state} of {header.num_states}")
        cost, count = unpack(head)
        final.append(cost)
        counts.append(count)
        parts.append(read(16 * count) if 0 <= count < 1 << 16 else r.exactly(16 * count, "the arcs of an FST"))
    offset = np.zeros(header.num_states + 1, dtype=np.int64)
    np.cumsum(counts, out=offset[1:])
    data = b"".join(parts)
    if len(data) != 16 * int(offset[-1]):
        raise r.error(f"the FST is cut off: expected {offset[-1]} arcs, found {len(data) // 16}")
    arcs = np.frombuffer(data, ARC_DTYPE)
    if len(arcs) and not (arcs["nextstate"].min() >= 0 and arcs["nextstate"].max() < header.num_states):
        raise r.error(f"the FST has an arc to a state outside its {header.num_states}")
    columns = (np.ascontiguousarray(arcs[name]) for name in ARC_DTYPE.names)
    return FstArrays(header.start, np.array(final, dtype=np.float32), offset, *columns)


@holders.register("fst_arrays")
class FstArraysHolder:
    """An FstArrays, for reading only."""

    @staticmethod
    def read(reader: TokenReader) -> FstArrays:
        return read_fst_arrays(reader)
