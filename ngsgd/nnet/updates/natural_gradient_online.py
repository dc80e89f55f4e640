"""Online natural gradient: a factor of the gradient times the inverse of a low-rank estimate of its Fisher matrix.

Povey, Zhang, Khudanpur, "Parallel training of DNNs with natural gradient and parameter averaging" (arXiv 1410.7455),
appendix B; the numbering of the equations is ours. Each updatable layer has two of these, for the rows of its input
(with the 1 of the bias) and for the rows of its output derivative.

| symbol   | shape  | meaning                                                                              |
|----------|--------|--------------------------------------------------------------------------------------|
| N, D, R  |        | rows of the minibatch, their dimension, the rank (1 ≤ R < D)                          |
| X_t      | (N, D) | minibatch t of the vectors whose second moment F follows                              |
| F_t      | (D, D) | the estimate, never formed                                                            |
| R_t      | (R, D) | orthonormal rows: the leading directions of F                                         |
| D_t, ρ_t | (R,)   | diagonal matrix and number, both positive                                             |
| α        |        | smoothing: how many times the mean eigenvalue of F is added to it                     |
| E_t      | (R,)   | diagonal matrix, 0 < e < 1                                                            |
| V_t      | (D, R) | R_tᵀ E_t^½: what is stored                                                            |
| H_t      | (N, R) | X_t V_t                                                                               |
| η        |        | weight of the new minibatch                                                           |

The form of the estimate, and what it is smoothed to before it is inverted:

    F_t = R_tᵀ D_t R_t + ρ_t I                                                                                  (B1)
    G_t = F_t + (α/D) tr(F_t) I = R_tᵀ D_t R_t + β_t I,    β_t = (1 + α) ρ_t + (α/D) tr(D_t)                    (B2)

By the Woodbury identity, with E_t = (β_t D_t⁻¹ + I)⁻¹,

    X̂_t = β_t X_t G_t⁻¹ = X_t − X_t R_tᵀ E_t R_t = X_t − H_t V_tᵀ                                               (B3)

and the result, which has the Frobenius norm of X_t, is γ_t X̂_t with

    γ_t = (tr(X_t X_tᵀ) / tr(X̂_t X̂_tᵀ))^½                                                                       (B4)

X̂ is not formed here: `Direction` carries X, H and V, and the gradient is corrected where that is cheaper. The squares
of its rows' lengths, which B4 and the limit on the step need, follow from H, since V_tᵀ V_t = E_t:

    ‖x̂_n‖² = ‖x_n‖² − Σ_r h_nr² (2 − e_r)                                                                       (B5)

(where this loses too many digits, because nearly all of X lies along a few directions, X̂ is formed after all).

The estimate moves towards the second moment of the minibatch by one step of the power method:

    T_t = η X_tᵀX_t / N + (1 − η) F_t,        η = min(0.9, 1 − exp(−N / num_samples_history))                    (B6)
    Y_t = R_t T_t,
    Y_tᵀ = [(η/N) X_tᵀ H_t + (1 − η) V_t (D_t + ρ_t I)] E_t^(−½)                                                 (B7)
    Z_t = Y_t Y_tᵀ = U_t C_t U_tᵀ       (eigenvalues from the largest down)                                      (B8)
    R_{t+1} = C_t^(−½) U_tᵀ Y_t                                                                                 (B9)

C_t^½ holds the new estimate of the leading eigenvalues; the rest of the trace is spread over the other directions:

    ρ_{t+1} = (tr(T_t) − tr(C_t^½)) / (D − R)                                                                   (B10)
    D_{t+1} = C_t^½ − ρ_{t+1} I                                                                                 (B11)

Then C ≥ (1 − η)² ρ_t² (true without rounding), D and ρ ≥ max(ε, δ max C^½), D computed from ρ before that floor.
Rounding costs orthogonality where C is ill-conditioned: if its largest element exceeds 10⁶ times the smallest or any
was floored, R_{t+1} is checked and if needed replaced by L⁻¹ R_{t+1}, L Lᵀ = R_{t+1} R_{t+1}ᵀ, or by its QR
decomposition where that fails.

Start: R_0 a fixed sparse basis, D_0 = ρ_0 = ε; three updates with the first minibatch, which is then used again as the
first of training. The first ten minibatches always update the estimate, later every `update_period`-th.

Agrees with the preconditioner of Kaldi's nnet2 (AffineComponentPreconditionedOnline). Departures: Y is formed and
squared, instead of assembling Z from products with J = HᵀX; everything inside an update is divided by tr(T_t), so that
no power of the data can overflow; small matrices are float64 on the CPU.
"""

