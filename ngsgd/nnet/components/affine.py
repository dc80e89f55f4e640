"""Affine layers: y = [x 1] Wᵀ with W (D_out, D_in + 1), plain or asking for natural gradient.

The three types compute the same thing. They differ in how Kaldi trains them, which here is the business of
`ngsgd.nnet.updates`; the settings of the update are kept because they are part of the stored form.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.kaldi_io.stream import open_reader
from ngsgd.nnet.blas import times, times_transposed
from ngsgd.nnet.components.base import Factors, Field, UpdatableComponent, joined, register, require, result


@dataclass
class LayerConfig:
    """Dimensions, learning rate and the spread of the initial parameters."""

    input_dim: int = 0
    output_dim: int = 0
    learning_rate: float = 0.001
    param_stddev: float = -1.0  # negative: 1 / sqrt(input_dim)
    bias_stddev: float = 1.0


@dataclass
class AffineConfig(LayerConfig):
    """Both dimensions, or a matrix file (D_out, D_in + 1) to start from."""

    matrix: str = ""


def read_matrix(rxfilename: str, cls: Any) -> np.ndarray:
    """A matrix file named on a config line, float32."""
    with open_reader(rxfilename) as reader:
        matrix = reader.matrix().astype(np.float32, copy=False)
    require(matrix.size > 0, cls, f"the matrix {rxfilename} is empty")
    return matrix


def initial_params(cls: Any, config: LayerConfig, rng: np.random.Generator, blocks: int = 1) -> np.ndarray:
    """Parameters (D_out, D_in / blocks + 1): Gaussian with the configured standard deviations, or from the file."""
    if getattr(config, "matrix", ""):
        params = read_matrix(config.matrix, cls)
        for what, wanted, found in (
            ("input-dim", config.input_dim, params.shape[1] - 1),
            ("output-dim", config.output_dim, params.shape[0]),
        ):
            require(wanted in (0, found), cls, f"{what}={wanted}, but {config.matrix} has {found}")
        return params
    or_matrix = ", or matrix=" if hasattr(config, "matrix") else ""
    for what, value in (("input-dim", config.input_dim), ("output-dim", config.output_dim)):
        require(value > 0, cls, f"needs {what}= above 0{or_matrix}")
    param_stddev = config.param_stddev if config.param_stddev >= 0 else config.input_dim**-0.5
    require(config.bias_stddev >= 0, cls, f"bias-stddev is negative: {config.bias_stddev}")
    linear = rng.standard_normal((config.output_dim, config.input_dim // blocks), np.float32) * np.float32(param_stddev)
    bias = rng.standard_normal(config.output_dim, np.float32) * np.float32(config.bias_stddev)
    return joined(linear, bias)


@register("AffineComponent")
class AffineComponent(UpdatableComponent):
    """y = [x 1] Wᵀ."""

    Config = AffineConfig
    takes_ones = True
    needs_x = True
    fields = (
        Field("<LearningRate>", "float32", "learning_rate"),
        Field("<LinearParams>", "matrix", "linear"),
        Field("<BiasParams>", "vector", "bias"),
        Field("<IsGradient>", "bool", "is_gradient", False),
    )

    @classmethod
    def build(cls, config: AffineConfig, rng: np.random.Generator) -> "AffineComponent":
        component = cls.__new__(cls)
        component.params = initial_params(cls, config, rng)
        component.learning_rate = config.learning_rate
        component.set_update(config)
        return component

    def set_update(self, config: Any) -> None:
        """Take the settings of the update from the configuration."""

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["AffineComponent"]:
        return [cls.build(cls.Config(input_dim=5, output_dim=4), rng), cls.build(cls.Config(3, 7, 0.01, 0.5, 0.1), rng)]

    @property
    def input_dim(self) -> int:
        """D_in, the column of ones not counted."""
        return self.params.shape[1] - 1

    @property
    def output_dim(self) -> int:
        """D_out."""
        return self.params.shape[0]

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return times_transposed(x, self.params, result(out, x, self.output_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return times(dy, self.linear, out)

    def gradient_factors(self, x: Any, dy: Any) -> list[Factors]:
        return [Factors(dy, x, self.params)]


@dataclass
class PreconditionedConfig(AffineConfig):
    """Simple natural gradient: smoothing alpha, and the old max-change per minibatch (0: none)."""

    alpha: float = 0.1
    max_change: float = 0.0


@register("AffineComponentPreconditioned")
class AffineComponentPreconditioned(AffineComponent):
    """Affine, trained with simple natural gradient."""

    Config = PreconditionedConfig
    preconditioner = "simple"
    fields = (
        *AffineComponent.fields[:3],
        Field("<Alpha>", "float32", "alpha"),
        Field("<MaxChange>", "float32", "max_change", 0.0),
    )

    def set_update(self, config: PreconditionedConfig) -> None:
        require(config.alpha > 0, self, f"alpha must be above 0, got {config.alpha}")
        self.alpha, self.max_change = config.alpha, config.max_change

    def info(self) -> str:
        return f"{super().info()}, alpha={self.alpha:.6g}, max-change={self.max_change:.6g}"


@dataclass
class OnlineConfig(AffineConfig):
    """Online natural gradient: ranks of F on both sides, minibatches per update, samples of history, smoothing."""

    num_samples_history: float = 2000.0
    alpha: float = 4.0
    max_change_per_sample: float = 0.1
    rank_in: int = 30
    rank_out: int = 80
    update_period: int = 1


@register("AffineComponentPreconditionedOnline")
class AffineComponentPreconditionedOnline(AffineComponent):
    """Affine, trained with online natural gradient."""

    Config = OnlineConfig
    preconditioner = "online"
    fields = (
        *AffineComponent.fields[:3],
        Field("<RankIn>", "int32", "rank_in"),
        Field("<RankOut>", "int32", "rank_out"),
        Field("<UpdatePeriod>", "int32", "update_period", 1),
        Field("<NumSamplesHistory>", "float32", "num_samples_history"),
        Field("<Alpha>", "float32", "alpha"),
        Field("<MaxChangePerSample>", "float32", "max_change_per_sample"),
    )

    def set_update(self, config: OnlineConfig) -> None:
        for name in ("rank_in", "rank_out", "update_period", "num_samples_history"):
            require(getattr(config, name) > 0, self, f"{name.replace('_', '-')} must be above 0")
        require(config.alpha >= 0, self, f"alpha is negative: {config.alpha}")
        require(config.max_change_per_sample >= 0, self, "max-change-per-sample is negative")
        for name in ("rank_in", "rank_out", "update_period", "num_samples_history", "alpha", "max_change_per_sample"):
            setattr(self, name, getattr(config, name))

    def info(self) -> str:
        return (
            f"{super().info()}, rank-in={self.rank_in}, rank-out={self.rank_out}"
            f", num_samples_history={self.num_samples_history:.6g}, update_period={self.update_period}"
            f", alpha={self.alpha:.6g}, max-change-per-sample={self.max_change_per_sample:.6g}"
        )
