"""Training graphs straight from an archive into flat arrays.

Alignment needs arrays, not FST objects, and reads every graph in every pass, so the detour through OpenFst is spared:
the `vector` form of kaldi_io/fst.py is parsed here. Importing this module registers the table kind "fst_arrays".
"""

from __future__ import annotations

import numpy as np

from ngsgd.kaldi_io.fst import (
    ARC_DTYPE,
    VECTOR_STATE_DTYPE,
    FstArrays,
    as_arcs,
    check_states_and_arcs,
    read_header,
    read_vector_states,
)
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenReader


def read_fst_arrays(r: TokenReader) -> FstArrays:
    """Read one FST of type vector from a TokenReader. DataError for another type, or when it is damaged."""
    header = read_header(r)
    if header.fst_type != "vector":
        raise r.error(f"expected a vector FST, found {header.fst_type}")
    heads, parts = read_vector_states(r, header.num_states)
    states, arcs = np.frombuffer(b"".join(heads), VECTOR_STATE_DTYPE), as_arcs(parts)
    check_states_and_arcs(r, states["final"], arcs)
    offset = np.zeros(header.num_states + 1, dtype=np.int64)
    np.cumsum(states["arcs"], out=offset[1:])
    columns = (np.ascontiguousarray(arcs[name]) for name in ARC_DTYPE.names)
    return FstArrays(header.start, np.ascontiguousarray(states["final"]), offset, *columns)


@holders.register("fst_arrays")
class FstArraysHolder:
    """An FstArrays, for reading only."""

    @staticmethod
    def read(reader: TokenReader) -> FstArrays:
        return read_fst_arrays(reader)
