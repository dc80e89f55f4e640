"""Diagonal Gaussian mixtures of all pdfs, held as one stack, and their log-likelihoods.

Symbols: T frames, D features, P pdfs, G Gaussians of all pdfs together, M_p Gaussians of pdf p.

A mixture is kept in Kaldi's exponential form: weights w, inverse variances 1/v, means over variances m/v and the
constants

    g = log w - D/2 log 2 pi + 1/2 sum_d (log 1/v_d - m_d^2 / v_d)                                             (1)

so that the log-density of a Gaussian, with its weight, is linear in [1, x, x^2]:

    l = g + sum_d (m_d/v_d) x_d - 1/2 sum_d (1/v_d) x_d^2                                                      (2)

and log p(x | pdf) = log sum exp of l over the pdf's Gaussians. All of (2) is one matrix product.

File format: the `<DIMENSION>` block that follows the transition model in Kaldi's final.mdl, byte for byte.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.stream import open_reader, open_writer

_LOG_2PI = 1.8378770664093454835606594728112
_CHUNK = 1024  # frames of one product: (G, 1024) scores stay in the cache for a few hundred Gaussians


@dataclasses.dataclass
class _Plan:
    """A stack of Gaussians ordered by their pdf's number of Gaussians, so that each number is one 3-D block."""

    params: np.ndarray  # (G', 2 D + 1): [m/v, -1/(2 v), g]
    blocks: list[tuple[np.ndarray, int, int, int]]  # columns of the result, first row, pdfs, Gaussians of each


