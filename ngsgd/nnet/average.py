"""Averaging models: what makes one network of the jobs of an iteration.

The parameters of every layer and the statistics of the nonlinearities are averaged with weights that sum to one.
Everything else, learning rates, priors and the transition model, is the first model's. Agrees with Kaldi's
nnet-am-average. Models are read one after another: memory for two, however many there are.
"""

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from ngsgd.errors import DataError
from ngsgd.nnet.model import AmNnet, Nnet, read_model, write_model
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class AverageOptions:
    """Options of nnet-average."""

    weights: str = opt("", "a weight for each model, colons between, scaled to sum to one; default: equal weights")
    skip_last_layer: bool = opt(False, "leave the last layer with parameters as it is in the first model")
    binary: bool = opt(True, "write the model in binary form")


def parse_weights(text: str, count: int) -> list[float]:
    """`count` weights that sum to one, from "0.2:0.3:0.5" or "" for equal ones. DataError when it does not fit."""
    if not text:
        return [1.0 / count] * count
    try:
        weights = [float(word) for word in text.split(":")]
    except ValueError:
        raise DataError(f"--weights: expected numbers with colons between, got '{text}'") from None
    if len(weights) != count:
        raise DataError(f"--weights: {len(weights)} weights for {count} models")
    if not sum(weights) > 0.0:
        raise DataError(f"--weights: they sum to {sum(weights):g}, and must to something above 0")
    return [w / sum(weights) for w in weights]


def average(models: Iterable[AmNnet], weights: Sequence[float], skip_last_layer: bool = False) -> AmNnet:
    """Σ_i weights[i] models[i], in the first of them, which is changed. DataError where they differ in shape."""
    models = iter(models)
    result = next(models)
    kept = {len(result.nnet.updatable) - 1} if skip_last_layer else set()
    for i, component in enumerate(result.nnet.updatable):
        if i not in kept:
            component.params *= component.params.dtype.type(weights[0])
    for component in result.nnet.with_statistics:
        component.scale_statistics(weights[0])
    for model, weight in zip(models, weights[1:], strict=True):
        check_same_shape(result.nnet, model.nnet)
        for i, (into, other) in enumerate(zip(result.nnet.updatable, model.nnet.updatable)):
            if i not in kept:
                into.params += into.params.dtype.type(weight) * other.params
        for into, other in zip(result.nnet.with_statistics, model.nnet.with_statistics):
            into.add_statistics(weight, other)
    return result


def check_same_shape(a: Nnet, b: Nnet) -> None:
    """DataError that names the difference, when networks cannot be averaged."""
    difference = a.shape_difference(b)
    if difference:
        raise DataError(f"these networks cannot be averaged: {difference}")


def average_files(paths: Sequence[str], model_out: str, options: AverageOptions) -> None:
    """Average model files into one."""
    weights = parse_weights(options.weights, len(paths))
    model = average(map(read_model, paths), weights, options.skip_last_layer)
    model.nnet.where = f"the average of {', '.join(paths)}"
    write_model(model, model_out, options.binary)
    log.info("averaged %d models into %s", len(paths), model_out)
