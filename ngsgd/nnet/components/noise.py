"""Components that draw random numbers in training: dropout and additive noise.

`rng` is a generator set by whoever trains (seeded by what the work is); without one, the component computes the
expectation of its output, which is x. Kaldi has no such switch: there one removes the component from a model to test.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Component, Field, register, result


class RandomComponent(Component):
    """A component with a random generator; `rng` None means none is drawn."""

    rng: Any = None

    def _identity(self, x: Any, out: Any) -> Any:
        y = result(out, x, self.input_dim)
        y[...] = x
        return y

    def check(self, where: str) -> None:
        if self.dim < 1:
            raise DataError(f"{where}: {self.type_name}: dim must be above 0, got {self.dim}")
        self.input_dim = self.output_dim = self.dim


@dataclass
class DropoutConfig:
    """Dimension, the proportion of elements dropped, and the factor that those get."""

    dim: int
    dropout_proportion: float = 0.5
    dropout_scale: float = 0.0


@register("DropoutComponent")
class DropoutComponent(RandomComponent):
    """Elements are multiplied by a low scale with probability p, else by the high scale that makes the mean 1."""

    Config = DropoutConfig
    needs_x = True
    needs_y = True
    fields = (
        Field("<Dim>", "int32", "dim"),
        Field("<DropoutScale>", "float32", "dropout_scale"),
        Field("<DropoutProportion>", "float32", "dropout_proportion"),
    )

    @classmethod
    def build(cls, config: DropoutConfig, rng: np.random.Generator) -> "DropoutComponent":
        return cls.from_values(dict(vars(config)), "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["DropoutComponent"]:
        return [cls.build(DropoutConfig(5), rng), cls.build(DropoutConfig(5, 0.3, 0.1), rng)]

    def check(self, where: str) -> None:
        super().check(where)
        if not 0 <= self.dropout_proportion < 1 or not 0 <= self.dropout_scale <= 1:
            raise DataError(
                f"{where}: {self.type_name}: dropout-proportion={self.dropout_proportion} must be in [0, 1) and "
                f"dropout-scale={self.dropout_scale} in [0, 1]"
            )

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        if self.rng is None:
            return self._identity(x, out)
        xp = module_of(x)
        p, low = self.dropout_proportion, self.dropout_scale
        high = (1 - p * low) / (1 - p)
        dropped = xp.asarray(self.rng.random(x.shape, np.float32)) < p
        scale = xp.where(dropped, x.dtype.type(low), x.dtype.type(high))
        return xp.multiply(x, scale, out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        """The scale of an element is y / x; of one that was 0 it is unknown, and its expectation, 1, is taken."""
        xp = module_of(dy)
        zero = x == 0
        scale = xp.where(zero, x.dtype.type(1), y / xp.where(zero, x.dtype.type(1), x))
        return xp.multiply(dy, scale, out=result(out, dy, self.dim))

    def info(self) -> str:
        return (
            f"{super().info()}, dropout_proportion = {self.dropout_proportion:.6g}"
            f", dropout_scale = {self.dropout_scale:.6g}"
        )


@dataclass
class NoiseConfig:
    """Dimension and standard deviation."""

    dim: int
    stddev: float = 1.0


@register("AdditiveNoiseComponent")
class AdditiveNoiseComponent(RandomComponent):
    """y = x + stddev n, n Gaussian. (Kaldi's draws from the uniform distribution on [0, 1), against its own name.)"""

    Config = NoiseConfig
    in_place = True
    fields = (Field("<Dim>", "int32", "dim"), Field("<Stddev>", "float32", "stddev"))

    @classmethod
    def build(cls, config: NoiseConfig, rng: np.random.Generator) -> "AdditiveNoiseComponent":
        return cls.from_values(dict(vars(config)), "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["AdditiveNoiseComponent"]:
        return [cls.build(NoiseConfig(5, 0.1), rng)]

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        if self.rng is None:
            return self._identity(x, out)
        xp = module_of(x)
        noise = xp.asarray(self.rng.standard_normal(x.shape, np.float32)).astype(x.dtype, copy=False)
        noise *= x.dtype.type(self.stddev)
        return xp.add(x, noise, out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return self._identity(dy, out)
