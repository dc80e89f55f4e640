"""Averaging models: what makes one network of the jobs of an iteration.

The parameters of every layer and the statistics of the nonlinearities are averaged with weights that sum to one.
Everything else, learning rates, priors and the transition model, is the first model's. Agrees with Kaldi's
nnet-am-average. Models are read one after another: memory for two, however many there are; two or three more for the
ways of `ngsgd.nnet.averaging` that look back at earlier iterations.
"""

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from ngsgd.errors import DataError
from ngsgd.nnet.averaging.rule import AveragingOptions, averaging_class
from ngsgd.nnet.model import AmNnet, Nnet, read_model, read_nnet, write_model, write_nnet
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class AverageOptions:
    """Options of nnet-average."""

    weights: str = opt("", "a weight for each model, colons between, scaled to sum to one; default: equal weights")
    skip_last_layer: bool = opt(False, "leave the last layer with parameters as it is in the first model")
    learning_rate: float = opt(-1.0, "set all learning rates to this, if 0 or more")
    binary: bool = opt(True, "write the model in binary form")


@dataclasses.dataclass
class HistoryOptions:
    """What the ways to average other than the plain one know of the iterations before, and leave to the next one."""

    previous: str = opt("", "the model of the iteration before")
    state: str = opt("", "the state of the iteration before; none: zero, as after the start or a new layer")
    start_out: str = opt("", "where the model goes from which the next jobs start, where it is another one")
    state_out: str = opt("", "where the state goes")
    age: int = opt(1, "iterations since the state was last zero, this one included", at_least=1)


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


def average_files(
    paths: Sequence[str], model_out: str, options: AverageOptions, way: AveragingOptions, history: HistoryOptions
) -> None:
    """Average model files into one, which is written last: where it is, all is."""
    way.check()
    weights = parse_weights(options.weights, len(paths))
    model = average(map(read_model, paths), weights, options.skip_last_layer)
    model.nnet.where = f"the average of {', '.join(paths)}"
    if options.learning_rate >= 0:
        model.nnet.set_learning_rates([options.learning_rate] * len(model.nnet.updatable))
    filtered(model, len(paths), way, history, options.binary)
    write_model(model, model_out, options.binary)
    log.info("averaged %d models into %s", len(paths), model_out)


def filtered(model: AmNnet, jobs: int, way: AveragingOptions, history: HistoryOptions, binary: bool) -> None:
    """Turn the plain average of the models of `jobs` jobs into what `way` makes of it, in place, and write its files.

    DataError where a file that the way needs is not named, or has another shape.
    """
    rule = averaging_class(way.averaging)(way, jobs, history.age)
    for needed, name in ((rule.has_state, "state-out"), (rule.has_start, "start-out")):
        if needed and not getattr(history, name.replace("-", "_")):
            raise DataError(f"--averaging={way.averaging} needs --{name}")
    if not (rule.has_state or rule.has_start):
        return
    if not history.previous:
        raise DataError(f"--averaging={way.averaging} needs --previous, the model of the iteration before")
    before = [read_nnet(path) for path in (history.previous, history.state) if path]
    for other in before:
        check_same_shape(model.nnet, other)
    after = []
    for average, previous, *states in zip(model.nnet.updatable, *(nnet.updatable for nnet in before), strict=True):
        after.append(rule.step(average.params, previous.params, states[0].params if states else None))
    if rule.has_state:
        write_nnet(_with_params(model.nnet, [layer.state for layer in after]), history.state_out, binary)
    if rule.has_start:
        _with_params(model.nnet, [layer.start for layer in after])
        write_model(model, history.start_out, binary)
    _with_params(model.nnet, [layer.model for layer in after])


def _with_params(nnet: Nnet, params: list) -> Nnet:
    """The network itself, with these parameters in its layers."""
    for layer, matrix in zip(nnet.updatable, params, strict=True):
        layer.params = matrix
    return nnet
