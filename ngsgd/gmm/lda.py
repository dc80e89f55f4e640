"""Linear discriminant analysis (LDA) of features whose classes are pdfs.

Symbols: C classes (pdfs), D dimensions (spliced features), x (D,) a frame, w its weight.

    W, B   within- and between-class covariance (D, D); their sum is that of all frames
    s_i = √W_ii,  R = W / (s sᵀ)               within-class correlations                                        (1)
    R = V P Vᵀ,   L = diag(s) V √P             W = L Lᵀ                                                         (2)
    U Λ Uᵀ = L⁻¹ B L⁻ᵀ                         λ falling: between-class variance where W is the unit matrix     (3)
    A = Uᵀ L⁻¹                                 A W Aᵀ = I, A B Aᵀ = Λ                                           (4)
    A_i ← A_i √((f + λ_i) / (1 + λ_i))         f = within_class_factor; 1: plain LDA                            (5)

A is unique up to the sign of its rows (where the λ differ), and Kaldi's est-lda gives the same. Kaldi takes a Cholesky
factor for L, which breaks down on a singular W: a constant column, copies of a column, fewer frames than dimensions.
(1) and (2) show which scales and correlations are no more than rounding errors. A constant column is left out; where an
eigenvalue is none,

    P ← (1 - ρ) P + ρ                                                                                           (6)
    ρ = ((1 - 2/D) tr P² + tr² P) / ((n + 1 - 2/D) (tr P² - tr² P / D)),  at most 1, at least 0.001             (7)

with n frames less the classes: the oracle approximating shrinkage of Y. Chen, A. Wiesel, Y. Eldar, A. Hero, "Shrinkage
algorithms for MMSE covariance estimation", IEEE Transactions on Signal Processing 58 (2010).

File format: Kaldi's LDA accumulators, byte for byte.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import for_each, read_features, require_most
from ngsgd.features.transform import SpliceOptions, splice
from ngsgd.gmm.posteriors import PruneOptions, pruned, uniform
from ngsgd.hmm.labels import LabelOptions, Labels
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.kaldi_io.copying import OutputOptions
from ngsgd.kaldi_io.packed import read_symmetric, write_symmetric
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)

_CONSTANT = 1e-5  # standard deviation within classes, of the root mean square, that is a rounding error
_SINGULAR = 1e-6  # smallest eigenvalue of R, of the largest, that statistics in single precision can tell from 0
_FLOOR = 1e-3  # what such eigenvalues become at least; their mean is 1


class LdaStats:
    """Sums over frames: `count` (C,), `first` (C, D) and `second` (D, D) moments, float64. Two of them add up."""

    def __init__(self, count: np.ndarray, first: np.ndarray, second: np.ndarray):
        self.count, self.first, self.second = count, first, second

    @classmethod
    def zeros(cls, classes: int, dim: int) -> LdaStats:
        """No frames."""
        return cls(np.zeros(classes), np.zeros((classes, dim)), np.zeros((dim, dim)))

    def accumulate(self, x: np.ndarray, label: np.ndarray, weight: np.ndarray) -> None:
        """Add frames x (N, D) of classes label (N,) with weights (N,); rows may repeat."""
        if not len(x):
            return
        weighted = weight[:, None] * x.astype(np.float64)
        self.second += weighted.T @ x
        order = np.argsort(label, kind="stable")
        classes, starts = np.unique(label[order], return_index=True)
        self.first[classes] += np.add.reduceat(weighted[order], starts)
        self.count += np.bincount(label, weight, minlength=len(self.count))

    def __add__(self, other: LdaStats) -> LdaStats:
        if self.first.shape != other.first.shape:
            raise DataError(
                f"LDA statistics of {self.first.shape} and {other.first.shape} (classes, dimensions) do not add up"
            )
        return LdaStats(self.count + other.count, self.first + other.first, self.second + other.second)

    def covariances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Within- and between-class covariance (D, D), and the mean (D,). DataError without frames."""
        total = self.count.sum()
        if not total > 0:
            raise DataError("the LDA statistics hold no frames")
        mean = self.first.sum(axis=0) / total
        seen = self.count > 0
        weight = np.sqrt(self.count[seen, None])
        centred = self.first[seen] / weight - weight * mean  # a difference of means, not of their squares
        return (self.second - self._explained()) / total, centred.T @ centred / total, mean

    def _explained(self) -> np.ndarray:
        """Σ_c first_c first_cᵀ / count_c, which the stored form leaves out of `second` to keep it precise."""
        seen = self.count > 0
        scaled = self.first[seen] / np.sqrt(self.count[seen, None])
        return scaled.T @ scaled

    @classmethod
    def read(cls, reader: Any) -> LdaStats:
        """From a TokenReader, in Kaldi's form."""
        reader.expect("<LDAACCS>")
        reader.expect("<VECSIZE>")
        dim = reader.int32()
        reader.expect("<NUMCLASSES>")
        classes = reader.int32()
        reader.expect("<ZERO_ACCS>")
        count = reader.vector(np.float64)
        reader.expect("<FIRST_ACCS>")
        first = reader.matrix(np.float64)
        reader.expect("<SECOND_ACCS>")
        second = read_symmetric(reader)
        reader.expect("</LDAACCS>")
        if (len(count), first.shape, second.shape) != (classes, (classes, dim), (dim, dim)):
            raise reader.error(f"LDA statistics: expected {classes} classes of {dim} dimensions")
        stats = cls(count, first, second)
        stats.second += stats._explained()
        return stats

    def write(self, writer: Any) -> None:
        """To a TokenWriter, in Kaldi's form: single precision, `second` without what the class means explain."""
        writer.token("<LDAACCS>")
        writer.token("<VECSIZE>")
        writer.int32(self.first.shape[1])
        writer.token("<NUMCLASSES>")
        writer.int32(len(self.count))
        writer.token("<ZERO_ACCS>")
        writer.vector(self.count.astype(np.float32))
        writer.token("<FIRST_ACCS>")
        writer.matrix(self.first.astype(np.float32))
        writer.token("<SECOND_ACCS>")
        write_symmetric(writer, (self.second - self._explained()).astype(np.float32))
        writer.token("</LDAACCS>")


