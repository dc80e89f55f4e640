"""Config lines of the networks that this project trains: hidden layers of one kind, context at the input or further in.

    splice (features, i-vector) -> input transform -> hidden layer 0 -> ... -> hidden layer H - 1 -> affine -> softmax

A hidden layer is an affine component, its nonlinearity, and, behind one whose outputs have no bound (p-norm, maxout,
rectified linear), a normalisation of the frame's outputs, without which natural gradient can diverge (Zhang, Trmal,
Povey, Khudanpur, "Improving deep neural network acoustic models using generalized maxout networks", ICASSP 2014).

With splice indexes, "layer0/-2:-1:0:1:2 layer1/-3:1", a layer sees the outputs of the layer below at these frames,
relative to its own; the network's context is the sum of theirs (Peddinti, Povey, Khudanpur, "A time delay neural
network architecture for efficient modeling of long temporal contexts", Interspeech 2015).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.options import flag_name, opt


@dataclass
class NetworkOptions:
    """A network: shape, initial parameters, and how its layers are trained."""

    feat_dim: int = opt(0, "dimension of the features, the i-vector not counted", at_least=1)
    ivector_dim: int = opt(0, "dimension of the i-vector in the last columns of the input; 0: none", at_least=0)
    num_targets: int = opt(0, "number of outputs: pdfs", at_least=1)
    left_context: int = opt(4, "frames before", at_least=0)
    right_context: int = opt(4, "frames after", at_least=0)
    splice_indexes: str = opt(
        "", "frames that layers see, in place of these contexts: 'layer0/-2:-1:0:1:2 layer1/-3:1' for example"
    )
    lda_matrix: str = opt("", "file of the input transform (see nnet-get-feature-transform); none: no transform")
    hidden_layers: int = opt(2, "number of hidden layers", at_least=1)
    nonlinearity: str = opt("pnorm", "kind of the hidden layers", choices=("pnorm", "maxout", "relu", "tanh"))
    pnorm_input_dim: int = opt(1000, "inputs of a p-norm or maxout layer", at_least=1)
    pnorm_output_dim: int = opt(200, "outputs of a p-norm or maxout layer", at_least=1)
    p: float = opt(2.0, "exponent of the p-norm", above=0)
    hidden_dim: int = opt(512, "neurons of a relu or tanh layer", at_least=1)
    presoftmax_scales: str = opt("", "file with a vector of scales applied before the softmax; none: no scaling")
    learning_rate: float = opt(0.02, "initial learning rate, of one job", at_least=0)
    param_stddev_factor: float = opt(
        1.0, "initial parameters: this times (inputs of the nonlinearity)^-0.5", at_least=0
    )
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

    @property
    def in_groups(self) -> bool:
        """Whether the nonlinearity has fewer outputs than inputs."""
        return self.nonlinearity in ("pnorm", "maxout")

    @property
    def affine_dim(self) -> int:
        """Outputs of a hidden layer's affine component."""
        return self.pnorm_input_dim if self.in_groups else self.hidden_dim

    @property
    def layer_dim(self) -> int:
        """Outputs of a hidden layer."""
        return self.pnorm_output_dim if self.in_groups else self.hidden_dim

    @property
    def contexts(self) -> list[tuple[int, ...]]:
        """For each hidden layer, the frames that it sees; (0,) where it is one."""
        return contexts(self.splice_indexes, self.left_context, self.right_context, self.hidden_layers)

    def check(self) -> None:
        """Raise DataError for dimensions that were not given or do not fit together."""
        for name in ("feat_dim", "num_targets", "hidden_layers", "pnorm_input_dim", "pnorm_output_dim", "hidden_dim"):
            if getattr(self, name) < 1:
                raise DataError(f"--{flag_name(name)}: expected 1 or more, got {getattr(self, name)}")
        if self.in_groups and self.pnorm_input_dim % self.pnorm_output_dim:
            raise DataError(
                f"--pnorm-input-dim={self.pnorm_input_dim}: not a multiple of "
                f"--pnorm-output-dim={self.pnorm_output_dim}"
            )


