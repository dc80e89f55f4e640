"""Reading recordings: samples as float32 on the int16 scale, as Kaldi's features expect.

WAV (8 to 32 bit, float, extensible, μ-law), FLAC, NIST SPHERE without shorten, MP3, ...: whatever libsndfile decodes,
from a file, `file:offset` inside an archive, or the output of a command.  Nothing is allocated by what a header says.
"""

import io
import logging
import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes

log = logging.getLogger(__name__)

INT16_SCALE = 32768.0
# Programs that write WAV into a pipe cannot go back to fill in the size: ffmpeg leaves 0xFFFFFFFF, others 0, sox
# 0x7FFFF000 and above.
UNKNOWN_SIZE_FROM = 0x7FFFF000
BLOCK = 1 << 18


@dataclass(frozen=True)
class Wave:
    """A recording. samples: (N, C) float32 on the int16 scale; rate: Hz; name: for messages."""

    samples: np.ndarray
    rate: int
    name: str

    @property
    def duration(self) -> float:
        """Seconds."""
        return len(self.samples) / self.rate

    def channel(self, number: int = -1) -> np.ndarray:
        """(N,) samples of one channel, from 0; -1: the only one, or the first of several with a warning.

        Raises DataError for a channel that is not there.
        """
        count = self.samples.shape[1]
        if number >= count:
            raise DataError(f"{self.name}: channel {number} asked for, the recording has {count} (numbered from 0)")
        if number < 0 and count > 1:
            log.warning("%s has %d channels and none was asked for: taking channel 0", self.name, count)
        return np.ascontiguousarray(self.samples[:, max(number, 0)])


def read_wave(rxfilename: str, channel: int = -1) -> tuple[np.ndarray, int]:
    """((N,) float32 samples on the int16 scale, sampling rate in Hz) of one channel. Raises as `read_channels`."""
    wave = read_channels(rxfilename)
    return wave.channel(channel), wave.rate


def read_channels(rxfilename: str) -> Wave:
    """All channels of a recording. Raises DataError when it cannot be opened or decoded, or has no samples."""
    with open_bytes(rxfilename) as stream:
        start = stream.read(4)
        if not start:
            raise DataError(f"{rxfilename}: empty, expected a recording")
        encoded = _whole_riff(stream, rxfilename) if start == b"RIFF" else start + stream.read()
    samples, rate = _decode(encoded, rxfilename)
    if not len(samples):
        raise DataError(f"{rxfilename}: a header and no samples")
    if not np.isfinite(samples).all():
        raise DataError(f"{rxfilename}: NaN or infinite samples")
    return Wave(samples, rate, rxfilename)


def _whole_riff(stream: BinaryIO, name: str) -> bytes:
    """A WAV file with its format and data chunks only and true sizes, from a stream that stands behind `RIFF`.

    The data chunk is read as far as its size says, since an archive goes on behind it; to the end if the size is one
    that writers into pipes leave.
    """
    if stream.read(8)[4:] != b"WAVE":
        raise DataError(f"{name}: expected a WAV file, found RIFF without WAVE")
    format_chunk = b""
    while len(head := stream.read(8)) == 8:
        kind, size = struct.unpack("<4sI", head)
        if kind == b"data":
            data = _chunk_data(stream, size, name)
            chunks = format_chunk + struct.pack("<4sI", b"data", len(data)) + data
            return struct.pack("<4sI4s", b"RIFF", 4 + len(chunks), b"WAVE") + chunks
        body = _at_most(stream, size + size % 2)
        if kind == b"fmt ":
            format_chunk = head + body
    raise DataError(f"{name}: expected a data chunk, found the end of the file")


def _chunk_data(stream: BinaryIO, size: int, name: str) -> bytes:
    if size == 0 or size >= UNKNOWN_SIZE_FROM:
        return stream.read()
    data = _at_most(stream, size)
    if len(data) < size:
        log.warning("%s is cut off: %d bytes of samples expected, %d found; using these", name, size, len(data))
    return data


def _at_most(stream: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, allocating no more than there are."""
    parts, left = [], size
    while left and (part := stream.read(min(left, 1 << 22))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decode(encoded: bytes, name: str) -> tuple[np.ndarray, int]:
    """((N, C) samples on the int16 scale, rate)."""
    import soundfile

    class Forward(soundfile.SoundFile):
        """Never seeks, so that a length missing from the header (FLAC from a pipe) does no harm."""

        def seekable(self) -> bool:
            return False

    try:
        with Forward(io.BytesIO(encoded)) as decoder:
            blocks = []
            while len(block := decoder.read(BLOCK, dtype="float32", always_2d=True)):
                blocks.append(block)
            rate, channels = decoder.samplerate, decoder.channels
    except soundfile.LibsndfileError as error:
        raise DataError(
            f"{name}: expected a recording (WAV, FLAC, SPHERE, MP3), found {encoded[:8]!r}...: {error.error_string}"
        ) from None
    samples = np.concatenate(blocks) if len(blocks) != 1 and blocks else (blocks or [np.zeros((0, channels))])[0]
    return np.float32(INT16_SCALE) * samples, rate
