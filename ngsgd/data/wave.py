"""Reading recordings: samples as float32 on the int16 scale, as Kaldi's features expect.

WAV (8 to 32 bit, float, extensible, μ-law), FLAC, NIST SPHERE without shorten, MP3, ...: whatever libsndfile decodes,
from a file, `file:offset` inside an archive, or the output of a command.  Nothing is allocated by what a header says.
"""

import io
import logging
import os
import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes, open_file, split_offset
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter

log = logging.getLogger(__name__)

INT16_SCALE = 32768.0
# Programs that write WAV into a pipe cannot go back to fill in the size: ffmpeg leaves 0xFFFFFFFF, others 0, sox
# 0x7FFFF000 and above.
UNKNOWN_SIZE_FROM = 0x7FFFF000
BLOCK = 1 << 18  # numbers decoded at once
WAV_CODINGS = {
    1: "PCM", 2: "MS ADPCM", 3: "float", 6: "A-law", 7: "μ-law", 0x11: "IMA ADPCM", 0x31: "GSM 6.10", 0x50: "MPEG",
    0x55: "MP3", 0xFF: "AAC", 0x161: "WMA", 0xFFFE: "extensible",
}  # fmt: skip
TAGS_OF_SAMPLES = (1, 3, 6, 7, 0xFFFE)  # whose blocks are single samples
MAGICS = (
    (4, b"ftyp", "MP4 or M4A"), (0, b"\x1aE\xdf\xa3", "Matroska or WebM"), (0, b"#!AMR", "AMR"),
    (0, b"wvpk", "WavPack"), (0, b"NIST_1A", "NIST SPHERE"), (0, b"<", "a web page or XML"), (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"), (0, b"MAC ", "Monkey's Audio"), (0, b"ajkg", "shorten"),
)  # fmt: skip


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
        encoded = read_encoded(stream, rxfilename)
    return decode(encoded, rxfilename)


def read_encoded(stream: BinaryIO, name: str) -> bytes:
    """The recording that the stream stands at, as a file that `decode` takes.

    Of a WAV file no more is read than belongs to it, since an archive goes on behind it; anything else goes to the end.
    Raises DataError for an empty stream and for a WAV file without samples' description.
    """
    start = stream.read(4)
    if not start:
        raise DataError(f"{name}: empty, expected a recording")
    return _whole_riff(stream, name) if start == b"RIFF" else start + stream.read()


def decode(encoded: bytes, name: str) -> Wave:
    """The recording in the bytes of a file. Raises DataError as `read_channels`."""
    samples, rate = _decode(encoded, name)
    if not len(samples):
        raise DataError(f"{name}: a header and no samples")
    if not np.isfinite(samples).all():
        raise DataError(f"{name}: NaN or infinite samples")
    return Wave(samples, rate, name)


def encode(samples: np.ndarray, rate: int) -> bytes:
    """A 16-bit WAV file of (N, C) or (N,) samples on the int16 scale, rounded and clipped."""
    columns = to_int16(samples).reshape(len(samples), -1)
    data = columns.astype("<i2").tobytes()
    block = 2 * columns.shape[1]
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, columns.shape[1], rate, rate * block, block, 16)
    head += struct.pack("<4sI", b"data", len(data))
    return struct.pack("<4sI4s", b"RIFF", 4 + len(head) + len(data), b"WAVE") + head + data


def to_int16(samples: np.ndarray) -> np.ndarray:
    """Samples on the int16 scale rounded and clipped to int16, of the same shape."""
    return np.clip(np.rint(samples), -32768, 32767).astype(np.int16)


@holders.register("wave_file")
class WaveFile:
    """The bytes of an audio file, for `decode`: how Kaldi's wave tables hold them, without a binary header."""

    binary_header = False

    @staticmethod
    def read(reader: TokenReader) -> bytes:
        return read_encoded(reader.stream, reader.name)

    @staticmethod
    def write(writer: TokenWriter, value: bytes) -> None:
        writer.raw(value)


def read_length(rxfilename: str) -> tuple[int, int]:
    """(samples, rate in Hz) of a recording; of a WAV or FLAC file by its header, if that says it.

    Raises as `read_channels`.
    """
    if os.path.isfile(split_offset(rxfilename.strip())[0]):
        with open_file(rxfilename.strip()) as stream:
            start = stream.read(4)
            if start == b"RIFF":
                length = _riff_length(stream, rxfilename)
            else:
                length = _flac_length(stream) if start == b"fLaC" else None
        if length:
            return length
    wave = read_channels(rxfilename)
    return len(wave.samples), wave.rate


