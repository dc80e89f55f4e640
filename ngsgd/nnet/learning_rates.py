"""Learning rates of a network: setting, scaling, and spreading them over the layers by how much each changes."""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.nnet.components.affine import AffineComponentPreconditioned
from ngsgd.nnet.components.base import all_components
from ngsgd.nnet.model import Nnet
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class ModifyLearningRatesOptions:
    """Targets of the equalisation."""

    average_learning_rate: float = opt(
        0.0, "geometric mean of the new learning rates; 0: that of the current ones", at_least=0
    )
    first_layer_factor: float = opt(1.0, "factor on the first layer's relative learning rate", above=0)
    last_layer_factor: float = opt(1.0, "factor on the last layer's relative learning rate", above=0)
    retroactive: bool = opt(False, "scale the last change of the parameters too")
    binary: bool = opt(True, "write in binary form")


def relative_changes(previous: Nnet, current: Nnet) -> np.ndarray:
    """‖Δ‖ / ‖previous‖ of each updatable component; infinite where the previous parameters were all zero."""
    if difference := previous.shape_difference(current):
        raise DataError(f"cannot compare the models: {difference}")
    changes = []
    for a, b in zip(previous.updatable, current.updatable):
        before = float(np.linalg.norm(a.params.astype(np.float64)))
        change = float(np.linalg.norm(b.params.astype(np.float64) - a.params))
        changes.append(change / before if before else (np.inf if change else 0.0))
    return np.array(changes)


def modify(previous: Nnet, current: Nnet, options: ModifyLearningRatesOptions) -> None:
    """Set the learning rates of `current` so that the layers' relative changes become equal; in place.

    New rate of a layer = previous rate / its relative change, all scaled to the geometric mean wanted. A layer that
    did not change, or that was zero before, counts as if it had changed as the others did on average. The old
    max-change limit is switched off.
    """
    changes = relative_changes(previous, current)
    old = np.array(previous.learning_rates)
    for nnet in (previous, current):
        if not all(rate > 0 for rate in nnet.learning_rates):
            raise DataError(f"{nnet.where}: learning rates must be above 0, got {nnet.learning_rates}")
    for name in ("first_layer_factor", "last_layer_factor"):
        if not getattr(options, name) > 0:
            raise DataError(f"--{name.replace('_', '-')}: expected a number above 0, got {getattr(options, name)}")
    known = (changes > 0) & np.isfinite(changes)
    if not known.any():
        raise DataError(f"{current.where}: no layer has a relative change from {previous.where}: {_numbers(changes)}")
    changes[~known] = changes[known].mean()
    rates = old / changes
    rates[-1] *= options.last_layer_factor
    rates[0] *= options.first_layer_factor
    target = options.average_learning_rate or np.exp(np.log(current.learning_rates).mean())
    if not target > 0:
        raise DataError(f"--average-learning-rate: expected a number above 0, got {target}")
    rates *= target / np.exp(np.log(rates).mean())
    if options.retroactive:
        for a, b, scale in zip(previous.updatable, current.updatable, rates / old):
            b.params[...] = a.params + (b.params - a.params) * np.float32(scale)
    current.set_learning_rates(rates.tolist())
    for component in current:
        if isinstance(component, AffineComponentPreconditioned):
            component.max_change = 0.0
    log.info("relative changes %s, new learning rates %s", _numbers(changes), _numbers(rates))


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{v:.4g}" for v in values)


def parse_rates(text: str, nnet: Nnet, option: str) -> list[float]:
    """Numbers separated by colons, one for each updatable component."""
    try:
        rates = [float(word) for word in text.split(":")]
    except ValueError:
        rates = []
    if len(rates) != len(nnet.updatable):
        raise DataError(f"{option}: expected {len(nnet.updatable)} numbers separated by colons, got '{text}'")
    return rates


def scale_by_type(nnet: Nnet, text: str) -> None:
    """Multiply learning rates by factors given by type, `AffineComponent=0.5:BlockAffineComponent=2`; in place."""
    for word in text.split(":"):
        name, _, factor = word.partition("=")
        try:
            number = float(factor)
        except ValueError:
            raise DataError(f"--learning-rate-scales: expected Type=factor, got '{word}'") from None
        if name not in all_components():
            all_components()[name]  # raises the error that lists the known ones
        for component in nnet.updatable:
            if component.type_name == name:
                component.learning_rate *= number
