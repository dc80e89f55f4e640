"""CMVN, deltas, splicing, transforms and copying: equal to Kaldi's, finite on silence."""

import gzip

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.features.cmvn import CmvnOptions, accumulate, empty_stats, normalise, stats_of
from ngsgd.features.transform import DeltaOptions, SpliceOptions, add_deltas, splice, transform
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.reference import features as reference

FEATURES = (np.random.default_rng(0).standard_normal((50, 4)) * [1, 10, 100, 0.1] + [0, 5, -50, 1]).astype(np.float32)


def test_normalising_gives_zero_mean_and_unit_variance():
    stats = stats_of(FEATURES)
    assert stats.shape == (2, 5)
    assert stats.dtype == np.float64
    assert stats[0, 4] == 50
    centred = normalise(FEATURES, stats, CmvnOptions())
    assert centred.dtype == np.float32
    np.testing.assert_allclose(centred, FEATURES - FEATURES.mean(axis=0), atol=1e-4)
    scaled = normalise(FEATURES, stats, CmvnOptions(norm_vars=True))
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-4)
    np.testing.assert_array_equal(normalise(FEATURES, stats, CmvnOptions(norm_means=False)), FEATURES)


def test_columns_that_do_not_vary_stay_small():
    features = FEATURES.copy()
    features[:, 1] = 0
    features[:, 2] = -15.9424
    scaled = normalise(features, stats_of(features), CmvnOptions(norm_vars=True))
    assert np.abs(scaled[:, 1:3]).max() < 1e-4
    one = features[:1]
    assert np.abs(normalise(one, stats_of(one), CmvnOptions(norm_vars=True))).max() < 1e-4


def test_statistics_that_do_not_fit():
    with pytest.raises(DataError, match="statistics of 0 frames"):
        normalise(FEATURES, empty_stats(4), CmvnOptions())
    with pytest.raises(DataError, match="features of dimension 4, statistics of 3"):
        normalise(FEATURES, empty_stats(3), CmvnOptions())
    with pytest.raises(DataError, match="--norm-vars without --norm-means"):
        normalise(FEATURES, stats_of(FEATURES), CmvnOptions(norm_means=False, norm_vars=True))
    with pytest.raises(DataError, match="dimension 4, those before had 3"):
        accumulate(empty_stats(3), FEATURES)


def test_deltas():
    slopes = reference.deltas(FEATURES, 2)
    ours = add_deltas(FEATURES, DeltaOptions())
    assert ours.shape == (50, 12)
    np.testing.assert_array_equal(ours[:, :4], FEATURES)
    np.testing.assert_allclose(ours[:, 4:8], slopes, atol=1e-4)
    np.testing.assert_allclose(ours[4:-4, 8:], reference.deltas(slopes, 2)[4:-4], atol=1e-4)
    assert add_deltas(FEATURES[:1], DeltaOptions(delta_order=3, delta_window=1)).shape == (1, 16)
    np.testing.assert_allclose(add_deltas(FEATURES[:1], DeltaOptions())[0, 4:], 0, atol=1e-5)
    with pytest.raises(DataError, match="delta-window"):
        add_deltas(FEATURES, DeltaOptions(delta_window=0))


def test_splice():
    ours = splice(FEATURES, SpliceOptions(left_context=2, right_context=1))
    assert ours.shape == (50, 16)
    for t in (0, 1, 20, 49):
        rows = [FEATURES[min(max(t + j, 0), 49)] for j in (-2, -1, 0, 1)]
        np.testing.assert_array_equal(ours[t], np.concatenate(rows))
    with pytest.raises(DataError, match="at least 0"):
        splice(FEATURES, SpliceOptions(left_context=-1))


def test_transform():
    matrix = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_allclose(transform(FEATURES, matrix[:, :4]), FEATURES @ matrix[:, :4].T, rtol=1e-5)
    extended = np.hstack([FEATURES, np.ones((50, 1), np.float32)])
    np.testing.assert_allclose(transform(FEATURES, matrix), extended @ matrix.T, rtol=1e-3, atol=1e-4)
    with pytest.raises(DataError, match=r"dimension 4, a transform of 3 columns; expected 4 or 5"):
        transform(FEATURES, matrix[:, :3])


def write(path, **matrices):
    with Writer(f"ark:{path}", "matrix") as out:
        for key, matrix in matrices.items():
            out.write(key, matrix)


