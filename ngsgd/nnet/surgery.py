"""Operations on trained networks that Kaldi has programs for: scaling, repairing, widening, changing types."""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.nnet.components.affine import (
    AffineComponent,
    AffineComponentPreconditionedOnline,
    OnlineConfig,
)
from ngsgd.nnet.components.base import UpdatableComponent
from ngsgd.nnet.components.block_affine import BlockAffineComponent
from ngsgd.nnet.components.nonlinear import (
    NonlinearComponent,
    NormalizeComponent,
    PowerComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    TanhComponent,
)
from ngsgd.nnet.components.pooling import PnormComponent
from ngsgd.nnet.model import Nnet
from ngsgd.options import opt

log = logging.getLogger(__name__)


# ---- standard deviation of the parameters


@dataclass
class NormalizeStddevOptions:
    """The target."""

    stddev: float = opt(1.0, "standard deviation of the parameters of a layer", above=0)
    stddev_from: str = opt("", "model whose layers' standard deviations are the targets instead")
    binary: bool = opt(True, "write in binary form")


def scale_free_layers(nnet: Nnet) -> list[int]:
    """Affine components followed by p-norm and normalisation (a power between them or not): their scale is free."""
    found = []
    for i, component in enumerate(nnet):
        following = [type(c) for c in nnet.components[i + 1 : i + 4]]
        if following[1:2] == [PowerComponent]:
            del following[1]
        is_affine = isinstance(component, AffineComponent | BlockAffineComponent)
        if is_affine and following[:2] == [PnormComponent, NormalizeComponent]:
            found.append(i)
    return found


def normalise_stddev(nnet: Nnet, stddev: float, reference: Nnet | None = None) -> list[int]:
    """Scale the scale-free layers so that the standard deviation of a layer's parameters is `stddev`; in place.

    The biases count as parameters. With a reference its layers' own standard deviations are the targets. Returns the
    indices of the layers scaled. The network's output does not change.
    """
    if reference is not None and (difference := nnet.shape_difference(reference)):
        raise DataError(f"the reference has another shape: {difference}")
    done = []
    for i in scale_free_layers(nnet):
        target = stddev if reference is None else float(reference[i].params.astype(np.float64).std())
        present = float(nnet[i].params.astype(np.float64).std())
        if present > 0:
            nnet[i].params *= np.float32(target / present)
            done.append(i)
    log.info("normalised the components %s", ", ".join(map(str, done)) or "(none)")
    return done


# ---- neurons that are always on, always off, or never leave the linear part


@dataclass
class FixOptions:
    """Bounds on the average slope of a neuron, and how much to change one outside them."""

    min_average_deriv: float = opt(
        0.1, "smallest average slope, relative to the largest that the function has", at_least=0, at_most=1
    )
    max_average_deriv: float = opt(
        0.75, "largest average slope, relative to the largest that the function has", at_least=0
    )
    parameter_factor: float = opt(2.0, "largest factor on the parameters of a sigmoid or tanh neuron", at_least=1)
    relu_bias_change: float = opt(1.0, "change of the bias of a rectified linear neuron")
    binary: bool = opt(True, "write in binary form")


_LARGEST_SLOPE = {SigmoidComponent: 0.25, TanhComponent: 1.0, RectifiedLinearComponent: 1.0}


def fix(nnet: Nnet, options: FixOptions) -> tuple[int, int]:
    """Repair neurons by the slope statistics of training, in place; returns how many had too small and too large ones.

    Sigmoid and tanh: parameters are scaled down where the slope is too small (saturated), up where it is too large
    (linear). Rectified linear: the bias is raised where the neuron is always off, lowered where it is always on.
    """
    small = large = 0
    for affine, function in zip(nnet.components, nnet.components[1:]):
        if not isinstance(affine, AffineComponent) or type(function) not in _LARGEST_SLOPE:
            continue
        if function.count == 0 or not function.deriv_sum.size:
            log.warning("%s: cannot repair a %s without statistics", nnet.where, function.type_name)
            continue
        slope = function.deriv_sum / (function.count * _LARGEST_SLOPE[type(function)])
        too_small, too_large = slope < options.min_average_deriv, slope > options.max_average_deriv
        if isinstance(function, RectifiedLinearComponent):
            affine.bias[too_small] += np.float32(options.relu_bias_change)
            affine.bias[too_large] -= np.float32(options.relu_bias_change)
        else:
            with np.errstate(divide="ignore"):
                down = np.minimum(options.min_average_deriv / slope, options.parameter_factor)
            up = np.minimum(slope / options.max_average_deriv, options.parameter_factor)
            factor = np.where(too_small, 1 / down, np.where(too_large, up, 1.0))
            affine.params *= factor[:, None].astype(np.float32)
        small, large = small + int(too_small.sum()), large + int(too_large.sum())
    log.info("neurons with too small a slope: %d, too large: %d", small, large)
    return small, large


