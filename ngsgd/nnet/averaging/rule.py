"""Ways to make the next model of those of an iteration's jobs: what all have in common, and their registry.

Letters, for the parameters of one layer, (rows, cols + 1) float32; iterations count from the last reset (the start, a
layer that was added, a change of the outputs), so that t is 1 at the first one after it:

| symbol | meaning                                                                                               |
|--------|-------------------------------------------------------------------------------------------------------|
| θ      | θ_t, the model after iteration t: it is scored, combined, and may become the final one                 |
| s      | s_t, the model from which the jobs of the next iteration start; θ_t in most ways                       |
| a      | a_t, the average of the models of the jobs of iteration t, which started from s_{t−1}                  |
| v      | v_t, a state of the shape of the parameters, zero after a reset                                        |

**The contract.** A way is a class in a file of this folder,

    @register("name")
    class Name(Averaging):
        def step(self, a, model, state) -> Layer        # θ_t, s_t, v_t from a_t, θ_{t−1}, v_{t−1}

`step` changes none of its arguments, and works on every element by itself; `state` is None after a reset. `has_start`
and `has_state` say whether s differs from θ and whether there is a v: these are files beside the model then. With the
momentum 0 and the rate 1 every way is, in the first iteration, the plain average, to the last bit.
"""

import dataclasses
import functools
import importlib
import pkgutil
from typing import Any, ClassVar, NamedTuple

from ngsgd.options import opt
from ngsgd.registry import Registry

_registry = Registry("way to average")
register = _registry.register


class Layer(NamedTuple):
    """Parameters of one layer: of θ and of s; the state v, None where there is none."""

    model: Any
    start: Any
    state: Any = None


@dataclasses.dataclass
class AveragingOptions:
    """Which way, and its settings; a setting below zero is the way's own default."""

    averaging: str = opt(
        "average",
        "how the jobs' models become one: average; running: also score and keep the running average of the iterations; "
        "block-momentum: BMUF; nesterov: outer Nesterov momentum, as DiLoCo",
    )
    averaging_momentum: float = opt(
        -1.0, "momentum of block-momentum and nesterov; default: 1 - 1/jobs, and 0.9", at_most=0.999
    )
    averaging_rate: float = opt(-1.0, "outer learning rate of block-momentum and nesterov; default: 1, and 0.7")
    averaging_window: int = opt(10, "iterations that the running average extends over", at_least=1)

    def check(self) -> None:
        """Raise DataError for an unknown way."""
        averaging_class(self.averaging)


class Averaging:
    """Base class; see the module's docstring for the contract. `age` is t, `jobs` their number in this iteration."""

    has_start: ClassVar[bool] = False
    has_state: ClassVar[bool] = False

    def __init__(self, options: AveragingOptions, jobs: int, age: int = 1):
        self.jobs, self.age, self.window = jobs, age, options.averaging_window
        momentum, rate = options.averaging_momentum, options.averaging_rate
        self.momentum = self.default_momentum() if momentum < 0 else momentum
        self.rate = self.default_rate() if rate < 0 else rate

    def default_momentum(self) -> float:
        """Momentum where the user gives none."""
        return 0.0

    def default_rate(self) -> float:
        """Outer learning rate where the user gives none."""
        return 1.0

    @property
    def gain(self) -> float:
        """How much further than plain averages the models move in the long run, by momentum and outer rate.

        The jobs' learning rates are divided by it, so that the effective learning rate stays that of the schedule.
        """
        return self.rate / (1.0 - self.momentum)

    def step(self, a: Any, model: Any, state: Any) -> Layer:
        """θ_t, s_t and v_t."""
        raise NotImplementedError


@functools.cache
def all_averaging() -> Registry:
    """The registry, with every module of this folder imported."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return _registry


def averaging_class(name: str) -> type[Averaging]:
    """The way of this name. DataError that lists the known ones."""
    return all_averaging()[name]
