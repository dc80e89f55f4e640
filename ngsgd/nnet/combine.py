"""Combining models with a weight for each model and layer, chosen by frames that no weight was fitted to.

| symbol | shape   | meaning                                                                       |
|--------|---------|-------------------------------------------------------------------------------|
| M, L   |         | models, layers with parameters                                                |
| a      | (M, L)  | the weights: layer l of the combination is Σ_m a_ml θ_ml                       |
| F(a)   |         | log-probability per frame of the combination on the fitting examples          |
| g      | (M L,)  | dF/da: g_ml = ⟨dF/dθ_l, θ_ml⟩                                                  |
| S, C   |         | second moment of g over small minibatches at the start, smoothed, = C Cᵀ      |

F is maximised by L-BFGS over p = Cᵀ a, in which its curvature is about the same in all directions, from the plain
average of the models, as Kaldi's nnet-combine-fast does. Having M L weights and few frames to fit them to, the maximum
can be far worse on other frames than every single model (on a small corpus Kaldi's was: log-probability -0.35 before,
-0.77 after). Hence the weights are not taken from the maximum but from the best, on held-out frames, of

    every single model;  the plain averages of the last 2, 3, … M models;
    every point a_i that L-BFGS passed;  and points between it and the average, avg + s (a_i - avg).

Since the single models and the averages are among them, the choice is never worse than these on the held-out frames.
"""

import dataclasses
import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ngsgd.egs.minibatch import Minibatch
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.nnet.average import check_same_shape
from ngsgd.nnet.gradient import Objective, dot, minibatches_for
from ngsgd.nnet.model import AmNnet, Nnet, read_model, write_model
from ngsgd.options import opt

log = logging.getLogger(__name__)

SHRINKAGE = (0.25, 0.5, 0.75)  # s above, for the last and the best of the points
FISHER_FLOOR = 1.0e-20


@dataclasses.dataclass
class CombineOptions:
    """Options of nnet-combine."""

    num_lbfgs_iters: int = opt(
        40, "most evaluations of the objective in L-BFGS; 0: choose among models and averages", at_least=0
    )
    minibatch_size: int = opt(512, "frames computed at once; changes only the speed", at_least=1)
    fisher_minibatch_size: int = opt(
        64, "frames of a minibatch for the scatter of gradients that preconditions L-BFGS", at_least=1
    )
    fisher_smoothing: float = opt(0.01, "proportion of its diagonal added to that scatter", at_least=0)
    stats_out: str = opt("", "also write all candidates and the weights of the chosen one to this file, as JSON")
    binary: bool = opt(True, "write the model in binary form")


class Candidate(NamedTuple):
    """Weights to choose from."""

    name: str
    weights: np.ndarray  # (M, L)
    log_prob: float  # per held-out frame
    accuracy: float


class Combination:
    """The network Σ_m a_ml θ_ml, whose objective can be asked for at any a (M, L)."""

    def __init__(self, nnets: Sequence[Nnet], max_minibatch: int):
        for other in nnets[1:]:
            check_same_shape(nnets[0], other)
        self.params = [[component.params for component in nnet.updatable] for nnet in nnets]
        if not self.params[0]:
            raise DataError(f"{nnets[0].where}: the network has no layer with parameters to combine")
        self.nnet = nnets[0].copy()
        self.objective = Objective(self.nnet, max_minibatch)

    @property
    def shape(self) -> tuple[int, int]:
        """M, L."""
        return len(self.params), len(self.params[0])

    def set(self, weights: np.ndarray) -> None:
        """Form the network with these weights (M, L)."""
        for l, component in enumerate(self.nnet.updatable):  # noqa: E741
            component.params[...] = 0.0
            for m, params in enumerate(self.params):
                if weights[m, l]:
                    component.params += np.float32(weights[m, l]) * params[l]

    def gradient(self, weights: np.ndarray, minibatches: Sequence[Minibatch]) -> tuple[float, np.ndarray]:
        """F and g (M, L)."""
        self.set(weights)
        return self.gradient_here(minibatches)

    def gradient_here(self, minibatches: Sequence[Minibatch]) -> tuple[float, np.ndarray]:
        """F and g (M, L) at the weights that are set."""
        total, gradients = self.objective.gradient(minibatches)
        g = np.array([[dot(d, p) for d, p in zip(gradients, params)] for params in self.params])
        return total.log_prob_per_frame, g / total.weight

    def candidate(self, name: str, weights: np.ndarray, heldout: Sequence[Minibatch]) -> Candidate:
        """The combination with these weights, judged."""
        self.set(weights)
        found = self.objective.value(heldout)
        return Candidate(name, weights, found.log_prob_per_frame, found.accuracy)


