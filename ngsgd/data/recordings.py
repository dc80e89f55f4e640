"""Going through the recordings and utterances of a data directory: wav.scp, whole or cut by segments."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from ngsgd.data.segments import cut, parse_segment
from ngsgd.data.wave import Wave, decode, encode, read_channels, read_length
from ngsgd.errors import DataError
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.tables import SequentialReader, Writer, parse_specifier, read_scp

Load = Callable[[], tuple[np.ndarray, int]]
"""Gives ((N,) samples on the int16 scale, rate in Hz); raises DataError for a bad utterance."""


def recordings(source: str) -> Iterator[tuple[str, Callable[[], Wave]]]:
    """(key, load) of a wav.scp, `scp:FILE` or `ark:FILE`; nothing is decoded before load(), which raises DataError."""
    if not source.startswith("ark"):
        for key, rxfilename in read_scp(source.removeprefix("scp:")):
            yield key, functools.partial(read_channels, rxfilename)
        return
    path = parse_specifier(source).path
    for key, load in SequentialReader(source, "wave_file").items():
        yield key, lambda key=key, load=load: decode(load(), f"{path} (key {key})")


def utterances(wav: str, segments: str = "", channel: int = -1) -> Iterator[tuple[str, Load]]:
    """(utterance, load) in the order of `segments` if given, else of `wav`; nothing is read before `load()`.

    `wav`: as of `recordings`, with segments a wav.scp.  `channel`: from 0, for recordings whose segments name none; -1:
    the only one.  Raises DataError for bad lists.
    """
    if segments:
        for key, load in segments_of(wav, segments):
            yield key, functools.partial(_samples, load, channel)
    else:
        for key, load in recordings(wav):
            yield key, functools.partial(_samples, load, channel)


def _samples(load: Callable[[], Wave], channel: int) -> tuple[np.ndarray, int]:
    wave = load()
    return wave.channel(channel), wave.rate


def segments_of(wav_scp: str, segments: str) -> Iterator[tuple[str, Callable[[], Wave]]]:
    """(utterance, load) of the lines of a segments file; load() gives that stretch, of the channel if one is named.

    Raises DataError for bad lists.
    """
    if wav_scp.startswith("ark"):
        raise DataError(f"with segments the recordings must be a wav.scp, not an archive: got '{wav_scp}'")
    paths = dict(read_scp(wav_scp.removeprefix("scp:")))
    last: dict[str, Wave] = {}  # segments of a recording mostly follow each other
    for key, rest in read_map(segments).items():
        yield key, functools.partial(_segment, rest, f"{segments}: '{key}'", paths, last)


def _segment(rest: str, where: str, paths: dict[str, str], last: dict[str, Wave]) -> Wave:
    segment = parse_segment(rest, where)
    if segment.recording not in paths:
        raise DataError(f"recording '{segment.recording}' is not in wav.scp")
    if segment.recording not in last:
        last.clear()
        last[segment.recording] = read_channels(paths[segment.recording])
    wave = last[segment.recording]
    samples = wave.samples if segment.channel < 0 else wave.channel(segment.channel)[:, None]
    return Wave(cut(samples, wave.rate, segment), wave.rate, wave.name)


def write_recordings(items: Iterator[tuple[str, Callable[[], Wave]]], source: str, wspecifier: str) -> tuple[int, int]:
    """Write recordings to a table as 16-bit WAV; returns (done, failed).

    Raises DataError as `require_most`; then nothing is written.
    """
    with Writer(wspecifier, "wave_file") as out:
        done, failed = for_each(items, lambda key, wave: out.write(key, encode(wave.samples, wave.rate)))
        require_most(done, failed, source)
    return done, failed


def write_durations(source: str, wspecifier: str) -> tuple[int, int]:
    """Write the length of each recording, s; returns (done, failed). Raises as `write_recordings`."""
    with Writer(wspecifier, "float") as out:
        done, failed = for_each(_lengths(source), lambda key, length: out.write(key, length[0] / length[1]))
        require_most(done, failed, source)
    return done, failed


def _lengths(source: str) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
    if not source.startswith("ark"):
        for key, rxfilename in read_scp(source.removeprefix("scp:")):
            yield key, functools.partial(read_length, rxfilename)
        return
    for key, load in recordings(source):
        yield key, lambda load=load: _length(load())


def _length(wave: Wave) -> tuple[int, int]:
    return len(wave.samples), wave.rate
