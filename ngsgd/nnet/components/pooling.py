"""Components that reduce groups of columns: p-norm, maxout, max-pooling, sums."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import flat_rows, fused_kernels, module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Component, Field, register, require, require_sane, result


@dataclass
class GroupConfig:
    """Dimensions; without an input dimension, groups of ten."""

    output_dim: int
    input_dim: int


@dataclass
class PnormConfig(GroupConfig):
    """The norm's exponent."""

    p: float = 2.0


class GroupComponent(Component):
    """Equal groups of neighbouring columns, one output column each."""

    needs_x = True
    needs_y = True
    fields = (Field("<InputDim>", "int32", "input_dim"), Field("<OutputDim>", "int32", "output_dim"))

    @classmethod
    def build(cls, config: GroupConfig, rng: np.random.Generator) -> "GroupComponent":
        component = cls.__new__(cls)
        component.__dict__.update(vars(config))
        component.input_dim = config.input_dim or 10 * config.output_dim
        component.check("config")
        return component

    def check(self, where: str) -> None:
        if self.output_dim < 1 or self.input_dim < 1 or self.input_dim % self.output_dim:
            raise DataError(
                f"{where}: {self.type_name}: input-dim={self.input_dim}: not a multiple of output-dim={self.output_dim}"
            )

    def groups(self, x: Any) -> Any:
        """x (N, D_in) seen as (N, D_out, group size)."""
        return x.reshape(len(x), self.output_dim, self.input_dim // self.output_dim)

    def info(self) -> str:
        return f"{self.type_name}, input-dim = {self.input_dim}, output-dim = {self.output_dim}"


@register("PnormComponent")
class PnormComponent(GroupComponent):
    """y = (Σ_group |x|^p)^(1/p) (Zhang et al., ICASSP 2014)."""

    Config = PnormConfig
    fields = (*GroupComponent.fields, Field("<P>", "float32", "p"))
    may_be_infinite = ("p",)  # the largest of a group

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["PnormComponent"]:
        exponents = (2.0, 3.0, 1.5, 1.0, float("inf"))
        return [cls.build(PnormConfig(output_dim=3, input_dim=12, p=p), rng) for p in exponents]

    def check(self, where: str) -> None:
        super().check(where)
        if not self.p > 0:
            raise DataError(f"{where}: {self.type_name}: p must be above 0, got {self.p}")

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        xp, y, groups = module_of(x), result(out, x, self.output_dim), self.groups(x)
        if self.p == 2 and (kernels := fused_kernels(x, y)):
            kernels.pnorm2_forward(*flat_rows(x), *flat_rows(y), *y.shape, (0,) * groups.shape[2])
        elif self.p == 2:
            xp.sqrt(xp.einsum("ngi,ngi->ng", groups, groups), out=y)
        elif self.p == 1:
            xp.sum(abs(groups), axis=2, out=y)
        elif self.p == float("inf"):
            xp.max(abs(groups), axis=2, out=y)
        else:  # scaled by the largest, so that the powers neither overflow nor vanish
            largest = abs(groups).max(axis=2)
            scale = xp.where(largest > 0, largest, xp.ones_like(largest))
            powers = (abs(groups) / scale[:, :, None]) ** self.p
            xp.multiply(powers.sum(axis=2) ** (1 / self.p), largest, out=y)
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        """dx = dy sign(x) (|x| / y)^(p - 1), and 0 where y is 0."""
        xp, dx, groups = module_of(x), result(out, x, self.input_dim), self.groups(x)
        if self.p == 2 and (kernels := fused_kernels(x, y, dy, dx)):
            rows = [part for a in (x, y, dy, dx) for part in flat_rows(a)]
            kernels.pnorm2_backward(*rows, *y.shape, (0,) * groups.shape[2])
            return dx
        safe = xp.where(y > 0, y, xp.ones_like(y))
        if self.p == 2:
            xp.multiply(groups, (dy / safe)[:, :, None], out=self.groups(dx))
        elif self.p == float("inf"):
            slope = (abs(groups) == y[:, :, None]) * xp.sign(groups)
            xp.multiply(slope, dy[:, :, None], out=self.groups(dx))
        else:
            slope = (abs(groups) / safe[:, :, None]) ** (self.p - 1) * xp.sign(groups)
            xp.multiply(slope, (dy * (y > 0))[:, :, None], out=self.groups(dx))
        return dx

    def info(self) -> str:
        return f"{super().info()}, p = {self.p:.6g}"


@register("MaxoutComponent")
class MaxoutComponent(GroupComponent):
    """y = the largest of each group; the derivative goes to every column that equals it."""

    Config = GroupConfig

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["MaxoutComponent"]:
        return [cls.build(GroupConfig(output_dim=3, input_dim=12), rng)]

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).max(self.groups(x), axis=2, out=result(out, x, self.output_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        dx = result(out, x, self.input_dim)
        module_of(x).multiply(self.groups(x) == y[:, :, None], dy[:, :, None], out=self.groups(dx))
        return dx


@dataclass
class MaxpoolingConfig(GroupConfig):
    """pool-size patches of pool-stride columns are pooled, column by column."""

    pool_size: int
    pool_stride: int


@register("MaxpoolingComponent")
class MaxpoolingComponent(Component):
    """The largest of pool_size neighbouring patches, in each of the pool_stride columns of a patch."""

    Config = MaxpoolingConfig
    needs_x = True
    needs_y = True
    fields = (
        Field("<InputDim>", "int32", "input_dim"),
        Field("<OutputDim>", "int32", "output_dim"),
        Field("<PoolSize>", "int32", "pool_size"),
        Field("<PoolStride>", "int32", "pool_stride"),
    )

    @classmethod
    def build(cls, config: MaxpoolingConfig, rng: np.random.Generator) -> "MaxpoolingComponent":
        return cls.from_values(dict(vars(config)), "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["MaxpoolingComponent"]:
        return [cls.build(MaxpoolingConfig(input_dim=24, output_dim=8, pool_size=3, pool_stride=4), rng)]

    def check(self, where: str) -> None:
        if self.pool_size < 1 or self.pool_stride < 1 or self.input_dim % (self.pool_size * self.pool_stride):
            raise DataError(
                f"{where}: {self.type_name}: input-dim={self.input_dim} is not a multiple of "
                f"pool-size={self.pool_size} times pool-stride={self.pool_stride}"
            )
        if self.output_dim != self.input_dim // self.pool_size or self.output_dim < 1:
            raise DataError(
                f"{where}: {self.type_name}: output-dim={self.output_dim}, expected {self.input_dim // self.pool_size}"
            )

    def _pools(self, x: Any) -> Any:
        """(N, pools, pool_size, pool_stride)."""
        return x.reshape(len(x), -1, self.pool_size, self.pool_stride)

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = result(out, x, self.output_dim)
        y.reshape(len(x), -1, self.pool_stride)[...] = self._pools(x).max(axis=2)
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        dx = result(out, x, self.input_dim)
        shape = (len(x), -1, 1, self.pool_stride)
        self._pools(dx)[...] = (self._pools(x) == y.reshape(shape)) * dy.reshape(shape)
        return dx

    def info(self) -> str:
        return (
            f"{self.type_name}, input-dim = {self.input_dim}, output-dim = {self.output_dim}"
            f", pool-size = {self.pool_size}, pool-stride = {self.pool_stride}"
        )


@dataclass
class SumGroupConfig:
    """Sizes of the groups, in order, separated by colons."""

    sizes: str


@register("SumGroupComponent")
class SumGroupComponent(Component):
    """Sums of neighbouring columns in groups of given sizes: the mixture components of a pdf after mixing up."""

    Config = SumGroupConfig
    array_names = ("_starts", "_group")
    fields = (Field("<Sizes>", "int32_vector", "sizes"),)

    @classmethod
    def build(cls, config: SumGroupConfig, rng: np.random.Generator) -> "SumGroupComponent":
        return cls.of_sizes(parse_ints(cls, "sizes", config.sizes))

    @classmethod
    def of_sizes(cls, sizes: Any) -> "SumGroupComponent":
        """From the group sizes, all above 0."""
        return cls.from_values({"sizes": np.asarray(sizes, np.int32)}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["SumGroupComponent"]:
        return [cls.of_sizes([2, 1, 3]), cls.of_sizes([1, 1])]

    @classmethod
    def read_end(cls, reader: Any) -> None:
        reader.expect("</SumGroupComponent>", "<SumGroupComponent>")  # early Kaldi wrote the second

    def check(self, where: str) -> None:
        if not len(self.sizes) or min(self.sizes) < 1:
            raise DataError(f"{where}: {self.type_name}: every size must be above 0, got {list(self.sizes)}")
        self.input_dim, self.output_dim = int(self.sizes.sum()), len(self.sizes)
        require_sane(self.input_dim, type(self), where, "input columns")
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._group = np.repeat(np.arange(self.output_dim), self.sizes)  # of each input column

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).add.reduceat(x, self._starts, axis=1, out=out)

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).take(dy, self._group, axis=1, out=out)


def parse_ints(cls: Any, option: str, text: str) -> list[int]:
    """Integers separated by colons, at least one."""
    try:
        return [int(word) for word in text.split(":")]
    except ValueError:
        require(False, cls, f"{option}: expected integers separated by colons, got '{text}'")
        raise
