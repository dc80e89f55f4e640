"""Networks from Kaldi's config lines, and the config of the p-norm networks that this project trains by default.

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
from ngsgd.kaldi_io.files import open_bytes, open_text_writer
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.nnet.components.base import Component, component_class
from ngsgd.nnet.model import AmNnet, Nnet, read_nnet, write_model, write_nnet
from ngsgd.options import flag_name, opt

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


@dataclass
class PnormNetworkOptions:
    """A network of p-norm layers: shape, initial parameters, and settings of natural gradient."""

    feat_dim: int = opt(0, "dimension of the features, the i-vector not counted", at_least=1)
    ivector_dim: int = opt(0, "dimension of the i-vector in the last columns of the input; 0: none", at_least=0)
    num_targets: int = opt(0, "number of outputs: pdfs", at_least=1)
    left_context: int = opt(4, "frames before", at_least=0)
    right_context: int = opt(4, "frames after", at_least=0)
    lda_matrix: str = opt("", "file of the input transform (see nnet-get-feature-transform); none: no transform")
    hidden_layers: int = opt(2, "number of p-norm layers", at_least=1)
    pnorm_input_dim: int = opt(1000, "inputs of a p-norm layer", at_least=1)
    pnorm_output_dim: int = opt(200, "outputs of a p-norm layer", at_least=1)
    p: float = opt(2.0, "exponent of the p-norm", above=0)
    presoftmax_scales: str = opt("", "file with a vector of scales applied before the softmax; none: no scaling")
    learning_rate: float = opt(0.02, "initial learning rate, of one job", at_least=0)
    param_stddev_factor: float = opt(1.0, "initial parameters: this times pnorm-input-dim^-0.5", at_least=0)
    bias_stddev: float = opt(0.5, "initial biases of the hidden layers", at_least=0)
    update_rule: str = opt(
        "online",
        "online: online natural gradient; simple: natural gradient within a minibatch; sgd: plain gradient",
        choices=("online", "simple", "sgd"),
    )
    alpha: float = opt(4.0, "smoothing of the natural gradient, online and simple", at_least=0)
    num_samples_history: float = opt(2000.0, "online: samples of history", above=0)
    update_period: int = opt(4, "online: minibatches for each update of its statistics", at_least=1)
    rank_in: int = opt(20, "online: rank on the input side", at_least=1)
    rank_out: int = opt(80, "online: rank on the output side", at_least=1)
    max_change_per_sample: float = opt(
        0.075, "online: limit of the change of the parameters, per frame of a minibatch", at_least=0
    )
    max_change: float = opt(10.0, "simple: limit of the change of the parameters by a minibatch; 0: none", at_least=0)


def hidden_layer_config(options: PnormNetworkOptions, input_dim: int | None = None) -> str:
    """Config lines of one hidden layer; `input_dim` defaults to the output of another hidden layer."""
    stddev = options.param_stddev_factor * options.pnorm_input_dim**-0.5
    inputs = input_dim or options.pnorm_output_dim
    return _affine(options, inputs, options.pnorm_input_dim, stddev, options.bias_stddev) + (
        f"PnormComponent input-dim={options.pnorm_input_dim} output-dim={options.pnorm_output_dim} p={options.p:g}\n"
        f"NormalizeComponent dim={options.pnorm_output_dim}\n"
    )


def pnorm_config(options: PnormNetworkOptions) -> str:
    """Config lines of the whole network; the output layer starts at zero, so that all pdfs start equally likely.

    Raises DataError for dimensions that were not given or do not fit together.
    """
    for name in ("feat_dim", "num_targets", "hidden_layers", "pnorm_input_dim", "pnorm_output_dim"):
        if getattr(options, name) < 1:
            raise DataError(f"--{name.replace('_', '-')}: expected 1 or more, got {getattr(options, name)}")
    if options.pnorm_input_dim % options.pnorm_output_dim:
        raise DataError(
            f"--pnorm-input-dim={options.pnorm_input_dim}: not a multiple of "
            f"--pnorm-output-dim={options.pnorm_output_dim}"
        )
    left, right, ivector_dim = options.left_context, options.right_context, options.ivector_dim
    dim = options.feat_dim * (left + 1 + right) + ivector_dim
    lines = [
        f"SpliceComponent input-dim={options.feat_dim + ivector_dim} left-context={left} right-context={right} "
        f"const-component-dim={ivector_dim}\n"
    ]
    if options.lda_matrix:
        lines.append(f"FixedAffineComponent matrix={options.lda_matrix}\n")
        dim = _rows(options.lda_matrix, dim)
    for layer in range(options.hidden_layers):
        lines.append(hidden_layer_config(options, None if layer else dim))
    lines.append(_affine(options, options.pnorm_output_dim, options.num_targets, 0.0, 0.0))
    if options.presoftmax_scales:
        lines.append(f"FixedScaleComponent scales={options.presoftmax_scales}\n")
    lines.append(f"SoftmaxComponent dim={options.num_targets}\n")
    return "".join(lines)


def _rows(matrix_rxfilename: str, input_dim: int) -> int:
    """Outputs of the input transform; DataError when it does not take `input_dim` inputs and an offset."""
    with open_reader(matrix_rxfilename) as reader:
        rows, columns = reader.matrix().shape
    if columns != input_dim + 1:
        raise DataError(f"{matrix_rxfilename}: expected {input_dim} + 1 columns, for the spliced input, got {columns}")
    return rows


# The component types by which Kaldi names the update rules, and their settings.
_UPDATES = {
    "online": (
        "AffineComponentPreconditionedOnline",
        ("alpha", "num_samples_history", "update_period", "rank_in", "rank_out", "max_change_per_sample"),
    ),
    "simple": ("AffineComponentPreconditioned", ("alpha", "max_change")),
    "sgd": ("AffineComponent", ()),
}


def _affine(options: PnormNetworkOptions, input_dim: int, output_dim: int, stddev: float, bias_stddev: float) -> str:
    component, settings = _UPDATES[options.update_rule]
    words = [component, f"input-dim={input_dim}", f"output-dim={output_dim}"]
    words += [f"{flag_name(name)}={getattr(options, name):g}" for name in settings]
    words += [f"learning-rate={options.learning_rate:g}", f"param-stddev={stddev:.7g}", f"bias-stddev={bias_stddev:g}"]
    return " ".join(words) + "\n"


def write_pnorm_config(config_path: str, hidden_config_path: str, options: PnormNetworkOptions) -> None:
    """Write the config of the network, and, where a second path is given, that of one more hidden layer."""
    with open_text_writer(config_path) as stream:
        stream.write(pnorm_config(options))
    if hidden_config_path:
        with open_text_writer(hidden_config_path) as stream:
            stream.write(hidden_layer_config(options))
