"""What users' recordings and features do to the programs that read them, case by case as a user would meet them."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ngsgd.kaldi_io.tables import SequentialReader, Writer

RATE = 16000
RNG = np.random.default_rng(0)
SAMPLES = (RNG.standard_normal(8000) * 3000).astype(np.int16)


def encoded(samples=SAMPLES, rate=RATE, **kwargs) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, **{"format": "WAV", **kwargs})
    return buffer.getvalue()


def with_sizes(wav: bytes, size: int) -> bytes:
    at = wav.index(b"data") + 4
    return wav[:4] + struct.pack("<I", size) + wav[8:at] + struct.pack("<I", size) + wav[at + 4 :]


def features(path) -> dict[str, np.ndarray]:
    return dict(SequentialReader(f"ark:{path}", "matrix"))


def write_recordings(folder: Path, **recordings: bytes) -> None:
    """wav.scp of files, the ids in this order."""
    for name, content in recordings.items():
        (folder / f"{name}.audio").write_bytes(content)
    (folder / "wav.scp").write_text("".join(f"{name} {name}.audio\n" for name in recordings))


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF024])
def test_sizes_that_pipes_leave(tmp_path, call, size):
    write_recordings(tmp_path, a=encoded(), b=with_sizes(encoded(), size))
    with (tmp_path / "wav.scp").open("a") as scp:
        scp.write("c cat b.audio |\n")
    call("make-mfcc", "--dither=0", "wav.scp", "ark:out.ark")
    made = features(tmp_path / "out.ark")
    np.testing.assert_array_equal(made["a"], made["b"])
    np.testing.assert_array_equal(made["a"], made["c"])


def test_recordings_without_samples_are_skipped_by_id(tmp_path, call):
    write_recordings(tmp_path, a=encoded(), b=b"", c=encoded()[:44], d=encoded(SAMPLES[:0]), e=encoded(), f=encoded())
    result = call("make-mfcc", "wav.scp", "ark:out.ark")
    for key, why in (("b", "empty"), ("c", "no samples"), ("d", "no samples")):
        assert any(f"skipped {key}: " in line and why in line for line in result.stderr.splitlines())
    assert list(features(tmp_path / "out.ark")) == ["a", "e", "f"]


def test_every_lossless_format_has_the_features_of_the_16_bit_signal(tmp_path, call):
    forms = {
        "pcm": encoded(),
        "extensible": encoded(format="WAVEX"),
        "bits24": encoded(subtype="PCM_24"),
        "bits32": encoded(subtype="PCM_32"),
        "extensible24": encoded(format="WAVEX", subtype="PCM_24"),
        "floats": encoded(SAMPLES / np.float32(32768), subtype="FLOAT"),
        "doubles": encoded(SAMPLES / 32768.0, subtype="DOUBLE"),
        "flac": encoded(format="FLAC"),
        "flac24": encoded(format="FLAC", subtype="PCM_24"),
        "sphere": encoded(format="NIST"),
        "stereo_command": encoded(),
    }
    write_recordings(tmp_path, **forms)
    call("make-fbank", "--dither=0", "--compress=false", "wav.scp", "ark:out.ark")
    made = features(tmp_path / "out.ark")
    assert list(made) == list(forms)
    for name in forms:
        np.testing.assert_array_equal(made[name], made["pcm"], err_msg=name)
    eight = np.float32(np.round(SAMPLES / 256) * 256).clip(-32768, 32512)
    write_recordings(
        tmp_path, pcm=encoded(eight.astype(np.int16)), u8=encoded(eight.astype(np.int16), subtype="PCM_U8")
    )
    call("make-fbank", "--dither=0", "--compress=false", "wav.scp", "ark:out.ark")
    made = features(tmp_path / "out.ark")
    np.testing.assert_array_equal(made["u8"], made["pcm"])


def test_another_rate_is_refused_naming_both_or_resampled(tmp_path, call):
    write_recordings(tmp_path, a=encoded(), b=encoded(rate=8000))
    result = call("make-mfcc", "--sample-frequency=8000", "wav.scp", "ark:out.ark")
    assert "skipped a: the recording is sampled at 16000 Hz, the configuration wants 8000 Hz" in result.stderr
    assert "--allow-downsample" in result.stderr
    result = call("make-mfcc", "wav.scp", "ark:out.ark")
    assert "skipped b: the recording is sampled at 8000 Hz, the configuration wants 16000 Hz" in result.stderr
    assert "--allow-upsample" in result.stderr
    for options in (["--sample-frequency=8000", "--allow-downsample"], ["--allow-upsample"]):
        call("make-mfcc", *options, "wav.scp", "ark:out.ark")
        assert {key: len(m) for key, m in features(tmp_path / "out.ark").items()} == {"a": 48, "b": 98}


def test_channels(tmp_path, call):
    stereo = encoded(np.stack([SAMPLES, SAMPLES[::-1]], axis=1))
    write_recordings(tmp_path, a=stereo, b=encoded(), c=encoded(SAMPLES[::-1]), d=stereo)
    result = call("make-mfcc", "--dither=0", "wav.scp", "ark:out.ark")
    made = features(tmp_path / "out.ark")
    assert "a.audio has 2 channels and none was asked for: taking channel 0" in result.stderr
    np.testing.assert_array_equal(made["a"], made["b"])
    result = call("make-mfcc", "--dither=0", "--channel=1", "wav.scp", "ark:one.ark")
    assert "skipped b: b.audio: channel 1 asked for, the recording has 1" in result.stderr
    np.testing.assert_array_equal(features(tmp_path / "one.ark")["a"], made["c"])
    (tmp_path / "segments").write_text("u1 a 0 -1 1\nu2 b 0 -1 2\nu3 d 0 -1\n")
    result = call("make-mfcc", "--dither=0", "--segments=segments", "wav.scp", "ark:seg.ark")
    assert "skipped u2: b.audio: channel 2 asked for, the recording has 1" in result.stderr
    np.testing.assert_array_equal(features(tmp_path / "seg.ark")["u1"], made["c"])
    np.testing.assert_array_equal(features(tmp_path / "seg.ark")["u3"], made["b"])


def test_shorter_than_a_window_is_skipped_and_the_others_are_what_they_were(tmp_path, call):
    write_recordings(tmp_path, a=encoded(), b=encoded(SAMPLES[:399]), c=encoded(SAMPLES[::-1]))
    result = call("make-mfcc", "--write-num-frames=ark,t:frames", "wav.scp", "ark,scp:out.ark,out.scp")
    assert "skipped b: 24.9 ms are too short for a window of 25 ms" in result.stderr
    made = features(tmp_path / "out.ark")
    assert {key: m.shape for key, m in made.items()} == {"a": (48, 13), "c": (48, 13)}
    assert (tmp_path / "frames").read_text() == "a 48\nc 48\n"
    assert len((tmp_path / "out.scp").read_text().splitlines()) == 2
    write_recordings(tmp_path, a=encoded(), c=encoded(SAMPLES[::-1]))
    call("make-mfcc", "wav.scp", "ark:alone.ark")
    assert (tmp_path / "alone.ark").read_bytes() == (tmp_path / "out.ark").read_bytes()


ON_FEATURES = [
    ["copy-feats"],
    ["add-deltas"],
    ["splice-feats"],
    ["apply-cmvn", "--norm-vars", "stats.ark"],
    ["apply-cmvn", "global.cmvn"],
    ["apply-cmvn-sliding", "--norm-vars"],
    ["apply-cmvn-sliding", "--norm-vars", "--center"],
    ["apply-cmvn-online", "--norm-vars", "global.cmvn"],
    ["select-feats", "0-2"],
    ["paste-feats", "ark:in.ark"],
    ["transform-feats", "identity.mat"],
]


def statistics(call, folder):
    """global.cmvn, stats.ark (by utterance) and identity.mat beside in.ark."""
    call("compute-cmvn-stats", "ark:in.ark", "global.cmvn")
    call("compute-cmvn-stats", "ark:in.ark", "ark:stats.ark")
    (folder / "identity.mat").write_text("[ " + "\n".join(" ".join(map(str, row)) for row in np.eye(13)) + " ]\n")


def words(command: list[str]) -> list[str]:
    return [f"ark:{word}" if word == "stats.ark" else word for word in command]


def test_silence_constants_and_one_frame_stay_finite(tmp_path, call):
    write_recordings(
        tmp_path,
        silence=encoded(np.zeros(8000, np.int16)),
        constant=encoded(np.full(8000, 1000, np.int16)),
        full=encoded(np.full(8000, -32768, np.int16)),
        one=encoded(SAMPLES[:400]),
        noise=encoded(),
    )
    for options in (["--dither=0"], ["--dither=0", "--use-energy=false", "--compress=false"], []):
        call("make-fbank" if not options else "make-mfcc", *options, "wav.scp", "ark:made.ark")
        made = features(tmp_path / "made.ark")
        assert {key: len(m) for key, m in made.items()} == {
            "silence": 48, "constant": 48, "full": 48, "one": 1, "noise": 48,
        }  # fmt: skip
        assert all(np.isfinite(m).all() for m in made.values())
    call("make-mfcc", "--dither=0", "wav.scp", "ark:in.ark")
    statistics(call, tmp_path)
    for command in ON_FEATURES:
        call(*words(command), "ark:in.ark", "ark:out.ark")
        made = features(tmp_path / "out.ark")
        assert len(made) == 5
        for key, m in made.items():
            assert np.isfinite(m).all() and np.abs(m).max() < 1e4, (command, key)


@pytest.mark.parametrize("program", ["make-mfcc", "make-fbank"])
def test_another_order_gives_the_same_features_with_dither_too(tmp_path, call, program):
    write_recordings(tmp_path, a=encoded(), b=encoded(SAMPLES[::-1]))
    call(program, "wav.scp", "ark:ab.ark")
    write_recordings(tmp_path, b=encoded(SAMPLES[::-1]), a=encoded())
    call(program, "wav.scp", "ark:ba.ark")
    one, other = features(tmp_path / "ab.ark"), features(tmp_path / "ba.ark")
    assert list(other) == ["b", "a"]
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])
    call(program, "--dither=0", "wav.scp", "ark:none.ark")
    assert not np.array_equal(features(tmp_path / "none.ark")["a"], one["a"])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_bad_values_are_named_by_the_first_program_that_reads_them(tmp_path, call, value):
    good = RNG.standard_normal((30, 13)).astype(np.float32)
    with Writer(f"ark:{tmp_path}/in.ark", "matrix") as out:
        for key in "abc":
            out.write(key, good)
    statistics(call, tmp_path)
    bad = good.copy()
    bad[7, 4] = value
    with Writer(f"ark:{tmp_path}/in.ark", "matrix") as out:
        for key, matrix in (("a", good), ("b", bad), ("c", good)):
            out.write(key, matrix)
    commands = [*ON_FEATURES, ["copy-feats", "--compress=true"]] if np.isnan(value) else ON_FEATURES[1:5]
    for command in commands:
        result = call(*words(command), "ark:in.ark", "ark:out.ark")
        assert f"skipped b: {value} at frame 7, column 4 of the features" in result.stderr, command
        assert list(features(tmp_path / "out.ark")) == ["a", "c"]
    for target in ("ark:out.ark", "out.cmvn"):
        result = call("compute-cmvn-stats", "ark:in.ark", target)
        assert f"skipped b: {value} at frame 7, column 4 of the features" in result.stderr


@pytest.mark.parametrize("program", ["gmm-acc-stats-ali", "make-egs", "acc-lda"])
def test_features_and_alignment_of_other_lengths(golden, tmp_path, call, program):
    ops, model = golden / "gmm" / "ops", golden / "gmm" / "tri1" / "final.mdl"
    alignments = dict(SequentialReader(f"ark:{ops}/tri1_ali.ark", "int32_vector"))
    feats = [(k, x) for k, x in SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix") if k in alignments]
    cuts = {"same": 0, "one less": 1, "two less": 2, "three less": 3}
    keys = dict(zip(cuts, (key for key, _ in feats)))
    with Writer(f"ark:{tmp_path}/feats.ark", "matrix") as out:
        for (key, x), cut in zip(feats, cuts.values()):
            out.write(key, x[: len(x) - cut])
    with Writer(f"ark:{tmp_path}/ali.ark", "int32_vector") as out:
        for key in keys.values():
            out.write(key, alignments[key])
    arguments = {
        "gmm-acc-stats-ali": [model, "ark:feats.ark", "ark:ali.ark", "out"],
        "make-egs": [f"--model={model}", "ark:feats.ark", "ark:ali.ark", "ark:out"],
        "acc-lda": ["--alignments", model, "ark:feats.ark", "ark:ali.ark", "out"],
    }[program]
    result = call(program, *arguments)
    assert "done 3 utterances, failed 1" in result.stderr
    three = len(alignments[keys["three less"]])
    assert f"skipped {keys['three less']}: {three - 3} frames of features, " in result.stderr
    assert "differed by up to 2 frames in 2 utterances: the longer was cut" in result.stderr
    result = call(program, "--length-tolerance=0", *arguments, status=1)
    assert "3 of 4" in result.stderr
