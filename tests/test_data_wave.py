"""Reading recordings: the formats, pipes and damages that users' data comes with."""

import io
import logging
import re
import struct

import numpy as np
import pytest
import soundfile

from ngsgd.data.recordings import utterances
from ngsgd.data.segments import Segment, cut, parse_segment
from ngsgd.data.wave import read_channels, read_wave
from ngsgd.errors import DataError

RATE = 16000
SAMPLES = (np.random.default_rng(0).standard_normal(4000) * 3000).astype(np.int16)


def encoded(samples=SAMPLES, **kwargs) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, RATE, **{"format": "WAV", **kwargs})
    return buffer.getvalue()


def with_data_size(wav: bytes, size: int) -> bytes:
    at = wav.index(b"data") + 4
    return wav[:4] + struct.pack("<I", size) + wav[8:at] + struct.pack("<I", size) + wav[at + 4 :]


@pytest.mark.parametrize(
    ("form", "subtype", "step"),
    [
        ("WAV", "PCM_16", 0),
        ("WAVEX", "PCM_16", 0),
        ("WAV", "PCM_24", 0),
        ("WAV", "PCM_32", 0),
        ("WAV", "PCM_U8", 256),
        ("WAV", "ULAW", 1024),
        ("FLAC", "PCM_16", 0),
        ("NIST", "PCM_16", 0),
        ("RF64", "PCM_16", 0),
    ],
)
def test_every_format_gives_samples_on_the_int16_scale(tmp_path, form, subtype, step):
    (tmp_path / "a").write_bytes(encoded(format=form, subtype=subtype))
    samples, rate = read_wave(str(tmp_path / "a"))
    assert rate == RATE
    assert samples.dtype == np.float32
    assert samples.shape == SAMPLES.shape
    assert np.abs(samples - SAMPLES).max() <= step


def test_float_wav_is_scaled_like_the_integers(tmp_path):
    (tmp_path / "a.wav").write_bytes(encoded(SAMPLES / np.float32(32768), subtype="FLOAT"))
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"))[0], SAMPLES)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFF000, 0x7FFFFFFF - 8])
def test_sizes_that_a_writer_into_a_pipe_leaves(tmp_path, size):
    (tmp_path / "a.wav").write_bytes(with_data_size(encoded(), size))
    np.testing.assert_array_equal(read_wave(f"cat {tmp_path}/a.wav |")[0], SAMPLES)
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"))[0], SAMPLES)


def test_flac_of_unknown_length(tmp_path):
    flac = bytearray(encoded(format="FLAC"))
    flac[21] &= 0xF0
    flac[22:26] = bytes(4)  # the total number of samples in STREAMINFO
    (tmp_path / "a.flac").write_bytes(flac)
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.flac"))[0], SAMPLES)


def test_offset_in_an_archive_reads_one_recording_only(tmp_path):
    (tmp_path / "a.ark").write_bytes(b"utt1 " + encoded(SAMPLES[:100]) + b"utt2 " + encoded())
    assert len(read_wave(f"{tmp_path}/a.ark:5")[0]) == 100


def test_chunks_around_the_samples_are_skipped(tmp_path):
    wav = encoded()
    at = wav.index(b"data")
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    (tmp_path / "a.wav").write_bytes(wav[:at] + odd + wav[at:] + odd)
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"))[0], SAMPLES)


def test_cut_off_recording_is_used_with_a_warning(tmp_path, caplog):
    (tmp_path / "a.wav").write_bytes(encoded()[:-2000])
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"))[0], SAMPLES[:-1000])
    assert "8000 bytes of samples expected, 6000 found" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (encoded()[:44], "no samples"),
        (encoded(SAMPLES[:0]), "no samples"),
        (encoded()[:30], "expected a data chunk"),
        (b"RIFF\0\0\0\0AVI ", "without WAVE"),
        (b"noise" + bytes(100), r"expected a recording \(WAV, FLAC, SPHERE, MP3\), found b'noise"),
        (encoded(np.array([0.5, np.nan], np.float32), subtype="FLOAT"), "NaN"),
    ],
    # Contents as names would differ between workers: a float file contains the time.
    ids=["nothing", "header", "no-samples", "half-header", "AVI", "noise", "NaN"],
)
def test_unusable_recordings_say_why(tmp_path, content, message):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_wave(str(tmp_path / "a.wav"))
    assert "a.wav" in str(error.value)


def with_format(tag: int) -> bytes:
    wav = encoded()
    return wav[:20] + struct.pack("<H", tag) + wav[22:]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (with_format(0x55), "WAV of format 0x0055 (MP3), 1 channels, 16000 Hz, 16 bits"),
        (with_format(0x161), "WAV of format 0x0161 (WMA)"),
        (b"\0\0\0\x20ftypM4A " + bytes(100), "MP4 or M4A"),
        (b"\x1aE\xdf\xa3" + bytes(100), "Matroska or WebM"),
        (b"ajkg\x02" + bytes(100), "shorten"),
        (encoded(format="NIST").replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00"),
         "NIST SPHERE compressed with shorten"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"fLaC" + bytes(60), "FLAC"),
    ],
)  # fmt: skip
def test_a_format_that_is_refused_is_named(tmp_path, content, found):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=f"found {re.escape(found)}.*ffmpeg"):
        read_wave(str(tmp_path / "a"))


