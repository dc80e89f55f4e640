"""Training graphs: all ways to pronounce a known word sequence, as transition-ids, with optional silence.

For a transcript W: min det (H ∘ (C ∘ (L ∘ W))), then self-loops. Agrees with Kaldi's compile-train-graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.h_transducer import HTransducer, add_self_loops
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency
from ngsgd.kaldi_io.fst import FstArrays
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class TrainingGraphOptions:
    """Scales of the transition log-probabilities in the graphs (0: alignment adds them, as they change each time)."""

    transition_scale: float = opt(0.0, "scale of transition log-probabilities other than self-loops")
    self_loop_scale: float = opt(0.0, "scale of self-loop and leave-state log-probabilities")
    read_disambig_syms: str = opt("", "file of the disambiguation symbols among the lexicon's phones")


class TrainingGraphCompiler:
    """Compiles the graphs of many transcripts; keeps what they share.

    Args:
        transitions, tree: the model.
        lexicon_fst: L.fst (kaldifst.StdVectorFst), from phones to words.
        disambig: disambiguation symbols among L's phones, empty for L.fst.
        transition_scale, self_loop_scale: see `ngsgd.hmm.h_transducer`.
    """

    def __init__(
        self,
        transitions: TransitionModel,
        tree: ContextDependency,
        lexicon_fst,
        disambig: Sequence[int] = (),
        transition_scale: float = 0.0,
        self_loop_scale: float = 0.0,
    ):
        import kaldifst

        self.transitions = transitions
        self.tree = tree
        self.disambig = list(disambig)
        self.self_loop_scale = self_loop_scale
        self._lexicon = kaldifst.StdVectorFst(lexicon_fst)
        kaldifst.arcsort(self._lexicon, "olabel")
        self._h = HTransducer(transitions, tree, transition_scale)
        self._words = np.unique(FstArrays.from_fst(self._lexicon).olabel)
        self._check_phones()

    def _check_phones(self) -> None:
        phones = np.unique(FstArrays.from_fst(self._lexicon).ilabel)
        foreign = set(phones.tolist()) - set(self.transitions.topology.phones) - set(self.disambig) - {0}
        if foreign:
            raise DataError(
                f"the lexicon has phone {min(foreign)}, which the model has not: "
                "they were made with different lang directories"
            )

    def compile(self, word_ids: Sequence[int]):
        """The graph of a transcript, a kaldifst.StdVectorFst. DataError when a word has no pronunciation."""
        import kaldifst

        unknown = np.setdiff1d(word_ids, self._words)
        if len(unknown):
            raise DataError(f"word {int(unknown[0])} has no pronunciation in the lexicon")
        words = kaldifst.make_linear_acceptor([int(w) for w in word_ids])
        phones_to_words = kaldifst.compose(self._lexicon, words)
        if phones_to_words.start < 0:
            raise DataError("the transcript has no pronunciation")
        contexts, windows = kaldifst.compose_context(
            self.disambig, self.tree.context_width, self.tree.central_position, phones_to_words
        )
        h, disambig = self._h.build(windows)
        kaldifst.arcsort(contexts, "ilabel")
        graph = kaldifst.compose(h.to_vector(), contexts)
        kaldifst.determinize_star(graph, use_log=True)
        if disambig:
            arrays = FstArrays.from_fst(graph)
            arrays.ilabel[np.isin(arrays.ilabel, disambig)] = 0
            graph = arrays.to_vector()
        kaldifst.minimize_encoded(graph)
        return add_self_loops(FstArrays.from_fst(graph), self.transitions, self.self_loop_scale).to_vector()


def compile_graphs(
    tree: str, model: str, lexicon_fst: str, transcripts: str, graphs: str, options: TrainingGraphOptions
) -> tuple[int, int]:
    """Compile a table of transcripts (int32 vectors of words) into a table of graphs. Returns (done, failed)."""
    from ngsgd.features.stream import require_most
    from ngsgd.hmm.transitions import read_transition_model
    from ngsgd.hmm.tree import read_tree
    from ngsgd.kaldi_io.fst import read_fst
    from ngsgd.kaldi_io.tables import SequentialReader, Writer
    from ngsgd.lang.symbols import read_integers

    disambig = read_integers(options.read_disambig_syms) if options.read_disambig_syms else []
    compiler = TrainingGraphCompiler(
        read_transition_model(model),
        read_tree(tree),
        read_fst(lexicon_fst),
        disambig,
        options.transition_scale,
        options.self_loop_scale,
    )
    failed = 0
    with Writer(graphs, "fst") as out:
        for key, words in SequentialReader(transcripts, "int32_vector"):
            try:
                graph = compiler.compile(words)
            except DataError as error:
                log.warning("%s: no graph: %s", key, error)
                failed += 1
                continue
            out.write(key, graph)
        require_most(out.count, failed, transcripts)
    return out.count, failed
