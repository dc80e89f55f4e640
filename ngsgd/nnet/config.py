"""Networks from Kaldi's config lines; network.py writes those of the networks that this project trains.

A line is a component type and `name=value` options; `#` begins a comment line. Example:

    SpliceComponent input-dim=40 left-context=4 right-context=4
    AffineComponentPreconditionedOnline input-dim=360 output-dim=1000 learning-rate=0.02 param-stddev=0.03
"""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.topology import read_topology
from ngsgd.hmm.transitions import TransitionModel, read_transition_model
from ngsgd.hmm.tree import read_tree
from ngsgd.kaldi_io.files import open_bytes
from ngsgd.nnet.components.base import Component, component_class
from ngsgd.nnet.model import AmNnet, Nnet, read_nnet, write_model, write_nnet
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class NnetInitOptions:
    """How to initialise a network."""

    srand: int = opt(0, "seed of the random parameters; the same seed gives the same bytes", at_least=0)
    binary: bool = opt(True, "write in binary form")


@dataclass
class WriteOptions:
    """How to write a model."""

    binary: bool = opt(True, "write in binary form")


def component_from_line(line: str, rng: np.random.Generator) -> Component:
    """The component of a config line. DataError for an unknown type, and for unknown, repeated or bad options."""
    name, *words = line.split()
    cls = component_class(name)
    options: dict[str, str] = {}
    for word in words:
        option, equals, value = word.partition("=")
        if not equals:
            raise DataError(f"{name}: expected name=value, got '{word}'")
        if option in options:
            raise DataError(f"{name}: option '{option}' is given twice")
        options[option] = value
    return cls.from_config(options, rng)


def nnet_from_config(text: str, seed: int, where: str = "config") -> Nnet:
    """A network from the text of a config; component i draws its parameters from the generator of (seed, i)."""
    components: list[Component] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            components.append(component_from_line(line, np.random.default_rng([seed, len(components)])))
        except DataError as error:
            raise DataError(f"{where}:{number}: {error}") from None
        except MemoryError as error:
            raise DataError(f"{where}:{number}: too large for the memory of this machine: {error}") from None
    return Nnet(components, where)


def initialise(config_rxfilename: str, nnet_wxfilename: str, options: NnetInitOptions) -> None:
    """Write a raw network made from a config file, as Kaldi's nnet-init."""
    if options.srand < 0:
        raise DataError(f"--srand: expected 0 or more, got {options.srand}")
    with open_bytes(config_rxfilename) as stream:
        data = stream.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{config_rxfilename}: not a text file: byte 0x{data[error.start]:02x}") from None
    nnet = nnet_from_config(text, options.srand, config_rxfilename)
    write_nnet(nnet, nnet_wxfilename, options.binary)
    log.info("initialised a network of %d components, %d parameters", len(nnet), nnet.num_parameters)


def initialise_model(
    sources: tuple[str, ...], nnet_rxfilename: str, model_wxfilename: str, options: WriteOptions
) -> None:
    """Write a model of a transition model and a raw network, as Kaldi's nnet-am-init.

    `sources` is (tree, topology), for a new transition model, or (model,), to take that of a model. DataError when
    the network's outputs are not the transition model's pdfs.
    """
    if len(sources) == 1:
        transitions = read_transition_model(sources[0])
    elif len(sources) == 2:
        transitions = TransitionModel.from_tree(read_tree(sources[0]), read_topology(sources[1]))
    else:
        raise DataError(f"expected a tree and a topology, or a model, before the network, got {', '.join(sources)}")
    nnet = read_nnet(nnet_rxfilename)
    if nnet.output_dim != transitions.num_pdfs:
        raise DataError(
            f"{nnet_rxfilename}: the network has {nnet.output_dim} outputs, "
            f"but {sources[0]} has {transitions.num_pdfs} pdfs"
        )
    write_model(AmNnet(transitions, nnet), model_wxfilename, options.binary)
    log.info("initialised a model of %d pdfs, %d parameters", nnet.output_dim, nnet.num_parameters)
