"""What every component of a network is: the contract, its registry, reading, writing and configuration.

Letters: N rows of a minibatch, D_in and D_out the dimensions of a component; x (N, D_in) its input, y (N, D_out) its
output, dy and dx the derivatives of the objective (to be *maximised*, summed over the minibatch) with respect to them.

**The contract**

- `type_name`       Kaldi's name, by which the class is registered: `@register("PnormComponent")`.
- `input_dim`, `output_dim`.
- `Config`          a dataclass of the options of a config line; `build(config, rng)` makes a component of it.
                    `from_config({"input-dim": "40"}, rng)` checks the options first.
- `fields`          the tokens of Kaldi's nnet2 form in order; `read` and `write` follow from them.
- `forward(x, out=None, chunks=None) -> y`
                    writes into `out` (N, D_out) where given (it may be a view with a longer row) and returns it.
                    Components that copy nothing may return a view of x when `out` is None; x and y may be the same
                    array where `forward_in_place`.
- `backward(x, y, dy, out=None, chunks=None) -> dx`
                    x may be None where `needs_x` is False, and y where `needs_y` is False. `out` (N, D_in) as above.
                    Neither method changes its arguments, but dy and dx may be the same array where `in_place`.
- `context`         frames needed for one frame of output, sorted; (0,) except in components that splice.
- `chunks`          how the rows are arranged in time (`Chunks`); only components with a context look at it.
- `copy()`, `to(xp)`, `astype(dtype)`: the same component, its arrays in another module or precision.
- `info()`          one line, as Kaldi's nnet-am-info prints it.
- `examples(rng)`   a few small instances: the conformance test (tests/test_components.py) runs over them.

**The column of ones.** A component with `takes_ones` gets x with D_in + 1 columns, the last of them all ones: its bias
is the last column of `params`, forward is one matrix product and the gradient another, and nothing is appended per
minibatch, because whoever computes x writes into the first D_in columns of a buffer whose last column was set to one
when it was made (`ngsgd.nnet.backprop`). dx has D_in columns.

**Parameters** (`UpdatableComponent`): one matrix `params` (rows, cols + 1), the bias in the last column, and a
`learning_rate`. Layer, preconditioner and step are separate (DESIGN): the layer hands back its gradient factored,

    gradient_factors(x, dy) -> [Factors(dy, x, params), ...]        d objective / d params = dyᵀ x

where `x` has its column of ones and `params` is a writable view of the part of the parameters that the product
belongs to: one entry for an affine layer, one a block for a block-diagonal one, rows = (frame, patch) for a
convolution. An update rule rewrites the two factors, then does `params += step * dyᵀ x` in place. Which rule a
component asks for is in `preconditioner` ("none", "simple" or "online"; its settings are attributes under their names
in Kaldi). Averaging and combining work on `params` directly.

**Statistics** (`StatisticsMixin`): `value_sum`, `deriv_sum` (float64, D or 0 long) and `count` are stored in models
and averaged with them. Training calls `accumulate(x, y)` once per minibatch; nothing else changes them.

A new layer type is one file in this folder; every module here is imported by `component_class`.
"""

import copy
import dataclasses
import functools
import importlib
import pkgutil
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ngsgd.backend import module_of, to_module
from ngsgd.errors import DataError
from ngsgd.options import convert, flag_name
from ngsgd.registry import Registry

_registry = Registry("component")
MISSING = object()
LARGEST_SIZE = 1 << 22


class Field(NamedTuple):
    """A token of the stored form and the value after it. `default` makes it optional in files (older Kaldi's)."""

    token: str
    kind: str  # method of the reader and writer: int32, float32, float64, bool, vector, matrix, int32_vector
    name: str  # attribute
    default: Any = MISSING


class Chunks(NamedTuple):
    """How rows are arranged: `count` chunks one after another, each with these frames, times relative to one origin.

    `inputs` and `outputs` are sorted int arrays: the times of a chunk's frames at a component's input and output.
    """

    count: int
    inputs: np.ndarray
    outputs: np.ndarray


class Factors(NamedTuple):
    """A gradient in factors: d objective / d params = dyᵀ x."""

    dy: Any  # (N, rows)
    x: Any  # (N, cols + 1), the last column ones
    params: Any  # (rows, cols + 1), a view into the component: change it in place


