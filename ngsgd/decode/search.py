"""Beam search of a decoding graph HCLG over log-likelihoods, to a lattice.

The search is Kaldi's (LatticeFasterDecoder), in a numba kernel over flat arrays: kaldi-decoder's FasterDecoder finds
the same words but keeps no lattice, and its LatticeSimpleDecoder, which does, knows no limit on the number of tokens;
without a lattice each language-model weight of scoring would need a search of its own.
"""

from dataclasses import dataclass

import numpy as np

from ngsgd.decode.lattice import Lattice
from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.fst import FstArrays
from ngsgd.options import opt

PDF, NEXT, COST, EPSILONS = range(4)  # columns of DecodingGraph.label and .weight, as in search_kernel


@dataclass
class SearchOptions:
    """Width of the search. Beams are in units of the scaled costs."""

    beam: float = opt(15.0, "beam of the search")
    lattice_beam: float = opt(8.0, "beam of the lattice: what is kept for other scales and penalties")
    max_active: int = opt(7000, "tokens extended in a frame, at most")
    min_active: int = opt(200, "tokens extended in a frame, at least, whatever the beam")
    prune_interval: int = opt(25, "frames between prunings of the growing lattice")
    acoustic_scale: float = opt(0.1, "scale of log-likelihoods in the search")

    def check(self) -> None:
        """DataError for values that make no sense."""
        if min(self.beam, self.lattice_beam, self.acoustic_scale) <= 0:
            raise DataError("beams and acoustic scale must be positive")
        if not 1 <= self.min_active <= self.max_active or self.prune_interval < 1:
            raise DataError("expected 1 <= min-active <= max-active and prune-interval >= 1")


class DecodingGraph:
    """HCLG with its arcs in the order that the search wants: of each state, those that consume a frame first."""

    def __init__(self, fst: FstArrays, transitions: TransitionModel, name: str = "HCLG"):
        """Raises DataError when the graph is empty or has transition-ids that the model has not."""
        if fst.start < 0 or not fst.num_arcs:
            raise DataError(f"{name}: the graph is empty")
        top = transitions.num_transition_ids
        if fst.ilabel.min() < 0 or fst.ilabel.max() > top:
            raise DataError(
                f"{name}: input labels up to {fst.ilabel.max()}, the model has transition-ids 1..{top}: "
                "was the graph made with another model?"
            )
        epsilon = fst.ilabel == 0
        order = np.lexsort((epsilon, fst.source))
        consuming = np.bincount(fst.source[~epsilon], minlength=fst.num_states)
        self.start, self.final, self.num_pdfs = fst.start, fst.final, transitions.num_pdfs
        self.first = np.zeros((fst.num_states + 1, 2), np.int32)
        self.first[:, 0] = fst.offset
        self.first[:-1, 1] = fst.offset[:-1] + consuming
        self.label = np.zeros((fst.num_arcs, 4), np.int32)
        self.label[:, PDF] = np.where(epsilon, 0, transitions.tid_to_pdf[fst.ilabel])[order]
        self.label[:, NEXT] = fst.nextstate[order]
        has_epsilons = self.first[1:, 0] > self.first[:-1, 1]
        self.label[:, EPSILONS] = has_epsilons[self.label[:, NEXT]]
        self.weight = self.label.view(np.float32)
        self.weight[:, COST] = fst.weight[order]
        self.transition_id = fst.ilabel[order]
        self.word = fst.olabel[order]

    @classmethod
    def read(cls, rxfilename: str, transitions: TransitionModel) -> "DecodingGraph":
        """Read an HCLG.fst."""
        from ngsgd.kaldi_io.fst import read_fst

        return cls(FstArrays.from_fst(read_fst(rxfilename)), transitions, rxfilename)


def search(graph: DecodingGraph, loglikes: np.ndarray, options: SearchOptions) -> Lattice:
    """The lattice of one utterance. loglikes (T, P) float32, nats, unscaled.

    Where no final state is reached, the lattice ends in whatever is alive (`complete` is False), as in Kaldi. Raises
    DataError when the shape is not the graph's, values are NaN, or nothing at all is alive at the end.
    """
    from ngsgd.decode import search_kernel

    if loglikes.ndim != 2 or loglikes.shape[1] != graph.num_pdfs:
        raise DataError(f"log-likelihoods of shape {loglikes.shape}, the model has {graph.num_pdfs} pdfs")
    if not len(loglikes):
        raise DataError("no frames")
    if np.isnan(loglikes).any():
        raise DataError("NaN among the log-likelihoods")
    loglikes = np.ascontiguousarray(loglikes, np.float32)
    state, time_begin, link, complete = search_kernel.search(
        graph.start, graph.first, graph.label, graph.weight, graph.final, loglikes,
        float(options.acoustic_scale), float(options.beam), options.max_active, options.min_active,
        float(options.lattice_beam), options.prune_interval,
    )  # fmt: skip
    if not len(state):
        raise DataError("the search ended with nothing alive")
    final = np.full(len(state), np.inf)
    last = slice(time_begin[len(loglikes)], None)
    final[last] = graph.final[state[last]] if complete else 0.0
    src, dst, arc, consumed = link.T
    acoustic = np.zeros(len(arc))
    consuming = consumed >= 0
    acoustic[consuming] = -loglikes[consumed[consuming], graph.label[arc[consuming], PDF]].astype(np.float64)
    return Lattice.from_arcs(
        final, bool(complete), src, dst, graph.word[arc], graph.transition_id[arc],
        graph.weight[arc, COST].astype(np.float64), acoustic,
    )  # fmt: skip
