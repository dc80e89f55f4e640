"""Block-diagonal affine layers: block b of the output from block b of the input."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.affine import LayerConfig, initial_params
from ngsgd.nnet.components.base import Factors, Field, UpdatableComponent, register, require, result


@dataclass
class BlockAffineConfig(LayerConfig):
    """Block-diagonal: the number of equal blocks."""

    num_blocks: int = 1


@register("BlockAffineComponent")
class BlockAffineComponent(UpdatableComponent):
    """Block-diagonal affine: block b of y from block b of x. `params` (D_out, D_in / B + 1), block above block."""

    Config = BlockAffineConfig
    takes_ones = True
    needs_x = True
    fields = (
        Field("<LearningRate>", "float32", "learning_rate"),
        Field("<NumBlocks>", "int32", "num_blocks"),
        Field("<LinearParams>", "matrix", "linear"),
        Field("<BiasParams>", "vector", "bias"),
    )

    @classmethod
    def build(cls, config: BlockAffineConfig, rng: np.random.Generator) -> "BlockAffineComponent":
        require(config.num_blocks > 0, cls, "num-blocks must be above 0")
        for what, dim in (("input-dim", config.input_dim), ("output-dim", config.output_dim)):
            divides = dim % config.num_blocks == 0
            require(divides, cls, f"{what}={dim} is not a multiple of num-blocks={config.num_blocks}")
        component = cls.__new__(cls)
        component.params = initial_params(cls, config, rng, config.num_blocks)
        component.learning_rate, component.num_blocks = config.learning_rate, config.num_blocks
        component.set_update(config)
        return component

    def set_update(self, config: Any) -> None:
        """Take the settings of the update from the configuration."""

    def check(self, where: str) -> None:
        rows = self.params.shape[0]
        if self.num_blocks < 1 or rows % self.num_blocks:
            raise DataError(f"{where}: {self.type_name}: {rows} rows of parameters in {self.num_blocks} blocks")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["BlockAffineComponent"]:
        return [cls.build(cls.Config(6, 4, num_blocks=2), rng), cls.build(cls.Config(3, 6, num_blocks=3), rng)]

    @property
    def input_dim(self) -> int:
        """D_in, the column of ones not counted."""
        return (self.params.shape[1] - 1) * self.num_blocks

    @property
    def output_dim(self) -> int:
        """D_out."""
        return self.params.shape[0]

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Columns of x, columns of y (= rows of the parameters), for each block."""
        d_in, d_out = self.params.shape[1] - 1, self.params.shape[0] // self.num_blocks
        return [(slice(b * d_in, (b + 1) * d_in), slice(b * d_out, (b + 1) * d_out)) for b in range(self.num_blocks)]

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = result(out, x, self.output_dim)
        for columns, rows in self._blocks():
            y[:, rows] = x[:, columns] @ self.linear[rows].T
        y += self.bias
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        dx = result(out, dy, self.input_dim)
        for columns, rows in self._blocks():
            dx[:, columns] = dy[:, rows] @ self.linear[rows]
        return dx

    def gradient_factors(self, x: Any, dy: Any) -> list[Factors]:
        return [Factors(dy[:, r], module_of(x).hstack((x[:, c], x[:, -1:])), self.params[r]) for c, r in self._blocks()]

    def info(self) -> str:
        # Kaldi prints no more than this for block-diagonal components.
        return f"{super(UpdatableComponent, self).info()}, learning-rate={self.learning_rate:.6g}"


@dataclass
class BlockPreconditionedConfig(BlockAffineConfig):
    """Simple natural gradient in each block: smoothing alpha."""

    alpha: float = 4.0


@register("BlockAffineComponentPreconditioned")
class BlockAffineComponentPreconditioned(BlockAffineComponent):
    """Block-diagonal affine, trained with simple natural gradient."""

    Config = BlockPreconditionedConfig
    preconditioner = "simple"
    max_change = 0.0
    fields = (
        *BlockAffineComponent.fields,
        Field("<Alpha>", "float32", "alpha"),
        Field("<IsGradient>", "bool", "is_gradient", False),
    )

    def set_update(self, config: BlockPreconditionedConfig) -> None:
        require(config.alpha > 0, self, f"alpha must be above 0, got {config.alpha}")
        self.alpha = config.alpha
