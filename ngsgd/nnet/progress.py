"""What changed between two models, layer by layer, and how much of the gain in the objective each layer brought.

| symbol   | meaning                                                            |
|----------|--------------------------------------------------------------------|
| θ₀, θ₁   | parameters of the old and the new model, θ_l those of layer l       |
| F        | log-probability of the labels per frame                            |
| K        | number of equal segments of the line from θ₀ to θ₁                  |

By the gradient at the middle of each segment, layer l accounts for

    ΔF_l = (1/K) Σ_k ⟨∂F/∂θ_l (θ₀ + (k + ½)/K (θ₁ - θ₀)), θ_1l - θ_0l⟩                  (S1)

of F(θ₁) - F(θ₀). Agrees with Kaldi's nnet-show-progress.
"""

import dataclasses
import json
import logging
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.nnet.average import check_same_shape
from ngsgd.nnet.gradient import Objective, dot, minibatches_for
from ngsgd.nnet.model import Nnet, read_nnet
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class ProgressOptions:
    """Options of nnet-show-progress."""

    num_segments: int = opt(
        1, "segments of the line between the models at whose middles the gradient is taken", at_least=1
    )
    minibatch_size: int = opt(1024, "frames computed at once; changes only the speed", at_least=1)
    stats_out: str = opt("", "also write the figures to this file, as JSON")


@dataclasses.dataclass
class Progress:
    """Figures for each layer with parameters; the objective's only where there were examples."""

    difference: list[float]  # ‖θ_1l - θ_0l‖
    relative_difference: list[float]  # the same over ‖θ_0l‖
    objective: list[float] = dataclasses.field(default_factory=list)  # per frame at the middle of each segment, nats
    objective_change: list[float] = dataclasses.field(default_factory=list)  # S1, nats per frame


def differences(old: Nnet, new: Nnet) -> Progress:
    """How far each layer moved. DataError for networks of different shape."""
    check_same_shape(old, new)
    sizes = [dot(c.params, c.params) ** 0.5 for c in old.updatable]
    moved = []
    for a, b in zip(old.updatable, new.updatable):
        delta = b.params - a.params
        moved.append(dot(delta, delta) ** 0.5)
    return Progress(moved, [d / s if s else float("inf") if d else 0.0 for d, s in zip(moved, sizes)])


def objective_changes(old: Nnet, new: Nnet, examples: str, options: ProgressOptions) -> tuple[list[float], list[float]]:
    """Objective per frame at the middle of each segment, and S1 for each layer."""
    minibatches = minibatches_for(new, examples, options.minibatch_size)
    middle = new.copy()
    objective = Objective(middle, options.minibatch_size)
    deltas = [b.params - a.params for a, b in zip(old.updatable, new.updatable)]
    values, change = [], np.zeros(len(deltas))
    for k in range(options.num_segments):
        position = np.float32((k + 0.5) / options.num_segments)
        for component, a, delta in zip(middle.updatable, old.updatable, deltas):
            component.params[...] = a.params + position * delta
        total, gradients = objective.gradient(minibatches)
        if not np.isfinite(total.log_prob_per_frame):
            raise DataError(
                f"{examples}: an objective of {total.log_prob} over a weight of {total.weight:g} at position "
                f"{position:.3g} from {old.where} to {new.where}: has training diverged?"
            )
        values.append(total.log_prob_per_frame)
        change += [dot(g, d) / total.weight / options.num_segments for g, d in zip(gradients, deltas)]
        log.info("at position %.3g, objective per frame is %.6g", position, values[-1])
    return values, change.tolist()


def show_progress(old: str, new: str, examples: str | None, options: ProgressOptions) -> Progress:
    """Log the progress from one model file to another, and write it where asked."""
    old_nnet, new_nnet = read_nnet(old), read_nnet(new)
    progress = differences(old_nnet, new_nnet)
    if examples:
        progress.objective, progress.objective_change = objective_changes(old_nnet, new_nnet, examples, options)
        log.info("change of the objective by layer: %s", _row(progress.objective_change))
    log.info("change of the parameters by layer: %s", _row(progress.difference))
    log.info("relative change of the parameters by layer: %s", _row(progress.relative_difference))
    if options.stats_out:
        with open_bytes_writer(options.stats_out) as f:
            f.write((json.dumps(dataclasses.asdict(progress)) + "\n").encode())
    return progress


def _row(values: list[Any]) -> str:
    return "[ " + " ".join(f"{v:.6g}" for v in values) + " ]"