class AmDiagGmm:
    """The mixtures of P pdfs; Gaussians offsets[p] .. offsets[p + 1] - 1 belong to pdf p.

    offsets (P + 1,) int; weights (G,), means_invvars (G, D), inv_vars (G, D), gconsts (G,) float32.
    """

    def __init__(self, offsets, weights, means_invvars, inv_vars, gconsts=None):
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.weights = np.asarray(weights, dtype=np.float32)
        self.means_invvars = np.asarray(means_invvars, dtype=np.float32)
        self.inv_vars = np.asarray(inv_vars, dtype=np.float32)
        self.gconsts = np.asarray(gconsts, dtype=np.float32) if gconsts is not None else self._compute_gconsts()
        self._all: _Plan | None = None

    @property
    def num_pdfs(self) -> int:
        """P."""
        return len(self.offsets) - 1

    @property
    def num_gauss(self) -> int:
        """G."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """D."""
        return self.inv_vars.shape[1]

    @property
    def counts(self) -> np.ndarray:
        """(P,) Gaussians of each pdf."""
        return np.diff(self.offsets)

    def _compute_gconsts(self) -> np.ndarray:
        """Equation (1), summed over the dimensions in order with float32 sums, as Kaldi rounds it."""
        with np.errstate(divide="ignore"):
            g = np.log(self.weights.astype(np.float64)).astype(np.float32) + np.float32(-0.5 * _LOG_2PI * self.dim)
        inv_vars, means = self.inv_vars.astype(np.float64), self.means_invvars.astype(np.float64)
        terms = 0.5 * np.log(inv_vars).astype(np.float32) - 0.5 * means * means / inv_vars
        for d in range(self.dim):
            g = (g + terms[:, d]).astype(np.float32)
        if np.isnan(g).any():
            raise DataError(f"Gaussian {int(np.flatnonzero(np.isnan(g))[0])} has a variance or mean that is no number")
        return np.where(np.isposinf(g), -np.inf, g).astype(np.float32)

    def means(self) -> np.ndarray:
        """(G, D) float64."""
        return self.means_invvars.astype(np.float64) / self.inv_vars

    def variances(self) -> np.ndarray:
        """(G, D) float64."""
        return 1.0 / self.inv_vars.astype(np.float64)

    def params(self) -> np.ndarray:
        """(G, 2 D + 1) float32: the coefficients of [x, x^2, 1] in equation (2)."""
        return np.concatenate([self.means_invvars, -0.5 * self.inv_vars, self.gconsts[:, None]], axis=1)

    def _plan(self, pdfs: np.ndarray) -> _Plan:
        counts = self.counts[pdfs]
        order = np.argsort(counts, kind="stable")
        rows = np.concatenate([np.arange(self.offsets[p], self.offsets[p + 1]) for p in pdfs[order]])
        blocks, first = [], 0
        for count in np.unique(counts):
            columns = order[counts[order] == count]
            blocks.append((columns, first, len(columns), int(count)))
            first += len(columns) * int(count)
        params = np.concatenate(
            [self.means_invvars[rows], -0.5 * self.inv_vars[rows], self.gconsts[rows, None]], axis=1
        )
        return _Plan(params, blocks)

    def log_likelihoods(self, feats: np.ndarray, pdfs: np.ndarray | None = None) -> np.ndarray:
        """log p(x_t | pdf), natural logarithm.

        Args:
            feats: (T, D).
            pdfs: only these pdfs, in this order; all when not given.

        Returns:
            (T, P) or (T, len(pdfs)) float32.

        Raises DataError when the dimension of the features is not the model's.
        """
        if pdfs is None:
            if self._all is None:
                self._all = self._plan(np.arange(self.num_pdfs))
            plan, width = self._all, self.num_pdfs
        else:
            plan, width = self._plan(np.asarray(pdfs)), len(pdfs)
        x = extended(feats, self.dim)
        result = np.empty((width, len(x)), dtype=np.float32)
        for begin in range(0, len(x), _CHUNK):
            scores = plan.params @ x[begin : begin + _CHUNK].T  # (G', chunk)
            for columns, first, pdf_count, gauss_count in plan.blocks:
                block = scores[first : first + pdf_count * gauss_count].reshape(pdf_count, gauss_count, -1)
                result[columns, begin : begin + _CHUNK] = log_sum_exp(block)
        return np.ascontiguousarray(result.T)

    @classmethod
    def read(cls, r) -> AmDiagGmm:
        """Read from a TokenReader, text or binary; the constants stay as they are in the file."""
        r.expect("<DIMENSION>")
        dim = r.int32()
        r.expect("<NUMPDFS>")
        mixtures = [_read_mixture(r, dim) for _ in range(r.count("pdfs"))]
        if not mixtures:
            raise DataError(f"{r.name}: a model of 0 pdfs")
        weights, means_invvars, inv_vars, gconsts = zip(*mixtures, strict=True)
        offsets = np.concatenate([[0], np.cumsum([len(w) for w in weights])])
        model = cls(
            offsets,
            np.concatenate(weights),
            np.concatenate(means_invvars),
            np.concatenate(inv_vars),
            None if any(g is None for g in gconsts) else np.concatenate(gconsts),
        )
        if not np.isfinite(model.means_invvars).all() or not (model.inv_vars > 0).all():
            raise DataError(f"{r.name}: means must be finite and inverse variances positive")
        return model

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.token("<DIMENSION>")
        w.int32(self.dim)
        w.token("<NUMPDFS>")
        w.int32(self.num_pdfs)
        for begin, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            w.token("<DiagGMM>")
            w.newline()
            w.token("<GCONSTS>")
            w.vector(self.gconsts[begin:end])
            w.token("<WEIGHTS>")
            w.vector(self.weights[begin:end])
            w.token("<MEANS_INVVARS>")
            w.matrix(self.means_invvars[begin:end])
            w.token("<INV_VARS>")
            w.matrix(self.inv_vars[begin:end])
            w.token("</DiagGMM>")
            w.newline()


def _read_mixture(r, dim: int):
    """(weights, means_invvars, inv_vars, gconsts or None) of one pdf."""
    r.expect("<DiagGMM>", "<DiagGMMBegin>")
    gconsts = None
    if r.expect("<GCONSTS>", "<WEIGHTS>") == "<GCONSTS>":
        gconsts = r.vector(np.float32)
        r.expect("<WEIGHTS>")
    weights = r.vector(np.float32)
    r.expect("<MEANS_INVVARS>")
    means_invvars = r.matrix(np.float32)
    r.expect("<INV_VARS>")
    inv_vars = r.matrix(np.float32)
    r.expect("</DiagGMM>", "<DiagGMMEnd>")
    shape = (len(weights), dim)
    if len(weights) == 0 or means_invvars.shape != shape or inv_vars.shape != shape:
        raise DataError(
            f"{r.name}: expected means and variances of shape {shape}, found {means_invvars.shape} and {inv_vars.shape}"
        )
    return weights, means_invvars, inv_vars, gconsts


def extended(feats: np.ndarray, dim: int, dtype: type = np.float32) -> np.ndarray:
    """[x, x^2, 1]: (T, D) -> (T, 2 D + 1). DataError when D is not `dim`."""
    if feats.ndim != 2 or feats.shape[1] != dim:
        raise DataError(f"features have shape {feats.shape}, the model wants {dim} columns")
    x = np.empty((len(feats), 2 * dim + 1), dtype=dtype)
    x[:, :dim] = feats
    np.square(x[:, :dim], out=x[:, dim:-1])
    x[:, -1] = 1.0
    return x


def log_sum_exp(block: np.ndarray) -> np.ndarray:
    """log sum exp over the middle axis of (n, m, T), which is overwritten; -inf where all are."""
    if block.shape[1] == 1:
        return block[:, 0]
    top = block.max(axis=1)
    np.copyto(top, 0.0, where=np.isneginf(top))
    np.subtract(block, top[:, None], out=block)
    np.exp(block, out=block)
    with np.errstate(divide="ignore"):
        return np.log(block.sum(axis=1)) + top


def read_model(rxfilename: str) -> tuple[TransitionModel, AmDiagGmm]:
    """Read a GMM final.mdl: transition model, then mixtures. DataError when they have different numbers of pdfs."""
    with open_reader(rxfilename) as r:
        transitions = TransitionModel.read(r)
        gmm = AmDiagGmm.read(r)
    if gmm.num_pdfs != transitions.num_pdfs:
        raise DataError(f"{rxfilename}: {transitions.num_pdfs} pdfs in the transition model, {gmm.num_pdfs} mixtures")
    return transitions, gmm


def write_model(wxfilename: str, transitions: TransitionModel, gmm: AmDiagGmm, binary: bool = True) -> None:
    """Write a GMM final.mdl."""
    with open_writer(wxfilename, binary) as w:
        transitions.write(w)
        gmm.write(w)