@dataclass(kw_only=True)
class AccLdaOptions(LabelOptions, PruneOptions, OutputOptions):
    """How features are spliced, which labels count, and what is written."""

    left_context: int = opt(0, "frames before, to splice the features with", at_least=0)
    right_context: int = opt(0, "frames after, to splice the features with", at_least=0)
    const_dim: int = opt(0, "last columns (an i-vector) that are not spliced, but appended once", at_least=0)


def accumulate_lda(model: str, features: str, labels: str, wxfilename: str, options: AccLdaOptions) -> tuple[int, int]:
    """Write LDA statistics of features whose classes are pdfs; returns (done, failed) utterances.

    As Kaldi's acc-lda; with `alignments`, `silence_phones` and contexts it also does what ali-to-post,
    weight-silence-post and splice-feats do before it.
    """
    transitions = read_transition_model(model)
    find = Labels(labels, transitions, options)
    stats: LdaStats | None = None

    def work(key: str, x: np.ndarray) -> None:
        nonlocal stats
        frame, tid, weight = find(key, len(x))
        x = spliced(x, options)
        if stats is None:
            stats = LdaStats.zeros(transitions.num_pdfs, x.shape[1])
        if x.shape[1] != stats.first.shape[1]:
            raise DataError(f"{x.shape[1]} dimensions, the utterances before had {stats.first.shape[1]}")
        weight = pruned(weight, options.rand_prune, uniform(key, len(weight)))
        keep = weight != 0
        stats.accumulate(x[frame[keep]], transitions.tid_to_pdf[tid[keep]], weight[keep])

    done, failed = for_each(read_features(features), work)
    find.warn()
    require_most(done, failed, features)
    with open_writer(wxfilename, options.binary) as writer:
        stats.write(writer)
    return done, failed


def spliced(x: np.ndarray, options: AccLdaOptions) -> np.ndarray:
    """Features (T, D) as the network's splicing component arranges them, the first and last frame repeated."""
    if not (options.left_context or options.right_context):
        return x
    dim = x.shape[1] - options.const_dim
    if dim < 1:
        raise DataError(f"--const-dim={options.const_dim}: the features have {x.shape[1]} dimensions in all")
    context = SpliceOptions(left_context=options.left_context, right_context=options.right_context)
    if not options.const_dim:
        return splice(x, context)
    return np.hstack((splice(x[:, :dim], context), splice(x[:, dim:], context)[:, : options.const_dim]))


def read_lda_stats(rxfilenames: tuple[str, ...]) -> LdaStats:
    """The sum of statistics files. DataError, naming the file, where they do not add up."""
    total: LdaStats | None = None
    for name in rxfilenames:
        with open_reader(name) as reader:
            stats = LdaStats.read(reader)
        try:
            total = stats if total is None else total + stats
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
    return total


def sum_lda_stats(wxfilename: str, rxfilenames: tuple[str, ...], output: OutputOptions) -> int:
    """Write the sum of statistics files; returns how many there were."""
    total = read_lda_stats(rxfilenames)
    with open_writer(wxfilename, output.binary) as writer:
        total.write(writer)
    return len(rxfilenames)