# ---- wider hidden layers


@dataclass
class WidenOptions:
    """The new width, and how new neurons are initialised."""

    hidden_layer_dim: int = opt(-1, "dimension of the hidden layers wanted", at_least=1)
    param_stddev_factor: float = opt(1.0, "parameters of a new neuron: this times inputs^-0.5", at_least=0)
    bias_stddev: float = opt(0.5, "biases of new neurons", at_least=0)
    srand: int = opt(0, "seed of the parameters of new neurons", at_least=0)
    binary: bool = opt(True, "write in binary form")


def widen(nnet: Nnet, options: WidenOptions) -> int:
    """Widen hidden layers (affine, one or two elementwise components, affine), in place; returns how many.

    New neurons have random inputs and no effect yet: the weights to the next layer are zero. (Kaldi 5.5's
    nnet-am-widen means the same, but loses the old parameters of both layers.)
    """
    if options.hidden_layer_dim < 1:
        raise DataError(f"--hidden-layer-dim: expected 1 or more, got {options.hidden_layer_dim}")
    done = 0
    components = nnet.components
    for i, affine in enumerate(components):
        if not isinstance(affine, AffineComponent):
            continue
        end = i + 1
        while end < len(components) and end <= i + 2 and isinstance(components[end], NonlinearComponent):
            end += 1
        following = components[end] if end < len(components) else None
        if end == i + 1 or not isinstance(following, AffineComponent):
            continue
        if options.hidden_layer_dim <= affine.output_dim:
            log.warning("%s: component %d has dimension %d already", nnet.where, i, affine.output_dim)
            continue
        _widen_layer(affine, components[i + 1 : end], following, options, np.random.default_rng([options.srand, i]))
        done += 1
    nnet.check()
    log.info("widened %d hidden layers to %d", done, options.hidden_layer_dim)
    return done


def _widen_layer(
    affine: AffineComponent,
    functions: list[NonlinearComponent],
    following: AffineComponent,
    options: WidenOptions,
    rng: np.random.Generator,
) -> None:
    extra = options.hidden_layer_dim - affine.output_dim
    new = rng.standard_normal((extra, affine.params.shape[1]), np.float32)
    new[:, :-1] *= np.float32(options.param_stddev_factor * affine.input_dim**-0.5)
    new[:, -1] *= np.float32(options.bias_stddev)
    affine.params = np.concatenate((affine.params, new))
    for function in functions:
        function.dim = options.hidden_layer_dim
        function.value_sum = function.deriv_sum = np.zeros(function.dim)
        function.count = 0.0
    nothing = np.zeros((following.output_dim, extra), np.float32)
    following.params = np.hstack((following.linear, nothing, following.params[:, -1:]))


# ---- natural gradient on or off


@dataclass
class SwitchPreconditioningOptions:
    """Settings of online natural gradient."""

    rank_in: int = opt(20, "rank on the input side", at_least=1)
    rank_out: int = opt(80, "rank on the output side", at_least=1)
    update_period: int = opt(4, "minibatches for each update of the statistics", at_least=1)
    num_samples_history: float = opt(2000.0, "samples of history", above=0)
    alpha: float = opt(4.0, "smoothing", at_least=0)
    max_change_per_sample: float = opt(
        0.1, "limit of the change of the parameters, per frame of a minibatch", at_least=0
    )
    binary: bool = opt(True, "write in binary form")


def switch_to_online(nnet: Nnet, options: SwitchPreconditioningOptions) -> Nnet:
    """The network with every affine component turned into one trained with online natural gradient."""
    names = ("num_samples_history", "alpha", "max_change_per_sample", "rank_in", "rank_out", "update_period")
    config = OnlineConfig(**{name: getattr(options, name) for name in names})
    components = []
    for component in nnet:
        if isinstance(component, AffineComponent):
            component = _as_type(component, AffineComponentPreconditionedOnline)
            component.set_update(config)
        components.append(component)
    return Nnet(components, nnet.where)


def without_preconditioning(nnet: Nnet) -> Nnet:
    """The network with every affine component turned into a plain one."""
    return Nnet(
        [_as_type(c, AffineComponent) if isinstance(c, AffineComponent) else c for c in nnet],
        nnet.where,
    )


def _as_type(component: UpdatableComponent, cls: type[AffineComponent]) -> AffineComponent:
    changed = cls.__new__(cls)
    changed.params, changed.learning_rate = component.params, component.learning_rate
    changed.is_gradient = component.is_gradient
    return changed
