"""Products of matrices for training, each one call of BLAS that writes where its result is wanted.

numpy can neither add a product to a matrix in place nor choose its BLAS. scipy's is asked directly where a layout
allows it: besides saving memory traffic, its OpenBLAS has the faster kernels for x wᵀ and aᵀ b (12 % at 128 rows, see
RESULTS.md), and numpy's for a b. Anything else, a GPU's arrays too, takes the operators.
"""

import functools
from typing import Any

import numpy as np

from ngsgd.backend import module_of, on_gpu


def accumulate(out: Any, alpha: float, a: Any, b: Any) -> None:
    """out += alpha aᵀ b in place; a (K, P), b (K, Q), out (P, Q)."""
    if _blas_takes(a, b, out):
        _into(out, alpha, a.T, b, 1.0)
        return
    product = a.T @ b
    product *= alpha
    out += product


def times_transposed(x: Any, w: Any, out: Any) -> Any:
    """out = x wᵀ, returned too; x (N, Q), w (P, Q), out (N, P)."""
    if _blas_takes(x, w, out):
        return _into(out, 1.0, x, w.T, 0.0)
    return module_of(x).matmul(x, w.T, out=out)


def _blas_takes(a: Any, b: Any, out: Any) -> bool:
    if on_gpu(out) or not (a.dtype == b.dtype == out.dtype and out.flags.c_contiguous and a.size and b.size):
        return False
    return (a.flags.c_contiguous or a.flags.f_contiguous) and (b.flags.c_contiguous or b.flags.f_contiguous)


def _into(out: Any, alpha: float, a: Any, b: Any, beta: float) -> Any:
    """out = alpha a b + beta out. BLAS counts columns first: it sees outᵀ = alpha bᵀ aᵀ + beta outᵀ."""
    left, trans_left = (b.T, 0) if b.flags.c_contiguous else (b, 1)
    right, trans_right = (a.T, 0) if a.flags.c_contiguous else (a, 1)
    _gemm(out.dtype)(alpha, left, right, beta=beta, c=out.T, trans_a=trans_left, trans_b=trans_right, overwrite_c=1)
    return out


@functools.cache
def _gemm(dtype: Any) -> Any:
    from scipy.linalg.blas import dgemm, sgemm

    return sgemm if dtype == np.float32 else dgemm
