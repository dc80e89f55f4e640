"""The limit on how far one minibatch may move the parameters of a layer.

    change = step · γ_y γ_x Σ_n ‖ŷ_n‖ ‖x̂_n‖                                                        (M1)

bounds the Frobenius norm of the step that would be added to the parameters (the norm of a sum of products of rows is at
most the sum of the products of their norms). Where it exceeds what is allowed, the whole step is scaled down to it:
`max_change_per_sample` times the number of rows (online natural gradient), or `max_change` for a minibatch of any size
(the older, simple one); 0 allows everything. Agrees with Kaldi's nnet2.
"""

import math
from typing import Any

from ngsgd.nnet.updates.direction import Direction, NotFinite


def allowed_change(component: Any, num_rows: int) -> float:
    """The largest M1 that `component` allows a minibatch of `num_rows`; infinite where it has no limit."""
    allowed = getattr(component, "max_change_per_sample", 0.0) * num_rows or getattr(component, "max_change", 0.0)
    return allowed if allowed > 0.0 else math.inf


def limit(step: float, y: Direction, x: Direction, allowed: float) -> float:
    """The factor (0, 1] for a step of this size, by M1. NotFinite when M1 is NaN or infinite."""
    if math.isinf(allowed):
        return 1.0
    change = step * y.scale * x.scale * float(((y.square_norms * x.square_norms) ** 0.5).sum())
    if not math.isfinite(change):
        raise NotFinite(f"the norm of the change of the parameters is {change}")
    return allowed / change if change > allowed else 1.0
