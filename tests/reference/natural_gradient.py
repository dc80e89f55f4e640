"""Both forms of natural gradient in float64, written for being obvious: whole matrices, inverses, no shortcuts."""

import numpy as np


def simple(x: np.ndarray, alpha: float) -> np.ndarray:
    """Each row times the inverse of the smoothed Fisher matrix of the other rows, scaled to the norm of x."""
    x = x.astype(np.float64)
    n, dim = x.shape
    smoothing = alpha * np.trace(x.T @ x) / (n * dim)
    out = np.empty_like(x)
    for i in range(n):
        others = np.delete(x, i, axis=0)
        out[i] = np.linalg.inv(smoothing * np.eye(dim) + others.T @ others / (n - 1)) @ x[i]
    return out * np.linalg.norm(x) / np.linalg.norm(out)


class Online:
    """F = RᵀDR + ρI, followed and applied as dense matrices."""

    epsilon, delta = 1e-10, 5e-4

    def __init__(self, rank: int, history: float = 2000.0, alpha: float = 4.0, update_period: int = 1):
        self.rank, self.history, self.alpha, self.update_period = rank, history, alpha, update_period
        self.basis = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The preconditioned minibatch."""
        x = x.astype(np.float64)
        if self.basis is None:
            self._begin(x)
        dim = x.shape[1]
        f = self.fisher()
        g = f + self.alpha / dim * np.trace(f) * np.eye(dim)
        out = x @ np.linalg.inv(g)
        norm = np.linalg.norm(out)
        out = out * (np.linalg.norm(x) / norm if norm > 0 else 1.0)
        if self.minibatch < 10 or self.since_update >= self.update_period - 1:
            self._update(x)
            self.minibatch += 1
            self.since_update = 0
        else:
            self.since_update += 1
        return out

    def fisher(self) -> np.ndarray:
        """F as a dense matrix."""
        return self.basis.T @ np.diag(self.d) @ self.basis + self.rho * np.eye(self.basis.shape[1])

    def _begin(self, x: np.ndarray) -> None:
        dim = x.shape[1]
        rank = min(self.rank, dim - 1)
        self.basis = np.zeros((rank, dim))
        for r in range(rank):
            self.basis[r, r::rank] = 1.0
            self.basis[r, r] = 1.1
            self.basis[r] /= np.linalg.norm(self.basis[r])
        self.d, self.rho = np.full(rank, self.epsilon), self.epsilon
        for _ in range(3):
            self._update(x)
        self.minibatch = self.since_update = 0

    def _update(self, x: np.ndarray) -> None:
        (n, dim), rank = x.shape, len(self.d)
        eta = min(0.9, 1.0 - np.exp(-n / self.history))
        t = eta * x.T @ x / n + (1.0 - eta) * self.fisher()
        _, s, basis = np.linalg.svd(self.basis @ t, full_matrices=False)  # s is C^½, the rows of `basis` are R_{t+1}
        s = np.maximum(s, (1.0 - eta) * self.rho)
        rho = (np.trace(t) - s.sum()) / (dim - rank)
        floor = max(self.epsilon, self.delta * s[0])
        self.d, self.rho, self.basis = np.maximum(s - rho, floor), max(rho, floor), basis
