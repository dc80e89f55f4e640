"""A fused loop for `ngsgd.nnet.updates`; the plain version beside its caller is what the tests compare it with.

Importing this module imports numba: do it where it is used.
"""

import numba
import numpy as np

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
