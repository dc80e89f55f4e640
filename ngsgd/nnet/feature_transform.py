"""The input transform of a network, made like linear discriminant analysis (LDA).

With A and λ of equations (1) to (4) in `ngsgd.gmm.lda`:

    A_i ← A_i √((f + λ_i) / (1 + λ_i))         f = within_class_factor: directions that tell no classes apart
                                               keep little variance, and so do not disturb the training         (1)
    A ← P min(S, s) Qᵀ, A = P S Qᵀ             no direction is blown up by more than s = max_singular_value       (2)
    b = -A E[x]                                the mean becomes 0                                                (3)

The numbers agree with Kaldi's nnet-get-feature-transform.
"""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.lda import LdaStats, discriminants, read_lda_stats
from ngsgd.kaldi_io.packed import write_symmetric
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


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
    """The transform (dim, D), or with `remove_offset` (dim, D + 1), float32; equations (1) to (3) above."""
    found = discriminants(stats, options.within_class_factor)  # (1)
    rows = options.dim if options.dim > 0 else len(found.mean)
    if rows > len(found.mean):
        raise DataError(f"--dim={options.dim}: the features have only {len(found.mean)} dimensions")
    matrix = found.rows[:rows]
    if options.max_singular_value > 0:
        p, s, q = np.linalg.svd(matrix, full_matrices=False)  # (2)
        limited = int((s > options.max_singular_value).sum())
        if limited:
            log.info("%d of %d singular values, up to %.4g, limited", limited, len(s), s.max())
            matrix = (p * np.minimum(s, options.max_singular_value)) @ q
    log.info("between-class variances kept: %.6g of %.6g", found.variance[:rows].sum(), found.variance.sum())
    if options.remove_offset:
        matrix = found.with_offset(matrix)  # (3)
    return matrix.astype(np.float32)


def get_feature_transform(wxfilename: str, rxfilenames: tuple[str, ...], options: FeatureTransformOptions) -> None:
    """Write the transform estimated from the sum of statistics files, as Kaldi's nnet-get-feature-transform."""
    stats = read_lda_stats(rxfilenames)
    matrix = estimate_transform(stats, options)
    if options.write_within_covar:
        within, _, _ = stats.covariances()
        with open_writer(options.write_within_covar, options.binary) as writer:
            write_symmetric(writer, within.astype(np.float32))
    with open_writer(wxfilename, options.binary) as writer:
        writer.matrix(matrix)
