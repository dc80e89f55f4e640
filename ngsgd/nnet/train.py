"""The training loop of one job: minibatches through the network, and each layer moved as soon as its gradient is known.

All derivatives of a minibatch are at the parameters from before it (`backprop.Workspace` computes a layer's before the
one above it is changed). The state of natural gradient lives as long as the job.
"""

import dataclasses
import json
import logging
import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from ngsgd.backend import array_module, module_of, to_module
from ngsgd.egs.minibatch import Minibatch, read_minibatches
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.nnet import blas
from ngsgd.nnet.backprop import GradientStep, Workspace
from ngsgd.nnet.components.base import UpdatableComponent
from ngsgd.nnet.components.noise import RandomComponent
from ngsgd.nnet.model import Nnet, read_model, write_model
from ngsgd.nnet.objectives.cross_entropy import Score, score
from ngsgd.nnet.updates.direction import NotFinite
from ngsgd.nnet.updates.sgd import apply_update
from ngsgd.options import opt

log = logging.getLogger(__name__)

SMOOTHING_MINIBATCHES = 20  # time constant of the average that divergence is judged by


@dataclasses.dataclass
class TrainOptions:
    """Options of nnet-train-ngsgd."""

    minibatch_size: int = opt(128, "frames of one minibatch", at_least=1)
    frame: int = opt(
        -1,
        "which labelled frame of each example to train on, counted from 0, skipping examples that have fewer; -1: all",
        at_least=-1,
    )
    shuffle: bool = opt(False, "go through the frames in a random order")
    srand: str = opt(
        "0", "seed of all random numbers; several integers with commas between make one (seed,iteration,job)"
    )
    minibatches_per_phase: int = opt(100, "log the objective each time after so many minibatches", at_least=1)
    divergence_margin: float = opt(
        1.0,
        "stop when the objective is this many nats per frame below -log(number of pdfs), and worse than at the start",
        at_least=0,
    )
    stats_out: str = opt("", "also write the objective and the other figures to this file, as JSON")
    device: str = opt("cpu", "where to compute", choices=("cpu", "gpu"))
    binary: bool = opt(True, "write the model in binary form")

    @property
    def seed(self) -> list[int]:
        """The integers of `srand`. DataError when there is anything else."""
        words = self.srand.split(",")
        if not all(word.strip().isdecimal() for word in words):
            raise DataError(f"--srand: expected integers from 0 up with commas between, got '{self.srand}'")
        return [int(word) for word in words]


@dataclasses.dataclass
class TrainStats:
    """What a job did; `score` is of each minibatch before its step, without the accuracy."""

    minibatches: int = 0
    frames: int = 0
    score: Score = dataclasses.field(default_factory=Score)
    seconds: float = 0.0
    limited: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)

    @property
    def frames_per_second(self) -> float:
        """Speed, reading included."""
        return self.frames / self.seconds if self.seconds else math.nan

    def add_limited(self, index: int, factor: float) -> None:
        """Count a step of component `index` that max-change scaled by `factor`."""
        count, smallest = self.limited.get(index, (0, 1.0))
        self.limited[index] = (count + 1, min(smallest, factor))

    def as_dict(self) -> dict[str, Any]:
        """The figures for a program to read."""
        limited = {str(i): {"minibatches": n, "smallest_factor": f} for i, (n, f) in sorted(self.limited.items())}
        return {
            "frames": self.frames,
            "minibatches": self.minibatches,
            "weight": self.score.weight,
            "objective_per_frame": self.score.log_prob_per_frame,
            "seconds": round(self.seconds, 3),
            "frames_per_second": round(self.frames_per_second, 1),
            "max_change": limited,
        }


