"""A whole archive of examples in memory: its bytes, where everything is in them, and fast ways to decode and copy.

Reading is a sequential scan in numba (`kernels.py`), nothing is decoded before it is asked for, and examples are
copied as the bytes that they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes, open_bytes_writer

# Texts of the error codes of kernels.scan.
ERRORS = (
    "",
    "the archive is cut off here",
    "expected a key and a space",
    "expected '\\0B' behind the key (a text archive is read with 'ark,t:')",
    "expected <NnetExample>",
    "expected <Lab1>, <Lab2> or <Labels>",
    "expected <InputFrames>",
    "expected a matrix (CM, CM2, CM3, FM or DM)",
    "expected <LeftContext>",
    "expected <SpkInfo> and a float vector",
    "expected </NnetExample>",
    "expected a four-byte number",
    "a size that makes no sense, or labels and context beyond the input rows",
)


@dataclass(frozen=True)
class EgsShape:
    """What every example of an archive has in common: L, R, D and E of the brief (frames, frames, dims, dims)."""

    left_context: int
    right_context: int
    feat_dim: int
    ivector_dim: int


class EgsArchive:
    """The examples of one archive. M examples, F labelled frames in them, K labels.

    Attributes: buffer (bytes,) uint8; index (M, kernels.NUM_FIELDS) int64; frame_offset (M + 1,): the first frame of
    each example; label_offset (F + 1,): the first label of each frame; pdf (K,) int32; weight (K,) float32.
    """

    def __init__(self, data: bytes | np.ndarray, name: str):
        """Raises DataError for damage, with the offset and the example's key and number; for no example at all."""
        from ngsgd.egs import kernels

        self.name = name
        self.buffer = np.frombuffer(data, np.uint8)
        self.index, error, offset = kernels.scan(self.buffer)
        if error:
            number = len(self.index)
            key = self.key(number - 1) if self.index[-1, kernels.KEY_END] > self.index[-1, kernels.START] else "?"
            found = self.buffer[offset : offset + 16].tobytes()
            raise DataError(
                f"{name}: example {number} (key {key[:40]!r}) at byte {offset} of {len(self.buffer)}: "
                f"{ERRORS[error]}, found {found!r}"
            )
        if not len(self.index):
            raise DataError(f"{name}: no examples in it")
        self.frame_offset = np.concatenate(([0], np.cumsum(self.index[:, kernels.FRAMES])))
        self._check_ranges()
        self._read_labels()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def num_frames(self) -> int:
        """Labelled frames in all, F."""
        return int(self.frame_offset[-1])

    def key(self, e: int) -> str:
        """The key of example e."""
        start, end = self.index[e, :2]
        return self.buffer[start:end].tobytes().decode(errors="replace")

    def entry(self, e: int) -> memoryview:
        """The bytes of example e, key included."""
        return self.buffer[self.index[e, 0] : self.index[e, 2]].data

    def _check_ranges(self) -> None:
        """DataError naming the first example whose compressed input has no range of values."""
        from ngsgd.egs.kernels import DATA, FM, FORMAT

        compressed = self.index[:, FORMAT] < FM
        good = np.isfinite(self.ranges).all(axis=1) & (self.ranges[:, 1] >= 0)
        if not (good | ~compressed).all():
            e = int(np.flatnonzero(compressed & ~good)[0])
            low, extent = self.ranges[e]
            raise DataError(
                f"{self.name}: example {e + 1} (key '{self.key(e)[:40]}') at byte {self.index[e, DATA]}: "
                f"expected the minimum and range of its input, found {low} and {extent}"
            )

    def _read_labels(self) -> None:
        from ngsgd.egs import kernels

        counts = kernels.count_labels(self.buffer, self.index)
        self.label_offset = np.concatenate(([0], np.cumsum(counts)))
        self.pdf = np.empty(self.label_offset[-1], np.int32)
        at = np.empty(len(self.pdf), np.int64)
        kernels.read_labels(self.buffer, self.index, self.pdf, at)
        self.weight = np.ones(len(at), np.float32)
        given = at >= 0
        self.weight[given] = self._floats(at[given], 1)[:, 0]

    def _floats(self, offsets: np.ndarray, count: int) -> np.ndarray:
        """(len(offsets), count) float32 that stand at these byte offsets."""
        where = offsets[:, None] + np.arange(4 * count)
        return self.buffer[where].view("<f4")

    @cached_property
    def shape(self) -> EgsShape:
        """The common shape. DataError naming the first example that differs from the first one in it."""
        from ngsgd.egs.kernels import COLS, FRAMES, LEFT, ROWS, SPK_DIM

        index = self.index
        columns = {
            "left context": index[:, LEFT],
            "right context": index[:, ROWS] - index[:, LEFT] - index[:, FRAMES],
            "feature dimension": index[:, COLS],
            "i-vector dimension": index[:, SPK_DIM],
        }
        for what, values in columns.items():
            other = np.flatnonzero(values != values[0])
            if len(other):
                e = int(other[0])
                raise DataError(
                    f"{self.name}: examples of different {what}: {values[0]} in '{self.key(0)}', "
                    f"{values[e]} in '{self.key(e)}'"
                )
        return EgsShape(*(int(values[0]) for values in columns.values()))

    @cached_property
    def ranges(self) -> np.ndarray:
        """(M, 2) float32: minimum and range of each compressed input matrix."""
        from ngsgd.egs.kernels import DATA, FM, FORMAT

        at = np.where(self.index[:, FORMAT] < FM, self.index[:, DATA], 0)
        return np.ascontiguousarray(self._floats(at, 2))

    @cached_property
    def speakers(self) -> np.ndarray:
        """(M, E) float32: the speaker vectors."""
        from ngsgd.egs.kernels import SPK

        return self._floats(self.index[:, SPK], self.shape.ivector_dim)

    def check_pdfs(self, num_pdfs: int | None = None) -> None:
        """DataError for a label below 0 or, where `num_pdfs` is given, at or above it."""
        bad = self.pdf < 0
        if num_pdfs is not None:
            bad |= self.pdf >= num_pdfs
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            frame = int(np.searchsorted(self.label_offset, k, "right")) - 1
            e = int(np.searchsorted(self.frame_offset, frame, "right")) - 1
            allowed = "0 or more" if num_pdfs is None else f"0..{num_pdfs - 1}"
            raise DataError(f"{self.name}: example '{self.key(e)}' has label {self.pdf[k]}, expected {allowed}")

    def decode(self, examples: np.ndarray, first_row: np.ndarray, num_rows: int) -> np.ndarray:
        """Input rows: for each n, `num_rows` rows of example examples[n] from first_row[n], the speaker vector behind.

        examples, first_row (N,) -> (N, num_rows, D + E) float32. All examples must be of one shape.
        """
        from ngsgd.egs import kernels

        shape = self.shape
        out = np.empty((len(examples), num_rows, shape.feat_dim + shape.ivector_dim), np.float32)
        examples = np.ascontiguousarray(examples, np.int64)
        first_row = np.ascontiguousarray(first_row, np.int64)
        kernels.decode(self.buffer, self.index, self.ranges, examples, first_row, out)
        for n in np.flatnonzero(self.index[examples, kernels.FORMAT] >= kernels.FM):
            out[n, :, : shape.feat_dim] = self._uncompressed(examples[n])[first_row[n] : first_row[n] + num_rows]
        if shape.ivector_dim:
            out[:, :, shape.feat_dim :] = self.speakers[examples][:, None]
        return out

    def _uncompressed(self, e: int) -> np.ndarray:
        from ngsgd.egs.kernels import COLS, DATA, FM, FORMAT, ROWS

        rows, cols, at = self.index[e, [ROWS, COLS, DATA]]
        dtype = np.dtype("<f4") if self.index[e, FORMAT] == FM else np.dtype("<f8")
        size = rows * cols * dtype.itemsize
        values = np.frombuffer(self.buffer[at : at + size].tobytes(), dtype).reshape(rows, cols)
        if not np.isfinite(values).all():
            raise DataError(
                f"{self.name}: example {e + 1} (key '{self.key(e)[:40]}') at byte {at}: NaN or inf in its input"
            )
        return values


