"""Maximum-likelihood re-estimation of transition model and mixtures, and the mixing up of Gaussians.

Given statistics occ, mean, var (see stats.py) of a pdf's Gaussians:

    w_g = occ_g / sum occ,   m_g = mean_g / occ_g,   v_g = max(var_g / occ_g - m_g^2, floor)                    (1)

A Gaussian of too small a count or weight is removed, unless it is its pdf's last, which then keeps mean and variance.
Transition probabilities are relative counts, floored and renormalised. Agrees with Kaldi's gmm-est.
"""

from __future__ import annotations

import dataclasses
import heapq
import logging

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.model import AmDiagGmm
from ngsgd.gmm.stats import MEANS, TRANSITIONS, VARIANCES, WEIGHTS, GmmStats
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class TransitionUpdateOptions:
    """How transition probabilities are estimated."""

    transition_floor: float = opt(0.01, "floor of transition probabilities")
    transition_min_count: float = opt(5.0, "frames below which a transition-state is not updated")


@dataclasses.dataclass
class GmmUpdateOptions:
    """How mixtures are estimated."""

    min_gaussian_weight: float = opt(1e-5, "weight below which a Gaussian is removed")
    min_gaussian_occupancy: float = opt(10.0, "frames below which a Gaussian is removed")
    min_variance: float = opt(0.001, "floor of the variances")
    remove_low_count_gaussians: bool = opt(True, "remove Gaussians below the two limits; else keep them as they were")
    update_flags: str = opt("mvwt", "what to update: m means, v variances, w weights, t transitions")


@dataclasses.dataclass
class SplitOptions:
    """How the number of Gaussians grows."""

    mix_up: int = opt(0, "split Gaussians up to this number in all; 0: do not")
    power: float = opt(0.2, "a pdf's share of the Gaussians is its frames to this power")
    min_count: float = opt(20.0, "frames that each Gaussian of a pdf must have before another is added")
    perturb_factor: float = opt(0.01, "means of split Gaussians are moved apart by this many standard deviations")
    split_seed: int = opt(0, "seed of the random directions in which means are moved")


def parse_update_flags(text: str) -> int:
    """`mvwt` -> bits. DataError names an unknown letter."""
    bits = {"m": MEANS, "v": VARIANCES, "w": WEIGHTS, "t": TRANSITIONS, "a": 15}
    unknown = set(text) - set(bits)
    if unknown:
        raise DataError(f"update flags '{text}': unknown letter '{min(unknown)}', known are m v w t a")
    return int(np.bitwise_or.reduce([bits[c] for c in text])) if text else 0


def update_transitions(model: TransitionModel, counts: np.ndarray, options: TransitionUpdateOptions) -> None:
    """Set log_prob from counts (R + 1,) of transition-ids; states seen less than the minimum keep theirs."""
    if len(counts) != model.num_transition_ids + 1:
        raise DataError(f"statistics of {len(counts) - 1} transition-ids, the model has {model.num_transition_ids}")
    state = model.tid_to_state[1:] - 1  # (R,)
    size = np.bincount(state)

    def total(values):
        return np.bincount(state, values)

    state_count = total(counts[1:])
    enough = (size > 1) & (state_count >= options.transition_min_count)
    prob = counts[1:] / np.maximum(state_count, 1e-30)[state]
    for _ in range(3):
        prob = prob / np.maximum(total(prob), 1e-30)[state]
        prob = np.maximum(prob, options.transition_floor)
    updated = enough[state]
    old = model.log_prob[1:].astype(np.float64)
    new = np.where(updated, np.log(prob), old)
    frames = max(float(state_count[size > 1].sum()), 1e-30)
    gain = float((counts[1:] * (new - old)).sum()) / frames
    floored = int((prob[updated] == options.transition_floor).sum())
    log.info(
        "transitions: objective improved by %.4f per frame over %.0f frames; %d probabilities floored, %d of %d "
        "transition-states had too few frames",
        gain,
        frames,
        floored,
        int((~enough & (size > 1)).sum()),
        model.num_transition_states,
    )
    model.log_prob = np.concatenate([[0.0], new]).astype(np.float32)


