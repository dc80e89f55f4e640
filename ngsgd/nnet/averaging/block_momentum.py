"""Block momentum: the change of an iteration is filtered over the iterations (BMUF).

Chen and Huo, "Scalable training of deep learning machines by incremental block training with intra-block parallel
optimization and blockwise model-update filtering", ICASSP 2016, with their classical block momentum. η is the momentum,
ζ the block learning rate:

    G_t = a_t − θ_{t−1}                                                                                      (1)
    v_t = η v_{t−1} + ζ G_t                                                                                  (2)
    θ_t = θ_{t−1} + v_t                                                                                      (3)

They advise ζ = 1 and η = 1 − 1/N for N jobs, each at the learning rate of a single one: the momentum makes up for the
average over N. Here that follows from the gain ζ / (1 − η): the jobs' rate is N e / N, e being the effective one. With
one job this is the plain average.
"""

from typing import Any

from ngsgd.nnet.averaging.rule import Averaging, Layer, register


@register("block-momentum")
class BlockMomentum(Averaging):
    """(1) to (3)."""

    has_state = True

    def default_momentum(self) -> float:
        return 1.0 - 1.0 / self.jobs

    def step(self, a: Any, model: Any, state: Any) -> Layer:
        number = a.dtype.type
        # θ_{t−1} + ζ G_t, written so that it is a_t, to the last bit, at ζ = 1
        moved = a if self.rate == 1.0 else a * number(self.rate) + model * number(1.0 - self.rate)
        if state is not None and self.momentum:
            moved = moved + state * number(self.momentum)
        return Layer(moved, moved, moved - model)
