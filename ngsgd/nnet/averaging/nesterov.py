"""Outer Nesterov momentum: the average change of the jobs is the gradient of an outer optimiser (DiLoCo).

Douillard et al., "DiLoCo: Distributed low-communication training of language models" (arXiv 2311.08105), algorithm 1,
with Nesterov's momentum in the form of Sutskever et al. (2013) as their optimiser has it. μ is the momentum, λ the
outer learning rate; their best values are 0.9 and 0.7:

    D_t = a_t − θ_{t−1}                                                                                      (1)
    v_t = μ v_{t−1} + D_t                                                                                    (2)
    θ_t = θ_{t−1} + λ (D_t + μ v_t)                                                                          (3)

The models move λ / (1 − μ) times as far as plain averages do in the long run: the jobs' rates are divided by this.
"""

from typing import Any

from ngsgd.nnet.averaging.rule import Averaging, Layer, register


@register("nesterov")
class Nesterov(Averaging):
    """(1) to (3)."""

    has_state = True

    def default_momentum(self) -> float:
        return 0.9

    def default_rate(self) -> float:
        return 0.7

    def step(self, a: Any, model: Any, state: Any) -> Layer:
        number = a.dtype.type
        v = a - model
        if state is not None:
            v += state * number(self.momentum)
        # θ_{t−1} + λ D_t, written so that it is a_t, to the last bit, at λ = 1
        moved = a if self.rate == 1.0 else a * number(self.rate) + model * number(1.0 - self.rate)
        if self.momentum:
            moved = moved + v * number(self.rate * self.momentum)
        return Layer(moved, moved, v)