class Component:
    """Base class; see the module's docstring for the contract."""

    type_name: ClassVar[str]
    Config: ClassVar[type]
    fields: ClassVar[tuple[Field, ...]] = ()
    array_names: ClassVar[tuple[str, ...]] = ()  # attributes that move with `to` and `astype`
    may_be_infinite: ClassVar[tuple[str, ...]] = ()  # settings for which infinity means something
    needs_x: ClassVar[bool] = False
    needs_y: ClassVar[bool] = False
    takes_ones: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    forward_in_place: ClassVar[bool] = False
    context: tuple[int, ...] = (0,)
    input_dim: int
    output_dim: int

    # ---- made from a config line

    @classmethod
    def from_config(cls, options: dict[str, str], rng: np.random.Generator) -> "Component":
        """A component from the options of its config line. DataError naming unknown, missing or bad ones."""
        return cls.build(parse_config(cls, options), rng)

    @classmethod
    def build(cls, config: Any, rng: np.random.Generator) -> "Component":
        """A component from its parsed `Config`; random parameters are drawn from `rng`."""
        raise NotImplementedError

    @classmethod
    def examples(cls, rng: np.random.Generator) -> list["Component"]:
        """Small instances for the tests that all components pass."""
        raise NotImplementedError

    # ---- computation

    def forward(self, x: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        """y (N, D_out) from x (N, D_in)."""
        raise NotImplementedError

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Chunks | None = None) -> Any:
        """dx (N, D_in) from dy (N, D_out)."""
        raise NotImplementedError

    # ---- stored form

    @classmethod
    def read(cls, reader: Any) -> "Component":
        """Read what follows the opening tag, the closing tag included."""
        values = {}
        for token, kind, name, default in cls.fields:
            if default is not MISSING and reader.peek() != token:
                values[name] = default
                continue
            reader.expect(token)
            values[name] = getattr(reader, kind)()
        cls.read_end(reader)
        return cls.from_values(values, reader.name)

    @classmethod
    def read_end(cls, reader: Any) -> None:
        """Read the closing tag."""
        reader.expect(f"</{cls.type_name}>")

    @classmethod
    def from_values(cls, values: dict[str, Any], where: str) -> "Component":
        """A component from the stored values, by attribute name. DataError beginning with `where` if they are bad."""
        component = cls.__new__(cls)
        component.__dict__.update(values)
        component.check(where)
        return component

    def check(self, where: str) -> None:
        """Raise DataError unless the settings fit together; also the place to compute what follows from them."""

    def write(self, writer: Any) -> None:
        """Write the component, both tags included."""
        writer.token(f"<{self.type_name}>")
        for token, kind, name, _ in self.fields:
            writer.token(token)
            getattr(writer, kind)(getattr(self, name))
        writer.token(f"</{self.type_name}>")

    # ---- as a value

    def copy(self) -> "Component":
        """A deep copy."""
        return copy.deepcopy(self)

    def to(self, xp: Any) -> "Component":
        """This component with its arrays in module `xp`; itself, changed."""
        for name in self.array_names:
            setattr(self, name, to_module(getattr(self, name), xp))
        return self

    def astype(self, dtype: Any) -> "Component":
        """This component with its arrays in `dtype`; itself, changed (the tests use float64)."""
        for name in self.array_names:
            array = getattr(self, name)
            if array.dtype.kind == "f":
                setattr(self, name, array.astype(dtype))
        return self

    def info(self) -> str:
        """One line for people, in the words of Kaldi's nnet-am-info."""
        return f"{self.type_name}, input-dim={self.input_dim}, output-dim={self.output_dim}"


class UpdatableComponent(Component):
    """A component with trainable parameters: `params` (rows, cols + 1), the bias in the last column."""

    array_names = ("params",)
    preconditioner: ClassVar[str] = "none"
    is_gradient = False
    params: Any
    learning_rate: float

    @property
    def linear(self) -> Any:
        """The parameters without the bias, a view (rows, cols)."""
        return self.params[:, :-1]

    @property
    def bias(self) -> Any:
        """The bias, a view (rows,)."""
        return self.params[:, -1]

    @property
    def num_parameters(self) -> int:
        """How many parameters are trained."""
        return self.params.size

    @classmethod
    def from_values(cls, values: dict[str, Any], where: str) -> "UpdatableComponent":
        linear, bias = values.pop("linear"), values.pop("bias")
        if linear.shape[0] != bias.shape[0]:
            raise DataError(f"{where}: {cls.type_name}: {linear.shape[0]} rows of parameters, {bias.shape[0]} of bias")
        return super().from_values({"params": joined(linear, bias), **values}, where)

    def gradient_factors(self, x: Any, dy: Any) -> list[Factors]:
        """The gradient in factors; x (N, D_in + 1) with its column of ones, dy (N, D_out)."""
        raise NotImplementedError

    def info(self) -> str:
        spread = [float((part.astype(np.float64) ** 2).mean()) ** 0.5 for part in (self.linear, self.bias)]
        return (
            f"{super().info()}, linear-params-stddev={spread[0]:.6g}, bias-params-stddev={spread[1]:.6g}"
            f", learning-rate={self.learning_rate:.6g}"
        )


