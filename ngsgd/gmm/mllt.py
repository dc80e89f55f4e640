"""MLLT: a square transform of the features, the same for all, that makes diagonal covariances fit best.

M.J.F. Gales, "Semi-tied covariance matrices for hidden Markov models", IEEE Transactions on Speech and Audio Processing
7 (1999), with one transform for all Gaussians and their variances held fixed. Symbols:

    D, d, g        features, one of them, Gaussians;  x (D,) a frame
    gamma_tg       posterior of Gaussian g at frame t, times the weight of the frame;  m_g, v_g its mean and variance
    A (D, D)       the transform; a_d its row d

    beta = sum_tg gamma_tg
    G_d (D, D) = sum_tg gamma_tg / v_gd (x_t - m_g)(x_t - m_g)'                                                 (1)

The product out of (1) needs of the Gaussians only their sums, and of frames one weight for each d, however many
Gaussians there are:

    b_td = sum_g gamma_tg / v_gd,   n_g = sum_t gamma_tg,   s_g = sum_t gamma_tg x_t
    G_d = sum_t b_td x_t x_t' + sum_g (n_g m_g m_g' - s_g m_g' - m_g s_g') / v_gd                               (2)

The expected log-likelihood, as a function of A and up to a constant:

    Q(A) = beta log |det A| - 1/2 sum_d a_d G_d a_d'                                                            (3)

Row by row, with c the column d of A^-1 (up to a factor the cofactors of row d, det A is proportional to a_d c):

    a_d = c' G_d^-1 √(beta / (c' G_d^-1 c))                                                                     (4)

until a pass over the rows adds next to nothing. Afterwards features are A x, means A m_g. The numbers are those of
Kaldi's gmm-acc-mllt and est-mllt.

File format: Kaldi's MLLT accumulators, byte for byte.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import for_each, read_features, require_most
from ngsgd.gmm.model import AmDiagGmm, extended, read_model, write_model
from ngsgd.gmm.posteriors import PruneOptions, pruned, uniform
from ngsgd.gmm.stats import gaussian_posteriors
from ngsgd.hmm.labels import LabelOptions, Labels
from ngsgd.kaldi_io.copying import OutputOptions
from ngsgd.kaldi_io.packed import read_symmetric, write_symmetric
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)

_BATCH = 16384  # frames whose Gaussians are looked at together
_CHUNK = 256  # frames of one product: their 820 products of two features (D = 40) stay in the cache
_ENOUGH = 1e-7  # rise of Q a frame by a pass over the rows, that is not worth another


class MlltStats:
    """beta and G (D, D, D) of equation (1), float64; adds with `+=`."""

    def __init__(self, dim: int):
        self.beta = 0.0
        self.G = np.zeros((dim, dim, dim))

    @property
    def dim(self) -> int:
        """D."""
        return len(self.G)

    def __iadd__(self, other: MlltStats) -> MlltStats:
        if self.dim != other.dim:
            raise DataError(f"MLLT statistics of {self.dim} and {other.dim} dimensions do not add up")
        self.beta += other.beta
        self.G += other.G
        return self

    def objective(self, matrix: np.ndarray) -> float:
        """Q of equation (3)."""
        _, log_det = np.linalg.slogdet(matrix)
        return float(self.beta * log_det - 0.5 * np.einsum("di,dij,dj->", matrix, self.G, matrix, optimize=True))

    @classmethod
    def read(cls, reader) -> MlltStats:
        """From a TokenReader."""
        reader.expect("<MlltAccs>")
        beta = reader.float64()
        dim = reader.count("dimensions")
        reader.expect("<G>")
        G = []
        for _ in range(dim):
            G.append(read_symmetric(reader))
            if len(G[-1]) != dim:
                raise reader.error(f"MLLT statistics: expected matrices of {dim} dimensions, found {len(G[-1])}")
        reader.expect("</MlltAccs>")
        if not G:
            raise reader.error("MLLT statistics of 0 dimensions")
        stats = cls(0)
        stats.beta, stats.G = beta, np.array(G)
        return stats

    def write(self, writer) -> None:
        """To a TokenWriter."""
        writer.token("<MlltAccs>")
        writer.float64(self.beta)
        writer.int32(self.dim)
        writer.token("<G>")
        for matrix in self.G:
            write_symmetric(writer, matrix)
        writer.token("</MlltAccs>")


class MlltAccumulator:
    """Collects labelled utterances and adds them up in batches; `stats` is the result."""

    def __init__(self, gmm: AmDiagGmm, rand_prune: float = 0.0):
        self._gmm, self._rand_prune = gmm, rand_prune
        self._params = gmm.params().astype(np.float64)
        self._inv_vars = gmm.inv_vars.astype(np.float64)
        self._row, self._column = np.tril_indices(gmm.dim)
        self._packed = np.zeros((gmm.dim, len(self._row)))  # the first sum of (2), lower triangles
        self._occ = np.zeros(gmm.num_gauss)
        self._sums = np.zeros((gmm.num_gauss, gmm.dim))
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._frames = 0
        self.total_like = 0.0
        self.total_weight = 0.0

    def add(self, key: str, x: np.ndarray, pdf: np.ndarray, weight: np.ndarray) -> None:
        """Frames x (N, D) of an utterance with pdf and weight (N,) each; rows may repeat. DataError for another D."""
        if x.ndim != 2 or x.shape[1] != self._gmm.dim:
            raise DataError(f"features have shape {x.shape}, the model wants {self._gmm.dim} columns")
        drawn = uniform(key, len(x), int(self._gmm.counts.max()) if self._rand_prune else 0)
        self._waiting.append((x, pdf, weight, drawn))
        self._frames += len(x)
        if self._frames >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._frames:
            return
        feats, pdf, weight, drawn = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        self._waiting, self._frames = [], 0
        order = np.argsort(pdf.astype(np.int32), kind="stable")
        x, weight, drawn = extended(feats[order], self._gmm.dim, np.float64), weight[order], drawn[order]
        ends = np.cumsum(np.bincount(pdf, minlength=self._gmm.num_pdfs))
        b = np.empty((len(x), self._gmm.dim))
        begin = 0
        for p in np.flatnonzero(np.diff(ends, prepend=0)):
            gaussians, part = slice(self._gmm.offsets[p], self._gmm.offsets[p + 1]), slice(begin, ends[p])
            gamma, like = gaussian_posteriors(self._params[gaussians], x[part])
            self.total_like += float(like @ weight[part])
            gamma = pruned(gamma * weight[part], self._rand_prune, drawn[part, : len(gamma)].T)
            np.matmul(gamma.T, self._inv_vars[gaussians], out=b[part])
            self._occ[gaussians] += gamma.sum(axis=1)
            self._sums[gaussians] += gamma @ x[part, : self._gmm.dim]
            begin = ends[p]
        self.total_weight += float(weight.sum())
        for begin in range(0, len(x), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            columns = np.ascontiguousarray(x[part, : self._gmm.dim].T)
            self._packed += b[part].T @ (columns[self._row] * columns[self._column]).T

    def stats(self) -> MlltStats:
        """Equation (2) of all that was added. DataError when that is not finite."""
        self._flush()
        stats = MlltStats(self._gmm.dim)
        stats.beta = float(self._occ.sum())
        stats.G[:, self._row, self._column] = stats.G[:, self._column, self._row] = self._packed
        means = self._gmm.means()
        for d in range(stats.dim):
            precision = self._inv_vars[:, d, None]
            cross = (self._sums * precision).T @ means
            stats.G[d] += (means * (precision * self._occ[:, None])).T @ means - cross - cross.T
        if not np.isfinite(stats.G).all():
            raise DataError("overflow in the MLLT statistics: bad features, or bad variances in the model")
        return stats


@dataclass(kw_only=True)
class AccMlltOptions(LabelOptions, PruneOptions, OutputOptions):
    """Which labels count; posteriors of Gaussians below rand-prune are drawn from."""


def accumulate_mllt(
    model: str, features: str, labels: str, wxfilename: str, options: AccMlltOptions
) -> tuple[int, int]:
    """Write MLLT statistics of a GMM's features; returns (done, failed) utterances.

    As Kaldi's gmm-acc-mllt; with `alignments` and `silence_phones` also what ali-to-post and weight-silence-post do
    before it.
    """
    transitions, gmm = read_model(model)
    find = Labels(labels, transitions, options)
    accumulator = MlltAccumulator(gmm, options.rand_prune)

    def work(key: str, x: np.ndarray) -> None:
        frame, tid, weight = find(key, len(x))
        keep = weight != 0
        accumulator.add(key, x[frame[keep]], transitions.tid_to_pdf[tid[keep]], weight[keep])

    done, failed = for_each(read_features(features), work)
    find.warn()
    require_most(done, failed, features)
    stats = accumulator.stats()
    log.info(
        "%.6g frames, log-likelihood %.4f a frame",
        *(accumulator.total_weight, accumulator.total_like / max(accumulator.total_weight, 1e-9)),
    )
    with open_writer(wxfilename, options.binary) as writer:
        stats.write(writer)
    return done, failed


@dataclass(kw_only=True)
class EstMlltOptions(OutputOptions):
    """When the estimation ends."""

    num_iters: int = opt(200, "most passes over the rows of the transform", at_least=1)


def estimate_mllt(stats: MlltStats, num_iters: int = 200) -> np.ndarray:
    """The transform A (D, D) float64, equation (4) from the unit matrix on.

    The unit matrix, with a warning, for fewer than 2 D frames or a singular G_d: a constant column, for one.
    """
    dim, beta = stats.dim, stats.beta
    matrix = np.eye(dim)
    if beta < 2 * dim:
        log.warning("%.6g frames are too few for an MLLT of %d dimensions: unit transform", beta, dim)
        return matrix
    if beta < 10 * dim:
        log.warning("%.6g frames are few for an MLLT of %d dimensions", beta, dim)
    eigenvalues = np.linalg.eigvalsh(stats.G)
    if not (eigenvalues[:, 0] > 1e-12 * eigenvalues[:, -1]).all():
        log.warning("singular MLLT statistics, as of a column that is constant or follows from others: unit transform")
        return matrix
    inverse_g = np.linalg.inv(stats.G)
    before = start = stats.objective(matrix)
    for _ in range(num_iters):
        for d in range(dim):
            unit = np.zeros(dim)
            unit[d] = 1.0
            c = np.linalg.solve(matrix, unit)  # column d of the inverse
            direction = inverse_g[d] @ c
            matrix[d] = direction * np.sqrt(beta / (c @ direction))  # (4)
        now = stats.objective(matrix)
        rise, before = now - before, now
        if rise < _ENOUGH * beta:
            break
    _, log_det = np.linalg.slogdet(matrix)
    log.info(
        "objective rose by %.6g a frame over %.6g frames; log-determinant %.6g", (now - start) / beta, beta, log_det
    )
    return matrix


def estimate_mllt_file(wxfilename: str, rxfilenames: tuple[str, ...], options: EstMlltOptions) -> None:
    """Write the transform, float32, of the sum of statistics files, as Kaldi's est-mllt."""
    total: MlltStats | None = None
    for name in rxfilenames:
        with open_reader(name) as reader:
            stats = MlltStats.read(reader)
        if total is None:
            total = stats
        else:
            try:
                total += stats
            except DataError as error:
                raise DataError(f"{name}: {error}") from None
    matrix = estimate_mllt(total, options.num_iters).astype(np.float32)
    with open_writer(wxfilename, options.binary) as writer:
        writer.matrix(matrix)


def transform_means(gmm: AmDiagGmm, matrix: np.ndarray) -> AmDiagGmm:
    """The model with means A m, or with an offset in the last column A [m 1]; variances stay.

    Raises DataError for a matrix of another shape than (D, D) or (D, D + 1).
    """
    dim = gmm.dim
    if matrix.shape not in ((dim, dim), (dim, dim + 1)):
        raise DataError(
            f"a transform of {' x '.join(map(str, matrix.shape))}, expected {dim} x {dim} or {dim} x {dim + 1}"
        )
    means = gmm.means() @ matrix[:, :dim].T.astype(np.float64)
    if matrix.shape[1] > dim:
        means += matrix[:, dim]
    return AmDiagGmm(gmm.offsets, gmm.weights, means * gmm.inv_vars, gmm.inv_vars)


def transform_model_means(matrix: str, source: str, target: str, output: OutputOptions) -> None:
    """Write a model with its means transformed, as Kaldi's gmm-transform-means."""
    with open_reader(matrix) as reader:
        transform = reader.matrix()
    transitions, gmm = read_model(source)
    write_model(target, transitions, transform_means(gmm, transform), output.binary)