import logging
import math
from typing import Any, NamedTuple

import numpy as np

from ngsgd.backend import module_of, to_cpu, to_module
from ngsgd.nnet.blas import accumulate, times
from ngsgd.nnet.updates.direction import Direction, corrected_norms, square_norms, total
from ngsgd.nnet.updates.rule import register

log = logging.getLogger(__name__)

EPSILON = 1.0e-10  # absolute floor of ρ and D: zero input must not make F singular
DELTA = 5.0e-4  # their floor relative to the largest eigenvalue
INITIAL_PASSES = 3  # updates with the first minibatch, from the fixed basis
INITIAL_UPDATES = 10  # minibatches that always update
MAX_ETA = 0.9
CONDITION_LIMIT = 1.0e6  # of C, above which orthogonality is checked
SMALLEST_C = 1.0e-30  # of C / tr(T)²: keeps B9 from overflowing where ρ is still ε and the data are large
ORTHOGONALITY_LIMIT = 1.0e-3  # largest tolerated element of R Rᵀ − I
CANCELLATION_LIMIT = 1.0e-3  # of tr(X̂X̂ᵀ) / tr(XXᵀ), below which B5 is not trusted


class OnlineOptions(NamedTuple):
    """Settings of one preconditioner; the names are Kaldi's."""

    rank: int
    update_period: int = 4
    num_samples_history: float = 2000.0
    alpha: float = 4.0


class FisherState(NamedTuple):
    """The estimate B1, and the two counters that decide when it is next updated."""

    v: Any  # (D, R), V_t
    d: np.ndarray  # (R,) float64, diagonal of D_t
    rho: float
    root_e: np.ndarray  # (R,) float64, diagonal of E_t^½; follows from d, rho and alpha
    norm_weights: Any  # (R,) 2 − e, beside v
    updates: int = 0
    skipped: int = 0

    def basis(self) -> np.ndarray:
        """R_t (R, D) in float64."""
        return (to_cpu(self.v).astype(np.float64) / self.root_e).T


def precondition(x: Any, state: FisherState | None, options: OnlineOptions) -> tuple[Direction, FisherState | None]:
    """X̂_t and γ_t for the minibatch `x` (N, D), and the state for the next one; `state` None begins.

    Of dimension one the answer is x itself. NotFinite when x is not.
    """
    if x.shape[1] == 1:
        return Direction(x, square_norms(x)), None
    if state is None:
        state = _initial_state(x, options)
    h = times(x, state.v)
    norms, trace, hat_trace = corrected_norms(x, h, state.norm_weights)  # B5
    if hat_trace >= CANCELLATION_LIMIT * trace:
        answer = Direction(x, norms, _ratio(trace, hat_trace), h, state.v)
    else:
        rows = x - h @ state.v.T
        norms = square_norms(rows)
        answer = Direction(rows, norms, _ratio(trace, total(norms)))
    if state.updates >= INITIAL_UPDATES and state.skipped < options.update_period - 1:
        return answer, state._replace(skipped=state.skipped + 1)
    return answer, _updated(x, h, trace, state, options)


def _ratio(trace: float, hat_trace: float) -> float:
    return math.sqrt(trace / hat_trace) if hat_trace > 0.0 else 1.0  # B4


