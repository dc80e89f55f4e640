"""Segments: utterances as stretches of recordings, `utterance recording start end [channel]`, times in seconds.

An end of -1 is the end of the recording, everywhere.  Limits as in Kaldi's extract-segments: an end at most
`MAX_OVERSHOOT` past the recording is clamped, a segment shorter than `MIN_LENGTH` is refused.
"""

import math
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError

MAX_OVERSHOOT = 0.5  # s
MIN_LENGTH = 0.1  # s
TO_THE_END = -1.0


@dataclass(frozen=True)
class Segment:
    """recording: its id; start, end: seconds (end -1: the recording's); channel: from 0, -1 when not given."""

    recording: str
    start: float
    end: float
    channel: int = -1


def parse_segment(rest: str, where: str) -> Segment:
    """The segment of a line of `segments` behind the utterance id. Raises DataError saying `where`."""
    fields = rest.split()
    if len(fields) not in (3, 4):
        raise DataError(f"{where}: expected 'utterance recording start end [channel]', found {len(fields) + 1} fields")
    try:
        start, end = float(fields[1]), float(fields[2])
        channel = int(fields[3]) if len(fields) == 4 else -1
    except ValueError:
        raise DataError(f"{where}: expected times in seconds, found '{' '.join(fields[1:])}'") from None
    if not (math.isfinite(start) and math.isfinite(end)):
        raise DataError(f"{where}: expected times in seconds, found '{' '.join(fields[1:])}'")
    if start < 0 or (end <= start and end != TO_THE_END):
        raise DataError(f"{where}: expected 0 <= start < end, or end -1, found start {start:g}, end {end:g}")
    return Segment(fields[0], start, end, channel)


def cut(samples: np.ndarray, rate: int, segment: Segment) -> np.ndarray:
    """The segment's part of the (N,) or (N, C) `samples` of its recording, a view. Raises DataError as `limits`."""
    start, end = limits(len(samples), rate, segment)
    return samples[start:end]


def limits(count: int, rate: int, segment: Segment) -> tuple[int, int]:
    """(first sample, behind the last) of a segment of a recording with `count` samples.

    Raises DataError when it begins past the end, ends too far past it, or is too short.
    """
    length = count / rate
    start, end = int(segment.start * rate), count
    if start >= count:
        raise DataError(
            f"the segment begins at {segment.start:g} s, recording {segment.recording} ends at {length:.3f} s"
        )
    if segment.end != TO_THE_END:
        end = int(segment.end * rate)
        if end >= count + MAX_OVERSHOOT * rate:
            raise DataError(
                f"the segment ends at {segment.end:g} s, recording {segment.recording} at {length:.3f} s: "
                f"more than {MAX_OVERSHOOT} s past it"
            )
    end = min(end, count)
    if end <= start + MIN_LENGTH * rate:
        raise DataError(f"the segment has {(end - start) / rate:.3f} s, expected more than {MIN_LENGTH} s")
    return start, end
