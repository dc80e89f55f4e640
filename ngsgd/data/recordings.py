"""Going through the utterances of a data directory: recordings of wav.scp, whole or cut by segments."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from ngsgd.data.segments import cut, parse_segment
from ngsgd.data.wave import Wave, read_channels
from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.tables import read_scp

Load = Callable[[], tuple[np.ndarray, int]]
"""Gives ((N,) samples on the int16 scale, rate in Hz); raises DataError for a bad utterance."""


def utterances(wav_scp: str, segments: str = "", channel: int = -1) -> Iterator[tuple[str, Load]]:
    """(utterance, load) in the order of `segments` if given, else of `wav_scp`; nothing is read before `load()`.

    `channel`: from 0, for recordings whose segments name none; -1: the only one.  Raises DataError for bad lists.
    """
    recordings = read_scp(wav_scp.removeprefix("scp:"))
    if not segments:
        for key, rxfilename in recordings:
            yield key, functools.partial(_whole, rxfilename, channel)
        return
    paths = dict(recordings)
    last: dict[str, Wave] = {}  # segments of a recording mostly follow each other
    for key, rest in read_map(segments).items():
        yield key, functools.partial(_segment, rest, f"{segments}: '{key}'", paths, last, channel)


def _whole(rxfilename: str, channel: int) -> tuple[np.ndarray, int]:
    wave = read_channels(rxfilename)
    return wave.channel(channel), wave.rate


def _segment(
    rest: str, where: str, paths: dict[str, str], last: dict[str, Wave], channel: int
) -> tuple[np.ndarray, int]:
    segment = parse_segment(rest, where)
    if segment.recording not in paths:
        raise DataError(f"recording '{segment.recording}' is not in wav.scp")
    if segment.recording not in last:
        last.clear()
        last[segment.recording] = read_channels(paths[segment.recording])
    wave = last[segment.recording]
    return cut(wave.channel(segment.channel if segment.channel >= 0 else channel), wave.rate, segment), wave.rate
