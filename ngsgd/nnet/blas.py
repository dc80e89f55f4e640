"""Products of matrices for training, each one call of BLAS that writes where its result is wanted.

Two libraries can do it. **OpenBLAS** is always there, twice: scipy's can add a product to a matrix in place, and is the
faster one for x wᵀ and aᵀ b (by 12 % at 128 rows); numpy's is the faster one for a b. **MKL** (`pip install mkl`, for
Intel's processors) is taken where it is installed: at 128 rows its products are faster by a third, the training step by
8 % (RESULTS.md). NGSGD_BLAS=openblas or NGSGD_BLAS=mkl in the environment decides instead. Either gives the same bytes
again for the same input, one not those of the other.

What these cannot take (another type, an odd layout, a GPU's arrays) goes through the operators.
"""

import ctypes
import functools
import os
import site
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ngsgd.backend import module_of, on_gpu
from ngsgd.errors import DataError

VARIABLE = "NGSGD_BLAS"


def accumulate(out: Any, alpha: float, a: Any, b: Any) -> None:
    """out += alpha aᵀ b in place; a (K, P), b (K, Q), out (P, Q)."""
    if not _library_takes(a, b, out):
        product = a.T @ b
        product *= alpha
        out += product
    elif (mkl := _mkl()) and out.dtype == np.float32:
        mkl(alpha, a.T, b, 1.0, out)
    else:
        _openblas(alpha, a.T, b, 1.0, out)


def times_transposed(x: Any, w: Any, out: Any) -> Any:
    """out = x wᵀ, returned too; x (N, Q), w (P, Q), out (N, P)."""
    if not _library_takes(x, w, out):
        return module_of(x).matmul(x, w.T, out=out)
    if (mkl := _mkl()) and out.dtype == np.float32:
        return mkl(1.0, x, w.T, 0.0, out)
    return _openblas(1.0, x, w.T, 0.0, out)


def times(a: Any, b: Any, out: Any = None) -> Any:
    """a b, in `out` where given; a (N, P), b (P, Q), which may be a part of the columns of a matrix."""
    if out is None:
        out = module_of(a).empty((a.shape[0], b.shape[1]), a.dtype)
    if on_gpu(out) or not (
        a.dtype == b.dtype == out.dtype == np.float32 and a.flags.c_contiguous and a.size and b.size
    ):
        return module_of(a).matmul(a, b, out=out)
    if b.strides[1] == out.strides[1] == 4 and (mkl := _mkl()):
        return mkl(1.0, a, b, 0.0, out)
    return np.matmul(a, b, out=out)


def _library_takes(a: Any, b: Any, out: Any) -> bool:
    if on_gpu(out) or not (a.dtype == b.dtype == out.dtype and out.flags.c_contiguous and a.size and b.size):
        return False
    return (a.flags.c_contiguous or a.flags.f_contiguous) and (b.flags.c_contiguous or b.flags.f_contiguous)


def _openblas(alpha: float, a: Any, b: Any, beta: float, out: Any) -> Any:
    """out = alpha a b + beta out. BLAS counts columns first: it sees outᵀ = alpha bᵀ aᵀ + beta outᵀ."""
    left, trans_left = (b.T, 0) if b.flags.c_contiguous else (b, 1)
    right, trans_right = (a.T, 0) if a.flags.c_contiguous else (a, 1)
    _gemm(out.dtype)(alpha, left, right, beta=beta, c=out.T, trans_a=trans_left, trans_b=trans_right, overwrite_c=1)
    return out


@functools.cache
def _gemm(dtype: Any) -> Any:
    from scipy.linalg.blas import dgemm, sgemm

    return sgemm if dtype == np.float32 else dgemm


def library() -> str:
    """The name of the library that products go to: "MKL" or "OpenBLAS". DataError when the one asked for is missing."""
    return "MKL" if _mkl() else "OpenBLAS"


@functools.cache
def _mkl() -> Any:
    """MKL's product (alpha, a, b, beta, out) -> out of float32, or None. DataError if it is asked for and missing."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "mkl", "openblas"):
        raise DataError(f"{VARIABLE}: expected mkl, openblas or nothing, got '{wanted}'")
    if wanted == "openblas":
        return None
    files = sorted(f for root in (sys.prefix, site.USER_BASE) if root for f in Path(root, "lib").glob("libmkl_rt.so*"))
    if files:
        return _product_of_mkl(ctypes.CDLL(str(files[0])))
    if wanted:
        raise DataError(f"{VARIABLE}=mkl, but there is no libmkl_rt.so in {sys.prefix}/lib: pip install mkl")
    return None


_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112  # of the C interface to BLAS
_SEQUENTIAL, _SAME_BYTES_AGAIN = 1, 2  # MKL_THREADING_SEQUENTIAL, MKL_CBWR_AUTO


def _product_of_mkl(mkl: ctypes.CDLL) -> Any:
    if os.environ.get("OMP_NUM_THREADS") == "1":
        mkl.MKL_Set_Threading_Layer(_SEQUENTIAL)
    mkl.MKL_CBWR_Set(_SAME_BYTES_AGAIN)
    integer, pointer, number = ctypes.c_int, ctypes.c_void_p, ctypes.c_float
    sgemm = mkl.cblas_sgemm
    sgemm.argtypes = [*[integer] * 6, number, pointer, integer, pointer, integer, number, pointer, integer]
    sgemm.restype = None

    def product(alpha: float, a: Any, b: Any, beta: float, out: Any) -> Any:
        (how_a, lda), (how_b, ldb) = _layout(a), _layout(b)
        (m, n), k = out.shape, a.shape[1]
        where = (_address(a), lda, _address(b), ldb, beta, _address(out), max(out.strides[0] // 4, n))
        sgemm(_ROW_MAJOR, how_a, how_b, m, n, k, alpha, *where)
        return out

    return product


def _layout(a: np.ndarray) -> tuple[int, int]:
    """Whether the rows or the columns of float32 `a` are contiguous, and the distance from one to the next."""
    rows, columns = a.strides
    if columns == 4 and (rows >= 4 * a.shape[1] or len(a) == 1):
        return _AS_IT_IS, max(rows // 4, a.shape[1])
    return _TRANSPOSED, max(columns // 4, a.shape[0])


def _address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]
