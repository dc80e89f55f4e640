"""Sufficient statistics of transition model and mixtures: accumulate them from alignments, add, read and write.

With gamma_tg the posterior of Gaussian g given frame t and its pdf (times the frame's weight):

    occ_g = sum_t gamma_tg,   mean_g = sum_t gamma_tg y_t,   var_g = sum_t gamma_tg y_t^2                       (1)

y_t = x_t, the features that gamma comes from, or with two kinds of features those of another kind.

A frame reaches only the Gaussians of the pdf that it is aligned to, so frames are sorted by pdf and each pdf is two
matrix products, in float64: the terms of a log-likelihood are large and of both signs.

File format: Kaldi's accumulator files (`gmm-acc-stats-ali`), byte for byte.
"""

from __future__ import annotations

import struct

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.model import AmDiagGmm, extended
from ngsgd.kaldi_io.stream import open_reader, open_writer

MEANS, VARIANCES, WEIGHTS, TRANSITIONS = 1, 2, 4, 8
ALL = 15
_BATCH = 32768  # frames sorted at once
_MOST_DIMENSIONS = 1 << 16
_LARGEST = 1e38  # what a file's float32 can hold
_BLOCK = 4096  # frames of one product


class GmmStats:
    """The sums of equation (1) and the counts of transitions; adds with `+=`.

    transitions (R + 1,) float64 counts of transition-ids; occ (G,), mean (G, D), var (G, D) float64 of a model whose
    pdf p has Gaussians offsets[p] .. offsets[p + 1] - 1; total_like the summed weighted log-likelihood over
    total_frames.
    """

    def __init__(self, num_transition_ids: int, offsets: np.ndarray, dim: int):
        gauss = int(offsets[-1])
        self.offsets = np.asarray(offsets)
        self.transitions = np.zeros(num_transition_ids + 1)
        self.occ = np.zeros(gauss)
        self.sums = np.zeros((gauss, 2 * dim))
        self.total_like = 0.0
        self.total_frames = 0.0
        self.flags = ALL

    @property
    def dim(self) -> int:
        """D."""
        return self.sums.shape[1] // 2

    @property
    def mean(self) -> np.ndarray:
        """(G, D), a view."""
        return self.sums[:, : self.dim]

    @property
    def var(self) -> np.ndarray:
        """(G, D), a view."""
        return self.sums[:, self.dim :]

    def pdf_occ(self) -> np.ndarray:
        """(P,) float32: frames of each pdf, as Kaldi writes into final.occs."""
        return np.add.reduceat(self.occ, self.offsets[:-1]).astype(np.float32)

    def __iadd__(self, other: GmmStats) -> GmmStats:
        same = (
            np.array_equal(self.offsets, other.offsets)
            and self.sums.shape == other.sums.shape
            and len(self.transitions) == len(other.transitions)
        )
        if not same:
            raise DataError(
                "statistics of different models cannot be added: "
                f"{len(self.occ)} and {len(other.occ)} Gaussians, {self.dim} and {other.dim} dimensions, "
                f"{len(self.transitions) - 1} and {len(other.transitions) - 1} transition-ids"
            )
        self.transitions += other.transitions
        self.occ += other.occ
        self.sums += other.sums
        self.total_like += other.total_like
        self.total_frames += other.total_frames
        self.flags &= other.flags
        return self

    @classmethod
    def read(cls, r) -> GmmStats:
        """Read from a TokenReader, text or binary."""
        transitions = r.vector(np.float64)
        r.expect("<NUMPDFS>")
        pdfs = [_read_pdf(r) for _ in range(r.count("pdfs"))]
        if not pdfs:
            raise DataError(f"{r.name}: statistics of 0 pdfs")
        occ, sums, flags = zip(*pdfs, strict=True)
        if len({s.shape[1] for s in sums}) > 1:
            raise DataError(f"{r.name}: pdfs of different dimensions")
        offsets = np.concatenate([[0], np.cumsum([len(o) for o in occ])])
        stats = cls(len(transitions) - 1, offsets, sums[0].shape[1] // 2)
        stats.transitions[:] = transitions
        np.concatenate(occ, out=stats.occ)
        np.concatenate(sums, out=stats.sums)
        stats.flags = flags[0]
        if not r.at_end():
            r.expect("<total_like>")
            stats.total_like = r.float64()
            r.expect("<total_frames>")
            stats.total_frames = r.float64()
        return stats

    def write(self, w) -> None:
        """Write to a TokenWriter."""
        w.vector(self.transitions)
        w.token("<NUMPDFS>")
        w.int32(len(self.offsets) - 1)
        for begin, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            w.token("<GMMACCS>")
            w.token("<VECSIZE>")
            w.int32(self.dim)
            w.token("<NUMCOMPONENTS>")
            w.int32(int(end - begin))
            w.token("<FLAGS>")
            w.raw(struct.pack("<bH", -2, self.flags) if w.binary else b"%d " % self.flags)
            w.token("<OCCUPANCY>")
            w.vector(self.occ[begin:end].astype(np.float32))
            w.token("<MEANACCS>")
            w.matrix(self.mean[begin:end].astype(np.float32))
            w.token("<DIAGVARACCS>")
            w.matrix(self.var[begin:end].astype(np.float32))
            w.token("</GMMACCS>")
        w.token("<total_like>")
        w.float64(self.total_like)
        w.token("<total_frames>")
        w.float64(self.total_frames)


def _read_pdf(r) -> tuple[np.ndarray, np.ndarray, int]:
    """(occupancies (M,), [mean, var] (M, 2 D), flags) of one pdf."""
    r.expect("<GMMACCS>")
    r.expect("<VECSIZE>")
    dim = r.count("dimensions")
    r.expect("<NUMCOMPONENTS>")
    count = r.count("Gaussians")
    r.expect("<FLAGS>")
    flags = r.int64()
    if not 0 <= flags < 1 << 16:
        raise r.error(f"expected flags of 16 bits, found {flags}")
    r.expect("<OCCUPANCY>")
    occ = r.vector(np.float64)
    if len(occ) != count:
        raise r.error(f"expected statistics <OCCUPANCY> of {count} Gaussians, found {len(occ)}")
    if not 0 < dim <= _MOST_DIMENSIONS:
        raise r.error(f"expected statistics of 1 to {_MOST_DIMENSIONS} dimensions, found {dim}")
    sums = np.zeros((count, 2 * dim))
    while (token := r.expect("<MEANACCS>", "<DIAGVARACCS>", "</GMMACCS>")) != "</GMMACCS>":
        value = r.matrix(np.float64)
        target = sums[:, :dim] if token == "<MEANACCS>" else sums[:, dim:]
        if value.shape != target.shape:
            raise r.error(f"expected statistics {token} of shape {target.shape}, found {value.shape}")
        target[:] = value
    return occ, sums, flags


class Accumulator:
    """Collects aligned utterances and adds them to `stats` in batches; `flush` at the end (or leave the `with`)."""

    def __init__(self, gmm: AmDiagGmm, tid_to_pdf: np.ndarray, second_dim: int = 0):
        """`second_dim`: dimension of the second features, where there are some; 0: the statistics are of the first."""
        self.gmm = gmm
        self.stats = GmmStats(len(tid_to_pdf) - 1, gmm.offsets, second_dim or gmm.dim)
        self._tid_to_pdf = tid_to_pdf
        self._params = gmm.params().astype(np.float64)
        self._second = second_dim > 0
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._frames = 0

    def __enter__(self) -> Accumulator:
        return self

    def __exit__(self, kind, *_rest) -> None:
        if kind is None:
            self.flush()

    def add(
        self,
        feats: np.ndarray,
        alignment: np.ndarray,
        weight: np.ndarray | None = None,
        second: np.ndarray | None = None,
    ) -> None:
        """One utterance: feats (T, D), alignment (T,) transition-ids, their weight (T,), 1 when not given.

        Statistics are of `second` (T, second_dim) where the accumulator is for two kinds of features. DataError when
        they do not fit together.
        """
        if len(feats) != len(alignment):
            raise DataError(f"{len(feats)} frames of features, {len(alignment)} in the alignment")
        if len(alignment) == 0:
            raise DataError("an empty alignment")
        if feats.shape[1] != self.gmm.dim:
            raise DataError(f"features of dimension {feats.shape[1]}, the model wants {self.gmm.dim}")
        if alignment.min() < 1 or alignment.max() >= len(self._tid_to_pdf):
            raise DataError(
                f"alignment with transition-ids {alignment.min()}..{alignment.max()}, the model has "
                f"1..{len(self._tid_to_pdf) - 1}: it belongs to another model"
            )
        if not np.isfinite(feats).all():
            raise DataError("features contain NaN or infinity")
        if self._second and second.shape != (len(feats), self.stats.dim):
            raise DataError(f"second features of shape {second.shape}, expected {(len(feats), self.stats.dim)}")
        weight = np.ones(len(feats)) if weight is None else weight
        self._waiting.append((feats, alignment, weight, second if self._second else feats))
        self._frames += len(feats)
        if self._frames >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Add what is waiting to the statistics."""
        if not self._frames:
            return
        feats, tids, weight, second = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        self._waiting, self._frames = [], 0
        self.stats.transitions += np.bincount(tids, weight, minlength=len(self._tid_to_pdf))
        pdf = self._tid_to_pdf[tids]
        order = np.argsort(pdf.astype(np.int32), kind="stable")
        x = extended(feats[order], self.gmm.dim, np.float64)
        y = extended(second[order], self.stats.dim, np.float64) if self._second else x
        weight = weight[order]
        ends = np.cumsum(np.bincount(pdf, minlength=self.gmm.num_pdfs))
        begin = 0
        for p in np.flatnonzero(np.diff(ends, prepend=0)):
            self._add_pdf(int(p), x[begin : ends[p]], weight[begin : ends[p]], y[begin : ends[p]])
            begin = ends[p]

    def _add_pdf(self, pdf: int, x: np.ndarray, weight: np.ndarray, y: np.ndarray) -> None:
        """Equation (1) for frames of one pdf: x (N, 2 D + 1) = [x, x^2, 1], y of the same form, weight (N,)."""
        stats = self.stats
        rows = slice(self.gmm.offsets[pdf], self.gmm.offsets[pdf + 1])
        params, sums, occ = self._params[rows], stats.sums[rows], stats.occ[rows]
        for begin in range(0, len(x), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            post, like = gaussian_posteriors(params, x[block])
            post *= weight[block]
            total = float(like @ weight[block])
            products = post @ y[block]
            if not np.isfinite(total) or np.abs(products).max() > _LARGEST:
                raise DataError(f"overflow in the statistics of pdf {pdf}: bad features, or bad variances in the model")
            sums += products[:, :-1]
            occ += products[:, -1]
            stats.total_like += total
        stats.total_frames += weight.sum()


def gaussian_posteriors(params: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors (M, N) of a pdf's Gaussians and the pdf's log-likelihoods (N,), in the precision of the arguments.

    params (M, 2 D + 1) as `AmDiagGmm.params`, x (N, 2 D + 1) as `extended`.
    """
    post = params @ x.T
    top = post.max(axis=0)
    post -= top
    np.exp(post, out=post)
    norm = post.sum(axis=0)
    post /= norm
    return post, top + np.log(norm)


def read_stats(rxfilenames: list[str]) -> GmmStats:
    """Read accumulator files and add them up, in the order given."""
    stats = None
    for name in rxfilenames:
        with open_reader(name) as r:
            read = GmmStats.read(r)
        try:
            if stats is None:
                stats = read
            else:
                stats += read
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
    if stats is None:
        raise DataError("no statistics to add up")
    return stats


def write_stats(wxfilename: str, stats: GmmStats, binary: bool = True) -> None:
    """Write an accumulator file."""
    with open_writer(wxfilename, binary) as w:
        stats.write(w)
