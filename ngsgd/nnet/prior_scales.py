"""Fixed scales of the output layer, by how frequent the pdfs are.

The input of the softmax is scaled by a power of the pdfs' priors, -1/4 say, so that the parameters of rare pdfs, which
few examples move, are learnt faster. As in Kaldi's train_pnorm_simple2.sh: with n_j the frames of pdf j of P in the
alignments, and m = floor(Σ n / P),

    s_j = q_j^power / (Σ_k q_k^power / P),   q_j = (n_j + m / 100) / (Σ n + m P / 100)               (1)
"""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.nnet.priors import transition_counts
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class PriorScalesOptions:
    """How strongly the scales depend on the priors."""

    power: float = opt(-0.25, "power of the priors; 0: all scales are 1")
    binary: bool = opt(True, "write in binary form")


def prior_scales(counts: np.ndarray, power: float) -> np.ndarray:
    """Equation (1): (P,) float32 from frames of each pdf, counts (P,). Raises DataError when there are none."""
    total, pdfs = counts.sum(), len(counts)
    if not total > 0:
        raise DataError("no frames in the alignments: no priors to scale by")
    smoothing = 0.01 * (total // pdfs)
    scales = ((counts + smoothing) / (total + smoothing * pdfs)) ** power if smoothing else _of_few(counts, power)
    return (scales / scales.mean()).astype(np.float32)


def _of_few(counts: np.ndarray, power: float) -> np.ndarray:
    """With less than a frame a pdf the smoothing of (1) is 0 and unseen pdfs would get infinity: add one hundredth."""
    return ((counts + 0.01) / (counts.sum() + 0.01 * len(counts))) ** power


def write_prior_scales(model: str, alignments: str, wxfilename: str, options: PriorScalesOptions) -> tuple[int, int]:
    """The scales for the pdfs of a model, from alignments by it; (utterances done, failed)."""
    transitions = read_transition_model(model)
    tid_counts, done, failed = transition_counts(transitions, alignments)
    counts = np.bincount(transitions.tid_to_pdf[1:], tid_counts[1:], transitions.num_pdfs)
    scales = prior_scales(counts, options.power)
    with open_writer(wxfilename, options.binary) as writer:
        writer.vector(scales)
    log.info(
        "scales from %.3g to %.3g, %d of %d pdfs seen", scales.min(), scales.max(), (counts > 0).sum(), len(counts)
    )
    return done, failed
