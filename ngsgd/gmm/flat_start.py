"""The model that training starts from: a monophone tree, every pdf one Gaussian of all the data."""

from __future__ import annotations

import dataclasses

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import for_each, read_features, require_most
from ngsgd.gmm.model import AmDiagGmm, write_model
from ngsgd.hmm.topology import Topology, read_topology
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.hmm.tree import ContextDependency, monophone_tree
from ngsgd.kaldi_io.files import open_bytes
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.options import opt


@dataclasses.dataclass
class InitMonoOptions:
    """What the first model is made of."""

    shared_phones: str = opt("", "file of sets of phones that share their pdfs, one set a line; none: no sharing")
    train_feats: str = opt("", "features whose mean and variance all Gaussians get; none: mean and variance 1")
    num_utts: int = opt(0, "use only the first utterances of train-feats, so many; 0: all")
    binary: bool = opt(True, "write in binary")


def read_phone_sets(rxfilename: str) -> list[list[int]]:
    """The sets of phones of a file such as lang/phones/sets.int. DataError names a line that is none."""
    sets = []
    with open_bytes(rxfilename) as stream:
        for number, line in enumerate(stream, 1):
            words = line.split()
            if not words:
                continue
            if not all(w.isdigit() for w in words):
                raise DataError(f"{rxfilename}:{number}: expected phone numbers")
            sets.append([int(w) for w in words])
    if not sets:
        raise DataError(f"{rxfilename}: no sets of phones")
    return sets


def global_gaussian(feats: str, dim: int, num_utts: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(mean (D,), variance (D,)) float64 of all frames. DataError when a column is constant."""
    sums, count = np.zeros((2, dim)), 0

    def add(_key: str, x: np.ndarray) -> None:
        nonlocal count
        if x.shape[1] != dim:
            raise DataError(f"features of dimension {x.shape[1]}, expected {dim}")
        sums[0] += x.sum(axis=0, dtype=np.float64)
        sums[1] += np.square(x, dtype=np.float64).sum(axis=0)
        count += len(x)

    def first(items):
        for number, item in enumerate(items, 1):
            yield item
            if number == num_utts:
                break

    require_most(*for_each(first(read_features(feats)), add), feats)
    mean = sums[0] / count
    variance = sums[1] / count - mean**2
    if variance.min() <= 0.0:
        raise DataError(f"{feats}: column {int(variance.argmin())} of the features is constant")
    return mean, variance


def flat_model(
    topology: Topology, dim: int, phone_sets: list[list[int]] | None, mean: np.ndarray, variance: np.ndarray
) -> tuple[ContextDependency, TransitionModel, AmDiagGmm]:
    """Tree, transition model and mixtures of one Gaussian; agrees with Kaldi's gmm-init-mono."""
    tree = monophone_tree(topology, phone_sets)
    transitions = TransitionModel.from_tree(tree, topology)
    pdfs = transitions.num_pdfs
    inv_var = (1.0 / variance).astype(np.float32)
    mean_invvar = mean.astype(np.float32) * inv_var
    gmm = AmDiagGmm(np.arange(pdfs + 1), np.ones(pdfs), np.tile(mean_invvar, (pdfs, 1)), np.tile(inv_var, (pdfs, 1)))
    return tree, transitions, gmm


def init_mono(topology: str, dim: str, model: str, tree: str, options: InitMonoOptions) -> None:
    """What gmm-init-mono does, on files; `dim` still text."""
    topo = read_topology(topology)
    if not dim.isdigit() or int(dim) == 0:
        raise DataError(f"expected the dimension of the features, a number, got '{dim}'")
    size = int(dim)
    sets = read_phone_sets(options.shared_phones) if options.shared_phones else None
    if options.train_feats:
        mean, variance = global_gaussian(options.train_feats, size, options.num_utts)
    else:
        mean, variance = np.ones(size), np.ones(size)
    made_tree, transitions, gmm = flat_model(topo, size, sets, mean, variance)
    with open_writer(tree, options.binary) as w:
        made_tree.write(w)
    write_model(model, transitions, gmm, options.binary)
