"""Softmax and log-softmax outputs."""

from typing import Any

import numpy as np

from ngsgd.backend import flat_rows, fused_kernels, module_of
from ngsgd.nnet.components.base import register, result
from ngsgd.nnet.components.nonlinear import NonlinearComponent

FLOOR = 1.0e-20  # of a probability, as Kaldi's: logarithms and quotients stay finite


@register("SoftmaxComponent")
class SoftmaxComponent(NonlinearComponent):
    """y = exp(x) / Σ exp(x), floored. dx = y (dy - yᵀdy)."""

    needs_y = True
    forward_in_place = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        xp, y, largest = module_of(x), result(out, x, self.dim), x.max(axis=1)
        if kernels := fused_kernels(x, y):
            if y is not x:
                y[...] = x
            kernels.softmax(*flat_rows(y), largest, *x.shape, np.float32(FLOOR))
            return y
        xp.subtract(x, largest[:, None], out=y)
        xp.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)
        return xp.maximum(y, x.dtype.type(FLOOR), out=y)

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        xp = module_of(dy)
        dx = xp.subtract(dy, xp.einsum("nd,nd->n", y, dy)[:, None], out=result(out, dy, self.dim))
        dx *= y
        return dx

    def backward_labels(self, y: Any, row: Any, pdf: Any, weight: Any, out: Any = None) -> Any:
        """dx of Σ_k weight_k log y[row_k, pdf_k]: dx = Σ_k weight_k (1[pdf_k] - y[row_k]), without forming dy.

        row, pdf, weight (K,); a row may occur several times or not at all. `out` may be y itself.
        """
        xp = module_of(y)
        total = xp.bincount(row, weights=weight, minlength=len(y)).astype(y.dtype)
        dx = result(out, y, self.dim)
        if kernels := fused_kernels(y, dx):
            if dx is not y:
                dx[...] = y
            kernels.scale_rows(*flat_rows(dx), -total, *y.shape)
        else:
            xp.multiply(y, -total[:, None], out=dx)
        xp.add.at(dx, (row, pdf), weight.astype(y.dtype, copy=False))
        return dx


@register("LogSoftmaxComponent")
class LogSoftmaxComponent(NonlinearComponent):
    """y = x - log Σ exp(x), floored. dx = dy - exp(y) Σ dy."""

    needs_y = True

    def forward(self, x: Any, out: Any = None, chunks: Any = None) -> Any:
        xp = module_of(x)
        y = xp.subtract(x, x.max(axis=1, keepdims=True), out=result(out, x, self.dim))
        y -= xp.log(xp.exp(y).sum(axis=1, keepdims=True))
        return xp.maximum(y, x.dtype.type(np.log(FLOOR)), out=y)

    def backward(self, x: Any, y: Any, dy: Any, out: Any = None, chunks: Any = None) -> Any:
        xp = module_of(dy)
        return xp.subtract(dy, xp.exp(y) * dy.sum(axis=1, keepdims=True), out=result(out, dy, self.dim))
