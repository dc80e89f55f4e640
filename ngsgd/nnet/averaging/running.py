"""A running average beside the training: the jobs go on from the plain average, the model is the mean of recent ones.

Averages of the iterates of stochastic gradient descent (Polyak and Juditsky, "Acceleration of stochastic approximation
by averaging", 1992) have less of its noise than the last of them, at a learning rate that is still large. With the
window W, in iterations,

    θ_t = θ_{t−1} + (a_t − θ_{t−1}) / min(t, W)                                                              (1)
    s_t = a_t                                                                                                (2)

which is the mean of a_1..a_t while t ≤ W, and forgets with the horizon W after that. The jobs train as with the plain
average, to the same bytes; only what is scored and kept differs.
"""

from typing import Any

from ngsgd.nnet.averaging.rule import Averaging, Layer, register


@register("running")
class Running(Averaging):
    """(1), (2)."""

    has_start = True
    gain = 1.0

    def step(self, a: Any, model: Any, state: Any) -> Layer:
        if self.age == 1:
            return Layer(a, a)
        return Layer(model + (a - model) * a.dtype.type(1.0 / min(self.age, self.window)), a)
