#!/usr/bin/env python3
"""Frames a second that one core decodes from examples into minibatches: reading, shuffling and decompression.

Usage: bench_egs.py [<egs-rspecifier> [<minibatch-size>]]
e.g.: bench/bench_egs.py ark:exp/nnet/egs/egs.1.ark 128

Without an archive, 50,000 frames of 40 dimensions with 4 frames of context on either side are made up. Medians of 5
passes over all frames, CPU time; the archive is read again in each.
"""

import io
import sys
import tempfile
import time

import numpy as np

from ngsgd.egs.archive import read_archive
from ngsgd.egs.make import MakeEgsOptions, cut
from ngsgd.egs.minibatch import minibatches
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenWriter


def made_up(frames: int, dim: int) -> bytes:
    """An archive of random features."""
    rng = np.random.default_rng(0)
    out = io.BytesIO()
    for utterance in range(frames // 1000):
        feats = rng.normal(size=(1000, dim)).astype(np.float32)
        pdfs = rng.integers(0, 1000, 1000).astype(np.int32)
        for key, example in cut(f"u{utterance}", feats, pdfs, MakeEgsOptions()):
            out.write(key.encode() + b" \0B")
            holders["nnet_example"].write(TokenWriter(out), example)
    return out.getvalue()


def one_pass(rspecifier: str, size: int) -> tuple[int, float]:
    """(frames, CPU seconds) of a pass over all labelled frames, one of each example at a time as in training."""
    start = time.process_time()
    egs = read_archive(rspecifier)
    longest = int(np.diff(egs.frame_offset).max())
    frames = sum(b.num_frames for k in range(longest) for b in minibatches(egs, size, frame=k, seed=[1, k]))
    return frames, time.process_time() - start


def main() -> None:
    """Print the figures."""
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    with tempfile.NamedTemporaryFile(suffix=".ark") as file:
        if len(sys.argv) > 1:
            rspecifier = sys.argv[1]
        else:
            file.write(made_up(50000, 40))
            file.flush()
            rspecifier = f"ark:{file.name}"
        shape = read_archive(rspecifier).shape
        one_pass(rspecifier, size)
        frames, seconds = zip(*(one_pass(rspecifier, size) for _ in range(5)))
    rows = shape.left_context + 1 + shape.right_context
    rate = frames[0] / float(np.median(seconds))
    dim = shape.feat_dim + shape.ivector_dim
    print(f"{frames[0]} frames of {rows} x {dim}, minibatches of {size}: {rate:.0f} frames/s")


if __name__ == "__main__":
    main()
