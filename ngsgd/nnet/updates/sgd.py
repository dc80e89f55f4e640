"""The step of stochastic gradient descent: params += learning rate · limit · Ŷᵀ X̂, and the plain rule.

The objective is maximised and its gradient summed over the minibatch, not averaged: so are Kaldi's learning rates.
"""

from typing import Any

from ngsgd.nnet.updates.direction import Direction, add_product
from ngsgd.nnet.updates.max_change import allowed_change, limit
from ngsgd.nnet.updates.rule import register, update_rule


@register("none")
def plain(component: Any, dy: Any, x: Any, state: None) -> tuple[Direction, Direction, None]:
    """The gradient as it is."""
    return Direction(dy), Direction(x), None


def apply_update(component: Any, factors: list, states: list | None) -> tuple[list, float]:
    """Change the parameters of `component` by one minibatch, in place.

    factors: [(dy, x, params), ...] as `gradient_factors` returns them; the memory of dy may be used up. states: one of
    the component's rule for each, None before the first minibatch. Returns the new states and the smallest factor that
    max-change put on a step (1 where it put none). NotFinite when a factor is.
    """
    rule = update_rule(component.preconditioner)
    new_states, smallest = [], 1.0
    for (dy, x, params), state in zip(factors, states or [None] * len(factors), strict=True):
        y_hat, x_hat, state = rule(component, dy, x, state)
        factor = limit(component.learning_rate, y_hat, x_hat, allowed_change(component, len(dy)))
        add_product(params, component.learning_rate * factor, y_hat, x_hat)
        new_states.append(state)
        smallest = min(smallest, factor)
    return new_states, smallest
