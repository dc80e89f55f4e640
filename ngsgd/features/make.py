"""Features of the utterances of a wav.scp, written to a table."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ngsgd.data.recordings import utterances
from ngsgd.errors import DataError
from ngsgd.features.frames import FeatureType
from ngsgd.features.stream import check_features, for_each, require_most
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.tables import Writer
from ngsgd.options import format_options, opt


@dataclass
class MakeOptions:
    """What is read and how it is written."""

    segments: str = opt("", "segments file: utterances are parts of the recordings")
    channel: int = opt(-1, "channel of recordings with several, from 0; -1: the first, with a warning")
    min_duration: float = opt(0.0, "shorter utterances are skipped, s")
    subtract_mean: bool = opt(False, "subtract the mean of the utterance's features")
    compress: bool = opt(True, "write compressed matrices (a quarter of the size)")
    write_num_frames: str = opt("", "wspecifier of a table with the number of frames of each utterance")
    write_utt2dur: str = opt("", "wspecifier of a table with the length of each utterance, s")
    write_config: str = opt("", "file for the values of all feature options, which --config reads again")


def make_features(kind: FeatureType, options: MakeOptions, wav_scp: str, wspecifier: str) -> tuple[int, int]:
    """Write the features of every utterance; returns (done, failed).

    Raises DataError when the lists cannot be read, or nothing could be done: then no file appears.
    """
    with ExitStack() as stack:
        out = stack.enter_context(Writer(wspecifier, "matrix", compress=options.compress))
        counts = _optional_writer(stack, options.write_num_frames, "int32")
        lengths = _optional_writer(stack, options.write_utt2dur, "float")

        def work(key: str, recording: tuple[np.ndarray, int]) -> None:
            samples, rate = recording
            if len(samples) / rate < options.min_duration:
                raise DataError(f"{len(samples) / rate:.3f} s, less than --min-duration={options.min_duration:g}")
            features = check_features(kind.compute(samples, rate, key))
            if options.subtract_mean:
                features -= features.mean(axis=0, dtype=np.float64).astype(np.float32)
            out.write(key, features)
            if counts:
                counts.write(key, len(features))
            if lengths:
                lengths.write(key, len(samples) / rate)

        done, failed = for_each(utterances(wav_scp, options.segments, options.channel), work)
        require_most(done, failed, wav_scp)
        if options.write_config:
            with open_text_writer(options.write_config) as stream:
                stream.write(format_options(kind.options))
    return done, failed


def _optional_writer(stack: ExitStack, wspecifier: str, kind: str) -> Writer | None:
    return stack.enter_context(Writer(wspecifier, kind)) if wspecifier else None
