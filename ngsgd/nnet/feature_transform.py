"""The input transform of a network, made like linear discriminant analysis (LDA).

Symbols: C classes (pdfs), D dimensions (spliced features), x (D,) a frame, w its weight.

    T, B, W   total, between-class and within-class covariance (D, D): T = B + W
    L Lᵀ = W                                   Cholesky
    U Λ Uᵀ = L⁻¹ B L⁻ᵀ                         λ falling: between-class variance where W is the unit matrix     (1)
    A = Uᵀ L⁻¹                                 conventional LDA: A W Aᵀ = I, A B Aᵀ = Λ                          (2)
    A_i ← A_i √((f + λ_i) / (1 + λ_i))         f = within_class_factor: directions that tell no classes apart
                                               keep little variance, and so do not disturb the training         (3)
    A ← P min(S, s) Qᵀ, A = P S Qᵀ             no direction is blown up by more than s = max_singular_value       (4)
    b = -A E[x]                                the mean becomes 0                                                (5)

The numbers agree with Kaldi's nnet-get-feature-transform, and with f = 1 and without (4), (5) with est-lda.
"""

import logging
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import for_each, read_features, require_most
from ngsgd.hmm.labels import LabelOptions, Labels
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.kaldi_io.packed import read_symmetric, write_symmetric
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.nnet.components.base import Chunks
from ngsgd.nnet.components.splice import SpliceComponent
from ngsgd.options import opt

log = logging.getLogger(__name__)


