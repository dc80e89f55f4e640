"""Acoustic models as decoding sees them: features in, log-likelihoods of all pdfs out, whatever the kind of model."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.registry import Registry


class AcousticModel(Protocol):
    """What a kind of acoustic model provides."""

    transitions: TransitionModel

    def log_likelihoods(self, feats: np.ndarray) -> np.ndarray:
        """(T, D) -> (T, P) float32, nats, up to a constant a frame. DataError when D is not the model's."""


kinds: Registry = Registry("kind of acoustic model")
"""The first token behind the transition model -> function(rxfilename) -> AcousticModel."""


class GmmModel:
    """log p(x | pdf) of diagonal Gaussian mixtures."""

    def __init__(self, rxfilename: str):
        from ngsgd.gmm.model import read_model

        self.transitions, self._gmm = read_model(rxfilename)

    def log_likelihoods(self, feats: np.ndarray) -> np.ndarray:
        """(T, D) -> (T, P)."""
        return self._gmm.log_likelihoods(feats)


class NnetModel:
    """log p(pdf | x) − log p(pdf) of a network with priors, features repeated beyond the ends."""

    def __init__(self, rxfilename: str):
        from ngsgd.nnet.compute import Computer, divisor_priors
        from ngsgd.nnet.model import read_model

        model = read_model(rxfilename)
        self.transitions = model.transitions
        self._log_priors = np.log(divisor_priors(model.priors, rxfilename))
        self._computer = Computer(model.nnet)

    def log_likelihoods(self, feats: np.ndarray) -> np.ndarray:
        """(T, D + E) -> (T, P)."""
        from ngsgd.nnet.components.softmax import FLOOR

        posteriors = self._computer.output(feats)
        return np.log(np.maximum(posteriors, np.float32(FLOOR))) - self._log_priors


class GivenLikelihoods:
    """For a table that holds log-likelihoods instead of features: a model's transitions only."""

    def __init__(self, rxfilename: str):
        with open_reader(rxfilename) as r:
            self.transitions = TransitionModel.read(r)

    def log_likelihoods(self, feats: np.ndarray) -> np.ndarray:
        """(T, P), as they are."""
        return feats


kinds.register("<DIMENSION>")(GmmModel)
kinds.register("<Nnet>")(NnetModel)


def read_acoustic_model(rxfilename: str, given_likelihoods: bool = False) -> AcousticModel:
    """Read a final.mdl of whatever kind; with `given_likelihoods` only its transition model is used."""
    if given_likelihoods:
        return GivenLikelihoods(rxfilename)
    with open_reader(rxfilename) as r:
        TransitionModel.read(r)
        if r.at_end():
            raise DataError(f"{rxfilename}: a transition model and nothing behind it: not an acoustic model")
        found = r.peek()
    if found not in kinds:
        raise DataError(f"{rxfilename}: expected a GMM or a network behind the transition model, found '{found[:40]}'")
    kind: Callable[[str], AcousticModel] = kinds[found]
    return kind(rxfilename)
