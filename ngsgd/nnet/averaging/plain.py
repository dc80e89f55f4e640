"""The plain average: θ_t = a_t.

Povey, Zhang, Khudanpur (arXiv 1410.7455), section 4: with natural gradient the average of the jobs' models is about as
good as if one had seen all their samples, at N times a single one's learning rate.
"""

from typing import Any

from ngsgd.nnet.averaging.rule import Averaging, Layer, register


@register("average")
class Plain(Averaging):
    """θ_t = s_t = a_t."""

    gain = 1.0

    def step(self, a: Any, model: Any, state: Any) -> Layer:
        return Layer(a, a)
