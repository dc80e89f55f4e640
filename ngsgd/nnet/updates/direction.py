"""A factor of a gradient after preconditioning, and the product of two of them added to parameters in place.

| symbol | shape  | meaning                                                                        |
|--------|--------|--------------------------------------------------------------------------------|
| N      |        | rows of the minibatch                                                          |
| P, Q   |        | rows and columns of the parameters, the column of the bias included            |
| Y, X   | (N, P), (N, Q) | the two factors as they came: the gradient is YᵀX                      |
| H, V   | (N, R), (D, R) | a correction of rank R to a factor of D columns                        |
| γ      |        | one number that scales a whole factor                                          |

A preconditioned factor is kept as it is cheapest to have,

    X̂ = γ (X − H Vᵀ)                                                                                           (D1)

and only its product with the other factor is ever wanted:

    Ŷᵀ X̂ / (γ_y γ_x) = Yᵀ X − V_y (H_yᵀ X) − (Y − H_y V_yᵀ)ᵀ H_x V_xᵀ                                           (D2)

Each correction can be made to its factor beforehand (2 N R D operations, D its own number of columns) or, by D2, to
the product (2 N R D' + 2 R P Q, D' the other's): `add_product` counts, and takes the cheaper for each side. With a wide
layer and a large minibatch the second is several times cheaper.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ngsgd.backend import FUSED_SIZE, on_gpu
from ngsgd.nnet.blas import accumulate


class NotFinite(ArithmeticError):
    """A factor of the gradient has NaN or infinite elements: training has diverged."""


class Direction(NamedTuple):
    """One factor: scale · (rows − h vᵀ), D1. `square_norms` are of the rows of (rows − h vᵀ), without the scale."""

    rows: Any  # (N, D)
    square_norms: Any = None  # (N,), None where nothing will ask
    scale: float = 1.0
    h: Any = None  # (N, R)
    v: Any = None  # (D, R)

    def dense(self) -> Any:
        """The factor written out (N, D)."""
        return self.scale * _corrected(self)


def square_norms(x: Any) -> Any:
    """Sum of squares of each row (N,)."""
    if on_gpu(x):
        return (x * x).sum(axis=1)
    return np.einsum("ij,ij->i", x, x)


def corrected_norms(x: Any, h: Any, weights: Any) -> tuple[Any, float, float]:
    """‖x_n‖² - Σ_r h_nr² weights_r, at least 0, for each row (N,); the sums over n of the first term and of both.

    x (N, D), h (N, R), weights (R,). NotFinite when x has NaN or infinite elements, or squares beyond float32.
    """
    if x.size >= FUSED_SIZE and not on_gpu(x) and x.dtype == np.float32 and x.flags.c_contiguous:
        from ngsgd.nnet import update_kernels

        norms = np.empty(len(x), np.float32)
        trace, hat_trace = update_kernels.corrected_norms(x, h, weights, norms)
        return norms, finite(trace), hat_trace
    norms = square_norms(x)
    trace = total(norms)
    norms = norms - (h * h) @ weights
    return norms.clip(0.0), trace, float(norms.sum(dtype=np.float64))


def total(norms: Any) -> float:
    """The sum of `square_norms`, in float64. NotFinite when it is NaN or infinite."""
    return finite(float(norms.sum(dtype=np.float64)))


def finite(trace: float) -> float:
    """The argument. NotFinite unless it is finite."""
    if not math.isfinite(trace):
        raise NotFinite(f"sum of squares {trace}")
    return trace


def add_product(params: Any, step: float, y: Direction, x: Direction) -> None:
    """params += step · Ŷᵀ X̂ in place, by D2. The memory of `y.rows` may be used up, that of `x.rows` may not."""
    (n, p), q = y.rows.shape, x.rows.shape[1]
    step = step * y.scale * x.scale
    if x.h is not None and n * q <= n * p + p * q:
        x = Direction(_corrected(x))
    if y.h is not None and n * p <= n * q + p * q:
        accumulate(y.rows, -1.0, y.h.T, y.v.T)
        y = Direction(y.rows)
    accumulate(params, step, y.rows, x.rows)
    if x.h is not None:
        m = x.h.T @ y.rows
        if y.h is not None:
            m -= (x.h.T @ y.h) @ y.v.T
        accumulate(params, -step, m, x.v.T)
    if y.h is not None:
        accumulate(params, -step, y.v.T, y.h.T @ x.rows)


def _corrected(f: Direction) -> Any:
    """rows − h vᵀ in new memory; the rows themselves where there is no correction."""
    if f.h is None:
        return f.rows
    low_rank = f.h @ f.v.T
    return np.subtract(f.rows, low_rank, out=low_rank)
