"""The cross-entropy objective: Σ_k weight_k log y[row_k, pdf_k], in nats, to be maximised.

Labels are three arrays (K,): the row of the output they belong to, the pdf, and the weight; y (N, P) are probabilities.
The derivative is taken by `ngsgd.nnet.backprop.Workspace.backward_labels`, fused with the softmax where there is one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of


@dataclass(frozen=True)
class Score:
    """Sums over frames: weighted log-probability (nats), weight of the labels that are the most probable, weight."""

    log_prob: float = 0.0
    correct: float = 0.0
    weight: float = 0.0

    def __add__(self, other: "Score") -> "Score":
        return Score(self.log_prob + other.log_prob, self.correct + other.correct, self.weight + other.weight)

    @property
    def log_prob_per_frame(self) -> float:
        """Average log-probability, nats (NaN of no weight)."""
        return self.log_prob / self.weight if self.weight else float("nan")

    @property
    def accuracy(self) -> float:
        """Proportion of the weight whose label is the most probable pdf (NaN of no weight)."""
        return self.correct / self.weight if self.weight else float("nan")


def score(y: Any, row: Any, pdf: Any, weight: Any, accuracy: bool = True) -> Score:
    """The objective of a minibatch; `accuracy` False leaves `correct` at 0 and saves a pass over y."""
    xp = module_of(y)
    log_prob = float((weight * xp.log(y[row, pdf])).sum(dtype=np.float64))
    correct = float(weight[y.argmax(axis=1)[row] == pdf].sum(dtype=np.float64)) if accuracy else 0.0
    return Score(log_prob, correct, float(weight.sum(dtype=np.float64)))
