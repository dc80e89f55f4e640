"""State-level lattices: all paths of a search within a beam of the best, with graph and acoustic costs apart.

Costs apart, so that other acoustic scales (language-model weights) and word penalties are a matter of another shortest
path, not of another search.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Path:
    """A path: words (W,) and transition-ids (T,) int32, its graph cost and acoustic cost (unscaled), in nats."""

    words: np.ndarray
    transition_ids: np.ndarray
    graph_cost: float
    acoustic_cost: float


@dataclass(frozen=True)
class Lattice:
    """S states in topological order, start 0; A arcs sorted by their source.

    src, dst, word, transition_id (A,) int32, with 0 for none; graph, acoustic (A,) float64: costs, minus log
    probability and minus unscaled log-likelihood; final (S,) float64 graph cost of ending, inf where it must not;
    complete: whether a final state of the graph was reached, else every last token counts as final.
    """

    src: np.ndarray
    dst: np.ndarray
    word: np.ndarray
    transition_id: np.ndarray
    graph: np.ndarray
    acoustic: np.ndarray
    final: np.ndarray
    complete: bool

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """A."""
        return len(self.src)

    @classmethod
    def from_arcs(
        cls,
        final: np.ndarray,
        complete: bool,
        src: np.ndarray,
        dst: np.ndarray,
        word: np.ndarray,
        transition_id: np.ndarray,
        graph: np.ndarray,
        acoustic: np.ndarray,
    ) -> "Lattice":
        """From states and arcs in any order, state 0 the start; no cycles."""
        from ngsgd.decode.lattice_kernel import topological_order

        number = topological_order(len(final), src, dst)
        assert (number >= 0).all() and number[0] == 0, "a lattice has no cycles and one start"
        ordered = np.empty(len(final))
        ordered[number] = final
        src, dst = number[src].astype(np.int32), number[dst].astype(np.int32)
        by_source = np.argsort(src, kind="stable")
        columns = (src, dst, word, transition_id, graph, acoustic)
        return cls(*(column[by_source] for column in columns), ordered, complete)

    def best_path(self, acoustic_scale: float = 1.0, word_penalty: float = 0.0) -> Path:
        """The cheapest path by graph + acoustic_scale · acoustic + word_penalty · (number of words)."""
        from ngsgd.decode.lattice_kernel import shortest_path

        cost = self.graph + acoustic_scale * self.acoustic + word_penalty * (self.word != 0)
        arcs = shortest_path(self.num_states, self.src, self.dst, cost, self.final)
        words, ids = self.word[arcs], self.transition_id[arcs]
        end = self.dst[arcs[-1]] if len(arcs) else 0
        graph_cost = float(self.graph[arcs].sum() + self.final[end])
        return Path(words[words > 0], ids[ids > 0], graph_cost, float(self.acoustic[arcs].sum()))

    def posteriors(self, acoustic_scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(frame, transition-id, posterior) (N,) of all paths together, by frame; those of a frame sum to 1.

        The probability of a path is taken to be proportional to exp(-graph - acoustic_scale * acoustic).
        """
        from ngsgd.decode.lattice_kernel import arc_posteriors

        cost = self.graph + acoustic_scale * self.acoustic
        consuming = self.transition_id > 0
        frame, posterior = arc_posteriors(self.num_states, self.src, self.dst, consuming, cost, self.final)
        tid = self.transition_id[consuming].astype(np.int64)
        width = tid.max() + 1
        label, which = np.unique(frame[consuming] * width + tid, return_inverse=True)
        return label // width, label % width, np.bincount(which, posterior[consuming])