def _objective(gmm: AmDiagGmm, stats: GmmStats) -> float:
    """The auxiliary function: sum of occ_g g_g + mean_g . m/v - var_g . 1/(2 v)."""
    occupied = stats.occ > 0
    value = stats.occ[occupied] @ gmm.gconsts[occupied].astype(np.float64)
    value += np.einsum("gd,gd->", stats.mean, gmm.means_invvars, dtype=np.float64)
    return float(value - 0.5 * np.einsum("gd,gd->", stats.var, gmm.inv_vars, dtype=np.float64))


def update_gmm(gmm: AmDiagGmm, stats: GmmStats, options: GmmUpdateOptions) -> AmDiagGmm:
    """The model of equation (1) for these statistics. DataError when they belong to another model."""
    if not np.array_equal(gmm.offsets, stats.offsets) or gmm.dim != stats.dim:
        raise DataError(
            f"statistics of {len(stats.occ)} Gaussians in {stats.dim} dimensions do not belong to a model "
            f"of {gmm.num_gauss} in {gmm.dim}"
        )
    flags = parse_update_flags(options.update_flags) & stats.flags
    pdf = np.repeat(np.arange(gmm.num_pdfs), gmm.counts)
    pdf_occ = np.add.reduceat(stats.occ, gmm.offsets[:-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(pdf_occ[pdf] > 0, stats.occ / pdf_occ[pdf], 1.0 / gmm.counts[pdf])
    enough = (stats.occ > options.min_gaussian_occupancy) & (weight > options.min_gaussian_weight)

    occ = np.where(enough, stats.occ, 1.0)[:, None]
    mean, var = stats.mean / occ, stats.var / occ
    var = var - mean**2
    old_mean = gmm.means()
    if not flags & MEANS:
        var += (old_mean - mean) ** 2
    floored = (var < options.min_variance) & enough[:, None]
    var = np.maximum(var, options.min_variance)

    keep = enough | ~_removable(enough, gmm, options)
    weights = np.where(enough, weight, np.maximum(weight, options.min_gaussian_weight))
    mean = np.where(enough[:, None] & bool(flags & MEANS), mean, old_mean)
    var = np.where(enough[:, None] & bool(flags & VARIANCES), var, gmm.variances())
    if not flags & WEIGHTS:
        weights = gmm.weights.astype(np.float64)
    inv_vars = (1.0 / var).astype(np.float32)
    means_invvars = (mean.astype(np.float32) * inv_vars).astype(np.float32)
    updated = AmDiagGmm(gmm.offsets, weights, means_invvars, inv_vars)
    frames = max(float(stats.occ.sum()), 1e-30)
    log.info(
        "mixtures: objective improved by %.4f per frame over %.0f frames, log-likelihood %.4f per frame; "
        "%d variance elements floored in %d Gaussians; %d of %d Gaussians removed",
        (_objective(updated, stats) - _objective(gmm, stats)) / frames,
        frames,
        stats.total_like / max(stats.total_frames, 1e-30),
        int(floored.sum()),
        int(floored.any(axis=1).sum()),
        int((~keep).sum()),
        gmm.num_gauss,
    )
    return updated if keep.all() else _select(updated, keep, pdf)


def _removable(enough: np.ndarray, gmm: AmDiagGmm, options: GmmUpdateOptions) -> np.ndarray:
    """(G,) bool: Gaussians of too few frames that may go; where none of a pdf's has enough, its last stays."""
    if not options.remove_low_count_gaussians:
        return np.zeros(len(enough), bool)
    removable = ~enough
    none_left = ~np.logical_or.reduceat(enough, gmm.offsets[:-1])
    removable[gmm.offsets[1:][none_left] - 1] = False
    if none_left.any():
        log.warning(
            "%d pdfs have too few frames to be updated, the first is %d",
            int(none_left.sum()),
            int(np.flatnonzero(none_left)[0]),
        )
    return removable


def _select(gmm: AmDiagGmm, keep: np.ndarray, pdf: np.ndarray) -> AmDiagGmm:
    """Drop Gaussians and let the weights that stay sum to one where any was dropped."""
    counts = np.bincount(pdf[keep], minlength=gmm.num_pdfs)
    left = np.bincount(pdf[keep], gmm.weights[keep], minlength=gmm.num_pdfs)
    left[counts == gmm.counts] = 1.0
    weights = gmm.weights[keep] / left[pdf[keep]]
    return AmDiagGmm(np.concatenate([[0], np.cumsum(counts)]), weights, gmm.means_invvars[keep], gmm.inv_vars[keep])


def split_targets(pdf_occ: np.ndarray, target: int, power: float, min_count: float) -> np.ndarray:
    """(P,) numbers of Gaussians that sum to `target` where the counts allow it, one at least each.

    Each next Gaussian goes to the pdf with the largest occ^power / Gaussians, if it then has more than min_count
    frames for each.
    """
    targets = np.ones(len(pdf_occ), dtype=np.int64)
    share = np.asarray(pdf_occ, dtype=np.float64) ** power
    heap = [(-s, p) for p, s in enumerate(share) if s > 0]
    heapq.heapify(heap)
    total = len(targets)
    while total < target and heap:
        _, p = heapq.heappop(heap)
        if (targets[p] + 1) * min_count >= pdf_occ[p]:
            continue
        targets[p] += 1
        total += 1
        heapq.heappush(heap, (-share[p] / targets[p], p))
    if total < target:
        log.warning("could not split up to %d Gaussians because of the minimum count %g: %d", target, min_count, total)
    return targets


def split(gmm: AmDiagGmm, pdf_occ: np.ndarray, options: SplitOptions) -> AmDiagGmm:
    """Split the heaviest Gaussians of each pdf in two until it has its target number; never removes any.

    The halves are moved apart by +- perturb_factor standard deviations times a normal random vector, seeded by seed,
    pdf and number of Gaussians so that the result does not depend on the other pdfs.
    """
    targets = np.maximum(split_targets(pdf_occ, options.mix_up, options.power, options.min_count), gmm.counts)
    parts = [_split_pdf(gmm, p, int(targets[p]), options) for p in range(gmm.num_pdfs)]
    weights, means_invvars, inv_vars = (np.concatenate(part) for part in zip(*parts, strict=True))
    log.info("split %d Gaussians to %d", gmm.num_gauss, len(weights))
    return AmDiagGmm(np.concatenate([[0], np.cumsum(targets)]), weights, means_invvars, inv_vars)


def _split_pdf(gmm: AmDiagGmm, pdf: int, target: int, options: SplitOptions):
    rows = slice(gmm.offsets[pdf], gmm.offsets[pdf + 1])
    weights, means_invvars, inv_vars = gmm.weights[rows], gmm.means_invvars[rows], gmm.inv_vars[rows]
    current = len(weights)
    if target <= current:
        return weights, means_invvars, inv_vars
    rng = np.random.default_rng([options.split_seed, pdf, target])
    weights = np.concatenate([weights, np.zeros(target - current, np.float32)])
    means_invvars = np.concatenate([means_invvars, np.zeros((target - current, gmm.dim), np.float32)])
    inv_vars = np.concatenate([inv_vars, np.ones((target - current, gmm.dim), np.float32)])
    for new in range(current, target):
        heaviest = int(weights[:new].argmax())
        # m/v has the unit of an inverse standard deviation, so sqrt(1/v) is what moves m by standard deviations
        move = options.perturb_factor * rng.standard_normal(gmm.dim) * np.sqrt(inv_vars[heaviest])
        weights[[heaviest, new]] = weights[heaviest] / 2
        inv_vars[new] = inv_vars[heaviest]
        means_invvars[new] = means_invvars[heaviest] + move
        means_invvars[heaviest] -= move.astype(np.float32)
    return weights, means_invvars, inv_vars


def parse_phones(text: str) -> list[int]:
    """`1:2:3` -> [1, 2, 3]. DataError for anything else."""
    words = [w for w in text.replace(",", ":").split(":") if w]
    if not words or not all(w.isdigit() for w in words):
        raise DataError(f"expected phones like 1:2:3, got '{text}'")
    return sorted({int(w) for w in words})


def boost_silence(transitions: TransitionModel, gmm: AmDiagGmm, phones, factor: float) -> AmDiagGmm:
    """The model with the mixture weights of the pdfs of `phones` multiplied by `factor`: they win more often."""
    pdfs, only_theirs = transitions.pdfs_for_phones(phones)
    pdf = np.repeat(np.arange(gmm.num_pdfs), gmm.counts)
    weights = gmm.weights * np.where(np.isin(pdf, pdfs), np.float32(factor), np.float32(1.0))
    boosted = AmDiagGmm(gmm.offsets, weights, gmm.means_invvars, gmm.inv_vars)
    shared = "" if only_theirs else ", other phones share them"
    log.info("boosted %d pdfs of silence by %g%s", len(pdfs), factor, shared)
    return boosted
