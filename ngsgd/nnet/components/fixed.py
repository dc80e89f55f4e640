"""Components with parameters that training leaves alone: scales, biases, linear and affine transforms."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.nnet.blas import times, times_transposed
from ngsgd.nnet.components.affine import read_matrix
from ngsgd.nnet.components.base import Component, Field, register, require, result


@dataclass
class ScaleConfig:
    """Dimension, and the number to multiply by."""

    dim: int
    scale: float


@register("ScaleComponent")
class ScaleComponent(Component):
    """y = scale x."""

    Config = ScaleConfig
    in_place = True
    fields = (Field("<Dim>", "int32", "dim"), Field("<Scale>", "float32", "scale"))

    @classmethod
    def build(cls, config: ScaleConfig, rng: np.random.Generator) -> "ScaleComponent":
        require(config.scale != 0, cls, "scale must not be 0")
        return cls.from_values(dict(vars(config)), "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["ScaleComponent"]:
        return [cls.build(ScaleConfig(5, 0.5), rng)]

    def check(self, where: str) -> None:
        if self.dim < 1:
            raise DataError(f"{where}: {self.type_name}: dim must be above 0, got {self.dim}")
        self.input_dim = self.output_dim = self.dim

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).multiply(x, x.dtype.type(self.scale), out=result(out, x, self.dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return self.forward(dy, out)

    def info(self) -> str:
        return f"{self.type_name}, dim={self.dim}, scale={self.scale:.6g}"


@dataclass
class ScalesConfig:
    """File with the scales, a vector."""

    scales: str


class VectorComponent(Component):
    """Holds one vector (D,), named `values`."""

    in_place = True
    array_names = ("values",)
    what = ""  # in Kaldi's info line

    @classmethod
    def build(cls, config: Any, rng: np.random.Generator) -> "VectorComponent":
        (path,) = vars(config).values()
        with open_reader(path) as reader:
            return cls.from_values({"values": reader.vector().astype(np.float32, copy=False)}, path)

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["VectorComponent"]:
        return [cls.from_values({"values": rng.standard_normal(5, np.float32)}, "example")]

    def check(self, where: str) -> None:
        if not self.values.size:
            raise DataError(f"{where}: {self.type_name}: the vector is empty")
        self.input_dim = self.output_dim = len(self.values)

    def _mean_and_spread(self) -> tuple[float, float]:
        values = self.values.astype(np.float64)
        return float(values.mean()), float(values.std())

    def info(self) -> str:
        mean, spread = self._mean_and_spread()
        return f"{super().info()}, {self.what}-mean={mean:.6g}, {self.what}-stddev={spread:.6g}"


@register("FixedScaleComponent")
class FixedScaleComponent(VectorComponent):
    """y_d = scale_d x_d."""

    Config = ScalesConfig
    what = "scales"
    fields = (Field("<Scales>", "vector", "values"),)

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).multiply(x, self.values, out=result(out, x, self.input_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return self.forward(dy, out)


@dataclass
class BiasConfig:
    """File with the bias, a vector."""

    bias: str


@register("FixedBiasComponent")
class FixedBiasComponent(VectorComponent):
    """y_d = x_d + bias_d."""

    Config = BiasConfig
    what = "bias"
    fields = (Field("<Bias>", "vector", "values"),)

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return module_of(x).add(x, self.values, out=result(out, x, self.input_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        if out is None:
            return dy
        out[...] = dy
        return out


@dataclass
class MatrixConfig:
    """File with the matrix."""

    matrix: str


@register("FixedLinearComponent")
class FixedLinearComponent(Component):
    """y = x Mᵀ."""

    Config = MatrixConfig
    array_names = ("linear",)
    fields = (Field("<CuMatrix>", "matrix", "linear"),)

    @classmethod
    def build(cls, config: MatrixConfig, rng: np.random.Generator) -> "FixedLinearComponent":
        return cls.from_values({"linear": read_matrix(config.matrix, cls)}, config.matrix)

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["FixedLinearComponent"]:
        return [cls.from_values({"linear": rng.standard_normal((3, 5), np.float32)}, "example")]

    def check(self, where: str) -> None:
        if not self.linear.size:
            raise DataError(f"{where}: {self.type_name}: the matrix is empty")
        self.output_dim, self.input_dim = self.linear.shape

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        return times_transposed(x, self.linear, result(out, x, self.output_dim))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        return times(dy, self.linear, out)

    def info(self) -> str:
        return f"{super().info()}, params-stddev={_root_mean_square(self.linear):.6g}"


@register("FixedAffineComponent")
class FixedAffineComponent(FixedLinearComponent):
    """y = x Mᵀ + b; the file holds [M b]. The input transform of most networks."""

    array_names = ("linear", "bias")
    fields = (Field("<LinearParams>", "matrix", "linear"), Field("<BiasParams>", "vector", "bias"))

    @classmethod
    def build(cls, config: MatrixConfig, rng: np.random.Generator) -> "FixedAffineComponent":
        return cls.of_matrix(read_matrix(config.matrix, cls), config.matrix)

    @classmethod
    def of_matrix(cls, matrix: np.ndarray, where: str) -> "FixedAffineComponent":
        """From [M b], (D_out, D_in + 1)."""
        if matrix.shape[1] < 2:
            raise DataError(f"{where}: {cls.type_name}: needs a matrix of 2 or more columns, the last one the bias")
        return cls.from_values({"linear": matrix[:, :-1].copy(), "bias": matrix[:, -1].copy()}, where)

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["FixedAffineComponent"]:
        return [cls.of_matrix(rng.standard_normal((3, 6), np.float32), "example")]

    def check(self, where: str) -> None:
        super().check(where)
        if len(self.bias) != self.output_dim:
            raise DataError(f"{where}: {self.type_name}: {self.output_dim} rows, but a bias of {len(self.bias)}")

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        y = super().forward(x, out)
        y += self.bias
        return y

    def info(self) -> str:
        return (
            f"{Component.info(self)}, linear-params-stddev={_root_mean_square(self.linear):.6g}"
            f", bias-params-stddev={_root_mean_square(self.bias):.6g}"
        )


def _root_mean_square(values: Any) -> float:
    return float((values.astype(np.float64) ** 2).mean()) ** 0.5
