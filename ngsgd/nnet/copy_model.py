"""Copying models, and the changes that can be made on the way."""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.nnet.components.noise import DropoutComponent, RandomComponent
from ngsgd.nnet.learning_rates import parse_rates, scale_by_type
from ngsgd.nnet.model import AmNnet, Nnet, read_any, read_nnet, write_model
from ngsgd.nnet.surgery import without_preconditioning
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class CopyOptions:
    """Form of the output, and changes, made in this order."""

    binary: bool = opt(True, "write in binary form")
    raw: bool = opt(False, "write the network only, without transition model and priors")
    learning_rate_factor: float = opt(1.0, "multiply all learning rates by this", at_least=0)
    learning_rate: float = opt(-1.0, "set all learning rates to this, if 0 or more")
    learning_rates: str = opt("", "set the learning rates of the updatable layers to these, with colons between")
    learning_rate_scales: str = opt("", "factors by component type: AffineComponent=0.5:BlockAffineComponent=2")
    scales: str = opt("", "factors on the parameters of the updatable layers, with colons between")
    truncate: int = opt(-1, "keep only the first components, so many", at_least=-1)
    remove_dropout: bool = opt(False, "remove components that only draw random numbers")
    dropout_scale: float = opt(-1.0, "set the scale of dropped elements to this, if 0 or more", at_most=1)
    remove_preconditioning: bool = opt(False, "turn affine components into plain AffineComponents")
    stats_from: str = opt("", "take the activation statistics from this model")


def change(model: AmNnet, options: CopyOptions) -> AmNnet:
    """The model with the changes asked for; made in place where possible."""
    nnet = model.nnet
    _change_learning_rates(nnet, options)
    if options.scales:
        for component, factor in zip(nnet.updatable, parse_rates(options.scales, nnet, "--scales")):
            component.params *= np.float32(factor)
    if options.truncate >= 0:
        nnet = Nnet(nnet.components[: options.truncate], nnet.where)
    if options.remove_dropout:
        nnet = Nnet([c for c in nnet if not isinstance(c, RandomComponent)], nnet.where)
    if options.dropout_scale >= 0:
        for component in nnet:
            if isinstance(component, DropoutComponent):
                component.dropout_scale = options.dropout_scale
                component.check(nnet.where)
    if options.remove_preconditioning:
        nnet = without_preconditioning(nnet)
    if options.stats_from:
        _copy_statistics(nnet, read_nnet(options.stats_from))
    priors = model.priors if len(model.priors) == nnet.output_dim else None
    return AmNnet(model.transitions, nnet, priors)


def _change_learning_rates(nnet: Nnet, options: CopyOptions) -> None:
    rates = [rate * options.learning_rate_factor for rate in nnet.learning_rates]
    if options.learning_rate >= 0:
        rates = [options.learning_rate] * len(rates)
    if options.learning_rates:
        rates = parse_rates(options.learning_rates, nnet, "--learning-rates")
    nnet.set_learning_rates(rates)
    if options.learning_rate_scales:
        scale_by_type(nnet, options.learning_rate_scales)


def _copy_statistics(nnet: Nnet, source: Nnet) -> None:
    if difference := nnet.shape_difference(source):
        raise DataError(f"--stats-from: {difference}")
    for target, other in zip(nnet.with_statistics, source.with_statistics):
        target.reset_statistics()
        target.add_statistics(1.0, other)


def copy(rxfilename: str, wxfilename: str, options: CopyOptions) -> None:
    """Copy a model or a raw network, as Kaldi's nnet-am-copy; with `raw` a model's network, as nnet-to-raw-nnet."""
    model = change(read_any(rxfilename), options)
    write_model(AmNnet(None, model.nnet) if options.raw else model, wxfilename, options.binary)
