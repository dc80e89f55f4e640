"""Programs on recordings: cutting, copying, measuring, other volumes; a bad one is named and left out."""

import io

import numpy as np
import pytest
import soundfile

from ngsgd.data.datadir import DataDir
from ngsgd.data.wave import decode, encode, read_channels, read_length
from ngsgd.kaldi_io.tables import SequentialReader, Writer

RATE = 16000
SAMPLES = (np.random.default_rng(0).standard_normal(8000) * 3000).astype(np.int16)


@pytest.fixture
def corpus(tmp_path):
    """data/x: a WAV, a FLAC, a command, a stereo file, and one that is missing; segments on the side."""
    data = tmp_path / "data" / "x"
    data.mkdir(parents=True)
    soundfile.write(tmp_path / "a.wav", SAMPLES, RATE)
    soundfile.write(tmp_path / "b.flac", SAMPLES[:6000], RATE)
    soundfile.write(tmp_path / "d.wav", np.stack([SAMPLES, SAMPLES // 2], axis=1), RATE)
    (data / "wav.scp").write_text("a a.wav\nb b.flac\nc cat a.wav |\nd d.wav\ne none.wav\n")
    (data / "utt2spk").write_text("".join(f"{k} {k}\n" for k in "abcde"))
    (tmp_path / "segments").write_text(
        "u1 a 0.1 0.3\nu2 a 0.2 -1\nu3 a 0.5 0.7\nu4 b 0.1 0.6\nu5 c 0 0.25\nu6 d 0 -1 1\n"
    )
    return tmp_path


def table(path):
    return {key: decode(value, key) for key, value in SequentialReader(f"ark:{path}", "wave_file")}


def test_wav_copy(corpus, call):
    result = call("wav-copy", "scp:data/x/wav.scp", "ark,scp:out.ark,out.scp")
    assert "skipped e: cannot open none.wav" in result.stderr
    assert "done 4 utterances, failed 1" in result.stderr
    copies = table(corpus / "out.ark")
    assert {key: wave.samples.shape for key, wave in copies.items()} == {
        "a": (8000, 1),
        "b": (6000, 1),
        "c": (8000, 1),
        "d": (8000, 2),
    }
    np.testing.assert_array_equal(copies["d"].samples[:, 1], SAMPLES // 2)
    call("wav-copy", "scp:out.scp", "ark:again.ark")
    assert (corpus / "again.ark").read_bytes() == (corpus / "out.ark").read_bytes()
    assert (corpus / "out.ark").read_bytes()[2:].startswith((corpus / "a.wav").read_bytes())


def test_extracted_segments_have_the_features_of_segments(corpus, run):
    result = run("extract-segments", "data/x/wav.scp", "segments", "ark,scp:out.ark,out.scp")
    assert "skipped u3: the segment begins at 0.5 s, recording a ends at 0.500 s" in result.stderr
    cut = table(corpus / "out.ark")
    assert {key: len(wave.samples) for key, wave in cut.items()} == {
        "u1": 3200, "u2": 4800, "u4": 4400, "u5": 4000, "u6": 8000,
    }  # fmt: skip
    np.testing.assert_array_equal(cut["u6"].samples[:, 0], SAMPLES // 2)
    run("make-mfcc", "--segments=segments", "data/x/wav.scp", "ark:direct.ark")
    run("make-mfcc", "scp:out.scp", "ark:script.ark")
    command = "extract-segments data/x/wav.scp segments ark:- | make-mfcc ark:- ark:pipe.ark"
    run("bash", "-o", "pipefail", "-c", command)
    direct = (corpus / "direct.ark").read_bytes()
    assert (corpus / "script.ark").read_bytes() == direct
    assert (corpus / "pipe.ark").read_bytes() == direct
    result = run("make-mfcc", "--segments=segments", "ark:out.ark", "ark:x", status=1)
    assert "must be a wav.scp, not an archive" in result.stderr


def test_durations(corpus, call):
    result = call("wav-to-duration", "scp:data/x/wav.scp", "ark,t:-")
    assert result.stdout.split() == ["a", "0.5", "b", "0.375", "c", "0.5", "d", "0.5"]
    assert "skipped e" in result.stderr
    call("wav-copy", "scp:data/x/wav.scp", "ark:out.ark")
    assert call("wav-to-duration", "ark:out.ark", "ark,t:-").stdout == result.stdout


FORMATS = [("WAV", "PCM_16"), ("WAV", "PCM_U8"), ("WAV", "FLOAT"), ("WAVEX", "PCM_24"), ("WAV", "IMA_ADPCM"),
           ("FLAC", "PCM_16"), ("NIST", "PCM_16"), ("OGG", "VORBIS"), ("RF64", "PCM_16")]  # fmt: skip


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("form", "subtype"), FORMATS)
def test_length_by_the_header_is_that_of_the_samples(tmp_path, form, subtype, channels):
    path = str(tmp_path / "x")
    soundfile.write(path, np.stack([SAMPLES] * channels, axis=1), RATE, format=form, subtype=subtype)
    wave = read_channels(path)
    assert read_length(path) == (len(wave.samples), wave.rate)


@pytest.mark.parametrize("size", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\0\0", b"\0\xf0\xff\x7f"])
def test_length_of_damaged_headers_is_that_of_the_samples(tmp_path, size):
    wav = encode(SAMPLES, RATE)
    at = wav.index(b"data") + 4
    path = str(tmp_path / "x.wav")
    (tmp_path / "x.wav").write_bytes(wav[:at] + size + wav[at + 4 :])
    assert read_length(path)[0] == len(read_channels(path).samples)
    flac = io.BytesIO()
    soundfile.write(flac, SAMPLES, RATE, format="FLAC")
    unknown = bytearray(flac.getvalue())
    unknown[21] &= 0xF0
    unknown[22:26] = bytes(4)
    (tmp_path / "x.flac").write_bytes(unknown)
    assert read_length(str(tmp_path / "x.flac")) == (8000, RATE)


def test_encoding_rounds_and_clips():
    np.testing.assert_array_equal(
        decode(encode(np.array([0.4, 0.6, -1.5, 40000, -40000]), 8000), "x").samples[:, 0], [0, 1, -2, 32767, -32768]
    )


def test_utt2dur_and_utt2num_frames(corpus, run):
    result = run("get_utt2dur.py", "data/x")
    assert "skipped e: cannot open none.wav" in result.stderr
    data = corpus / "data" / "x"
    assert (data / "utt2dur").read_text() == "a 0.5\nb 0.375\nc 0.5\nd 0.5\n"
    run("get_utt2num_frames.py", "data/x")
    assert (data / "utt2num_frames").read_text() == "a 48\nb 36\nc 48\nd 48\n"
    run("make-mfcc", "--write-num-frames=ark,t:frames", "data/x/wav.scp", "ark,scp:feats.ark,data/x/feats.scp")
    assert (corpus / "frames").read_text() == (data / "utt2num_frames").read_text()
    (data / "utt2num_frames").unlink()
    run("get_utt2num_frames.py", "data/x")
    assert (corpus / "frames").read_text() == (data / "utt2num_frames").read_text()


def test_utt2dur_of_segments_is_that_of_their_features(corpus, run):
    data = corpus / "data" / "x"
    segments = (corpus / "segments").read_text()
    (data / "segments").write_text(segments)
    (data / "utt2spk").write_text("".join(f"u{i} u{i}\n" for i in range(1, 7)))
    result = run("get_utt2dur.py", "data/x")
    assert "skipped u3: the segment begins at 0.5 s" in result.stderr
    run("make-mfcc", "--segments=segments", "--write-utt2dur=ark,t:durations", "data/x/wav.scp", "ark:feats.ark")
    assert (data / "utt2dur").read_text() == (corpus / "durations").read_text()


def test_a_command_is_not_run_for_a_segment_that_says_its_end(corpus, run):
    data = corpus / "data" / "x"
    (data / "wav.scp").write_text("a touch ran; cat a.wav |\n")
    (data / "segments").write_text("u1 a 0.1 0.3\n")
    (data / "utt2spk").write_text("u1 u1\n")
    run("get_utt2dur.py", "data/x")
    assert (data / "utt2dur").read_text() == "u1 0.2\n"
    assert not (corpus / "ran").exists()


def test_damaged_lists_are_said(corpus, run):
    data = corpus / "data" / "x"
    (data / "utt2dur").write_text("a long\n")
    assert "expected seconds, found 'long'" in run("get_utt2num_frames.py", "data/x", status=1).stderr
    (data / "utt2dur").write_text("a 0.02\nb 1\n")
    result = run("get_utt2num_frames.py", "data/x")
    assert "skipped a: 0.02 s are too short for a window of 0.025 s" in result.stderr
    for name in ("a.wav", "b.flac", "d.wav"):
        (corpus / name).write_bytes(b"")
    assert "nothing done, 5 utterances failed" in run("get_utt2dur.py", "data/x", status=1).stderr
    assert (data / "utt2dur").read_text() == "a 0.02\nb 1\n"


def test_sizes_of_scripts_come_from_headers(tmp_path, call):
    with Writer(f"ark,scp:{tmp_path}/f.ark,{tmp_path}/f.scp", "matrix") as out:
        out.write("a", np.zeros((7, 3), np.float32))
        out.write("b", np.zeros((20, 4)))
    call("copy-feats", "--compress=true", "scp:f.scp", "ark,scp:c.ark,c.scp")
    call("copy-feats", "scp:f.scp", "ark,t,scp:t.ark,t.scp")
    lines = (tmp_path / "f.scp").read_text().splitlines()
    (tmp_path / "r.scp").write_text(f"{lines[0]}[2:4]\n{lines[1]}\n")
    for form, frames in [("f", "7"), ("c", "7"), ("t", "7"), ("r", "3")]:
        assert call("feat-to-len", f"scp:{form}.scp", "ark,t:-").stdout.split() == ["a", frames, "b", "20"]
        assert call("feat-to-dim", f"scp:{form}.scp", "ark,t:-").stdout.split() == ["a", "3", "b", "4"]


def test_other_volumes(corpus, run):
    data = corpus / "data" / "x"
    (data / "text").write_text("".join(f"{k} WORD\n" for k in "abcde"))
    result = run("perturb_volume.py", "--scale-high=20", "data/x", "data/vol")
    assert "e is left out" in result.stderr and "are clipped" in result.stderr
    made = DataDir.load(corpus / "data" / "vol")
    assert list(made.wav) == list("abcd") and made.utt2spk == {k: k for k in "abcd"}
    factors = []
    for key in "abcd":
        before, after = (
            read_channels(str(corpus / "b.flac" if key == "b" else corpus / "a.wav")),
            read_channels(made.wav[key]),
        )
        factors.append(float(np.median(after.samples[before.samples != 0] / before.samples[before.samples != 0])))
        np.testing.assert_allclose(
            after.samples, np.clip(before.samples * factors[-1], -32768, 32767), atol=1 + 1e-3 * 32768
        )
    assert len({round(f, 2) for f in factors}) == 4 and all(0.125 <= f <= 20 for f in factors)
    snapshot = {p: p.stat().st_mtime_ns for p in (corpus / "data" / "vol").rglob("*")}
    run("perturb_volume.py", "--scale-high=20", "data/x", "data/vol")
    assert {p: p.stat().st_mtime_ns for p in (corpus / "data" / "vol").rglob("*")} == snapshot
    run("perturb_volume.py", "--scale-high=20", "--seed=1", "data/x", "data/vol")
    again = DataDir.load(corpus / "data" / "vol")
    assert all(again.wav[key] != made.wav[key] for key in "abcd")
    assert "--scale-low" in run("perturb_volume.py", "--scale-low=3", "data/x", "data/y", status=1).stderr


def test_paste_and_select(tmp_path, call):
    rng = np.random.default_rng(0)
    one = {key: rng.standard_normal((n, 3)).astype(np.float32) for key, n in [("a", 10), ("b", 12), ("c", 9)]}
    two = {key: rng.standard_normal((n, 2)).astype(np.float32) for key, n in [("b", 11), ("a", 10), ("d", 9)]}
    for name, matrices in (("one", one), ("two", two)):
        with Writer(f"ark:{tmp_path}/{name}.ark", "matrix") as out:
            for key, matrix in matrices.items():
                out.write(key, matrix)
    result = call("paste-feats", "--length-tolerance=1", "ark:one.ark", "ark:two.ark", "ark:both.ark")
    assert "skipped c: two.ark: no entry for 'c'" in result.stderr
    both = dict(SequentialReader(f"ark:{tmp_path}/both.ark", "matrix"))
    assert list(both) == ["a", "b"]
    np.testing.assert_array_equal(both["b"], np.hstack([one["b"][:11], two["b"]]))
    result = call("paste-feats", "ark:one.ark", "ark:two.ark", "ark:x", status=1)
    assert "skipped b: 12 and 11 frames" in result.stderr
    call("select-feats", "0,4-2", "ark:both.ark", "ark:some.ark")
    np.testing.assert_array_equal(
        dict(SequentialReader(f"ark:{tmp_path}/some.ark", "matrix"))["a"], both["a"][:, [0, 4, 3, 2]]
    )
    assert (
        "column 5 asked for, the features have 5" in call("select-feats", "5", "ark:both.ark", "ark:x", status=1).stderr
    )
    assert "expected columns like" in call("select-feats", "1-", "ark:both.ark", "ark:x", status=1).stderr
