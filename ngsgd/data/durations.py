"""`utt2dur` of a data directory: the length of each utterance, s."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from ngsgd.data.datadir import DataDir
from ngsgd.data.segments import TO_THE_END, Segment, limits, parse_segment
from ngsgd.data.wave import read_length
from ngsgd.errors import DataError
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.files import is_input_pipe
from ngsgd.kaldi_io.lists import write_map
from ngsgd.kaldi_io.stream import format_float


def write_utt2dur(path: str | Path) -> tuple[int, int]:
    """Write utt2dur of data directory `path`; returns (done, failed), the failed ones named and left out.

    WAV and FLAC files are measured by their headers. Segments are clamped to their recording as features are, except
    that a recording which is a command is not run when its segment says its end. Raises DataError as `require_most`.
    """
    data = DataDir.load(path)
    if data.wav is None:
        raise DataError(f"{path}: expected wav.scp")
    durations: dict[str, str] = {}

    def note(utterance: str, seconds: float) -> None:
        durations[utterance] = format_float(seconds)

    done, failed = for_each(_durations(data), note)
    require_most(done, failed, str(path))
    write_map(str(Path(path) / "utt2dur"), durations)
    return done, failed


def _durations(data: DataDir) -> Iterator[tuple[str, Callable[[], float]]]:
    length_of = functools.lru_cache(maxsize=1)(read_length)  # segments of a recording mostly follow each other
    segments = data.files.get("segments")
    if segments is None:
        for key, rxfilename in data.wav.items():
            yield key, lambda rxfilename=rxfilename: _seconds(*length_of(rxfilename))
        return
    for key, rest in segments.items():
        where = f"{data.path}/segments: '{key}'"
        yield key, lambda rest=rest, where=where: _segment_seconds(parse_segment(rest, where), data.wav, length_of)


def _seconds(samples: int, rate: int) -> float:
    return samples / rate


def _segment_seconds(segment: Segment, wav: dict[str, str], length_of: Callable[[str], tuple[int, int]]) -> float:
    if segment.recording not in wav:
        raise DataError(f"recording '{segment.recording}' is not in wav.scp")
    rxfilename = wav[segment.recording]
    if is_input_pipe(rxfilename) and segment.end != TO_THE_END:
        return segment.end - segment.start
    samples, rate = length_of(rxfilename)
    first, end = limits(samples, rate, segment)
    return (end - first) / rate