def contexts(splice_indexes: str, left: int, right: int, layers: int) -> list[tuple[int, ...]]:
    """The frames that each hidden layer sees. DataError for a text that is none, a layer that is not there or twice."""
    if not splice_indexes:
        return [tuple(range(-left, right + 1))] + [(0,)] * (layers - 1)
    found: dict[int, tuple[int, ...]] = {}
    for word in splice_indexes.split():
        match = re.fullmatch(r"layer(\d+)/(-?\d+(?::-?\d+)*)", word)
        frames = tuple(map(int, match[2].split(":"))) if match else ()
        if list(frames) != sorted(set(frames)) or not frames or frames[0] > 0 or frames[-1] < 0:
            raise DataError(
                f"--splice-indexes: expected layerL/FRAMES, increasing and from 0 or less to 0 or more, as "
                f"layer1/-3:1, got '{word}'"
            )
        if int(match[1]) >= layers or int(match[1]) in found:
            raise DataError(
                f"--splice-indexes: '{word}', expected each of the {layers} layers, counted from 0, once at most"
            )
        found[int(match[1])] = frames
    if 0 not in found:
        raise DataError(f"--splice-indexes={splice_indexes}: expected frames of layer0, too")
    return [found.get(layer, (0,)) for layer in range(layers)]


def hidden_layer_config(options: NetworkOptions, layer: int = 1, input_dim: int | None = None) -> str:
    """Config lines of hidden layer `layer`; `input_dim` (of one frame) defaults to the output of another one."""
    frames = options.contexts[layer] if 0 < layer < options.hidden_layers else (0,)
    inputs = input_dim or options.layer_dim
    lines = []
    if frames != (0,):
        lines.append(f"SpliceComponent input-dim={inputs} context={':'.join(map(str, frames))}\n")
    stddev = options.param_stddev_factor * options.affine_dim**-0.5
    lines.append(_affine(options, inputs * len(frames), options.affine_dim, stddev, options.bias_stddev))
    dims = f"input-dim={options.affine_dim} output-dim={options.layer_dim}"
    dim = f"dim={options.layer_dim}"
    lines.append(
        {
            "pnorm": f"PnormComponent {dims} p={options.p:g}\n",
            "maxout": f"MaxoutComponent {dims}\n",
            "relu": f"RectifiedLinearComponent {dim}\n",
            "tanh": f"TanhComponent {dim}\n",
        }[options.nonlinearity]
    )
    if options.nonlinearity != "tanh":
        lines.append(f"NormalizeComponent {dim}\n")
    return "".join(lines)


def network_config(options: NetworkOptions, layers: int | None = None) -> str:
    """Config lines of the network with its first `layers` hidden layers (default: all).

    The output layer starts at zero, so that all pdfs start equally likely. DataError for options that do not fit.
    """
    options.check()
    first, ivector_dim = options.contexts[0], options.ivector_dim
    dim = options.feat_dim * len(first) + ivector_dim
    context = f"left-context={-first[0]} right-context={first[-1]}"
    if len(first) != first[-1] - first[0] + 1:
        context = f"context={':'.join(map(str, first))}"
    lines = [
        f"SpliceComponent input-dim={options.feat_dim + ivector_dim} {context} const-component-dim={ivector_dim}\n"
    ]
    if options.lda_matrix:
        lines.append(f"FixedAffineComponent matrix={options.lda_matrix}\n")
        dim = _rows(options.lda_matrix, dim)
    for layer in range(layers or options.hidden_layers):
        lines.append(hidden_layer_config(options, layer, None if layer else dim))
    lines.append(_affine(options, options.layer_dim, options.num_targets, 0.0, 0.0))
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


def _affine(options: NetworkOptions, input_dim: int, output_dim: int, stddev: float, bias_stddev: float) -> str:
    component, settings = _UPDATES[options.update_rule]
    words = [component, f"input-dim={input_dim}", f"output-dim={output_dim}"]
    words += [f"{flag_name(name)}={getattr(options, name):g}" for name in settings]
    words += [f"learning-rate={options.learning_rate:g}", f"param-stddev={stddev:.7g}", f"bias-stddev={bias_stddev:g}"]
    return " ".join(words) + "\n"


def write_network_config(config_path: str, hidden_config_paths: Sequence[str], options: NetworkOptions) -> None:
    """Write the config of the network; where there are further paths, with its first hidden layer only.

    These get the configs of the layers to be added: one path for each, or one for all when they see one frame only.
    """
    paths, later = list(hidden_config_paths), options.hidden_layers - 1
    one_for_all = len(paths) == 1 and set(options.contexts[1:]) <= {(0,)}
    if paths and len(paths) != later and not one_for_all:
        raise DataError(f"{len(paths)} files for the configs of {later} different hidden layers after the first one")
    with open_text_writer(config_path) as stream:
        stream.write(network_config(options, 1 if paths else None))
    for layer, path in enumerate(paths, 1):
        with open_text_writer(path) as stream:
            stream.write(hidden_layer_config(options, layer))
