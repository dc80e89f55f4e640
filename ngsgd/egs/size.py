"""How large examples will be on disk, before any is made, and whether they fit."""

import io
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ngsgd.egs.example import NnetExample, NnetExampleHolder
from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.stream import TokenWriter

_KEY_END = len(" \0B")


@dataclass(frozen=True)
class ExampleSize:
    """Bytes of the examples of utterances, each of up to `frames_per_eg` labelled frames, in one archive or several.

    left, right: context, frames. feat_dim D, ivector_dim E.
    """

    frames_per_eg: int
    left: int
    right: int
    feat_dim: int
    ivector_dim: int

    def example(self, frames: int) -> int:
        """Without its key: an example of `frames` labelled frames, as it is written."""
        rows = self.left + frames + self.right
        kind = "CM" if rows > 8 else "CM2"
        payload = bytes(CompressedMatrix.payload_size(kind, rows, self.feat_dim))
        matrix = CompressedMatrix(kind, 0.0, 1.0, rows, self.feat_dim, payload)
        out = io.BytesIO()
        speaker = np.zeros(self.ivector_dim, np.float32)
        NnetExampleHolder.write(TokenWriter(out), NnetExample([[(0, 1.0)]] * frames, matrix, self.left, speaker))
        return len(out.getbuffer()) + _KEY_END

    def total(self, lengths: Mapping[str, int]) -> int:
        """All examples of utterances of these lengths, in frames."""
        sizes = [self.example(frames) if frames else 0 for frames in range(self.frames_per_eg + 1)]
        bytes_in_all = 0
        for utterance, length in lengths.items():
            whole, rest = divmod(length, self.frames_per_eg)
            key = len(utterance.encode()) + len(f"-{length}")
            bytes_in_all += whole * (sizes[-1] + key) + (sizes[rest] + key if rest else 0)
        return bytes_in_all


def text_of(size: float) -> str:
    """`1.3 GB`, in the decimal units of disks."""
    units = ["kB", "MB", "GB", "TB"]
    size /= 1000
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.3g} {units[0]}"


def require_space(directory: str, needed: int) -> None:
    """DataError when the file system of `directory` has less than `needed` bytes free for examples yet to be made."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DataError(
            f"{os.path.abspath(directory)}: the examples need about {text_of(needed)} and {text_of(free)} are free: "
            "train with --egs-on-the-fly, which keeps no examples on disk; give a larger --frames-per-eg; or make them "
            "on another disk with make_egs.sh and train with --egs-dir"
        )
