"""Viterbi search with a beam for the best path of a training graph.

Time-synchronous token passing: per frame, tokens further than `beam` from the best are dropped, both before and while
they are extended. Two implementations of the same search: `search_plain` is kaldi-decoder's FasterDecoder, which starts
at once and takes about 5 us a frame, much of it for making an FST object; the kernel of `viterbi_kernel` works on the
arrays and takes 1 us, but numba 0.4 s to load. `Searcher` begins with the first and changes over when it has cost more
than loading the second.
"""

from __future__ import annotations

import numpy as np

from ngsgd.kaldi_io.fst import FstArrays

_PLAIN_FRAMES = 100000


def search_plain(graph: FstArrays, column: np.ndarray, scores: np.ndarray, beam: float) -> np.ndarray | None:
    """The arcs of the best path.

    Args:
        graph: its weights are costs.
        column: (A,) int32 column of `scores` that each arc consumes a frame with, -1 for an arc that consumes none.
        scores: (T, K) float32, more is better; contiguous.
        beam: in the unit of costs and scores.

    Returns:
        (T,) int64 indices of the consuming arcs, None when no final state was reached.
    """
    import kaldi_decoder
    import kaldifst

    assert graph.num_arcs == 0 or column.max() < scores.shape[1]
    arcs = np.arange(1, graph.num_arcs + 1, dtype=np.int32)
    fst = FstArrays(graph.start, graph.final, graph.offset, column + 1, arcs, graph.weight, graph.nextstate).to_const()
    options = kaldi_decoder.FasterDecoderOptions()
    options.beam = beam
    decoder = kaldi_decoder.FasterDecoder(fst, options)
    decodable = kaldi_decoder.DecodableCtc(scores)  # neither keeps its argument alive: the names here do
    decoder.decode(decodable)
    if not decoder.reached_final():
        return None
    _, path = decoder.get_best_path()
    _, _, taken, _ = kaldifst.get_linear_symbol_sequence(path)
    taken = np.array(taken, dtype=np.int64) - 1
    return taken[column[taken] >= 0]


class Searcher:
    """`search(graph, column, scores, beam)` as `search_plain`, by whichever implementation is faster by now."""

    def __init__(self):
        self._frames = 0

    def __call__(self, graph: FstArrays, column: np.ndarray, scores: np.ndarray, beam: float) -> np.ndarray | None:
        self._frames += len(scores)
        if self._frames < _PLAIN_FRAMES:
            return search_plain(graph, column, scores, beam)
        from ngsgd.hmm.viterbi_kernel import search_fast

        return search_fast(graph, column, scores, beam)
