"""Priors of the pdfs, by which posteriors are divided to make likelihoods for decoding.

Two estimates: the frequencies of the pdfs in the alignment, before training (together with the transition
probabilities), and after it the mean posterior of the network over typical frames, which is right more generally, since
it has the network's own biases. Either way

    prior_j ∝ max(p_j / Σ p, floor)                                               (P1)

scaled to sum to one: a pdf that was never seen must not win every comparison.
"""

import dataclasses
import logging
from collections.abc import Iterable

import numpy as np

from ngsgd.egs.minibatch import Minibatch, read_minibatches
from ngsgd.errors import DataError
from ngsgd.gmm.update import TransitionUpdateOptions, update_transitions
from ngsgd.hmm.phones import split_to_phones
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader
from ngsgd.nnet.backprop import Workspace
from ngsgd.nnet.compute import finite_output
from ngsgd.nnet.model import AmNnet, Nnet, read_model, write_model
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class PriorOptions:
    """Options of nnet-adjust-priors and, with those of transitions, of nnet-train-transitions."""

    prior_floor: float = opt(
        5.0e-6, "smallest prior of a pdf, before they are scaled to sum to one", at_least=0, at_most=1
    )
    binary: bool = opt(True, "write the model in binary form")


@dataclasses.dataclass
class AdjustPriorsOptions(PriorOptions):
    """Options of nnet-adjust-priors."""

    minibatch_size: int = opt(512, "frames computed at once; changes only the speed", at_least=1)


@dataclasses.dataclass
class TransitionsOptions(PriorOptions):
    """Options of nnet-train-transitions, beside those of the transition update."""

    set_priors: bool = opt(True, "also set the priors to the frequencies of the pdfs in the alignment")


def floored_priors(counts: np.ndarray, floor: float) -> np.ndarray:
    """P1: (P,) float32 from counts or summed posteriors (P,). DataError unless those are finite, ≥ 0 and not all 0."""
    counts = counts.astype(np.float64)
    if not np.isfinite(counts).all() or counts.min() < 0.0 or not counts.sum() > 0.0:
        raise DataError(
            f"priors need finite counts, none negative and not all zero; they are from {counts.min():g} to "
            f"{counts.max():g}, sum {counts.sum():g}"
        )
    priors = np.maximum(counts / counts.sum(), floor)
    return (priors / priors.sum()).astype(np.float32)


def posterior_sum(nnet: Nnet, minibatches: Iterable[Minibatch], minibatch_size: int) -> np.ndarray:
    """(P,) float64: the network's posteriors summed over all frames of the minibatches (a statistic that adds)."""
    workspace = Workspace(nnet, minibatch_size, nnet.left_context + 1 + nnet.right_context)
    total = np.zeros(nnet.output_dim)
    for minibatch in minibatches:
        total += finite_output(workspace, minibatch.input).sum(axis=0, dtype=np.float64)
    return total


def set_priors(model: AmNnet, counts: np.ndarray, floor: float) -> None:
    """Set the model's priors by P1, and say how much they changed."""
    if len(counts) != model.nnet.output_dim:
        raise DataError(f"{len(counts)} posteriors for a network of {model.nnet.output_dim} outputs")
    old, model.priors = model.priors, floored_priors(counts, floor)
    if len(old):
        p, q = old / old.sum(dtype=np.float64), model.priors.astype(np.float64)
        pdf = int(np.abs(p - q).argmax())
        divergence = float(np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0) / q), 0.0)))
        log.info(
            "priors: largest change %g -> %g (pdf %d); Kullback-Leibler divergence of the old from the new %.5g",
            *(p[pdf], q[pdf], pdf, divergence),
        )


def adjust_priors(model_in: str, posteriors: str, model_out: str, options: AdjustPriorsOptions) -> None:
    """Set a model file's priors from the mean of its own posteriors.

    posteriors: examples as an rspecifier (`ark:`, `scp:`), or a file with a vector of posteriors summed over frames.
    """
    model = read_model(model_in)
    nnet = model.nnet
    if posteriors.startswith(("ark", "scp")) and ":" in posteriors:
        minibatches = read_minibatches(posteriors, options.minibatch_size, **nnet.wanted_examples)
        counts = posterior_sum(nnet, minibatches, options.minibatch_size)
    else:
        with open_reader(posteriors) as r:
            counts = r.vector()
    set_priors(model, counts, options.prior_floor)
    write_model(model, model_out, options.binary)


def transition_counts(transitions: TransitionModel, alignments: str) -> tuple[np.ndarray, int, int]:
    """Frames of each transition-id in a table of alignments, (ids + 1,) float64; utterances done, failed.

    An alignment by another model counts as failed. DataError when nothing was done or most failed.
    """
    counts = np.zeros(transitions.num_transition_ids + 1)

    def add(key: str, tids: np.ndarray) -> None:
        split_to_phones(transitions, tids)  # raises for foreign ones: also where their numbers could be the model's
        np.add(counts, np.bincount(tids, minlength=len(counts)), out=counts)

    done, failed = for_each(SequentialReader(alignments, "int32_vector").items(), add)
    require_most(done, failed, alignments)
    return counts, done, failed


def train_transitions(
    model_in: str, alignments: str, model_out: str, update: TransitionUpdateOptions, options: TransitionsOptions
) -> tuple[int, int]:
    """Estimate a model file's transition probabilities, and priors, from alignments; (utterances done, failed)."""
    model = read_model(model_in)
    transitions = model.transitions
    counts, done, failed = transition_counts(transitions, alignments)
    update_transitions(transitions, counts, update)
    if options.set_priors:
        set_priors(
            model, np.bincount(transitions.tid_to_pdf[1:], counts[1:], model.nnet.output_dim), options.prior_floor
        )
    write_model(model, model_out, options.binary)
    return done, failed