def fisher_factor(combination: Combination, minibatches: Sequence[Minibatch], smoothing: float) -> np.ndarray:
    """C (M L, M L), lower triangular, at the weights that are set."""
    gradients = np.array([combination.gradient_here([m])[1].ravel() * m.weight.sum() for m in minibatches])
    scatter = gradients.T @ gradients
    scatter *= len(scatter) / (np.trace(scatter) or 1.0)
    diagonal = np.maximum(np.diag(scatter), FISHER_FLOOR)
    np.fill_diagonal(scatter, diagonal * (1.0 + smoothing))
    try:
        return np.linalg.cholesky(scatter)
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(diagonal))


def lbfgs_path(
    combination: Combination, minibatches: Sequence[Minibatch], factor: np.ndarray, start: np.ndarray, evaluations: int
) -> list[tuple[np.ndarray, float]]:
    """The weights (M, L) that L-BFGS went through while maximising F from `start`, each with F; at least one."""
    from scipy.optimize import minimize

    shape, tried = start.shape, {}

    def weights_of(p: np.ndarray) -> np.ndarray:
        return np.linalg.solve(factor.T, p).reshape(shape)

    def negative(p: np.ndarray) -> tuple[float, np.ndarray]:
        value, g = combination.gradient(weights_of(p), minibatches)
        if not (np.isfinite(value) and np.isfinite(g).all()):
            return 1.0e10, np.zeros_like(p)
        tried[p.tobytes()] = value
        return -value, -np.linalg.solve(factor, g.ravel())

    path = [factor.T @ start.ravel()]
    minimize(
        negative,
        path[0],
        jac=True,
        method="L-BFGS-B",
        callback=lambda p: path.append(p.copy()),
        options={"maxfun": evaluations, "maxiter": evaluations, "maxcor": 10},
    )
    return [(weights_of(p), tried.get(p.tobytes(), np.nan)) for p in path]


def combine(
    nnets: Sequence[Nnet], examples: str, heldout: str, options: CombineOptions
) -> tuple[np.ndarray, list[Candidate]]:
    """The best weights (M, L), and all candidates, best first, in order of preference among equals.

    Models that have diverged, so that their objective is not finite, get no weight. DataError when all have.
    """
    size = max(options.minibatch_size, options.fisher_minibatch_size)
    combination = Combination(nnets, size)
    judges = minibatches_for(nnets[0], heldout, options.minibatch_size)
    if not sum(m.weight.sum() for m in judges) > 0:
        raise DataError(f"{heldout}: no labelled frame to choose by")
    (count, layers), average = combination.shape, np.full(combination.shape, 1.0 / len(nnets))
    candidates = []

    def judge(name: str, weights: np.ndarray) -> Candidate:
        candidates.append(combination.candidate(name, weights, judges))
        return candidates[-1]

    for m in range(count):
        judge(nnets[m].where, np.eye(count)[:, m : m + 1].repeat(layers, axis=1))
    usable = [m for m, single in enumerate(candidates) if np.isfinite(single.log_prob)]
    if len(usable) < count:
        return _combine_some(nnets, usable, examples, heldout, options)
    for last in range(2, count + 1):
        weights = np.zeros((count, layers))
        weights[count - last :] = 1.0 / last
        judge("average of all" if last == count else f"average of the last {last}", weights)
    candidates.reverse()  # at the same objective rather more models, and later ones
    if options.num_lbfgs_iters > 0:
        minibatches = minibatches_for(nnets[0], examples, options.minibatch_size)
        small = minibatches_for(nnets[0], examples, options.fisher_minibatch_size)
        combination.set(average)
        factor = fisher_factor(combination, small, options.fisher_smoothing)
        path = lbfgs_path(combination, minibatches, factor, average, options.num_lbfgs_iters)
        log.info("fitting: objective per frame %.5f for the average, %.5f after L-BFGS", path[0][1], path[-1][1])
        fitted = [judge(f"L-BFGS step {i}", weights) for i, (weights, _) in enumerate(path) if i]
        ends = {c.name: c for c in (*fitted[-1:], max(fitted, key=_rank, default=None)) if c}
        for end in ends.values():
            for s in SHRINKAGE:
                judge(f"{s:g} of the way to {end.name}", average + s * (end.weights - average))
    candidates.sort(key=_rank, reverse=True)
    return candidates[0].weights, candidates


