"""Components that look at several frames: splicing, and the maximum over frames.

Rows are chunks one after another, `chunks.inputs` frames each at the input and `chunks.outputs` at the output
(`base.Chunks`); the frame at output time t is made of the input frames at t + c for every c of the context.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.backend import module_of
from ngsgd.errors import DataError
from ngsgd.nnet.components.base import Chunks, Component, Field, register, require, require_sane, result
from ngsgd.nnet.components.pooling import parse_ints


def context_of_config(cls: Any, config: Any) -> tuple[int, ...]:
    """The context from `context=-3:0:3`, or from left-context and right-context, exactly one of the two."""
    ranged = config.left_context >= 0 and config.right_context >= 0
    require(ranged != bool(config.context), cls, "needs context=, or left-context= and right-context=")
    if ranged:
        return tuple(range(-config.left_context, config.right_context + 1))
    return tuple(parse_ints(cls, "context", config.context))


def input_rows(chunks: Chunks, context: tuple[int, ...]) -> np.ndarray:
    """(len(context), chunks.outputs): which frame of a chunk, counted from 0, each output frame takes."""
    times = chunks.outputs[None, :] + np.asarray(context)[:, None]
    rows = np.searchsorted(chunks.inputs, times)
    assert np.array_equal(chunks.inputs[np.minimum(rows, len(chunks.inputs) - 1)], times), "a frame is missing"
    return rows


def index_of(rows: np.ndarray, like: Any) -> Any:
    """Increasing indices as a slice where they are consecutive (a view instead of a copy), else where `like` is."""
    if len(rows) == rows[-1] - rows[0] + 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return module_of(like).asarray(rows)


class ContextComponent(Component):
    """Holds the context; older Kaldi stored its two ends."""

    @classmethod
    def read(cls, reader: Any) -> "ContextComponent":
        first, *rest = cls.fields
        values = {}
        reader.expect(first.token)
        values[first.name] = getattr(reader, first.kind)()
        if reader.expect("<Context>", "<LeftContext>") == "<LeftContext>":
            left = reader.int32()
            reader.expect("<RightContext>")
            right = reader.int32()
            require_sane(left + right + 1, cls, reader.name, "frames of context")
            values["context"] = np.arange(-left, right + 1)
        else:
            values["context"] = reader.int32_vector()
        for token, kind, name, _ in rest[1:]:
            reader.expect(token)
            values[name] = getattr(reader, kind)()
        cls.read_end(reader)
        return cls.from_values(values, reader.name)

    def check(self, where: str) -> None:
        self.context = tuple(int(c) for c in self.context)
        if not self.context or list(self.context) != sorted(set(self.context)):
            raise DataError(f"{where}: {self.type_name}: the context must be increasing, got {list(self.context)}")
        if self.context[0] > 0 or self.context[-1] < 0:
            raise DataError(f"{where}: {self.type_name}: the context must span 0, got {list(self.context)}")

    @property
    def contiguous(self) -> bool:
        """Whether the context has no gaps."""
        return len(self.context) == self.context[-1] - self.context[0] + 1

    def free_of_copies(self, chunks: Chunks) -> bool:
        """Whether `forward` without an `out` returns a view of x."""
        return False

    def _in_chunks(self, x: Any, chunks: Chunks, frames: np.ndarray) -> Any:
        return x.reshape(chunks.count, len(frames), -1)

    def info(self) -> str:
        return f"{super().info()}, context=" + "".join(f"{c} " for c in self.context)


@dataclass
class SpliceConfig:
    """Input dimension, context (either form), and how many of the last columns are constant over time."""

    input_dim: int
    context: str = ""
    left_context: int = -1
    right_context: int = -1
    const_component_dim: int = 0


@register("SpliceComponent")
class SpliceComponent(ContextComponent):
    """The frames of the context side by side; the last const_component_dim columns (an i-vector) once, at the end."""

    Config = SpliceConfig
    fields = (
        Field("<InputDim>", "int32", "input_dim"),
        Field("<Context>", "int32_vector", "context"),
        Field("<ConstComponentDim>", "int32", "const_component_dim"),
    )

    @classmethod
    def build(cls, config: SpliceConfig, rng: np.random.Generator) -> "SpliceComponent":
        values = {"input_dim": config.input_dim, "context": context_of_config(cls, config)}
        return cls.from_values({**values, "const_component_dim": config.const_component_dim}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["SpliceComponent"]:
        contexts = ((-1, 0, 1), (-2, 0, 1), (0,))
        return [
            cls.from_values({"input_dim": 5, "context": c, "const_component_dim": e}, "example")
            for c in contexts
            for e in (0, 2)
        ]

    def check(self, where: str) -> None:
        super().check(where)
        if not 0 <= self.const_component_dim < self.input_dim:
            raise DataError(
                f"{where}: {self.type_name}: const-component-dim={self.const_component_dim}, "
                f"input-dim={self.input_dim}: the first must be smaller and not negative"
            )

    @property
    def output_dim(self) -> int:
        """Every spliced column once a frame of the context, then the constant ones."""
        return (self.input_dim - self.const_component_dim) * len(self.context) + self.const_component_dim

    def forward(self, x: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        if out is None and self.free_of_copies(chunks):
            return x.reshape(chunks.count, -1)
        y = result(out, x[: chunks.count * len(chunks.outputs)], self.output_dim)
        x3, y3 = self._in_chunks(x, chunks, chunks.inputs), self._in_chunks(y, chunks, chunks.outputs)
        dim = self.input_dim - self.const_component_dim
        for c, rows in enumerate(input_rows(chunks, self.context)):
            y3[:, :, c * dim : (c + 1) * dim] = x3[:, index_of(rows, x), :dim]
        if self.const_component_dim:
            y3[:, :, -self.const_component_dim :] = x3[:, self._constant_rows(chunks), dim:]
        return y

    def free_of_copies(self, chunks: Chunks) -> bool:
        """One output frame a chunk, made of all of the chunk: the rows already lie as wanted, and y is a view of x."""
        return not self.const_component_dim and len(chunks.outputs) == 1 and len(chunks.inputs) == len(self.context)

    def _constant_rows(self, chunks: Chunks) -> slice:
        """Where the constant columns of an output frame come from: as in Kaldi, the first frames of the chunk.

        That matters only when they are not quite constant: i-vectors that change every few frames.
        """
        return slice(0, len(chunks.outputs))

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        xp = module_of(dy)
        shape = (chunks.count * len(chunks.inputs), self.input_dim)
        dx = xp.empty(shape, dy.dtype) if out is None else out
        dx[...] = 0
        dx3, dy3 = self._in_chunks(dx, chunks, chunks.inputs), self._in_chunks(dy, chunks, chunks.outputs)
        dim = self.input_dim - self.const_component_dim
        for c, rows in enumerate(input_rows(chunks, self.context)):
            dx3[:, index_of(rows, dy), :dim] += dy3[:, :, c * dim : (c + 1) * dim]
        if self.const_component_dim:
            dx3[:, self._constant_rows(chunks), dim:] = dy3[:, :, -self.const_component_dim :]
        return dx

    def info(self) -> str:
        constant = f", const_component_dim={self.const_component_dim}" if self.const_component_dim else ""
        return super().info() + constant


@dataclass
class SpliceMaxConfig:
    """Dimension and context (either form)."""

    dim: int
    context: str = ""
    left_context: int = -1
    right_context: int = -1


@register("SpliceMaxComponent")
class SpliceMaxComponent(ContextComponent):
    """The largest value of each column over the frames of the context; the derivative goes to the first largest."""

    Config = SpliceMaxConfig
    needs_x = True
    fields = (Field("<Dim>", "int32", "dim"), Field("<Context>", "int32_vector", "context"))

    @classmethod
    def build(cls, config: SpliceMaxConfig, rng: np.random.Generator) -> "SpliceMaxComponent":
        return cls.from_values({"dim": config.dim, "context": context_of_config(cls, config)}, "config")

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["SpliceMaxComponent"]:
        return [cls.from_values({"dim": 5, "context": c}, "example") for c in ((-1, 0, 1), (-2, 0, 1))]

    def check(self, where: str) -> None:
        super().check(where)
        if self.dim < 1:
            raise DataError(f"{where}: {self.type_name}: dim must be above 0, got {self.dim}")
        self.input_dim = self.output_dim = self.dim

    def forward(self, x: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        xp = module_of(x)
        y = result(out, x[: chunks.count * len(chunks.outputs)], self.dim)
        x3, y3 = self._in_chunks(x, chunks, chunks.inputs), self._in_chunks(y, chunks, chunks.outputs)
        first, *others = (index_of(rows, x) for rows in input_rows(chunks, self.context))
        y3[...] = x3[:, first]
        for rows in others:
            xp.maximum(y3, x3[:, rows], out=y3)
        return y

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        xp = module_of(dy)
        dx = xp.empty((chunks.count * len(chunks.inputs), self.dim), dy.dtype) if out is None else out
        dx[...] = 0
        x3, dx3 = (self._in_chunks(a, chunks, chunks.inputs) for a in (x, dx))
        dy3 = self._in_chunks(dy, chunks, chunks.outputs)
        indices = [index_of(rows, x) for rows in input_rows(chunks, self.context)]
        best = xp.stack([x3[:, rows] for rows in indices]).argmax(axis=0)  # (chunks, outputs, D)
        for c, rows in enumerate(indices):
            dx3[:, rows] += dy3 * (best == c)
        return dx
