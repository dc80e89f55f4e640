"""Fused loops for the CPU, where a profile shows that memory traffic, not BLAS, is the limit.

One pass over memory each, where the plain versions in `components` (which the tests compare these with) need several.
Rows are given as a flat float32 array and the distance `ld` from one row to the next. Three things make them fast:
every row is sliced out first, so that an index is never negative and LLVM can vectorise; what works in place has one
argument for it, because two that overlap fall back to scalar code; and the size of a group comes as a tuple of that
length, known when compiling, so that the loop over a group unrolls. Sums may be reordered; NaN and infinity are
respected: a comparison with NaN must leave NaN.

Importing this module imports numba: do it where it is used (`ngsgd.backend.fused_kernels`).
"""

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
_ZERO, _ONE = np.float32(0), np.float32(1)


@_jit
def pnorm2_forward(x, ldx, y, ldy, rows, groups, unroll):
    """y (rows, groups): Euclidean norms of groups of len(unroll) neighbouring columns of x."""
    for i in range(rows):
        xr, yr = x[i * ldx : i * ldx + groups * len(unroll)], y[i * ldy : i * ldy + groups]
        for j in range(groups):
            total = _ZERO
            for k in range(len(unroll)):
                total += xr[j * len(unroll) + k] * xr[j * len(unroll) + k]
            yr[j] = np.sqrt(total)


@_jit
def pnorm2_backward(x, ldx, y, ldy, dy, lddy, dx, lddx, rows, groups, unroll):
    """dx = x dy / y, 0 where y is 0."""
    for i in range(rows):
        xr, dxr = x[i * ldx : i * ldx + groups * len(unroll)], dx[i * lddx : i * lddx + groups * len(unroll)]
        yr, dyr = y[i * ldy : i * ldy + groups], dy[i * lddy : i * lddy + groups]
        for j in range(groups):
            ratio = _ZERO if yr[j] == _ZERO else dyr[j] / yr[j]
            for k in range(len(unroll)):
                dxr[j * len(unroll) + k] = xr[j * len(unroll) + k] * ratio


@_jit
def normalize_forward(x, ldx, y, ldy, rows, dim, floor):
    """y = x max(floor, xᵀx / dim)^(-1/2)."""
    for i in range(rows):
        xr, yr = x[i * ldx : i * ldx + dim], y[i * ldy : i * ldy + dim]
        total = _ZERO
        for j in range(dim):
            total += xr[j] * xr[j]
        mean_square = total / np.float32(dim)
        scale = _ONE / np.sqrt(floor if mean_square < floor else mean_square)
        for j in range(dim):
            yr[j] = xr[j] * scale


@_jit
def normalize_backward(x, ldx, dx, lddx, rows, dim, floor):
    """dx = f (dx - (f x) (dxᵀ (f x)) / dim), without the second term where the floor is active."""
    for i in range(rows):
        xr, dxr = x[i * ldx : i * ldx + dim], dx[i * lddx : i * lddx + dim]
        total, product = _ZERO, _ZERO
        for j in range(dim):
            total += xr[j] * xr[j]
            product += xr[j] * dxr[j]
        mean_square = total / np.float32(dim)
        below = mean_square <= floor
        scale = _ONE / np.sqrt(floor if below else mean_square)
        along = _ZERO if below else product * scale / np.float32(dim) * scale
        for j in range(dim):
            dxr[j] = (dxr[j] - along * xr[j]) * scale


_LOG2_E, _HALF = np.float32(1.44269504088896341), np.float32(0.5)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST, _BIAS, _SHIFT = np.float32(-87.0), np.int32(127), np.int32(23)


@_jit
def softmax(y, ldy, largest, rows, dim, floor):
    """y = max(exp(y) / Σ exp(y), floor), `largest` (rows,) being the largest of each row.

    exp(v) of v <= 0, relative error below 3e-7, by v = k ln 2 + r, |r| <= ln 2 / 2, and a polynomial in r (the
    coefficients of Cephes' expf). 2^k is made of its bits.
    """
    bits = np.empty(dim, np.int32)
    powers = bits.view(np.float32)
    for i in range(rows):
        yr = y[i * ldy : i * ldy + dim]
        for j in range(dim):
            v = yr[j] - largest[i]
            v = _LOWEST if v < _LOWEST else v
            k = np.int32(v * _LOG2_E - _HALF)
            bits[j] = (k + _BIAS) << _SHIFT
            r = v - np.float32(k) * _LN2_HIGH - np.float32(k) * _LN2_LOW
            p = np.float32(1.9875691500e-4)
            p = p * r + np.float32(1.3981999507e-3)
            p = p * r + np.float32(8.3334519073e-3)
            p = p * r + np.float32(4.1665795894e-2)
            p = p * r + np.float32(1.6666665459e-1)
            p = p * r + np.float32(5.0000001201e-1)
            yr[j] = p * r * r + r + _ONE
        total = _ZERO
        for j in range(dim):
            value = yr[j] * powers[j]
            yr[j] = value
            total += value
        scale = _ONE / total
        for j in range(dim):
            value = yr[j] * scale
            yr[j] = floor if value < floor else value


@_jit
def scale_rows(y, ldy, scale, rows, dim):
    """y = diag(scale) y."""
    for i in range(rows):
        yr, factor = y[i * ldy : i * ldy + dim], scale[i]
        for j in range(dim):
            yr[j] *= factor
