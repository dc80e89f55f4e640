"""Features of recordings that come in chunks are those of the whole, bit for bit."""

import numpy as np
import pytest

from ngsgd.data.resample import Resampler, resample
from ngsgd.errors import DataError
from ngsgd.features.fbank import Fbank, FbankOptions
from ngsgd.features.mfcc import Mfcc, MfccOptions

SPEECH = (np.random.default_rng(0).standard_normal(30011) * 1000).astype(np.float32)
CHUNKS = [1, 7, 160, 401, 4096, 30000]


def in_chunks(stream, samples, size):
    pieces = [stream.accept(samples[at : at + size]) for at in range(0, len(samples), size)]
    return np.concatenate([*pieces, stream.finish()])


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 16000),
        ({"dither": 0, "use_energy": False}, 16000),
        ({"snip_edges": False}, 16000),
        ({"sample_frequency": 8000, "allow_downsample": True}, 16000),
        ({"sample_frequency": 16000, "allow_upsample": True, "snip_edges": False}, 11025),
    ],
    ids=["dither", "plain", "mirrored", "downsampled", "upsampled"],
)
def test_chunks_do_not_matter(options, rate, size):
    samples = SPEECH[: 300 * size]
    for kind in (Mfcc(MfccOptions(**options)), Fbank(FbankOptions(**options))):
        if len(samples) < 800:
            continue
        whole = kind.compute(samples, rate, "utt")
        assert len(whole) > 0
        np.testing.assert_array_equal(in_chunks(kind.stream(rate, "utt"), samples, size), whole)


def test_frames_come_as_soon_as_their_window_is_there():
    stream = Mfcc(MfccOptions()).stream(16000, "utt")
    assert [len(stream.accept(SPEECH[:n])) for n in (399, 1, 159, 1, 0, 1600)] == [0, 1, 0, 1, 0, 10]


def test_a_stream_that_is_too_short_or_of_another_rate_says_so():
    stream = Mfcc(MfccOptions()).stream(16000, "utt")
    assert stream.accept(SPEECH[:100]).shape == (0, 13)
    with pytest.raises(DataError, match=r"6.2 ms are too short for a window of 25 ms"):
        stream.finish()
    with pytest.raises(DataError, match="too short"):
        Mfcc(MfccOptions()).stream(16000, "utt").finish()
    with pytest.raises(DataError, match=r"sampled at 16000 Hz, the configuration wants 8000 Hz.*--allow-downsample"):
        Mfcc(MfccOptions(sample_frequency=8000)).stream(16000, "utt")


@pytest.mark.parametrize(("rate_in", "rate_out"), [(16000, 8000), (8000, 16000), (44100, 16000), (11025, 16000)])
@pytest.mark.parametrize("size", [1, 13, 4000])
def test_resampling_in_chunks(rate_in, rate_out, size):
    for length in (0, 1, 5, 300, 9001):
        samples = SPEECH[: min(length, 700 * size)]
        np.testing.assert_array_equal(
            in_chunks(Resampler(rate_in, rate_out), samples, size), resample(samples, rate_in, rate_out)
        )