def _initial_state(x: Any, options: OnlineOptions) -> FisherState:
    dim = x.shape[1]
    rank = options.rank
    if rank >= dim:
        log.info("natural gradient: rank %d is not below the dimension %d; using %d", rank, dim, dim - 1)
        rank = dim - 1
    d = np.full(rank, EPSILON)
    root_e = np.empty(rank)
    _kernels().root_of_e(d, EPSILON, dim, options.alpha, root_e)
    v = to_module((_fixed_basis(rank, dim).T * root_e).astype(x.dtype), module_of(x))
    state = FisherState(v, d, EPSILON, root_e, to_module((2.0 - root_e * root_e).astype(x.dtype), module_of(x)))
    trace = total(square_norms(x))
    for _ in range(INITIAL_PASSES):
        state = _updated(x, times(x, state.v), trace, state, options)
    return state._replace(updates=0)


def _fixed_basis(rank: int, dim: int) -> np.ndarray:
    """Orthonormal rows (R, D): row r has equal entries in columns r, r + R, …, but the first is 1.1 times that."""
    columns = np.arange(dim)
    basis = np.zeros((rank, dim))
    basis[columns % rank, columns] = np.where(columns < rank, 1.1, 1.0)
    return basis / np.linalg.norm(basis, axis=1, keepdims=True)


def _updated(x: Any, h: Any, trace: float, state: FisherState, options: OnlineOptions) -> FisherState:
    """The state after the update B6–B11 with minibatch x (N, D); h = x V_t, trace = tr(x xᵀ)."""
    n, dim = x.shape
    rank, xp = len(state.d), module_of(x)
    kernels = _kernels()
    eta = min(MAX_ETA, 1.0 - math.exp(-n / options.num_samples_history))
    trace_t = eta / n * trace + (1.0 - eta) * (dim * state.rho + float(state.d.sum()))  # tr(T_t), B6
    scales = np.empty((2, rank), x.dtype)
    kernels.scales_of_update(state.d, state.rho, state.root_e, (1.0 - eta) / trace_t, eta / (n * trace_t), scales)
    of_v, of_h = to_module(scales, xp)
    y = state.v * of_v
    accumulate(y, 1.0, x, h * of_h)  # B7, divided by tr(T_t)
    c, u = np.linalg.eigh(to_cpu(y.T @ y).astype(np.float64))  # B8
    floor = max((state.rho * (1.0 - eta) / trace_t) ** 2, SMALLEST_C)
    d, root_e, mixing, norm_weights = np.empty(rank), np.empty(rank), np.empty((rank, rank), x.dtype), scales[0]
    settings = (floor, trace_t, dim, options.alpha, EPSILON, DELTA)
    rho = kernels.new_estimate(c, u, *settings, d, root_e, mixing, norm_weights)
    v = times(y, to_module(mixing, xp))  # B9 times E^½
    if c[-1] > CONDITION_LIMIT * c[0] or c[0] < floor:
        v = _orthogonal(v, root_e)
    return FisherState(v, d, rho, root_e, to_module(norm_weights, xp), state.updates + 1)


def _kernels() -> Any:
    from ngsgd.nnet import update_kernels

    return update_kernels


def _orthogonal(v: Any, root_e: np.ndarray) -> Any:
    """V with the rows of E^(−½) Vᵀ made orthonormal, the first ones (largest eigenvalues) changed least."""
    gram = to_cpu(v.T @ v).astype(np.float64) / np.outer(root_e, root_e)
    if np.abs(gram - np.eye(len(gram))).max() <= ORTHOGONALITY_LIMIT:
        return v
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        inverse = None
    if inverse is not None and inverse.max() < 100.0:
        return v @ to_module((inverse.T / root_e[:, None] * root_e).astype(v.dtype), module_of(v))
    q, r = np.linalg.qr(to_cpu(v).astype(np.float64) / root_e)
    q *= np.where(np.diag(r) < 0.0, -1.0, 1.0) * root_e
    return to_module(q.astype(v.dtype), module_of(v))


@register("online")
def online(component: Any, dy: Any, x: Any, state: tuple | None) -> tuple[Direction, Direction, tuple]:
    """The update rule: both factors, each with an estimate of its own."""
    settings = (component.update_period, component.num_samples_history, component.alpha)
    state_y, state_x = state or (None, None)
    x_hat, state_x = precondition(x, state_x, OnlineOptions(component.rank_in, *settings))
    y_hat, state_y = precondition(dy, state_y, OnlineOptions(component.rank_out, *settings))
    return y_hat, x_hat, (state_y, state_x)
