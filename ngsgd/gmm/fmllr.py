"""fMLLR: an affine transform of the features for each speaker that makes them more likely under a GMM.

M.J.F. Gales, "Maximum likelihood linear transformations for HMM-based speech recognition", Computer Speech and Language
12 (1998), section 3.2 (constrained transforms of diagonal models), row by row. Symbols:

    T, D, g        frames, features, Gaussians;  d a row, 1 .. D
    x (D,)         a frame;  x+ (D + 1,) with 1 appended
    W (D, D + 1)   the transform [A b]: features become W x+;  w_d its row d
    gamma_tg       posterior of Gaussian g at frame t, times the weight of the frame;  m_g, v_g its mean and variance

    beta = sum_tg gamma_tg
    K (D, D + 1) = sum_t a_t x+_t',      a_t = sum_g gamma_tg m_g / v_g    (D,)                                 (1)
    G_d (D + 1, D + 1) = sum_t b_td x+_t x+_t',   b_t = sum_g gamma_tg / v_g   (D,)                             (2)

The expected log-likelihood, as a function of W and up to a constant:

    Q(W) = beta log |det A| + sum_d (w_d k_d' - 1/2 w_d G_d w_d')                                               (3)

Row d enters the determinant linearly: det A is proportional to w_d p', where p (D + 1,) is column d of A^-1 with a 0
appended, and the other rows are held fixed. So Q is largest, as a function of this row, at

    w_d = (alpha p + k_d) G_d^-1                                                                                (4)
    alpha^2 (p G_d^-1 p') + alpha (p G_d^-1 k_d') - beta = 0                                                    (5)

Of the two alpha the one of smaller size makes Q larger: it is also the one with the larger determinant, so

    alpha = 2 beta / (q + sign(q) sqrt(q^2 + 4 beta p G_d^-1 p')),   q = p G_d^-1 k_d'                          (6)

After the change of a row by delta = w_d' - w_d (its first D elements), the inverse follows by

    A^-1 <- A^-1 - p (delta A^-1) / (1 + delta p)                                                               (7)

A diagonal A has a solution without iteration: of (3) with row (s, t) at the places d and D + 1,

    t = (K_d,D+1 - s G_d,d,D+1) / G_d,D+1,D+1,   s^2 c_1 - s c_2 - beta = 0                                     (8)
    c_1 = G_d,d,d - G_d,d,D+1^2 / G_d,D+1,D+1,   c_2 = K_d,d - K_d,D+1 G_d,d,D+1 / G_d,D+1,D+1

where s is the positive root; and with A the unit matrix, t is (8) with s = 1.

The numbers are those of Kaldi's gmm-est-fmllr.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.model import AmDiagGmm, extended
from ngsgd.gmm.stats import gaussian_posteriors
from ngsgd.options import opt

log = logging.getLogger(__name__)

_BATCH = 16384  # frames whose Gaussians are looked at together
_CHUNK = 256  # frames of one product: their 861 products of two features (D = 40) stay in the cache
_WORST_CONDITION = 1e12


@dataclass
class FmllrOptions:
    """How transforms are estimated."""

    fmllr_update_type: str = opt(
        "full", "what is estimated of the transform", choices=("full", "diag", "offset", "none")
    )
    fmllr_min_count: float = opt(500.0, "frames below which a speaker gets the unit transform", at_least=0)
    fmllr_num_iters: int = opt(40, "passes over the rows of a full transform", at_least=1)


class FmllrStats:
    """The sums (1) and (2) of one speaker; adds with `+=`.

    beta; K (D, D + 1); packed (D, (D + 1)(D + 2) / 2): the lower triangles of the G_d, row by row. float64.
    """

    def __init__(self, dim: int):
        self.beta = 0.0
        self.K = np.zeros((dim, dim + 1))
        self.packed = np.zeros((dim, (dim + 1) * (dim + 2) // 2))

    @property
    def dim(self) -> int:
        """D."""
        return len(self.K)

    def G(self) -> np.ndarray:
        """(D, D + 1, D + 1): the symmetric matrices of equation (2)."""
        full = np.empty((self.dim, self.dim + 1, self.dim + 1))
        row, column = np.tril_indices(self.dim + 1)
        full[:, row, column] = full[:, column, row] = self.packed
        return full

    def accumulate(self, feats: np.ndarray, a: np.ndarray, b: np.ndarray, weight: float) -> None:
        """Frames feats (T, D) with the a and b (T, D) of equations (1) and (2); weight: sum of all their gamma."""
        self.beta += weight
        size = self.dim + 1
        products = np.empty((self.packed.shape[1], min(_CHUNK, len(feats))))
        for begin in range(0, len(feats), _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            x = np.ones((size, len(feats[chunk])))
            x[:-1] = feats[chunk].T
            self.K += a[chunk].T @ x.T
            xx = products[:, : x.shape[1]]
            for row in range(size):
                at = row * (row + 1) // 2
                np.multiply(x[: row + 1], x[row], out=xx[at : at + row + 1])
            self.packed += b[chunk].T @ xx.T

    def __iadd__(self, other: FmllrStats) -> FmllrStats:
        if self.dim != other.dim:
            raise DataError(f"fMLLR statistics of {self.dim} and {other.dim} dimensions cannot be added")
        self.beta += other.beta
        self.K += other.K
        self.packed += other.packed
        return self

    def objective(self, transform: np.ndarray) -> float:
        """Q of equation (3)."""
        _, log_det = np.linalg.slogdet(transform[:, :-1])
        quadratic = np.einsum("di,dij,dj->", transform, self.G(), transform, optimize=True)
        return float(self.beta * log_det + (transform * self.K).sum() - 0.5 * quadratic)


class FmllrAccumulator:
    """Collects utterances and adds them to the statistics of their speakers in batches; `flush` before using them.

    `posteriors_of`: take the posteriors of the Gaussians from this model instead (SAT's alignment model, of the same
    Gaussians in the space without transforms).
    """

    def __init__(self, gmm: AmDiagGmm, posteriors_of: AmDiagGmm | None = None):
        posteriors_of = posteriors_of or gmm
        if not np.array_equal(gmm.offsets, posteriors_of.offsets) or gmm.dim != posteriors_of.dim:
            raise DataError(
                f"the model has {gmm.num_gauss} Gaussians of {gmm.num_pdfs} pdfs in {gmm.dim} dimensions, the one for "
                f"posteriors {posteriors_of.num_gauss} of {posteriors_of.num_pdfs} in {posteriors_of.dim}; the latter "
                "must be an alignment model of the former"
            )
        self._stats: dict[str, FmllrStats] = {}
        self._gmm = gmm
        self._params = posteriors_of.params().astype(np.float64)
        self._targets = np.concatenate([gmm.means_invvars, gmm.inv_vars], axis=1).astype(np.float64)
        self._waiting: list[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._frames = 0

    def add(self, speaker: str, feats: np.ndarray, frame: np.ndarray, pdf: np.ndarray, weight: np.ndarray) -> None:
        """One utterance: feats (T, D); frame (ascending), pdf, weight (N,) of each label. DataError for another D."""
        if feats.ndim != 2 or feats.shape[1] != self._gmm.dim:
            raise DataError(f"features have shape {feats.shape}, the model wants {self._gmm.dim} columns")
        keep = weight != 0
        self._waiting.append((speaker, feats, frame[keep], pdf[keep], weight[keep]))
        self._frames += len(feats)
        if self._frames >= _BATCH:
            self.flush()

    def of(self, speaker: str) -> FmllrStats:
        """The statistics of a speaker; zero when nothing was added."""
        return self._stats.setdefault(speaker, FmllrStats(self._gmm.dim))

    def flush(self) -> None:
        """Add what is waiting to the statistics."""
        waiting, self._waiting, self._frames = self._waiting, [], 0
        if not waiting:
            return
        speakers, feats, frames, pdfs, weights = zip(*waiting, strict=True)
        first = np.cumsum([0, *map(len, feats)])  # frame of each utterance
        frame = np.concatenate([f + begin for f, begin in zip(frames, first[:-1], strict=True)])
        weight = np.concatenate(weights)
        feats = np.concatenate(feats)
        sums = self._frame_sums(feats[frame], np.concatenate(pdfs), weight)
        labelled, starts = np.unique(frame, return_index=True)
        if len(labelled) < len(frame):
            sums = np.add.reduceat(sums, starts)
            weight = np.add.reduceat(weight, starts)
        ends = np.searchsorted(labelled, first)
        a, b = np.split(sums, 2, axis=1)
        begin = 0
        for speaker, utterances in groupby(speakers):
            end = begin + len(list(utterances))
            part = slice(ends[begin], ends[end])
            self.of(speaker).accumulate(feats[labelled[part]], a[part], b[part], float(weight[part].sum()))
            begin = end

    def _frame_sums(self, feats: np.ndarray, pdf: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """(N, 2 D): [a_t, b_t] of equations (1) and (2), of labels with feats (N, D), pdf and weight (N,)."""
        order = np.argsort(pdf, kind="stable")
        x = extended(feats[order], self._gmm.dim, np.float64)
        weight = weight[order]
        ends = np.cumsum(np.bincount(pdf, minlength=self._gmm.num_pdfs))
        sums = np.empty((len(x), self._targets.shape[1]))
        begin = 0
        for p in np.flatnonzero(np.diff(ends, prepend=0)):
            gaussians, part = slice(self._gmm.offsets[p], self._gmm.offsets[p + 1]), slice(begin, ends[p])
            post, _ = gaussian_posteriors(self._params[gaussians], x[part])
            post *= weight[part]
            sums[order[part]] = post.T @ self._targets[gaussians]
            begin = ends[p]
        return sums


def estimate(stats: FmllrStats, options: FmllrOptions, speaker: str) -> tuple[np.ndarray, float]:
    """The transform W (D, D + 1) float32 of these statistics, and by how much Q rose.

    The unit transform, with a warning that names `speaker`, where there are too few frames, or too few different ones,
    or nothing is gained.
    """
    unit = np.eye(stats.dim, stats.dim + 1, dtype=np.float32)
    if options.fmllr_update_type == "none":
        return unit, 0.0
    if stats.beta <= options.fmllr_min_count:
        log.warning(
            "%s: %.4g frames, not more than --fmllr-min-count=%g: unit transform",
            *(speaker, stats.beta, options.fmllr_min_count),
        )
        return unit, 0.0
    update = {"full": _full, "diag": _diagonal, "offset": _offset}[options.fmllr_update_type]
    with np.errstate(all="ignore"):  # what is no number, or no better, is found below
        transform = update(stats, options.fmllr_num_iters)
        gain = stats.objective(transform) - stats.objective(unit) if transform is not None else np.nan
    if not gain >= 0:
        why = "no transform found that is better" if gain < 0 else "the frames are too alike to estimate a transform"
        log.warning("%s: %s: unit transform", speaker, why)
        return unit, 0.0
    return transform.astype(np.float32), gain


def _full(stats: FmllrStats, iterations: int) -> np.ndarray | None:
    """Equations (4) to (7), from the unit transform; None where a G_d cannot be inverted."""
    dim, beta, second = stats.dim, stats.beta, stats.G()
    try:
        inverse_g = np.linalg.inv(second)  # (D, D + 1, D + 1)
    except np.linalg.LinAlgError:
        return None
    condition = np.linalg.norm(second, axis=(1, 2)) * np.linalg.norm(inverse_g, axis=(1, 2))
    if not (condition < _WORST_CONDITION).all():
        return None
    from_k = np.einsum("dij,dj->di", inverse_g, stats.K)  # k_d G_d^-1
    inner, from_p = inverse_g[:, :dim, :dim], inverse_g[:, :, :dim]
    transform = np.eye(dim, dim + 1)
    for _ in range(iterations):
        inverse = np.linalg.inv(transform[:, :-1])
        for d in range(dim):
            p = inverse[:, d]
            q = p @ from_k[d, :-1]
            alpha = 2.0 * beta / (q + math.copysign(math.sqrt(q * q + 4.0 * beta * (p @ inner[d] @ p)), q))  # (6)
            row = alpha * (from_p[d] @ p) + from_k[d]  # (4)
            delta = row[:-1] - transform[d, :-1]
            inverse = inverse - (p / (1.0 + delta @ p))[:, None] * (delta @ inverse)  # (7)
            transform[d] = row
    return transform


def _diagonal(stats: FmllrStats, _iterations: int) -> np.ndarray:
    """Equation (8)."""
    at = np.arange(stats.dim)
    second = stats.G()
    own, cross, ones = second[at, at, at], second[at, at, -1], second[:, -1, -1]
    c1 = own - cross**2 / ones
    c2 = stats.K[at, at] - stats.K[:, -1] * cross / ones
    transform = np.zeros((stats.dim, stats.dim + 1))
    transform[at, at] = scale = (c2 + np.sqrt(c2**2 + 4.0 * c1 * stats.beta)) / (2.0 * c1)
    transform[:, -1] = (stats.K[:, -1] - scale * cross) / ones
    return transform


def _offset(stats: FmllrStats, _iterations: int) -> np.ndarray:
    """Equation (8) with s = 1."""
    at = np.arange(stats.dim)
    second = stats.G()
    transform = np.eye(stats.dim, stats.dim + 1)
    transform[:, -1] = (stats.K[:, -1] - second[at, at, -1]) / second[:, -1, -1]
    return transform
