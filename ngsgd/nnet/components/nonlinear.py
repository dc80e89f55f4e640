"""Elementwise nonlinearities, and row normalisation, with their statistics (`StatisticsMixin`)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import flat_rows, fused_kernels, module_of, to_cpu
from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Component, Field, StatisticsMixin, register, result


@dataclass
class DimConfig:
    """The dimension of input and output."""

    dim: int


class NonlinearComponent(StatisticsMixin, Component):
    """A function of rows with as many outputs as inputs, stored with its statistics."""

    Config = DimConfig
    in_place = True
    fields = (
        Field("<Dim>", "int32", "dim"),
        Field("<ValueSum>", "vector", "value_sum"),
        Field("<DerivSum>", "vector", "deriv_sum"),
        Field("<Count>", "float64", "count"),
    )

    @classmethod
    def build(cls, config: DimConfig, rng: np.random.Generator) -> "NonlinearComponent":
        return cls.of_dim(config.dim)

    @classmethod
    def of_dim(cls, dim: int) -> "NonlinearComponent":
        """With no statistics yet."""
        return cls.from_values({"dim": dim, "value_sum": np.zeros(0), "deriv_sum": np.zeros(0), "count": 0.0}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["NonlinearComponent"]:
        return [cls.of_dim(5)]

    @property
    def input_dim(self) -> int:
        """D."""
        return self.dim

    @property
    def output_dim(self) -> int:
        """D."""
        return self.dim

    def check(self, where: str) -> None:
        if self.dim < 1:
            raise DataError(f"{where}: {self.type_name}: dim must be above 0, got {self.dim}")
        self.value_sum, self.deriv_sum = (s.astype(np.float64) for s in (self.value_sum, self.deriv_sum))
        for name in ("value_sum", "deriv_sum"):
            size = getattr(self, name).size
            if size not in (0, self.dim):
                raise DataError(f"{where}: {self.type_name}: {size} statistics for dim={self.dim}")

    def write(self, writer: Any) -> None:
        # Kaldi keeps the sums in double precision and stores them in single.
        stored = self.copy()
        stored.value_sum, stored.deriv_sum = (to_cpu(s).astype(np.float32) for s in (self.value_sum, self.deriv_sum))
        Component.write(stored, writer)


@register("SigmoidComponent")
class SigmoidComponent(NonlinearComponent):
    """y = 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2, which overflows nowhere."""

    needs_y = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = module_of(x).tanh(x * x.dtype.type(0.5), out=result(out, x, self.dim))
        y *= 0.5
        y += 0.5
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).multiply(dy, y * (1 - y), out=result(out, dy, self.dim))

    def slope_sum(self, x: Any, y: Any, ones: Any) -> Any:
        return ones @ (y * (1 - y))


@register("TanhComponent")
class TanhComponent(NonlinearComponent):
    """y = tanh(x)."""

    needs_y = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).tanh(x, out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).multiply(dy, 1 - y * y, out=result(out, dy, self.dim))

    def slope_sum(self, x: Any, y: Any, ones: Any) -> Any:
        return ones @ (1 - y * y)


@register("RectifiedLinearComponent")
class RectifiedLinearComponent(NonlinearComponent):
    """y = max(x, 0)."""

    needs_y = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).maximum(x, 0, out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).multiply(dy, y > 0, out=result(out, dy, self.dim))

    def slope_sum(self, x: Any, y: Any, ones: Any) -> Any:
        return ones @ (y > 0).astype(y.dtype)


@register("SoftHingeComponent")
class SoftHingeComponent(NonlinearComponent):
    """y = log(1 + exp(x)); its slope is the sigmoid of x."""

    needs_x = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).logaddexp(x, x.dtype.type(0), out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).multiply(dy, self._slope(x), out=result(out, dy, self.dim))

    def slope_sum(self, x: Any, y: Any, ones: Any) -> Any:
        return ones @ self._slope(x)

    @staticmethod
    def _slope(x: Any) -> Any:
        return module_of(x).tanh(x * x.dtype.type(0.5)) * x.dtype.type(0.5) + x.dtype.type(0.5)


@register("NormalizeComponent")
class NormalizeComponent(NonlinearComponent):
    """y = f x with f = max(floor, xᵀx / D)^(-1/2): the root mean square of a row becomes 1.

    dx = f dy - (f³ / D) (dyᵀx) x, without the second term where the floor was active.
    """

    needs_x = True
    floor = 2.0**-66

    def accumulate(self, x: Any, y: Any) -> None:
        """Kaldi keeps no statistics of this component."""

    def _scale(self, x: Any) -> tuple[Any, Any]:
        """f (N,), and whether the floor was inactive."""
        xp = module_of(x)
        mean_square = xp.einsum("nd,nd->n", x, x) / x.dtype.type(self.dim)
        above = mean_square > x.dtype.type(self.floor)
        return 1 / xp.sqrt(xp.maximum(mean_square, x.dtype.type(self.floor))), above

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = result(out, x, self.dim)
        if kernels := fused_kernels(x, y):
            kernels.normalize_forward(*flat_rows(x), *flat_rows(y), *x.shape, np.float32(self.floor))
            return y
        return module_of(x).multiply(x, self._scale(x)[0][:, None], out=y)

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        xp, dx = module_of(x), result(out, dy, self.dim)
        if kernels := fused_kernels(x, dy, dx):
            if dx is not dy:
                dx[...] = dy
            kernels.normalize_backward(*flat_rows(x), *flat_rows(dx), *x.shape, np.float32(self.floor))
            return dx
        scale, above = self._scale(x)
        # Grouped as (f x)(f x)ᵀdy f / D: f³ alone can overflow float32.
        along = xp.einsum("nd,nd->n", dy, x) * scale * above / x.dtype.type(self.dim)
        xp.subtract(dy, x * (along * scale)[:, None], out=dx)
        dx *= scale[:, None]
        return dx


@dataclass
class PowerConfig:
    """Exponent, and the dimension under either of two names."""

    dim: int = 0
    input_dim: int = 0
    power: float = 2.0


@register("PowerComponent")
class PowerComponent(Component):
    """y = |x|^power."""

    Config = PowerConfig
    needs_x = True
    fields = (
        Field("<InputDim>", "int32", "input_dim"),
        Field("<OutputDim>", "int32", "output_dim"),
        Field("<Power>", "float32", "power"),
    )

    @classmethod
    def build(cls, config: PowerConfig, rng: np.random.Generator) -> "PowerComponent":
        dim = config.dim or config.input_dim
        return cls.from_values({"input_dim": dim, "output_dim": dim, "power": config.power}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["PowerComponent"]:
        return [cls.build(PowerConfig(dim=5, power=p), rng) for p in (2.0, 0.5, 1.7)]

    def check(self, where: str) -> None:
        if self.input_dim < 1 or self.output_dim != self.input_dim:
            raise DataError(f"{where}: {self.type_name}: dimensions {self.input_dim} and {self.output_dim}")
        if not self.power >= 0:
            raise DataError(f"{where}: {self.type_name}: power is negative: {self.power}")

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).power(abs(x), x.dtype.type(self.power), out=result(out, x, self.input_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        """dx = power sign(x) |x|^(power - 1) dy, and 0 where x is 0 and the slope infinite."""
        xp = module_of(x)
        zero = x == 0
        slope = xp.power(xp.where(zero, x.dtype.type(1), abs(x)), x.dtype.type(self.power - 1))
        slope *= xp.sign(x) * x.dtype.type(self.power)
        return xp.multiply(dy, slope, out=result(out, dy, self.input_dim))

    def info(self) -> str:
        return f"{self.type_name}, dim = {self.input_dim}, power = {self.power:.6g}"