def test_pipeline_of_programs_gives_kaldis_features(golden, tmp_path, run):
    (tmp_path / "feats.ark").write_bytes(
        b"".join((golden / "feats" / f"raw_mfcc_train.{job}.ark").read_bytes() for job in (1, 2))
    )
    train = golden / "corpus" / "train"
    run("compute-cmvn-stats", f"--spk2utt=ark:{train}/spk2utt", "ark:feats.ark", "ark,scp:cmvn.ark,cmvn.scp")
    kaldi = dict(SequentialReader(f"ark:{golden}/feats/cmvn_train.ark", "matrix"))
    ours = dict(SequentialReader(f"ark:{tmp_path}/cmvn.ark", "matrix"))
    assert list(ours) == list(kaldi)
    for speaker in kaldi:
        np.testing.assert_allclose(ours[speaker], kaldi[speaker], rtol=2e-6)
    cmvn = f"apply-cmvn --utt2spk={train}/utt2spk scp:cmvn.scp ark:feats.ark ark:-"
    mat = golden / "gmm" / "tri2b" / "final.mat"
    run("bash", "-o", "pipefail", "-c", f"{cmvn} | add-deltas ark:- ark:delta.ark")
    run(
        "bash",
        "-o",
        "pipefail",
        "-c",
        f"{cmvn} | splice-feats ark:- ark:- | transform-feats {mat} ark:- ark:lda_mllt.ark",
    )
    for name in ("delta", "lda_mllt"):
        (tmp_path / f"{name}.kaldi").write_bytes(
            gzip.decompress((golden / "gmm" / "ops" / f"{name}.ark.gz").read_bytes())
        )
        expected = dict(SequentialReader(f"ark:{tmp_path}/{name}.kaldi", "matrix"))
        found = dict(SequentialReader(f"ark:{tmp_path}/{name}.ark", "matrix"))
        assert list(found) == list(expected)
        assert max(np.abs(found[key] - expected[key]).max() for key in expected) < 5e-5


def test_programs_name_bad_features(tmp_path, run):
    bad = FEATURES.copy()
    bad[3, 2] = np.nan
    write(tmp_path / "feats.ark", a=FEATURES, b=bad, c=FEATURES, d=np.zeros((0, 0), np.float32), e=FEATURES)
    for program in ("add-deltas", "splice-feats", "copy-feats"):
        result = run(program, "ark:feats.ark", f"ark:{program}.ark")
        assert "skipped b: nan at frame 3, column 2" in result.stderr
        assert "skipped d: no features" in result.stderr
        assert [k for k, _ in SequentialReader(f"ark:{tmp_path}/{program}.ark", "matrix")] == ["a", "c", "e"]
    (tmp_path / "spk2utt").write_text("x a b missing\ny c e\nz missing\n")
    result = run("compute-cmvn-stats", "--spk2utt=spk2utt", "ark:feats.ark", "ark:cmvn.ark")
    assert "skipped b: nan" in result.stderr
    assert "no features of speaker z" in result.stderr
    stats = dict(SequentialReader(f"ark:{tmp_path}/cmvn.ark", "matrix"))
    assert {s: m[0, -1] for s, m in stats.items()} == {"x": 50, "y": 100}
    (tmp_path / "utt2spk").write_text("a x\nb x\nc y\ne z\n")
    result = run("apply-cmvn", "--utt2spk=utt2spk", "ark:cmvn.ark", "ark:feats.ark", "ark:out.ark", status=1)
    assert "skipped e: cmvn.ark: no entry for 'z'" in result.stderr
    assert not (tmp_path / "out.ark").exists()


def test_statistics_of_utterances_and_of_everything(tmp_path, run):
    write(tmp_path / "feats.ark", a=FEATURES, b=FEATURES[:10] * 2)
    run("compute-cmvn-stats", "ark:feats.ark", "ark:cmvn.ark")
    assert list(dict(SequentialReader(f"ark:{tmp_path}/cmvn.ark", "matrix"))) == ["a", "b"]
    run("compute-cmvn-stats", "--binary=false", "ark:feats.ark", "global")
    assert (tmp_path / "global").read_text().strip().startswith("[")
    run("apply-cmvn", "--norm-vars", "global", "ark:feats.ark", "ark:out.ark")
    joined = np.vstack([m for _, m in SequentialReader(f"ark:{tmp_path}/out.ark", "matrix")])
    np.testing.assert_allclose(joined.std(axis=0), 1, atol=1e-4)


def test_copying_and_measuring(tmp_path, run):
    write(tmp_path / "feats.ark", a=FEATURES, b=FEATURES[:10])
    run("copy-feats", "--compress=true", "--write-num-frames=ark,t:frames", "ark:feats.ark", "ark,scp:c.ark,c.scp")
    assert (tmp_path / "frames").read_text().split() == ["a", "50", "b", "10"]
    run("copy-feats", "--compress=true", "scp:c.scp", "ark:again.ark")
    assert (tmp_path / "again.ark").read_bytes() == (tmp_path / "c.ark").read_bytes()
    assert run("copy-feats", "scp:c.scp", "ark,t:-").stdout.startswith("a  [\n  ")
    assert run("feat-to-dim", "scp:c.scp", "-").stdout == "4\n"
    assert run("feat-to-len", "scp:c.scp", "-").stdout == "60\n"
    assert run("feat-to-len", "scp:c.scp", "ark,t:-").stdout.split() == ["a", "50", "b", "10"]
    (tmp_path / "trans.ark").touch()
    write(tmp_path / "trans.ark", x=np.eye(2, 5, dtype=np.float32))
    (tmp_path / "utt2spk").write_text("a x\nb x\n")
    run("transform-feats", "--utt2spk=utt2spk", "ark:trans.ark", "ark:feats.ark", "ark:t.ark")
    assert run("feat-to-dim", "ark:t.ark", "ark,t:-").stdout.split() == ["a", "2", "b", "2"]
