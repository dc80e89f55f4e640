"""The decoding graph HCLG: H (HMM states) ∘ C (phonetic context) ∘ L (lexicon) ∘ G (grammar), optimised step by step.

    LG   = push min det (L_disambig ∘ G)
    CLG  = C ∘ LG                                      C is made on the way, for the windows that LG needs
    HCLG = self-loops min rmeps rmdisambig det (H ∘ CLG)
(Mohri, Pereira, Riley 2002; determinization in the log semiring; the steps of Kaldi's utils/mkgraph.sh.)

Input symbols of HCLG are transition-ids, output symbols words.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ngsgd.decode.fst_ops import drop_output_arcs, push_special, remove_eps_local, remove_symbols
from ngsgd.errors import DataError
from ngsgd.hmm.h_transducer import HTransducer, add_self_loops
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency
from ngsgd.kaldi_io.fst import FstArrays
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class GraphOptions:
    """Scales of the transition probabilities in the graph."""

    transition_scale: float = opt(1.0, "scale of transition log-probabilities other than self-loops")
    self_loop_scale: float = opt(0.1, "scale of self-loop and leave-state log-probabilities")
    remove_oov: str = opt("", "file of the word integers that no hypothesis may contain, such as lang/oov.int")


def make_lg(lexicon_disambig, grammar):
    """L_disambig (sorted by word) and G (kaldifst.StdVectorFst, changed in place: sorted) -> LG, phones to words."""
    import kaldifst

    kaldifst.arcsort(grammar, "ilabel")
    lg = kaldifst.compose(lexicon_disambig, grammar)
    if lg.start < 0:
        raise DataError("the lexicon and the grammar have no sentence in common: were they made with one words.txt?")
    kaldifst.determinize_star(lg, use_log=True)
    kaldifst.minimize_encoded(lg)
    return push_special(FstArrays.from_fst(lg)).to_vector()


def make_hclg(
    lg,
    disambig: Sequence[int],
    transitions: TransitionModel,
    tree: ContextDependency,
    options: GraphOptions,
    removed_words: Sequence[int] = (),
) -> FstArrays:
    """LG (changed in place) -> HCLG.

    Args:
        disambig: disambiguation symbols among the phones of LG.
        removed_words: words that no hypothesis may contain.
    """
    import kaldifst

    clg, windows = kaldifst.compose_context(list(disambig), tree.context_width, tree.central_position, lg)
    if removed_words:
        arrays = drop_output_arcs(FstArrays.from_fst(clg), removed_words)
        clg = arrays.to_vector()
        kaldifst.connect(clg)
    kaldifst.arcsort(clg, "ilabel")
    h, disambig_tids = HTransducer(transitions, tree, options.transition_scale).build(windows)
    graph = kaldifst.compose(h.to_vector(), clg)
    if graph.start < 0:
        raise DataError("the graph is empty: H ∘ CLG has no path")
    kaldifst.determinize_star(graph, use_log=True)
    graph = remove_eps_local(remove_symbols(FstArrays.from_fst(graph), disambig_tids)).to_vector()
    kaldifst.connect(graph)
    kaldifst.minimize_encoded(graph)
    return add_self_loops(FstArrays.from_fst(graph), transitions, options.self_loop_scale)


def make_graph(
    lexicon_disambig: str, grammar: str, disambig: str, tree: str, model: str, hclg: str, options: GraphOptions
) -> tuple[int, int]:
    """Build HCLG from files and write it as a const FST. Returns (states, arcs)."""
    from ngsgd.hmm.transitions import read_transition_model
    from ngsgd.hmm.tree import read_tree
    from ngsgd.kaldi_io.files import open_bytes_writer
    from ngsgd.kaldi_io.fst import read_fst
    from ngsgd.lang.symbols import read_integers

    symbols = read_integers(disambig)
    transitions, context = read_transition_model(model), read_tree(tree)
    removed = read_integers(options.remove_oov) if options.remove_oov else []
    begin = time.monotonic()
    lg = make_lg(read_fst(lexicon_disambig), read_fst(grammar))
    _check_phones(lg, symbols, transitions, lexicon_disambig, model)
    log.info("LG: %d states, %.1f s", lg.num_states, time.monotonic() - begin)
    graph = make_hclg(lg, symbols, transitions, context, options, removed)
    log.info("HCLG: %d states, %d arcs, %.1f s", graph.num_states, graph.num_arcs, time.monotonic() - begin)
    with open_bytes_writer(hclg) as out:
        out.write(graph.const_bytes())
    return graph.num_states, graph.num_arcs


def _check_phones(lg, disambig: Sequence[int], transitions: TransitionModel, lexicon: str, model: str) -> None:
    used = set(FstArrays.from_fst(lg).ilabel.tolist()) - {0}
    foreign = used - set(transitions.topology.phones) - set(disambig)
    if foreign:
        raise DataError(
            f"{lexicon} has phone {min(foreign)}, which {model} has not: they were made with different lang directories"
        )
