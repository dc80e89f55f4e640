"""Networks and acoustic models in Kaldi's nnet2 form.

A raw network file holds an `Nnet`; a model file (`*.mdl`) a transition model, the network and the priors (P,) of the
pdfs (empty until they are estimated).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.nnet.components.base import Component, StatisticsMixin, UpdatableComponent, read_component


class Nnet:
    """A list of components whose dimensions chain. DataError, naming both components, where they do not."""

    def __init__(self, components: Iterable[Component], where: str = "network"):
        self.components = list(components)
        self.where = where
        self.check()

    def check(self) -> None:
        """Raise DataError unless there are components and their dimensions chain."""
        if not self.components:
            raise DataError(f"{self.where}: a network needs at least one component")
        for i, (a, b) in enumerate(zip(self.components, self.components[1:])):
            if a.output_dim != b.input_dim:
                raise DataError(
                    f"{self.where}: component {i} ({a.type_name}) outputs {a.output_dim}, "
                    f"but component {i + 1} ({b.type_name}) wants {b.input_dim}"
                )

    def __iter__(self) -> Iterator[Component]:
        return iter(self.components)

    def __len__(self) -> int:
        return len(self.components)

    def __getitem__(self, index: int) -> Component:
        return self.components[index]

    @property
    def input_dim(self) -> int:
        """Columns of a frame of input."""
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        """P, the number of pdfs."""
        return self.components[-1].output_dim

    @property
    def ivector_dim(self) -> int | None:
        """How many of the input's last columns are an i-vector; None when the network does not tell them apart."""
        return next((c.const_component_dim for c in self.components if getattr(c, "const_component_dim", 0)), None)

    @property
    def left_context(self) -> int:
        """L: frames needed before the first frame of output."""
        return -sum(c.context[0] for c in self.components)

    @property
    def right_context(self) -> int:
        """R: frames needed after the last frame of output."""
        return sum(c.context[-1] for c in self.components)

    @property
    def wanted_examples(self) -> dict[str, int | None]:
        """What examples must have to fit: keyword arguments of `ngsgd.egs.minibatch.read_minibatches`."""
        return {
            "left_context": self.left_context,
            "right_context": self.right_context,
            "input_dim": self.input_dim,
            "ivector_dim": self.ivector_dim,
            "num_pdfs": self.output_dim,
        }

    @property
    def updatable(self) -> list[UpdatableComponent]:
        """The components with trainable parameters, in order."""
        return [c for c in self.components if isinstance(c, UpdatableComponent)]

    @property
    def with_statistics(self) -> list[StatisticsMixin]:
        """The components that keep statistics, in order."""
        return [c for c in self.components if isinstance(c, StatisticsMixin)]

    @property
    def num_parameters(self) -> int:
        """How many parameters are trained."""
        return sum(c.num_parameters for c in self.updatable)

    @property
    def learning_rates(self) -> list[float]:
        """Of the updatable components, in order."""
        return [c.learning_rate for c in self.updatable]

    def set_learning_rates(self, rates: list[float]) -> None:
        """One for each updatable component."""
        assert len(rates) == len(self.updatable)
        for component, rate in zip(self.updatable, rates):
            component.learning_rate = rate

    def copy(self) -> "Nnet":
        """A deep copy."""
        return Nnet([c.copy() for c in self.components], self.where)

    def to(self, xp: Any) -> "Nnet":
        """This network with its arrays in module `xp` (numpy or cupy); itself, changed."""
        for component in self.components:
            component.to(xp)
        return self

    def info(self) -> str:
        """Lines for people, as Kaldi's nnet-am-info prints them."""
        lines = [
            f"num-components {len(self)}",
            f"num-updatable-components {len(self.updatable)}",
            f"left-context {self.left_context}",
            f"right-context {self.right_context}",
            f"input-dim {self.input_dim}",
            f"output-dim {self.output_dim}",
            f"parameter-dim {self.num_parameters}",
        ]
        return "\n".join(lines + [f"component {i} : {c.info()}" for i, c in enumerate(self.components)]) + "\n"

    def shape_difference(self, other: "Nnet") -> str:
        """Empty when both have the same types and dimensions, so that they can be averaged; else what differs."""
        if len(self) != len(other):
            return f"{self.where} has {len(self)} components, {other.where} has {len(other)}"
        for i, (a, b) in enumerate(zip(self, other)):
            if (a.type_name, a.input_dim, a.output_dim) != (b.type_name, b.input_dim, b.output_dim):
                return (
                    f"component {i} is {a.type_name} {a.input_dim} -> {a.output_dim} in {self.where}, "
                    f"{b.type_name} {b.input_dim} -> {b.output_dim} in {other.where}"
                )
        return ""

    @classmethod
    def read(cls, reader: Any) -> "Nnet":
        """From a TokenReader that stands at `<Nnet>`."""
        reader.expect("<Nnet>")
        reader.expect("<NumComponents>")
        count = reader.int32()
        reader.expect("<Components>")
        components = [read_component(reader) for _ in range(count)]
        reader.expect("</Components>")
        reader.expect("</Nnet>")
        return cls(components, reader.name)

    def write(self, writer: Any) -> None:
        """To a TokenWriter. The components' arrays must be on the CPU."""
        writer.token("<Nnet>")
        writer.token("<NumComponents>")
        writer.int32(len(self))
        writer.token("<Components>")
        for component in self.components:
            component.write(writer)
            writer.newline()
        writer.token("</Components>")
        writer.token("</Nnet>")