def _riff_length(stream: BinaryIO, name: str) -> tuple[int, int] | None:
    """(samples, rate) by the header of a WAV file and the bytes that there are; None when it takes decoding."""
    format_chunk, size = _riff_header(stream, name)
    if len(format_chunk) < 24:
        return None
    tag, channels, rate, _, block, bits = struct.unpack("<HHIIHH", format_chunk[8:24])
    if tag not in TAGS_OF_SAMPLES or not rate or not block or block != channels * -(-bits // 8):
        return None
    here = stream.tell()
    left = stream.seek(0, io.SEEK_END) - here
    samples = (left if _unknown(size) else min(size, left)) // block
    return (samples, rate) if samples else None


def _flac_length(stream: BinaryIO) -> tuple[int, int] | None:
    """(samples, rate) by STREAMINFO, the first block; None when it leaves the number of samples open."""
    block = stream.read(4 + 18)
    if len(block) < 22 or block[0] & 0x7F:
        return None
    packed = int.from_bytes(block[14:22], "big")  # 20 bits rate, 3 channels, 5 depth, 36 samples
    rate, samples = packed >> 44, packed & ((1 << 36) - 1)
    return (samples, rate) if rate and samples else None


def _riff_header(stream: BinaryIO, name: str) -> tuple[bytes, int]:
    """(format chunk with its head, size of the data chunk); the stream then stands at the samples."""
    if stream.read(8)[4:] != b"WAVE":
        raise DataError(f"{name}: expected a WAV file, found RIFF without WAVE")
    format_chunk = b""
    while len(head := stream.read(8)) == 8:
        kind, size = struct.unpack("<4sI", head)
        if kind == b"data":
            return format_chunk, size
        body = _at_most(stream, size + size % 2)
        if kind == b"fmt ":
            format_chunk = head + body
    raise DataError(f"{name}: expected a data chunk, found the end of the file")


def _check_format(format_chunk: bytes, name: str) -> None:
    """DataError when the sizes in it contradict each other: decoded anyway, such a file is noise."""
    if len(format_chunk) < 24:
        return  # the decoder says what is wrong
    tag, channels, _, _, block, bits = struct.unpack("<HHIIHH", format_chunk[8:24])
    if tag not in TAGS_OF_SAMPLES or block == channels * -(-bits // 8) or (bits == 24 and block == 4 * channels):
        return
    raise DataError(
        f"{name}: the header contradicts itself: {channels} channels of {bits} bits in blocks of {block} bytes; "
        f"expected blocks of {channels * -(-bits // 8)}: write the file anew from its source"
    )


def _whole_riff(stream: BinaryIO, name: str) -> bytes:
    """A WAV file with its format and data chunks only and true sizes, from a stream that stands behind `RIFF`.

    The data chunk is read as far as its size says; to the end if the size is one that writers into pipes leave.
    """
    format_chunk, size = _riff_header(stream, name)
    _check_format(format_chunk, name)
    data = _chunk_data(stream, size, name)
    chunks = format_chunk + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI4s", b"RIFF", 4 + len(chunks), b"WAVE") + chunks


def _unknown(size: int) -> bool:
    return size == 0 or size >= UNKNOWN_SIZE_FROM


def _chunk_data(stream: BinaryIO, size: int, name: str) -> bytes:
    if _unknown(size):
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
            rate, channels = decoder.samplerate, decoder.channels
            while len(block := decoder.read(max(1, BLOCK // channels), dtype="float32", always_2d=True)):
                blocks.append(block)
    except soundfile.LibsndfileError as error:
        raise DataError(
            f"{name}: expected a recording (WAV, FLAC, SPHERE, MP3), found {_described(encoded)}: {error.error_string} "
            f"Convert it, or let a command do it in wav.scp, as 'ffmpeg -v error -i FILE -f wav - |'"
        ) from None
    samples = np.concatenate(blocks) if len(blocks) != 1 and blocks else (blocks or [np.zeros((0, channels))])[0]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite samples are refused
        return np.float32(INT16_SCALE) * samples, rate


def _described(encoded: bytes) -> str:
    """What the bytes of a file that cannot be decoded seem to be."""
    if encoded[:4] == b"RIFF" and encoded[12:16] == b"fmt " and len(encoded) > 36:
        tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", encoded[20:36])
        coding = WAV_CODINGS.get(tag, "unknown coding")
        return f"WAV of format 0x{tag:04x} ({coding}), {channels} channels, {rate} Hz, {bits} bits"
    for at, magic, what in MAGICS:
        if encoded[at : at + len(magic)] == magic:
            return what + (" compressed with shorten" if b"embedded-shorten" in encoded[:1024] else "")
    return f"{encoded[:8]!r}..."
