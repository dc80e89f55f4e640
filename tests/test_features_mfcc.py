"""MFCC and filterbank features: Kaldi's numbers, and what users' recordings must not break."""

import importlib
import pkgutil

import numpy as np
import pytest
import soundfile

import ngsgd.features
from ngsgd.data.resample import resample
from ngsgd.errors import DataError
from ngsgd.features.fbank import Fbank, FbankOptions
from ngsgd.features.frames import feature_types
from ngsgd.features.mfcc import Mfcc, MfccOptions
from ngsgd.kaldi_io.tables import SequentialReader
from tests.reference import features as reference

for module in pkgutil.iter_modules(ngsgd.features.__path__):
    importlib.import_module(f"ngsgd.features.{module.name}")

RNG = np.random.default_rng(0)
NOISE = (RNG.standard_normal(8000) * 1000).astype(np.float32)
EXAMPLES = [
    pytest.param(feature_types[n], o, id=f"{n}{i}")
    for n in feature_types
    for i, o in enumerate(feature_types[n].examples())
]


def plain(**options) -> Mfcc:
    return Mfcc(MfccOptions(**{"dither": 0, "use_energy": False, **options}))


@pytest.mark.parametrize(("rate", "bins", "ceps", "low", "high"), [(16000, 23, 13, 20, 0), (11025, 40, 40, 20, -400)])
def test_equal_to_the_formula(rate, bins, ceps, low, high):
    kind = plain(sample_frequency=rate, num_mel_bins=bins, num_ceps=ceps, low_freq=low, high_freq=high)
    expected = reference.mfcc(NOISE.astype(np.float64), rate, bins, ceps, low, high)
    ours = kind.compute(NOISE, rate, "x")
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() < 1e-4 * np.abs(expected).max()
    kind = Fbank(FbankOptions(dither=0, sample_frequency=rate, num_mel_bins=bins, low_freq=low, high_freq=high))
    expected = reference.fbank(NOISE.astype(np.float64), rate, bins, low, high)
    assert np.abs(kind.compute(NOISE, rate, "x") - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("kind", "options"), EXAMPLES)
