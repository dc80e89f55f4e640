"""The model that training on a new tree starts from: each pdf one Gaussian, of the tree statistics of its leaf."""

from __future__ import annotations

import logging

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.model import AmDiagGmm, write_model
from ngsgd.gmm.programs import OccsOptions
from ngsgd.hmm.topology import read_topology
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency, read_tree
from ngsgd.hmm.tree_build import leaf_of_events
from ngsgd.hmm.tree_stats import TreeStats, group_sums, read_tree_stats
from ngsgd.kaldi_io.stream import open_writer

log = logging.getLogger(__name__)
_VAR_FLOOR = np.float32(0.01)


def leaf_rows(tree: ContextDependency, stats: TreeStats) -> np.ndarray:
    """(P, 2 D + 1) float64 the statistics of each leaf. DataError when the tree has no leaf for an event."""
    return group_sums(stats.rows, leaf_of_events(tree.to_pdf, stats), tree.num_pdfs)


def gaussians(rows: np.ndarray) -> AmDiagGmm:
    """A Gaussian for each row of leaf_rows, with variances of at least 0.01; a leaf without frames gets that of all.

    Rounded as in Kaldi's gmm-init-model, so that the model is the same. DataError when there are no frames at all.
    """
    empty = rows[:, 0] == 0
    if empty.all():
        raise DataError("the tree statistics have no frames")
    rows = np.where(empty[:, None], rows[~empty].sum(axis=0), rows)
    pdfs, dim = len(rows), rows.shape[1] // 2
    per_count = (1.0 / rows[:, :1].astype(np.float32).astype(np.float64)).astype(np.float32)
    mean = rows[:, 1 : dim + 1].astype(np.float32) * per_count
    square = rows[:, dim + 1 :].astype(np.float32) * per_count
    inv_var = np.float32(1) / np.maximum(square - mean * mean, _VAR_FLOOR)
    return AmDiagGmm(np.arange(pdfs + 1), np.ones(pdfs), mean * inv_var, inv_var)


def init_from_tree(tree: str, stats: str, topology: str, target: str, occs: OccsOptions, binary: bool) -> None:
    """What gmm-init-model does, on files; leaves without frames are named with their phones."""
    read, sums, topo = read_tree(tree), read_tree_stats(stats), read_topology(topology)
    transitions = TransitionModel.from_tree(read, topo)
    rows = leaf_rows(read, sums)
    for pdf in np.flatnonzero(rows[:, 0] == 0):
        uses = (transitions.tuples[:, 2:] == pdf).any(axis=1)
        phones = np.unique(transitions.tuples[uses, 0])
        log.warning("no statistics for pdf %d of phones %s: it starts as all data", pdf, " ".join(map(str, phones)))
    gmm = gaussians(rows)
    if occs.write_occs:
        with open_writer(occs.write_occs, binary) as w:
            w.vector(rows[:, 0].astype(np.float32))
    write_model(target, transitions, gmm, binary)
