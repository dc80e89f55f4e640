"""One training example as an object: Kaldi's nnet2 NnetExample, read and written one at a time.

The labelled frames of one stretch of an utterance, their input with L frames of context on the left and R on the
right, and a speaker vector (the i-vector, or nothing). The input stays as compressed as it was read, so that a copy is
byte-identical. Training reads whole archives through `archive.py` instead, which is a hundred times as fast.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter

Labels = list[list[tuple[int, float]]]


def _no_speaker() -> np.ndarray:
    return np.zeros(0, np.float32)


@dataclass
class NnetExample:
    """Kaldi's NnetExample.

    labels: for each of n frames the (pdf, weight) pairs. input: (L + n + R, D), compressed. left_context: L.
    spk_info: (E,) float32, appended to each row of the input; E is 0 without i-vectors.
    """

    labels: Labels
    input: CompressedMatrix
    left_context: int
    spk_info: np.ndarray = field(default_factory=_no_speaker)

    @property
    def num_frames(self) -> int:
        """Labelled frames, n."""
        return len(self.labels)

    @property
    def right_context(self) -> int:
        """R: the rows behind the labelled ones."""
        return self.input.rows - self.left_context - self.num_frames

    def part(self, first: int, num_frames: int, left_context: int, right_context: int) -> "NnetExample":
        """The example of `num_frames` frames from `first`, with at most the given context on either side.

        The same bytes as Kaldi's nnet-copy-egs --frame --left-context --right-context.
        """
        num_frames = min(num_frames, self.num_frames - first)
        left, right = min(left_context, self.left_context), min(right_context, self.right_context)
        rows = _rows(self.input, self.left_context + first - left, left + num_frames + right)
        return NnetExample(self.labels[first : first + num_frames], rows, left, self.spk_info)


def _rows(matrix: CompressedMatrix, first: int, count: int) -> CompressedMatrix:
    """Rows of a compressed matrix, which keep its ranges; below eight rows CM becomes CM2, as in Kaldi."""
    if (first, count) == (0, matrix.rows):
        return matrix
    part = slice(first, first + count)
    if matrix.kind == "CM" and count < 8:
        return CompressedMatrix.from_dense(matrix.to_dense()[part], "CM2")
    if matrix.kind == "CM":
        head = matrix.payload[: 8 * matrix.cols]
        codes = np.frombuffer(matrix.payload, np.uint8, offset=len(head)).reshape(matrix.cols, matrix.rows)
        payload = head + codes[:, part].tobytes()
    else:
        codes = np.frombuffer(matrix.payload, "<u2" if matrix.kind == "CM2" else np.uint8)
        payload = codes.reshape(matrix.rows, matrix.cols)[part].tobytes()
    return CompressedMatrix(matrix.kind, matrix.minimum, matrix.extent, count, matrix.cols, payload)


@holders.register("nnet_example")
class NnetExampleHolder:
    """Tables of examples: `SequentialReader(rspecifier, "nnet_example")`."""

    @staticmethod
    def read(r: TokenReader) -> NnetExample:
        """Kaldi's three forms of labels; DataError where the entry is not one."""
        r.expect("<NnetExample>")
        labels = _read_labels(r)
        r.expect("<InputFrames>")
        matrix = r.general_matrix()
        if isinstance(matrix, np.ndarray):
            if 0 in matrix.shape or not np.isfinite(matrix).all():
                raise r.error("expected input rows of finite values")
            matrix = CompressedMatrix.from_dense(matrix)
        r.expect("<LeftContext>")
        left_context = r.int32()
        r.expect("<SpkInfo>")
        spk_info = r.vector(np.float32)
        r.expect("</NnetExample>")
        example = NnetExample(labels, matrix, left_context, spk_info)
        if left_context < 0 or example.right_context < 0:
            raise r.error(
                f"an example of {matrix.rows} input rows cannot hold {len(labels)} labelled frames "
                f"and {left_context} of left context"
            )
        return example

    @staticmethod
    def write(w: TokenWriter, example: NnetExample) -> None:
        """Labels in the compact form where each frame has one pdf of weight 1, as Kaldi does."""
        compact = all(len(frame) == 1 and frame[0][1] == 1.0 for frame in example.labels)
        if compact and w.binary and isinstance(example.input, CompressedMatrix):
            w.raw(_compact(example))
            return
        w.token("<NnetExample>")
        if compact:
            w.token("<Lab1>")
            w.int32_vector(np.array([frame[0][0] for frame in example.labels], np.int32))
        else:
            w.token("<Lab2>")
            w.int32(len(example.labels))
            for frame in example.labels:
                w.int32(len(frame))
                for pdf, weight in frame:
                    w.int32(pdf)
                    w.float32(weight)
        w.token("<InputFrames>")
        w.matrix(example.input)
        w.token("<LeftContext>")
        w.int32(example.left_context)
        w.token("<SpkInfo>")
        w.vector(np.asarray(example.spk_info, np.float32))
        w.token("</NnetExample>")


def _compact(example: NnetExample) -> bytes:
    """What `write` writes piece by piece, for binary examples of one pdf a frame: there are millions of them."""
    labels, speaker = example.labels, np.asarray(example.spk_info, np.float32)
    return b"".join(
        (
            b"<NnetExample> <Lab1> ",
            struct.pack(f"<bi{len(labels)}i", 4, len(labels), *[frame[0][0] for frame in labels]),
            b"<InputFrames> ",
            example.input.to_bytes(),
            b"<LeftContext> ",
            struct.pack("<bi", 4, example.left_context),
            b"<SpkInfo> FV ",
            struct.pack("<bi", 4, len(speaker)),
            speaker.tobytes(),
            b"</NnetExample> ",
        )
    )


def _read_labels(r: TokenReader) -> Labels:
    kind = r.expect("<Lab1>", "<Lab2>", "<Labels>")
    if kind == "<Lab1>":
        labels = [[(pdf, 1.0)] for pdf in r.int32_vector().tolist()]
    else:
        labels = [_read_pairs(r) for _ in range(r.int32() if kind == "<Lab2>" else 1)]
    if not labels:
        raise r.error("an example without labelled frames")
    return labels


def _read_pairs(r: TokenReader) -> list[tuple[int, float]]:
    count = r.int32()
    if count < 0:
        raise r.error(f"a frame with {count} labels makes no sense")
    return [(r.int32(), r.float32()) for _ in range(count)]
