"""Convolution along the frequency axis of spliced features.

Symbols: S spliced frames, each patch_stride columns; P patches of patch_dim columns, patch_step apart; F filters.
A patch takes patch_dim columns of every one of the S frames: S · patch_dim numbers, in that order. The output is
patch by patch, F columns each. After another convolution (`appended_conv`), whose output is frequency-major, the input
is read as (frequency, S) instead of (S, frequency).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.affine import LayerConfig, read_matrix
from ngsgd.nnet.components.base import Factors, Field, UpdatableComponent, register, require, require_sane, result


@dataclass
class ConvolutionConfig(LayerConfig):
    """Shape of the patches; or a matrix file (F, S patch_dim + 1) to start from."""

    patch_dim: int = 0
    patch_step: int = 0
    patch_stride: int = 0
    appended_conv: bool = False
    matrix: str = ""


@register("Convolutional1dComponent")
class Convolutional1dComponent(UpdatableComponent):
    """`params` (F, S patch_dim + 1), the bias in the last column. Trained by plain gradient ascent, as in Kaldi."""

    Config = ConvolutionConfig
    needs_x = True
    fields = (
        Field("<LearningRate>", "float32", "learning_rate"),
        Field("<PatchDim>", "int32", "patch_dim"),
        Field("<PatchStep>", "int32", "patch_step"),
        Field("<PatchStride>", "int32", "patch_stride"),
        Field("<AppendedConv>", "bool", "appended_conv", False),
        Field("<FilterParams>", "matrix", "linear"),
        Field("<BiasParams>", "vector", "bias"),
        Field("<IsGradient>", "bool", "is_gradient", False),
    )
    array_names = ("params", "_columns")

    @classmethod
    def build(cls, config: ConvolutionConfig, rng: np.random.Generator) -> "Convolutional1dComponent":
        names = ("learning_rate", "patch_dim", "patch_step", "patch_stride", "appended_conv")
        settings = {name: getattr(config, name) for name in names}
        _check_patches(cls, "config", config)
        patches = 1 + (config.patch_stride - config.patch_dim) // config.patch_step
        if config.matrix:
            params = read_matrix(config.matrix, cls)
            linear, bias = params[:, :-1], params[:, -1]
        else:
            require(config.input_dim > 0 and config.output_dim > 0, cls, "needs input-dim= and output-dim=, or matrix=")
            spliced, left = divmod(config.input_dim, config.patch_stride)
            require(not left, cls, f"input-dim={config.input_dim}: no multiple of patch-stride={config.patch_stride}")
            filters, left = divmod(config.output_dim, patches)
            require(not left, cls, f"output-dim={config.output_dim}: not a multiple of the {patches} patches")
            param_stddev = config.param_stddev if config.param_stddev >= 0 else config.input_dim**-0.5
            shape = (filters, spliced * config.patch_dim)
            linear = rng.standard_normal(shape, np.float32) * np.float32(param_stddev)
            bias = rng.standard_normal(filters, np.float32) * np.float32(config.bias_stddev)
        component = cls.from_values({**settings, "linear": linear, "bias": bias}, "config")
        for what in ("input_dim", "output_dim"):
            wanted, found = getattr(config, what), getattr(component, what)
            require(wanted in (0, found), cls, f"{what.replace('_', '-')}={wanted}, but {config.matrix} has {found}")
        return component

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["Convolutional1dComponent"]:
        shape = {"patch_dim": 4, "patch_step": 2, "patch_stride": 8}
        return [cls.build(cls.Config(24, 9, appended_conv=a, **shape), rng) for a in (False, True)]

    def check(self, where: str) -> None:
        _check_patches(type(self), where, self)
        filter_dim = self.params.shape[1] - 1
        if filter_dim < 1 or filter_dim % self.patch_dim:
            raise DataError(
                f"{where}: {self.type_name}: filters of {filter_dim} are not a multiple of patch-dim={self.patch_dim}"
            )
        self.num_splice = filter_dim // self.patch_dim
        self.num_patches = 1 + (self.patch_stride - self.patch_dim) // self.patch_step
        self.input_dim = self.patch_stride * self.num_splice
        self.output_dim = self.num_patches * self.params.shape[0]
        require_sane(self.num_patches * filter_dim, type(self), where, "columns of all patches")
        patch, splice, d = np.ix_(range(self.num_patches), range(self.num_splice), range(self.patch_dim))
        frequency = patch * self.patch_step + d
        columns = frequency * self.num_splice + splice if self.appended_conv else frequency + splice * self.patch_stride
        self._columns = columns.reshape(-1)  # of x, for every column of the patches

    def _patches(self, x: Any) -> Any:
        """(N P, S patch_dim + 1), with a column of ones."""
        xp = module_of(x)
        patches = xp.ones((len(x), self.num_patches, self.params.shape[1]), x.dtype)
        patches[:, :, :-1] = xp.take(x, self._columns, axis=1).reshape(len(x), self.num_patches, -1)
        return patches.reshape(-1, self.params.shape[1])

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = (self._patches(x) @ self.params.T).reshape(len(x), self.output_dim)
        if out is None:
            return y
        out[...] = y
        return out

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        xp = module_of(dy)
        dx = result(out, dy, self.input_dim)
        dx[...] = 0
        by_patch = (dy.reshape(-1, self.params.shape[0]) @ self.linear).reshape(len(dy), -1)
        width = self.params.shape[1] - 1
        for p in range(self.num_patches):  # within a patch no column of x occurs twice
            columns = slice(p * width, (p + 1) * width)
            dx[:, self._columns[columns]] += by_patch[:, columns]
        return xp.asarray(dx)

    def gradient_factors(self, x: Any, dy: Any) -> list[Factors]:
        return [Factors(dy.reshape(-1, self.params.shape[0]), self._patches(x), self.params)]

    def info(self) -> str:
        spread = [float((part.astype(np.float64) ** 2).mean()) ** 0.5 for part in (self.linear, self.bias)]
        return (
            f"{self.type_name}, input-dim={self.input_dim}, output-dim={self.output_dim}"
            f", num-splice={self.num_splice}, num-patches={self.num_patches}, num-filters={self.params.shape[0]}"
            f", filter-dim={self.params.shape[1] - 1}, filter-params-stddev={spread[0]:.6g}"
            f", bias-params-stddev={spread[1]:.6g}, appended-conv={int(self.appended_conv)}"
            f", learning-rate={self.learning_rate:.6g}"
        )


def _check_patches(cls: Any, where: str, config: Any) -> None:
    fits = config.patch_step > 0 and 0 < config.patch_dim <= config.patch_stride
    if not fits or (config.patch_stride - config.patch_dim) % config.patch_step:
        raise DataError(
            f"{where}: {cls.type_name}: patches of patch-dim={config.patch_dim}, patch-step={config.patch_step} do not "
            f"tile patch-stride={config.patch_stride}"
        )
