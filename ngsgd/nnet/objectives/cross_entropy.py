"""The cross-entropy objective: Σ_k weight_k log y[row_k, pdf_k], in nats, to be maximised.

Labels are three arrays (K,): the row of the output they belong to, the pdf, and the weight; y (N, P) are probabilities.
The derivative is taken by `ngsgd.nnet.backprop.Workspace.backward_labels`, fused with the softmax where there is one.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of


@dataclass(frozen=True)
class Score:
    """Weighted sums over frames: log-probability (nats), most probable labels, 1, squared log-probability."""

    log_prob: float = 0.0
    correct: float = 0.0
    weight: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Score") -> "Score":
        return Score(
            self.log_prob + other.log_prob,
            self.correct + other.correct,
            self.weight + other.weight,
            self.squares + other.squares,
        )

    @property
    def log_prob_per_frame(self) -> float:
        """Average log-probability, nats (NaN of no weight)."""
        return self.log_prob / self.weight if self.weight else float("nan")

    @property
    def accuracy(self) -> float:
        """Proportion of the weight whose label is the most probable pdf (NaN of no weight)."""
        return self.correct / self.weight if self.weight else float("nan")

    @property
    def standard_error(self) -> float:
        """Of `log_prob_per_frame`, nats, frames of weight 1 taken for independent (NaN of no weight)."""
        if not self.weight:
            return float("nan")
        variance = self.squares / self.weight - self.log_prob_per_frame**2
        return math.sqrt(max(0.0, variance) / self.weight)


def score(y: Any, row: Any, pdf: Any, weight: Any, accuracy: bool = True) -> Score:
    """The objective of a minibatch; `accuracy` False leaves `correct` and `squares` at 0 and saves a pass over y."""
    xp = module_of(y)
    log_probs = xp.log(y[row, pdf])
    log_prob, total = (float(a.sum(dtype=np.float64)) for a in (weight * log_probs, weight))
    if not accuracy:
        return Score(log_prob, weight=total)
    correct = float(weight[y.argmax(axis=1)[row] == pdf].sum(dtype=np.float64))
    return Score(log_prob, correct, total, float((weight * log_probs**2).sum(dtype=np.float64)))