def test_memory_follows_the_bytes_and_not_the_header(run, tmp_path):
    wav = encoded()
    at = wav.index(b"data") + 4
    (tmp_path / "size.wav").write_bytes(wav[:at] + struct.pack("<I", 0x7FFFEFFF) + wav[at + 4 :])
    many = wav[:22] + struct.pack("<HIIH", 1000, RATE, RATE * 2000, 2000) + wav[34:]
    (tmp_path / "channels.wav").write_bytes(many)
    sphere = encoded(format="NIST")
    head = sphere[:1024].replace(b"sample_count -i 4000", b"sample_count -i 4000000000")[:1024]
    (tmp_path / "count.sph").write_bytes(head + sphere[1024:])
    measure = (
        "import resource, sys; from ngsgd.data.wave import read_channels; import soundfile; import numpy.random\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for name in sys.argv[1:]: print(name, read_channels(name).samples.shape)\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "assert grown < 30000, f'{grown} KB more'"
    )
    result = run("python", "-c", measure, "size.wav", "channels.wav", "count.sph")
    assert result.stdout.splitlines() == ["size.wav (4000, 1)", "channels.wav (4, 1000)", "count.sph (4000, 1)"]


def test_a_failing_command_is_named(tmp_path):
    with pytest.raises(DataError, match="no-such-program"):
        read_wave("no-such-program x |")
    with pytest.raises(DataError, match="status 3"):
        read_wave("exit 3 |")
    (tmp_path / "a.wav").write_bytes(encoded())
    with pytest.raises(DataError, match="remove the stray"):
        read_wave(f"{tmp_path}/a.wav |")
    with pytest.raises(DataError, match="not expanded"):
        read_wave("~/a.wav")


def test_channels(tmp_path, caplog):
    stereo = np.stack([SAMPLES, SAMPLES // 2], axis=1)
    (tmp_path / "a.wav").write_bytes(encoded(stereo))
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"))[0], SAMPLES)
    assert "2 channels" in caplog.text
    assert "channel 0" in caplog.text
    caplog.clear()
    np.testing.assert_array_equal(read_wave(str(tmp_path / "a.wav"), 1)[0], SAMPLES // 2)
    assert not caplog.text
    with pytest.raises(DataError, match=r"channel 2 asked for, the recording has 2"):
        read_wave(str(tmp_path / "a.wav"), 2)


def test_segments_are_cut_as_kaldi_cuts_them():
    recording = np.arange(10 * RATE, dtype=np.float32)
    assert len(cut(recording, RATE, Segment("r", 1.0, 2.5))) == 24000
    assert cut(recording, RATE, Segment("r", 1.0, 2.5))[0] == RATE
    assert len(cut(recording, RATE, Segment("r", 9.0, -1))) == RATE  # to the end
    assert len(cut(recording, RATE, Segment("r", 9.0, 10.4))) == RATE  # clamped
    for segment, message in [
        (Segment("r", 10.0, 11), "begins at 10 s, recording r ends at 10.000 s"),
        (Segment("r", 9.0, 10.6), "more than 0.5 s past"),
        (Segment("r", 1.0, 1.05), "0.050 s, expected more than 0.1 s"),
        (Segment("r", 9.95, -1), "expected more than 0.1 s"),
    ]:
        with pytest.raises(DataError, match=message):
            cut(recording, RATE, segment)


def test_parse_segment():
    assert parse_segment("r 0.5 -1 1", "x") == Segment("r", 0.5, -1, 1)
    assert parse_segment("r 0.5 -1.0", "x") == Segment("r", 0.5, -1, -1)
    for text in ["r 1", "r 1 2 3 4", "r a b", "r 2 1", "r -1 2", "r 1 -2", "r nan 2", "r 1 2 x"]:
        with pytest.raises(DataError, match="segments:3: expected"):
            parse_segment(text, "segments:3")


def test_utterances_go_on_after_bad_ones(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    (tmp_path / "a.wav").write_bytes(encoded())
    (tmp_path / "wav.scp").write_text(f"a {tmp_path}/a.wav\nb cat {tmp_path}/a.wav |\nc {tmp_path}/none.wav\n")
    (tmp_path / "segments").write_text("u1 a 0 0.15\nu2 none 0 1\nu3 c 0 1\nu4 b 0.1 -1\nu5 a 0.1 0.25 1\n")
    found = {}
    for key, load in utterances(str(tmp_path / "wav.scp"), str(tmp_path / "segments")):
        try:
            found[key] = len(load()[0])
        except DataError as error:
            found[key] = str(error)
    assert found["u1"] == 2400
    assert found["u4"] == 2400
    assert "'none' is not in wav.scp" in found["u2"]
    assert "none.wav" in found["u3"]
    assert "channel 1 asked for" in found["u5"]
    assert [key for key, _ in utterances(f"scp:{tmp_path}/wav.scp")] == ["a", "b", "c"]


def test_wave_knows_its_length(tmp_path):
    (tmp_path / "a.wav").write_bytes(encoded())
    assert read_channels(str(tmp_path / "a.wav")).duration == 0.25


@pytest.mark.parametrize("channels,block,bits", [(1, 2, 3), (1, 1, 16), (2, 2, 16), (1, 4, 16), (3, 4, 8), (1, 2, 0)])
def test_a_header_that_contradicts_itself_is_refused(tmp_path, channels, block, bits):
    header = struct.pack("<HHIIHH", 1, channels, 16000, 16000 * block, block, bits)
    sound = bytes(range(200)) * 4
    body = b"WAVEfmt " + struct.pack("<I", len(header)) + header + b"data" + struct.pack("<I", len(sound)) + sound
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    with pytest.raises(DataError, match=f"contradicts itself: {channels} channels of {bits} bits in blocks of {block}"):
        read_wave(str(path))
