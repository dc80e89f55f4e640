"""Outputs of networks: posteriors and log-likelihoods of utterances, outputs and objective of examples."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import array_module, to_cpu, to_module
from ngsgd.egs.minibatch import read_minibatches
from ngsgd.errors import DataError
from ngsgd.features.stream import map_features
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.kaldi_io.tables import Writer
from ngsgd.nnet.backprop import Workspace
from ngsgd.nnet.components.softmax import FLOOR
from ngsgd.nnet.model import Nnet, read_model, read_nnet
from ngsgd.nnet.objectives.cross_entropy import Score, score
from ngsgd.options import opt

log = logging.getLogger(__name__)

PRIOR_FLOOR = 5.0e-6  # of a pdf that no training frame had


def finite_output(workspace: Workspace, data: Any) -> Any:
    """`workspace.forward(data)`. DataError naming the network, or the input, when there is NaN or infinity in it."""
    with np.errstate(all="ignore"):
        y = workspace.forward(data)
    if not bool(workspace.xp.isfinite(y).all()):
        where = workspace.nnet.where
        if not bool(workspace.xp.isfinite(data).all()):
            raise DataError(f"{where}: NaN or infinity in the input")
        raise DataError(f"{where}: NaN or infinity in its output: training has diverged, take an earlier model")
    return y


@dataclass
class ComputeOptions:
    """What to compute for each utterance."""

    apply_log: bool = opt(False, "write logarithms (nats)")
    divide_by_priors: bool = opt(False, "divide by the priors of the model: with the log, log-likelihoods")
    renormalize: bool = opt(True, "after dividing by priors, scale each frame to sum to 1 (no effect on decoding)")
    pad_input: bool = opt(True, "repeat the first and last frame for the context: as many frames out as in")
    block_size: int = opt(
        1024, "frames of an utterance computed at once; a matter of speed and memory only", at_least=1
    )
    device: str = opt("cpu", "where to compute", choices=("cpu", "gpu"))


class Computer:
    """Computes a network's output for utterances, block by block, in buffers that are kept."""

    def __init__(self, nnet: Nnet, pad_input: bool = True, block_size: int = 1024, xp: Any = np):
        if block_size < 1:
            raise DataError(f"--block-size: expected 1 or more, got {block_size}")
        self.nnet, self.pad_input, self.block_size, self.xp = nnet, pad_input, block_size, xp
        self.context = nnet.left_context, nnet.right_context
        self._workspace: Workspace | None = None

    def output(self, features: np.ndarray) -> np.ndarray:
        """(T, P) from features (T, D), or (T - L - R, P) without padding. DataError when that leaves none."""
        left, right = self.context
        if features.shape[1] != self.nnet.input_dim:
            raise DataError(
                f"features of dimension {features.shape[1]}, but {self.nnet.where} wants {self.nnet.input_dim}"
            )
        if self.pad_input:
            features = np.pad(features, ((left, right), (0, 0)), mode="edge")
        frames = len(features) - left - right
        if frames < 1:
            raise DataError(f"{len(features)} frames, but the network needs {left + 1 + right} for one output")
        features = to_module(np.asarray(features, np.float32), self.xp)
        output = np.empty((frames, self.nnet.output_dim), np.float32)
        blocks = -(-frames // self.block_size)
        for begin, end in zip(*(frames * np.arange(b, blocks + b) // blocks for b in (0, 1))):
            data = features[begin : end + left + right]
            if self._workspace is None:
                self._workspace = Workspace(self.nnet, 1, len(data), self.xp)
            output[begin:end] = to_cpu(finite_output(self._workspace, data[None]))
        return output


def divisor_priors(priors: np.ndarray, where: str) -> np.ndarray:
    """Priors (P,), at least PRIOR_FLOOR. DataError when there are none."""
    if not priors.size:
        raise DataError(f"{where}: the model has no priors yet to divide by (nnet-adjust-priors or training sets them)")
    if (low := int((priors < PRIOR_FLOOR).sum())) and (priors <= 0).any():
        log.warning("%s: %d priors are below %g and are set to it", where, low, PRIOR_FLOOR)
    return np.maximum(priors, np.float32(PRIOR_FLOOR)) if (priors <= 0).any() else priors


def finish_output(output: np.ndarray, options: ComputeOptions, priors: np.ndarray | None) -> np.ndarray:
    """Posteriors (T, P) divided by priors, renormalised, floored, as logarithms: whatever was asked for; in place."""
    if priors is not None:
        output /= priors
        if options.renormalize:
            output /= output.sum(axis=1, keepdims=True)
    if options.apply_log:
        np.maximum(output, np.float32(FLOOR), out=output)
        np.log(output, out=output)
    return output


def compute(model_rxfilename: str, features: str, wspecifier: str, options: ComputeOptions) -> tuple[int, int]:
    """Write a network's outputs for a table of features; returns (done, failed) utterances.

    As Kaldi's nnet-am-compute for a model, and nnet-compute for a raw network.
    """
    xp = array_module(options.device)
    priors = None
    if options.divide_by_priors:
        model = read_model(model_rxfilename)
        nnet, priors = model.nnet, divisor_priors(model.priors, model_rxfilename)
    else:
        nnet = read_nnet(model_rxfilename)
    computer = Computer(nnet.to(xp), options.pad_input, options.block_size, xp)
    return map_features(features, wspecifier, lambda _, values: finish_output(computer.output(values), options, priors))


@dataclass
class ComputeProbOptions:
    """How to go through the examples, and where the figures go."""

    minibatch_size: int = opt(1000, "frames computed at once; a matter of speed only", at_least=1)
    stats_out: str = opt("", "also write the figures to this file, as JSON")
    device: str = opt("cpu", "where to compute", choices=("cpu", "gpu"))


def objective_of_examples(nnet: Nnet, egs: str, minibatch_size: int = 1000, xp: Any = np) -> Score:
    """Sums of log-probability, correct labels and weight over all labelled frames of the examples."""
    total = Score()
    left, right = nnet.left_context, nnet.right_context
    workspace = Workspace(nnet, minibatch_size, left + 1 + right, xp)
    batches = read_minibatches(egs, minibatch_size, **nnet.wanted_examples)
    for batch in batches:
        y = finite_output(workspace, to_module(batch.input, xp))
        total += score(y, *(to_module(a, xp) for a in (batch.row, batch.pdf, batch.weight)))
    return total


def compute_prob(model_rxfilename: str, egs: str, options: ComputeProbOptions) -> Score:
    """The average log-probability per frame and the accuracy of a model on examples, as Kaldi's nnet-compute-prob."""
    xp = array_module(options.device)
    total = objective_of_examples(read_nnet(model_rxfilename).to(xp), egs, options.minibatch_size, xp)
    if not np.isfinite(total.log_prob_per_frame):
        raise DataError(
            f"{egs}: an objective of {total.log_prob} over a weight of {total.weight:g}: expected labels of weight "
            f"above 0, and a network that ends in probabilities, in {model_rxfilename}"
        )
    log.info(
        "average log-probability %.6g, accuracy %.6g, weight %.6g",
        total.log_prob_per_frame,
        total.accuracy,
        total.weight,
    )
    if options.stats_out:
        figures = {
            "log_prob_per_frame": total.log_prob_per_frame,
            "standard_error": total.standard_error,
            "accuracy": total.accuracy,
            "weight": total.weight,
        }
        with open_bytes_writer(options.stats_out) as stream:
            stream.write((json.dumps(figures) + "\n").encode())
    return total


@dataclass
class ComputeFromEgsOptions:
    """How to go through the examples."""

    minibatch_size: int = opt(1000, "frames computed at once; a matter of speed only", at_least=1)


def compute_from_egs(
    nnet_rxfilename: str, egs: str, wspecifier: str, options: ComputeFromEgsOptions
) -> tuple[int, int]:
    """Write the output (1, P) for each labelled frame of examples, all under the key `global`; returns (frames, 0).

    As Kaldi's nnet-compute-from-egs.
    """
    nnet = read_nnet(nnet_rxfilename)
    left, right = nnet.left_context, nnet.right_context
    workspace = Workspace(nnet, options.minibatch_size, left + 1 + right)
    batches = read_minibatches(egs, options.minibatch_size, **nnet.wanted_examples)
    with Writer(wspecifier, "matrix") as out:
        for batch in batches:
            for row in finite_output(workspace, batch.input):
                out.write("global", row[None])
        return out.count, 0
