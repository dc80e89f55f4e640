"""The objective and its whole gradient over many minibatches, at fixed parameters: for combining and diagnosing models.

Training does not use this: there every minibatch changes the parameters.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ngsgd.egs.minibatch import Minibatch, read_minibatches
from ngsgd.nnet.backprop import Workspace
from ngsgd.nnet.blas import accumulate
from ngsgd.nnet.model import Nnet
from ngsgd.nnet.objectives.cross_entropy import Score, score


def minibatches_for(nnet: Nnet, rspecifier: str, size: int) -> list[Minibatch]:
    """All minibatches of an archive, in memory, in the form that `nnet` takes. DataError where they do not fit it."""
    return list(read_minibatches(rspecifier, size, **nnet.wanted_examples))


class Objective:
    """Objective and gradient of one network, whose parameters may be changed in place between calls.

    They are not finite where the network overflows: to be judged by the caller.
    """

    def __init__(self, nnet: Nnet, max_minibatch: int):
        self.nnet = nnet
        self.workspace = Workspace(nnet, max_minibatch, nnet.left_context + 1 + nnet.right_context)

    @np.errstate(all="ignore")
    def value(self, minibatches: Iterable[Minibatch]) -> Score:
        """The score, summed over the minibatches."""
        total = Score()
        for m in minibatches:
            total += score(self.workspace.forward(m.input), m.row, m.pdf, m.weight)
        return total

    @np.errstate(all="ignore")
    def gradient(self, minibatches: Iterable[Minibatch]) -> tuple[Score, list[Any]]:
        """The score, and d log_prob / d params of each updatable component, summed over the minibatches."""
        shadows = [component.copy() for component in self.nnet.updatable]
        index = {id(component): i for i, component in enumerate(self.nnet.updatable)}
        for shadow in shadows:
            shadow.params[...] = 0.0
        total = Score()
        for m in minibatches:
            total += score(self.workspace.forward(m.input), m.row, m.pdf, m.weight)
            for step in self.workspace.backward_labels(m.row, m.pdf, m.weight):
                # the shadow's `params` are views into its zeros, where the sum is formed
                for dy, x, params in shadows[index[id(step.component)]].gradient_factors(step.x, step.dy):
                    accumulate(params, 1.0, dy, x)
        return total, [shadow.params for shadow in shadows]


def dot(a: Any, b: Any) -> float:
    """Sum of products of the elements of two arrays, in float64."""
    return float(np.einsum("ij,ij->", a, b, dtype=np.float64))