class LdaStats:
    """Sums over frames: `count` (C,), `first` (C, D) and `second` (D, D) moments, float64. Two of them add up."""

    def __init__(self, count: np.ndarray, first: np.ndarray, second: np.ndarray):
        self.count, self.first, self.second = count, first, second

    @classmethod
    def zeros(cls, classes: int, dim: int) -> "LdaStats":
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

    def __add__(self, other: "LdaStats") -> "LdaStats":
        if self.first.shape != other.first.shape:
            raise DataError(
                f"LDA statistics of {self.first.shape} and {other.first.shape} (classes, dimensions) do not add up"
            )
        return LdaStats(self.count + other.count, self.first + other.first, self.second + other.second)

    def covariances(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Total and between-class covariance (D, D), and the mean (D,). DataError without frames."""
        total = self.count.sum()
        if not total > 0:
            raise DataError("the LDA statistics hold no frames")
        mean = self.first.sum(axis=0) / total
        centre = np.outer(mean, mean)
        seen = self.count > 0
        scaled = self.first[seen] / np.sqrt(self.count[seen, None])
        return self.second / total - centre, scaled.T @ scaled / total - centre, mean

    def _within(self) -> np.ndarray:
        """Σ_c first_c first_cᵀ / count_c, which the stored form leaves out of `second` to keep it precise."""
        seen = self.count > 0
        scaled = self.first[seen] / np.sqrt(self.count[seen, None])
        return scaled.T @ scaled

    @classmethod
    def read(cls, reader: Any) -> "LdaStats":
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
        stats.second += stats._within()
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
        write_symmetric(writer, (self.second - self._within()).astype(np.float32))
        writer.token("</LDAACCS>")


@dataclass(kw_only=True)
class AccLdaOptions(LabelOptions):
    """How features are spliced and labels pruned."""

    left_context: int = opt(0, "frames before, to splice the features with", at_least=0)
    right_context: int = opt(0, "frames after, to splice the features with", at_least=0)
    const_dim: int = opt(0, "last columns (an i-vector) that are not spliced, but appended once", at_least=0)
    rand_prune: float = opt(
        0.0, "weights w below this become this with probability w / this, else 0 (drawn per utterance): less to do"
    )
    binary: bool = opt(True, "write in binary form")


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
        weight = _pruned(weight, options.rand_prune, key)
        keep = weight != 0
        stats.accumulate(x[frame[keep]], transitions.tid_to_pdf[tid[keep]], weight[keep])

    done, failed = for_each(read_features(features), work)
    find.warn()
    require_most(done, failed, features)
    with open_writer(wxfilename, options.binary) as writer:
        stats.write(writer)
    return done, failed


def _pruned(weight: np.ndarray, threshold: float, key: str) -> np.ndarray:
    if threshold <= 0:
        return weight
    drawn = np.random.default_rng(zlib.crc32(key.encode())).random(len(weight))
    small = np.abs(weight) < threshold
    return np.where(small, np.where(drawn * threshold < np.abs(weight), np.sign(weight) * threshold, 0.0), weight)


def spliced(x: np.ndarray, options: AccLdaOptions) -> np.ndarray:
    """Features (T, D) as the network's splicing component arranges them, the first and last frame repeated."""
    left, right = options.left_context, options.right_context
    if not (left or right):
        return x
    if left < 0 or right < 0:
        raise DataError(f"expected contexts of 0 or more, got {left} and {right}")
    context = range(-left, right + 1)
    values = {"input_dim": x.shape[1], "context": context, "const_component_dim": options.const_dim}
    padded = np.pad(x, ((left, right), (0, 0)), mode="edge")
    times = np.arange(len(padded))
    return SpliceComponent.from_values(values, "splicing").forward(
        padded, None, Chunks(1, times, times[left : left + len(x)])
    )


@dataclass
class FeatureTransformOptions:
    """The transform's shape and scales."""

    remove_offset: bool = opt(True, "append a column that moves the mean to 0")
    dim: int = opt(-1, "dimensions to keep, those with most between-class variance; 0 or less: all")
    within_class_factor: float = opt(
        0.001, "variance that is left of the within-class variance, 1: plain LDA", at_least=0, at_most=1
    )
    max_singular_value: float = opt(5.0, "largest singular value of the transform; 0: no limit", at_least=0)
    write_within_covar: str = opt("", "also write the within-class covariance to this file, as a symmetric matrix")
    binary: bool = opt(True, "write in binary form")


def estimate_transform(stats: LdaStats, options: FeatureTransformOptions) -> np.ndarray:
    """The transform (dim, D), or with `remove_offset` (dim, D + 1), float32; equations (1) to (5) above."""
    total, between, mean = stats.covariances()
    rows = options.dim if options.dim > 0 else len(mean)
    if rows > len(mean):
        raise DataError(f"--dim={options.dim}: the features have only {len(mean)} dimensions")
    inverse = np.linalg.inv(_cholesky(total - between))
    u, variance, _ = np.linalg.svd(inverse @ between @ inverse.T)  # (1)
    matrix = (u.T @ inverse)[:rows]  # (2)
    f = options.within_class_factor
    matrix *= np.sqrt((f + variance[:rows]) / (1 + variance[:rows]))[:, None]  # (3)
    if options.max_singular_value > 0:
        p, s, q = np.linalg.svd(matrix, full_matrices=False)  # (4)
        limited = int((s > options.max_singular_value).sum())
        if limited:
            log.info("%d of %d singular values, up to %.4g, limited", limited, len(s), s.max())
            matrix = (p * np.minimum(s, options.max_singular_value)) @ q
    log.info("between-class variances kept: %.6g of %.6g", variance[:rows].sum(), variance.sum())
    if options.remove_offset:
        matrix = np.hstack((matrix, -(matrix @ mean)[:, None]))  # (5)
    return matrix.astype(np.float32)


def _cholesky(within: np.ndarray) -> np.ndarray:
    """L of L Lᵀ = W; of a W that is not positive definite (few frames, constant columns), with its diagonal raised."""
    try:
        return np.linalg.cholesky(within)
    except np.linalg.LinAlgError:
        smoothing = 1e-3 * np.trace(within) / len(within)
        if not smoothing > 0:
            raise DataError("the within-class covariance of the LDA statistics is zero: constant features?") from None
        log.warning("the within-class covariance is singular: adding %.4g to its diagonal", smoothing)
    try:
        return np.linalg.cholesky(within + smoothing * np.eye(len(within)))
    except np.linalg.LinAlgError:
        raise DataError("the within-class covariance of the LDA statistics is not positive definite") from None


def get_feature_transform(wxfilename: str, rxfilenames: tuple[str, ...], options: FeatureTransformOptions) -> None:
    """Write the transform estimated from the sum of statistics files, as Kaldi's nnet-get-feature-transform."""
    stats: LdaStats | None = None
    for name in rxfilenames:
        with open_reader(name) as reader:
            more = LdaStats.read(reader)
        stats = more if stats is None else stats + more
    matrix = estimate_transform(stats, options)
    if options.write_within_covar:
        total, between, _ = stats.covariances()
        with open_writer(options.write_within_covar, options.binary) as writer:
            write_symmetric(writer, (total - between).astype(np.float32))
    with open_writer(wxfilename, options.binary) as writer:
        writer.matrix(matrix)