class StatisticsMixin:
    """Sums of the outputs and of the slope of the nonlinearity over training frames, stored with the model."""

    value_sum: np.ndarray
    deriv_sum: np.ndarray
    count: float

    def reset_statistics(self) -> None:
        """No frames seen."""
        self.value_sum, self.deriv_sum, self.count = np.zeros(0), np.zeros(0), 0.0

    def accumulate(self, x: Any, y: Any) -> None:
        """Add a minibatch: y (N, D) and, where the component has one, its slope."""
        xp = module_of(y)
        ones = xp.ones(len(y), y.dtype)
        self.value_sum = _added(self.value_sum, ones @ y)
        slope = self.slope_sum(x, y, ones)
        if slope is not None:
            self.deriv_sum = _added(self.deriv_sum, slope)
        self.count += len(y)

    def slope_sum(self, x: Any, y: Any, ones: Any) -> Any:
        """Sum over the rows of dy/dx, element by element (D,), or None for components that are not elementwise."""
        return None

    def add_statistics(self, scale: float, other: "StatisticsMixin") -> None:
        """Add `scale` times the statistics of another component of the same dimension."""
        if other.value_sum.size:
            self.value_sum = _added(self.value_sum, scale * other.value_sum)
        if other.deriv_sum.size:
            self.deriv_sum = _added(self.deriv_sum, scale * other.deriv_sum)
        self.count += scale * other.count

    def to(self, xp: Any) -> "StatisticsMixin":
        """The component with its arrays in module `xp`."""
        self.value_sum, self.deriv_sum = to_module(self.value_sum, xp), to_module(self.deriv_sum, xp)
        return super().to(xp)

    def scale_statistics(self, scale: float) -> None:
        """Multiply the statistics by a number."""
        self.value_sum, self.deriv_sum = self.value_sum * scale, self.deriv_sum * scale
        self.count *= scale


def _added(total: Any, more: Any) -> Any:
    more = more.astype(np.float64)
    return total + more if total.size else more


def joined(linear: Any, bias: Any) -> Any:
    """(rows, cols + 1) from a matrix and a bias vector."""
    xp = module_of(linear)
    params = xp.empty((linear.shape[0], linear.shape[1] + 1), linear.dtype)
    params[:, :-1], params[:, -1] = linear, bias
    return params


def result(out: Any, like: Any, columns: int) -> Any:
    """`out` where given, else a new array (N, columns) of the module and dtype of `like`."""
    return module_of(like).empty((len(like), columns), like.dtype) if out is None else out


def register(name: str) -> Any:
    """Class decorator: enter a component under Kaldi's type name."""

    def enter(cls: type[Component]) -> type[Component]:
        cls.type_name = name
        return _registry.register(name)(cls)

    return enter


@functools.cache
def all_components() -> Registry:
    """The registry, with every module of this folder imported."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return _registry


def component_class(name: str) -> type[Component]:
    """The class of a type name. DataError that lists the known ones."""
    return all_components()[name]


def read_component(reader: Any) -> Component:
    """The next component of a model file, its opening tag included."""
    tag = reader.token()
    if not (tag.startswith("<") and tag.endswith(">")):
        raise reader.error(f"expected the opening tag of a component, found '{tag[:40]}'")
    if tag[1:-1] not in all_components():
        raise reader.error(f"expected the opening tag of a component, found the unknown {tag[:40]}")
    return component_class(tag[1:-1]).read(reader)


def parse_config(cls: type[Component], options: dict[str, str]) -> Any:
    """An instance of `cls.Config` from option texts. DataError naming unknown, missing and bad options."""
    fields = {flag_name(f.name): f for f in dataclasses.fields(cls.Config)}
    for name in options:
        if name not in fields:
            raise DataError(f"{cls.type_name}: unknown option '{name}'; known: {', '.join(fields)}")
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in options]
    if missing:
        raise DataError(f"{cls.type_name}: needs {', '.join(m + '=' for m in missing)}")
    values = {}
    for option, text in options.items():
        name = fields[option].name
        values[name] = convert(cls.Config, name, text, f"{cls.type_name} {option}")
        if isinstance(values[name], int) and abs(values[name]) > LARGEST_SIZE:
            raise DataError(f"{cls.type_name} {option}: expected {LARGEST_SIZE} at most, got {text}")
    return cls.Config(**values)


def require_sane(size: int, cls: Any, where: str, what: str) -> None:
    """DataError for a size in a file, of something that is about to be made, that no network has."""
    if not 0 <= size <= LARGEST_SIZE:
        raise DataError(f"{where}: {cls.type_name}: expected {what} of at most {LARGEST_SIZE}, found {size}")


def require(condition: bool, cls: Any, message: str) -> None:
    """DataError "<component type>: <message>" unless the condition holds."""
    if not condition:
        raise DataError(f"{cls.type_name}: {message}")