@dataclass(kw_only=True)
class EstLdaOptions(OutputOptions):
    """The transform's shape and scales."""

    dim: int = opt(40, "dimensions to keep, those with most between-class variance", at_least=1)
    allow_large_dim: bool = opt(False, "keep all where the features have fewer dimensions than that")
    remove_offset: bool = opt(False, "append a column that moves the mean to 0")
    within_class_factor: float = opt(
        1.0, "variance that is left of the within-class variance, 1: plain LDA", at_least=0, at_most=1
    )
    shrinkage: float = opt(
        0.0, "part by which correlations within classes are shrunk towards 0, for few frames", at_least=0, at_most=1
    )
    write_full_matrix: str = opt("", "also write all rows, those that are not kept too, to this file")


@dataclass
class Discriminants:
    """Result of `discriminants`: rows (D, D) float64 and between-class variance (D,), falling; mean (D,)."""

    rows: np.ndarray
    variance: np.ndarray
    mean: np.ndarray

    def with_offset(self, matrix: np.ndarray) -> np.ndarray:
        """A transform (n, D) with the column (n, D + 1) that moves the mean to 0."""
        return np.hstack((matrix, -(matrix @ self.mean)[:, None]))


def discriminants(stats: LdaStats, within_class_factor: float = 1.0, shrinkage: float = 0.0) -> Discriminants:
    """All directions, the most discriminative first; equations (1) to (5) above.

    A singular within-class covariance is floored, with a warning. DataError without frames, and where nothing varies.
    """
    within, between, mean = stats.covariances()
    frames = stats.count.sum()
    size = np.sqrt(np.diag(stats.second) / frames)
    inverse = _inverse_root(within, size, frames - np.count_nonzero(stats.count), shrinkage)
    u, variance, _ = np.linalg.svd(inverse @ between @ inverse.T)  # (3)
    rows = u.T @ inverse  # (4)
    f = within_class_factor
    rows *= np.sqrt((f + variance) / (1 + variance))[:, None]  # (5)
    return Discriminants(rows, variance, mean)


def _inverse_root(within: np.ndarray, size: np.ndarray, frames: float, shrinkage: float) -> np.ndarray:
    """L⁻¹ of equation (2); size (D,) is the root mean square of the columns, frames what `within` was estimated of."""
    scale = np.sqrt(np.maximum(np.diag(within), 0))
    constant = scale <= _CONSTANT * size
    if constant.all():
        raise DataError("the within-class covariance of the LDA statistics is zero: constant features?")
    if constant.any():
        log.warning(
            "%d of %d columns of the features are constant within the classes, such as column %d: left out",
            *(constant.sum(), len(scale), np.flatnonzero(constant)[0]),
        )
    correlation = within / np.outer(np.where(constant, 1.0, scale), np.where(constant, 1.0, scale))  # (1)
    correlation += shrinkage * (np.diag(np.diag(correlation)) - correlation)
    correlation[constant] = correlation[:, constant] = 0.0
    correlation[constant, constant] = 1.0
    power, v = np.linalg.eigh(correlation)
    if power[0] < _SINGULAR * power[-1]:
        least = max(_oas(power, frames), _FLOOR)
        log.warning(
            "the within-class covariance is singular (fewer frames than dimensions, columns that follow from others): "
            "correlations shrunk by %.3g",
            least,
        )
        power = (1 - least) * np.maximum(power, 0) + least  # (6)
    inverse = (v / np.sqrt(power)).T / np.where(constant, 1.0, scale)  # (2)
    inverse[:, constant] = 0.0
    return inverse


def _oas(power: np.ndarray, frames: float) -> float:
    """How far to shrink correlations with eigenvalues power (D,), of so many frames; equation (7)."""
    dim, total, squares = len(power), power.sum(), (power**2).sum()
    spread = (frames + 1 - 2 / dim) * (squares - total**2 / dim)
    wanted = (1 - 2 / dim) * squares + total**2
    return float(wanted / spread) if wanted < spread else 1.0


def estimate_lda(wxfilename: str, rxfilenames: tuple[str, ...], options: EstLdaOptions) -> None:
    """Write the LDA transform (dim, D), float32, of the sum of statistics files, as Kaldi's est-lda.

    DataError for more dimensions than there are, unless that is allowed, and as `discriminants`.
    """
    stats = read_lda_stats(rxfilenames)
    found = discriminants(stats, options.within_class_factor, options.shrinkage)
    dim = min(options.dim, len(found.mean))
    if dim < options.dim and not options.allow_large_dim:
        raise DataError(f"--dim={options.dim}: the features have only {dim} dimensions (--allow-large-dim: keep those)")
    log.info(
        "%g frames; between-class variances kept: %.6g of %.6g",
        *(stats.count.sum(), found.variance[:dim].sum(), found.variance.sum()),
    )
    for name, rows in ((options.write_full_matrix, found.rows), (wxfilename, found.rows[:dim])):
        if name:
            matrix = found.with_offset(rows) if options.remove_offset else rows
            with open_writer(name, options.binary) as writer:
                writer.matrix(matrix.astype(np.float32))