def read_archive(rspecifier: str) -> EgsArchive:
    """All examples of an rspecifier. Binary `ark:` is scanned as it is; scp and text go through the table reader.

    Raises DataError for damage and for an empty archive.
    """
    from ngsgd.kaldi_io.tables import parse_specifier

    specifier = parse_specifier(rspecifier)
    if specifier.form != "ark" or "t" in specifier.flags:
        return EgsArchive(_serialised(rspecifier), rspecifier)
    with open_bytes(specifier.path) as stream:
        data = stream.read()
    return EgsArchive(data, rspecifier)


def _serialised(rspecifier: str) -> bytes:
    """The examples of any rspecifier in the bytes of a binary archive."""
    import io

    from ngsgd.egs.example import NnetExampleHolder
    from ngsgd.kaldi_io.stream import TokenWriter
    from ngsgd.kaldi_io.tables import SequentialReader

    out = io.BytesIO()
    for key, value in SequentialReader(rspecifier, "nnet_example"):
        out.write(key.encode() + b" \0B")
        NnetExampleHolder.write(TokenWriter(out), value)
    return out.getvalue()


def write_archive(wxfilename: str, archive: EgsArchive, order: Iterable[int]) -> int:
    """Copies examples, byte for byte, in the given order; returns how many. The file is whole or absent."""
    count = 0
    with open_bytes_writer(wxfilename) as stream:
        for count, e in enumerate(order, 1):  # noqa: B007
            stream.write(archive.entry(e))
    return count