def test_every_feature_type(kind, options):
    rate = int(options.sample_frequency)
    made = kind(options)
    for samples in (np.zeros(rate), np.full(rate, 1000.0), np.full(rate, -32768.0), RNG.standard_normal(rate) * 1e4):
        features = made.compute(samples.astype(np.float32), rate, "x")
        assert features.dtype == np.float32
        assert features.shape[1] == made.dim
        assert np.isfinite(features).all()
    window = int(rate * options.frame_length / 1000)
    assert len(made.compute(NOISE[:window], rate, "x")) == (1 if options.snip_edges else 3)
    with pytest.raises(DataError, match=r"ms are too short for a window of 25 ms"):
        made.compute(NOISE[: (window - 1 if options.snip_edges else rate // 1000)], rate, "x")
    np.testing.assert_array_equal(made.compute(NOISE, rate, "x"), made.compute(NOISE, rate, "x"))


def test_dither_depends_on_the_utterance_only():
    kind = Mfcc(MfccOptions())
    first, second = kind.compute(NOISE, 16000, "a"), kind.compute(NOISE, 16000, "b")
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(kind.compute(NOISE, 16000, "a"), first)
    assert not np.array_equal(Mfcc(MfccOptions(dither_seed=1)).compute(NOISE, 16000, "a"), first)
    silence = np.zeros(16000, np.float32)
    louder = Mfcc(MfccOptions(dither=10.0, use_energy=True)).compute(silence, 16000, "a")[:, 0]
    usual = kind.compute(silence, 16000, "a")[:, 0]
    np.testing.assert_allclose(louder - usual, 2 * np.log(10.0), atol=1e-3)  # energies of noise of that size
    np.testing.assert_allclose(usual.mean(), np.log(400), atol=0.1)


def test_sampling_rates_that_differ():
    with pytest.raises(DataError, match=r"sampled at 8000 Hz, the configuration wants 16000 Hz.*--allow-upsample"):
        plain().compute(NOISE, 8000, "x")
    with pytest.raises(DataError, match=r"sampled at 16000 Hz, the configuration wants 8000 Hz.*--allow-downsample"):
        plain(sample_frequency=8000, allow_upsample=True).compute(NOISE, 16000, "x")
    time = np.arange(16000) / 16000
    tone = (3000 * np.sin(2 * np.pi * 440 * time) + 500 * np.sin(2 * np.pi * 1500 * time)).astype(np.float32)
    kind = plain(sample_frequency=8000, allow_downsample=True)
    there = kind.compute(tone, 16000, "x")
    direct = kind.compute(tone[::2], 8000, "x")
    assert there.shape == direct.shape
    assert np.abs(there - direct)[2:-2, 0].max() < 0.6


@pytest.mark.parametrize(
    ("rate_in", "rate_out"), [(16000, 8000), (8000, 16000), (11025, 16000), (48000, 16000), (2, 3)]
)
def test_resampling_is_the_sum(rate_in, rate_out):
    samples = NOISE[:201]
    expected = reference.resample(samples.astype(np.float64), rate_in, rate_out)
    ours = resample(samples, rate_in, rate_out)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(ours, expected, atol=1e-6 * np.abs(samples).max() * 10)
    assert len(resample(samples[:1], rate_in, rate_out)) == -(-rate_out // rate_in)


def test_resampling_keeps_a_tone():
    time = np.arange(16000) / 16000
    ours = resample(np.sin(2 * np.pi * 440 * time), 16000, 11025)
    expected = np.sin(2 * np.pi * 440 * np.arange(len(ours)) / 11025)
    assert np.abs(ours - expected)[50:-50].max() < 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_ceps": 30}, "--num-ceps=30: expected 1 to --num-mel-bins=23"),
        ({"num_ceps": 0}, "--num-ceps=0"),
        ({"high_freq": 9000}, "--low-freq=20 and --high-freq=9000: expected 0 <= low < high <= 8000"),
        ({"high_freq": -8000}, "--high-freq=-8000"),
        ({"low_freq": 8000}, "--low-freq=8000"),
        ({"low_freq": -1}, "--low-freq=-1"),
        ({"num_mel_bins": 2, "num_ceps": 2}, "--num-mel-bins=2: expected at least 3"),
        ({"frame_shift": 0}, "--frame-shift: expected a positive number, got 0"),
        ({"sample_frequency": -1}, "--sample-frequency"),
    ],
)
def test_senseless_options(options, message):
    with pytest.raises(DataError, match=message):
        plain(**options)


@pytest.fixture
def corpus(tmp_path):
    """Three good utterances, one too short, one missing, one at another rate."""
    for name, samples, rate in [
        ("a", NOISE, 16000),
        ("b", NOISE[::-1], 16000),
        ("c", NOISE[:300], 16000),
        ("d", NOISE, 8000),
    ]:
        soundfile.write(tmp_path / f"{name}.wav", samples.astype(np.int16), rate)
    (tmp_path / "wav.scp").write_text("a a.wav\nb b.wav\nc c.wav\nd d.wav\ne none.wav\nf cat a.wav |\ng a.wav\n")
    (tmp_path / "mfcc.conf").write_text("--use-energy=false   # C0 instead\n\n--num_ceps=12\n")
    return tmp_path


def test_program_names_and_counts_bad_utterances(corpus, run):
    result = run(
        "make-mfcc",
        "--config=mfcc.conf",
        "--write-num-frames=ark,t:frames",
        "--write-utt2dur=ark,t:durations",
        "wav.scp",
        "ark,scp:out.ark,out.scp",
    )
    made = dict(SequentialReader(f"ark:{corpus}/out.ark", "general_matrix"))
    assert {key: m.shape for key, m in made.items()} == dict.fromkeys("abfg", (48, 12))
    assert made["a"].kind == "CM"
    assert (corpus / "frames").read_text().split() == ["a", "48", "b", "48", "f", "48", "g", "48"]
    assert (corpus / "durations").read_text().split()[:2] == ["a", "0.5"]
    for message in [
        "skipped c: 18.8 ms are too short",
        "skipped d: the recording is sampled at 8000",
        "skipped e: ",
        "failed 3",
    ]:
        assert message in result.stderr
    (corpus / "reversed.scp").write_text("".join(sorted((corpus / "wav.scp").open(), reverse=True)))
    run("make-mfcc", "--config=mfcc.conf", "reversed.scp", "ark:again.ark")
    again = dict(SequentialReader(f"ark:{corpus}/again.ark", "general_matrix"))
    assert list(again) == list("gfba")
    assert all(again[key].payload == made[key].payload for key in made)


def test_program_writes_nothing_when_most_fail(corpus, run):
    (corpus / "bad.scp").write_text("a a.wav\nc c.wav\nd d.wav\n")
    result = run("make-mfcc", "bad.scp", "ark,scp:out.ark,out.scp", status=1)
    assert "most utterances failed, 2 of 3" in result.stderr.splitlines()[-1]
    (corpus / "bad.scp").write_text("e none.wav\n")
    assert "nothing done, 1 utterances failed" in run("make-mfcc", "bad.scp", "ark:out.ark", status=1).stderr
    assert not list(corpus.glob("out*"))


def test_program_options(corpus, run):
    (corpus / "segments").write_text("u1 a 0.1 0.3\nu2 a 0.2 -1\nu3 a 0.5 0.7\n")
    result = run("make-fbank", "--segments=segments", "--compress=false", "wav.scp", "ark:fbank.ark")
    assert "skipped u3: the segment begins at 0.5 s, recording a ends at 0.500 s" in result.stderr
    made = dict(SequentialReader(f"ark:{corpus}/fbank.ark", "general_matrix"))
    assert {k: m.shape for k, m in made.items()} == {"u1": (18, 23), "u2": (28, 23)}
    assert isinstance(made["u1"], np.ndarray)
    (corpus / "mfcc.conf").write_text("--no-such=1\n")
    assert (
        "mfcc.conf:1: unknown option --no-such"
        in run("make-mfcc", "--config=mfcc.conf", "wav.scp", "ark:x", status=1).stderr
    )
    run("make-mfcc", "--min-duration=1", "wav.scp", "ark:x", status=1)
    run("make-mfcc", "--subtract-mean", "--compress=false", "wav.scp", "ark:mean.ark")
    mean = dict(SequentialReader(f"ark:{corpus}/mean.ark", "matrix"))["a"].mean(axis=0)
    assert np.abs(mean).max() < 1e-4


def test_short_utterances_are_compressed_with_two_bytes(corpus, run):
    (corpus / "segments").write_text("u1 a 0.1 0.201\nu2 a 0.2 -1\n")
    run("make-mfcc", "--segments=segments", "wav.scp", "ark:out.ark")
    kinds = {k: (m.kind, m.rows) for k, m in SequentialReader(f"ark:{corpus}/out.ark", "general_matrix")}
    assert kinds == {"u1": ("CM2", 8), "u2": ("CM", 28)}
