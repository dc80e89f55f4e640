"""Fixed rearrangements of columns: permutation, and the discrete cosine transform of blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Component, Field, register, result


@dataclass
class PermuteConfig:
    """The dimension; the permutation is drawn."""

    dim: int


@register("PermuteComponent")
class PermuteComponent(Component):
    """Input column i becomes output column reorder[i]."""

    Config = PermuteConfig
    array_names = ("reorder", "_inverse")
    fields = (Field("<Reorder>", "int32_vector", "reorder"),)

    @classmethod
    def build(cls, config: PermuteConfig, rng: np.random.Generator) -> "PermuteComponent":
        return cls.from_values({"reorder": rng.permutation(max(config.dim, 0)).astype(np.int32)}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["PermuteComponent"]:
        return [cls.build(PermuteConfig(7), rng)]

    def check(self, where: str) -> None:
        if not len(self.reorder) or not np.array_equal(np.sort(self.reorder), np.arange(len(self.reorder))):
            raise DataError(f"{where}: {self.type_name}: not a permutation")
        self.input_dim = self.output_dim = len(self.reorder)
        self._inverse = np.argsort(self.reorder).astype(np.int32)

    def write(self, writer: Any) -> None:
        stored = self.copy()
        stored.to(np)
        Component.write(stored, writer)

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).take(x, self._inverse, axis=1, out=result(out, x, self.input_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(dy).take(dy, self.reorder, axis=1, out=result(out, dy, self.input_dim))


@dataclass
class DctConfig:
    """Dimension, length of the transform, whether blocks are interlaced, coefficients kept (0: all)."""

    dim: int
    dct_dim: int
    reorder: bool
    dct_keep_dim: int = 0


@register("DctComponent")
class DctComponent(Component):
    """The orthonormal DCT-II of each block of dct_dim columns, the first dct_keep_dim coefficients of it.

    With `reorder`, the blocks are interlaced: block b is columns b, b + B, b + 2B, ... of B blocks, at the input, and
    likewise at the output.
    """

    Config = DctConfig
    array_names = ("matrix",)
    fields = (
        Field("<Dim>", "int32", "dim"),
        Field("<DctDim>", "int32", "dct_dim"),
        Field("<Reorder>", "bool", "reorder"),
        Field("<DctKeepDim>", "int32", "dct_keep_dim", 0),
    )

    @classmethod
    def build(cls, config: DctConfig, rng: np.random.Generator) -> "DctComponent":
        return cls.from_values(dict(vars(config)), "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["DctComponent"]:
        return [cls.build(DctConfig(12, 4, reorder, keep), rng) for reorder in (False, True) for keep in (0, 3)]

    def check(self, where: str) -> None:
        self.dct_keep_dim = self.dct_keep_dim or self.dct_dim
        if self.dct_dim < 1 or self.dim < 1 or self.dim % self.dct_dim:
            raise DataError(f"{where}: {self.type_name}: dim={self.dim} is not a multiple of dct-dim={self.dct_dim}")
        if not 0 < self.dct_keep_dim <= self.dct_dim:
            raise DataError(f"{where}: {self.type_name}: dct-keep-dim={self.dct_keep_dim} of dct-dim={self.dct_dim}")
        self.blocks = self.dim // self.dct_dim
        self.input_dim, self.output_dim = self.dim, self.blocks * self.dct_keep_dim
        k, n = np.arange(self.dct_keep_dim)[:, None], np.arange(self.dct_dim)
        matrix = np.sqrt(2 / self.dct_dim) * np.cos(np.pi / self.dct_dim * (n + 0.5) * k)
        matrix[0] = np.sqrt(1 / self.dct_dim)
        self.matrix = matrix.astype(np.float32)  # (dct_keep_dim, dct_dim)

    def _split(self, x: Any, size: int) -> Any:
        """(N, blocks, size), a view."""
        if self.reorder:
            return x.reshape(len(x), size, self.blocks).transpose(0, 2, 1)
        return x.reshape(len(x), self.blocks, size)

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = result(out, x, self.output_dim)
        self._split(y, self.dct_keep_dim)[...] = self._split(x, self.dct_dim) @ self.matrix.T
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        dx = result(out, dy, self.input_dim)
        self._split(dx, self.dct_dim)[...] = self._split(dy, self.dct_keep_dim) @ self.matrix
        return dx

    def info(self) -> str:
        kept = f", dct_keep_dim={self.dct_keep_dim}" if self.dct_keep_dim != self.dct_dim else ""
        return f"{super().info()}, dct_dim={self.dct_dim}{kept}"
