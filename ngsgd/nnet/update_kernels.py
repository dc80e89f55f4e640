"""Loops of `ngsgd.nnet.updates`: over the rows of a minibatch, and the small algebra between two products of BLAS.

The second would be some thirty calls of numpy on a few dozen numbers, which take longer than the numbers do. The tests
compare the first with the plain version beside its caller, the whole update with `tests.reference.natural_gradient`.

Importing this module imports numba: do it where it is used.
"""

import numba
import numpy as np

_exact = numba.njit(cache=True, nogil=True, error_model="numpy")
_jit = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


@_jit
def corrected_norms(x, h, weights, out):
    """out_n = Σ x_n² - Σ_r h_nr² weights_r, at least 0 (or NaN); returns the sums of both, in float64.

    x (N, D), h (N, R), weights (R,), out (N,): float32, contiguous.
    """
    trace = hat_trace = 0.0
    for i in range(len(x)):
        row, coefficients = x[i], h[i]
        total, removed = np.float32(0), np.float32(0)
        for j in range(len(row)):
            total += row[j] * row[j]
        for r in range(len(coefficients)):
            removed += coefficients[r] * coefficients[r] * weights[r]
        left = total - removed
        trace += total
        hat_trace += left
        out[i] = np.float32(0) if left < np.float32(0) else left
    return trace, hat_trace


@_exact
def root_of_e(d, rho, dim, alpha, root_e):
    """root_e (R,) = (β / d + 1)^(-1/2), B2 and B3; d (R,)."""
    beta = rho * (1.0 + alpha) + alpha / dim * d.sum()
    for r in range(len(d)):
        root_e[r] = 1.0 / np.sqrt(beta / d[r] + 1.0)


@_exact
def scales_of_update(d, rho, root_e, keep, add, scales):
    """What the columns of V (scales[0]) and of H (scales[1]) are multiplied by in B7; d, root_e (R,), scales (2, R)."""
    for r in range(len(d)):
        scales[0, r] = (d[r] + rho) * keep / root_e[r]
        scales[1, r] = add / root_e[r]


@_exact
def new_estimate(c, u, floor, trace, dim, alpha, epsilon, delta, d, root_e, mixing, norm_weights):
    """B9 to B11: from the eigenvalues c (R,), ascending, and eigenvectors u (R, R) of Z / tr(T)²; trace = tr(T).

    Returns ρ and fills d and root_e (R,), the matrix `mixing` (R, R) that makes V of Y / tr(T), and norm_weights (R,),
    2 − e. floor: of c; epsilon, delta: of D and ρ, absolute and relative to the largest eigenvalue.
    """
    rank = len(c)
    root_c = np.empty(rank)
    for r in range(rank):
        root_c[r] = np.sqrt(max(c[rank - 1 - r], floor))
    rho = trace * (1.0 - root_c.sum()) / (dim - rank)  # B10
    smallest = max(epsilon, delta * trace * root_c[0])
    for r in range(rank):
        d[r] = max(trace * root_c[r] - rho, smallest)  # B11
    rho = max(rho, smallest)
    root_of_e(d, rho, dim, alpha, root_e)
    for r in range(rank):
        norm_weights[r] = 2.0 - root_e[r] * root_e[r]
        root_c[r] = root_e[r] / root_c[r]
    for i in range(rank):
        for r in range(rank):
            mixing[i, r] = u[i, rank - 1 - r] * root_c[r]
    return rho