class AmNnet:
    """An acoustic model: transitions (None for a raw network), network, priors (P,) float32 (or empty)."""

    def __init__(self, transitions: TransitionModel | None, nnet: Nnet, priors: np.ndarray | None = None):
        self.transitions = transitions
        self.nnet = nnet
        self.priors = np.zeros(0, np.float32) if priors is None else priors
        if len(self.priors) not in (0, nnet.output_dim):
            raise DataError(f"{nnet.where}: {len(self.priors)} priors for a network of {nnet.output_dim} outputs")

    def check_outputs(self) -> None:
        """DataError unless the network has an output for each pdf of the transition model."""
        if self.nnet.output_dim != self.transitions.num_pdfs:
            raise DataError(
                f"{self.nnet.where}: the network has {self.nnet.output_dim} outputs, but the transition model "
                f"{self.transitions.num_pdfs} pdfs"
            )

    def check_finite(self) -> None:
        """DataError naming the component when there is NaN or infinity in a parameter, statistic, setting or prior."""
        for i, component in enumerate(self.nnet):
            for name, value in vars(component).items():
                if name in component.may_be_infinite:
                    continue
                if isinstance(value, np.ndarray | float) and not np.isfinite(value).all():
                    what = f"the {name} of component {i} ({component.type_name})"
                    raise DataError(f"{self.nnet.where}: NaN or infinity in {what}: take an earlier model")
        if not np.isfinite(self.priors).all():
            raise DataError(f"{self.nnet.where}: NaN or infinity in the priors: nnet-adjust-priors computes them anew")

    def copy(self) -> "AmNnet":
        """A copy that shares the transition model, which nothing changes in place."""
        return AmNnet(self.transitions, self.nnet.copy(), self.priors.copy())

    def info(self) -> str:
        """Lines for people, as Kaldi's nnet-am-info prints them."""
        text = f"{self.nnet.info()}prior dimension: {len(self.priors)}"
        if len(self.priors):
            text += f", prior sum: {self.priors.sum(dtype=np.float64):.6g}, prior min: {self.priors.min():.6g}"
        return text + "\n"


def read_any(rxfilename: str, finite: bool = True) -> AmNnet:
    """A model file, or a raw network file as a model without transitions. DataError as in `read_model`."""
    with open_reader(rxfilename) as reader:
        transitions = None if reader.peek() == "<Nnet>" else TransitionModel.read(reader)
        nnet = Nnet.read(reader)
        model = AmNnet(transitions, nnet, reader.vector().astype(np.float32, copy=False) if transitions else None)
    if finite:
        model.check_finite()
    return model


def read_model(rxfilename: str, finite: bool = True) -> AmNnet:
    """A model file. DataError when it is none, damaged, or its parts do not fit together.

    Also when there is NaN or infinity in it, unless `finite` is False.
    """
    model = read_any(rxfilename, finite)
    if model.transitions is None:
        raise DataError(f"{rxfilename}: a raw network; a model with transitions is wanted (see nnet-am-init)")
    return model


def write_model(model: AmNnet, wxfilename: str, binary: bool = True, finite: bool = True) -> None:
    """Write a model file, or a raw network file for a model without transitions, whole or not at all.

    DataError when there is NaN or infinity in it, unless `finite` is False.
    """
    if finite:
        model.check_finite()
    with open_writer(wxfilename, binary) as writer:
        if model.transitions is not None:
            model.transitions.write(writer)
        model.nnet.write(writer)
        if model.transitions is not None:
            writer.vector(model.priors.astype(np.float32, copy=False))


def read_nnet(rxfilename: str) -> Nnet:
    """The network of a raw network file or of a model file. DataError as in `read_model`."""
    return read_any(rxfilename).nnet


def write_nnet(nnet: Nnet, wxfilename: str, binary: bool = True) -> None:
    """Write a raw network file, whole or not at all."""
    write_model(AmNnet(None, nnet), wxfilename, binary)
