"""Simple natural gradient: each row times the inverse Fisher matrix of the other rows of its minibatch.

Povey, Zhang, Khudanpur (arXiv 1410.7455), appendix A; the numbering of the equations is ours.

| symbol     | shape  | meaning                                                          |
|------------|--------|------------------------------------------------------------------|
| N, D       |        | rows of the minibatch, their dimension                           |
| X, x_n     | (N, D) | the minibatch and its rows                                       |
| α          |        | smoothing, in units of the mean eigenvalue of XᵀX / N            |
| G_n        | (D, D) | smoothed Fisher matrix of all rows but the n-th                  |

    λ = α tr(XᵀX) / (N D)                                                                    (A1)
    G_n = λ I + (XᵀX − x_nᵀ x_n) / (N − 1)                                                   (A2)
    p_n = x_n G_n⁻¹                                                                          (A3)

With G = λ I + XᵀX / (N − 1) and Q = X G⁻¹, the Sherman-Morrison formula turns A3 into a scale for each row:

    p_n = q_n (1 + g_n / (N − 1 − g_n)),      g_n = x_n · q_n                                (A4)

and Q is either of the two, whichever matrix to invert is smaller:

    Q = X (λ I + XᵀX / (N − 1))⁻¹ = (λ I + X Xᵀ / (N − 1))⁻¹ X                               (A5)

The result is scaled to the Frobenius norm of X. A single row, or zeros, are returned as they are. Agrees with
Kaldi's nnet2 (AffineComponentPreconditioned).
"""

from typing import Any

from ngsgd.backend import module_of
from ngsgd.nnet.updates.direction import Direction, square_norms, total
from ngsgd.nnet.updates.rule import register


def precondition(x: Any, alpha: float) -> Direction:
    """The rows p_n (N, D) for x (N, D), with the scale that gives them the norm of x. NotFinite when x is not."""
    n, dim = x.shape
    norms = square_norms(x)
    trace = total(norms)
    if n == 1 or trace == 0.0:
        return Direction(x, norms)
    smoothing = alpha * trace / (n * dim)  # A1
    if n >= dim:
        q = _solve(x.T @ x, n, smoothing, x.T).T  # A5
    else:
        q = _solve(x @ x.T, n, smoothing, x)
    g = (x * q).sum(axis=1)
    p = q * (1.0 + g / (n - 1 - g))[:, None]  # A4
    norms = square_norms(p)
    return Direction(p, norms, (trace / total(norms)) ** 0.5)


def _solve(gram: Any, n: int, smoothing: float, right: Any) -> Any:
    """(smoothing I + gram / (n − 1))⁻¹ right."""
    xp = module_of(gram)
    gram /= n - 1
    diagonal = xp.arange(len(gram))
    gram[diagonal, diagonal] += gram.dtype.type(smoothing)
    return xp.linalg.solve(gram, right)


@register("simple")
def simple(component: Any, dy: Any, x: Any, state: None) -> tuple[Direction, Direction, None]:
    """The update rule: both factors, each within its minibatch."""
    return precondition(dy, component.alpha), precondition(x, component.alpha), None