def _combine_some(
    nnets: Sequence[Nnet], usable: list[int], examples: str, heldout: str, options: CombineOptions
) -> tuple[np.ndarray, list[Candidate]]:
    """As `combine`, of these of the models only; the others' weights are zero."""
    lost = ", ".join(nnet.where for m, nnet in enumerate(nnets) if m not in usable)
    what = f"no finite objective on {heldout}, training has diverged or the model is damaged: {lost}"
    if not usable:
        raise DataError(what)
    log.warning("left out: %s", what)
    weights, candidates = combine([nnets[m] for m in usable], examples, heldout, options)

    def spread(some: np.ndarray) -> np.ndarray:
        every = np.zeros((len(nnets), some.shape[1]))
        every[usable] = some
        return every

    return spread(weights), [c._replace(weights=spread(c.weights)) for c in candidates]


def _rank(candidate: Candidate) -> float:
    return candidate.log_prob if np.isfinite(candidate.log_prob) else -np.inf


def table(candidates: Sequence[Candidate]) -> str:
    """Lines for people: the candidates by held-out log-probability."""
    lines = ["held-out log-prob  accuracy  weights of"]
    return "\n".join(lines + [f"{c.log_prob:17.5f}  {c.accuracy:8.4f}  {c.name}" for c in candidates])


def write_stats(path: str, models: Sequence[str], candidates: Sequence[Candidate]) -> None:
    """Models, weights (M, L) of the best candidate, and all candidates, best first, with their held-out figures."""
    judged = [{"name": c.name, "log_prob_per_frame": c.log_prob, "accuracy": c.accuracy} for c in candidates]
    figures = {"models": list(models), "weights": candidates[0].weights.tolist(), "candidates": judged}
    with open_bytes_writer(path) as f:
        f.write((json.dumps(figures, indent=1) + "\n").encode())


def read_usable(paths: Sequence[str]) -> list[AmNnet]:
    """The models of these files, those left out, with a warning, that hold NaN or infinity. DataError when all do."""
    models = []
    for path in paths:
        model = read_model(path, finite=False)
        try:
            model.check_finite()
        except DataError as error:
            log.warning("left out %s: %s", path, error)
        else:
            models.append(model)
    if not models:
        raise DataError(f"none of {', '.join(paths)} can be used: NaN or infinity in each of them")
    return models


def combine_files(paths: Sequence[str], examples: str, heldout: str, model_out: str, options: CombineOptions) -> None:
    """Combine model files into one; all but the parameters is that of the first model with a weight."""
    models = read_usable(paths)
    weights, candidates = combine([model.nnet for model in models], examples, heldout, options)
    for line in table(candidates).splitlines():
        log.info("%s", line)
    best = candidates[0]
    log.info(
        "chose %s; weights by model and layer: %s", best.name, np.array2string(weights, precision=4).replace("\n", ",")
    )
    if options.stats_out:  # first: once the model exists, the work is done
        write_stats(options.stats_out, [model.nnet.where for model in models], candidates)
    used = np.flatnonzero(weights.any(axis=1))
    combination = Combination([models[m].nnet for m in used], 1)
    combination.set(weights[used])
    first = models[used[0]]
    write_model(AmNnet(first.transitions, combination.nnet, first.priors), model_out, options.binary)
