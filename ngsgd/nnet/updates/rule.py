"""Update rules: what becomes of the two factors of a gradient before their product is added to the parameters.

**The contract.** A rule is entered under the name that components ask for in `preconditioner`:

    @register("online")
    def rule(component, dy, x, state) -> (ŷ, x̂, state)

dy (N, P) and x (N, Q), the column of ones included, are the factors of the gradient dyᵀ x of the objective summed over
the minibatch; ŷ and x̂ are `Direction`s. `component` has the settings of the rule as attributes, under Kaldi's names.
`state` is None at the first minibatch and then what the call before returned; it is never stored with the model, so
every job starts anew, as in Kaldi. A rule changes none of its arguments.

A new rule is one file in this folder: all modules here are imported by `update_rule`.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable

from ngsgd.registry import Registry

_registry = Registry("update rule")
register = _registry.register


@functools.cache
def update_rule(name: str) -> Callable:
    """The rule of this name. DataError that lists the known ones."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return _registry[name]