class Trainer:
    """Trains `nnet` in place, minibatch by minibatch, for one job.

    rng: for components that draw random numbers in training. DataError, and the network is then worthless, when the
    objective or a gradient is NaN or infinite, or when training diverges.
    """

    def __init__(
        self, nnet: Nnet, minibatch_size: int, rng: np.random.Generator, margin: float = 1.0, device: str = "cpu"
    ):
        self.nnet, self.margin, self.xp = nnet, margin, array_module(device)
        if not nnet.updatable:
            raise DataError(f"{nnet.where}: the network has no component with parameters to train")
        nnet.to(self.xp)
        for component in nnet:
            if isinstance(component, RandomComponent):
                component.rng = rng
        num_frames = nnet.left_context + 1 + nnet.right_context
        self.workspace = Workspace(nnet, minibatch_size, num_frames, self.xp)
        self.stats = TrainStats()
        self._states: dict[int, list] = {}
        self._norms = {i: _norm(c.params) for i, c in self._updatable()}
        self._start = self._recent = -math.inf  # objective per frame: the best early average, the latest average

    def step(self, minibatch: Minibatch) -> Score:
        """Train on one minibatch; its score before the step."""
        data, row, pdf, weight = (
            to_module(a, self.xp) for a in (minibatch.input, minibatch.row, minibatch.pdf, minibatch.weight)
        )
        before = score(self.workspace.forward(data), row, pdf, weight, accuracy=False)
        if not math.isfinite(before.log_prob):
            raise self._not_finite(before.log_prob, data)
        self._check_divergence(before)
        self.workspace.accumulate_statistics()
        for gradient in self.workspace.backward_labels(row, pdf, weight):
            self._update(gradient)
        self.stats.minibatches += 1
        self.stats.frames += minibatch.num_frames
        self.stats.score += before
        return before

    def finish(self) -> TrainStats:
        """The network back on the CPU, checked for finite parameters; the figures of the job."""
        for component in self.nnet:
            if isinstance(component, RandomComponent):
                component.rng = None
        self.nnet.to(np)
        for i, component in self._updatable():
            if not math.isfinite(_norm(component.params)):
                raise self._diverged("parameters that are not finite", i)
        for i, (count, smallest) in sorted(self.stats.limited.items()):
            log.warning(
                "component %d (%s): max-change limited %d of %d steps, to %.3g of their length at least",
                *(i, self.nnet[i].type_name, count, self.stats.minibatches, smallest),
            )
        return self.stats

    def _updatable(self) -> list[tuple[int, UpdatableComponent]]:
        return [(i, c) for i, c in enumerate(self.nnet) if isinstance(c, UpdatableComponent)]

    def _update(self, gradient: GradientStep) -> None:
        i, component = gradient.index, gradient.component
        if component.learning_rate == 0.0:
            return
        try:
            self._states[i], factor = apply_update(component, gradient.factors, self._states.get(i))
        except NotFinite as error:
            raise self._diverged(f"a gradient that is not finite ({error})", i) from None
        if factor < 1.0:
            self.stats.add_limited(i, factor)

    def _not_finite(self, objective: float, data: Any) -> DataError:
        if not self.xp.isfinite(data).all():
            return DataError(f"NaN or infinite features in minibatch {self.stats.minibatches + 1} of the examples")
        return self._diverged(f"an objective of {objective}", self._suspect())

    def _check_divergence(self, before: Score) -> None:
        """Raise DataError when the average of the last objectives is hopeless, and was better before."""
        if not before.weight:
            return
        seen = self.stats.minibatches
        if seen == 0:
            self._start = self._recent = before.log_prob_per_frame
        self._recent += (before.log_prob_per_frame - self._recent) / min(seen + 1, SMOOTHING_MINIBATCHES)
        if seen < SMOOTHING_MINIBATCHES:
            self._start = max(self._start, self._recent)
        elif self._recent < min(self._start, -math.log(self.nnet.output_dim) - self.margin):
            raise self._diverged(f"an objective of {self._recent:.3f} per frame, worse than guessing", self._suspect())

    def _suspect(self) -> int:
        """The component whose parameters have grown most since the job began."""
        growth = {i: _norm(c.params) / (self._norms[i] or 1.0) for i, c in self._updatable()}
        return max(growth, key=lambda i: growth[i] if math.isfinite(growth[i]) else math.inf)

    def _diverged(self, what: str, index: int) -> DataError:
        component = self.nnet[index]
        growth = _norm(component.params) / (self._norms[index] or 1.0)
        return DataError(
            f"{self.nnet.where}: training diverged: {what} after {self.stats.minibatches} minibatches; "
            f"component {index} ({component.type_name}) has learning rate {component.learning_rate:.6g} and "
            f"{growth:.3g} times the norm that it began with: try half the learning rate, or a lower max-change"
        )


def _norm(params: Any) -> float:
    return float(module_of(params).square(params, dtype=np.float64).sum()) ** 0.5


def train(nnet: Nnet, minibatches: Iterable[Minibatch], options: TrainOptions) -> TrainStats:
    """Train `nnet` in place on all minibatches, logging the objective. DataError as in `Trainer`, or for no frames."""
    rng = np.random.default_rng([*options.seed, 1])
    trainer = Trainer(nnet, options.minibatch_size, rng, options.divergence_margin, options.device)
    stats, start = trainer.stats, time.perf_counter()
    phase, first = Score(), 1
    for minibatch in minibatches:
        with np.errstate(all="ignore"):  # whatever overflows ends as a DataError
            phase += trainer.step(minibatch)
        stats.seconds = time.perf_counter() - start
        if stats.minibatches % options.minibatches_per_phase == 0:
            _log_phase(stats, phase, first)
            phase, first = Score(), stats.minibatches + 1
    if first <= stats.minibatches:
        _log_phase(stats, phase, first)
    if not stats.score.weight:
        raise DataError(f"{nnet.where}: no frame to train on: the input is empty")
    return trainer.finish()


def _log_phase(stats: TrainStats, phase: Score, first: int) -> None:
    log.info(
        "minibatches %d to %d: objective %.5f per frame, %.0f frames/s so far",
        *(first, stats.minibatches, phase.log_prob_per_frame, stats.frames_per_second),
    )


def train_model(model_in: str, examples: str, model_out: str, options: TrainOptions) -> TrainStats:
    """Train a model file on an archive of examples; writes the new model, and the figures where asked, or nothing."""
    model = read_model(model_in)
    nnet = model.nnet
    minibatches = read_minibatches(
        examples,
        options.minibatch_size,
        None if options.frame < 0 else options.frame,
        [*options.seed, 0] if options.shuffle else None,
        **nnet.wanted_examples,
    )
    stats = train(nnet, minibatches, options)
    log.info(
        "trained on %d frames in %d minibatches: average log-prob per frame %.5f, %.0f frames/s (%s)",
        *(stats.frames, stats.minibatches, stats.score.log_prob_per_frame, stats.frames_per_second),
        "GPU" if options.device == "gpu" else blas.library(),
    )
    if options.stats_out:  # first: once the model exists, the job is done
        with open_bytes_writer(options.stats_out) as f:
            f.write((json.dumps(stats.as_dict(), indent=1) + "\n").encode())
    write_model(model, model_out, options.binary)
    return stats
