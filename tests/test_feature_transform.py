"""LDA statistics and the networks' input transform, against Kaldi's acc-lda, est-lda and nnet-get-feature-transform."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.gmm.lda import AccLdaOptions, LdaStats, spliced
from ngsgd.kaldi_io.packed import read_symmetric, write_symmetric
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.nnet.feature_transform import FeatureTransformOptions, estimate_transform

PLAIN = FeatureTransformOptions(remove_offset=False, within_class_factor=1.0, max_singular_value=0.0)


def read_stats(path):
    with open_reader(str(path)) as reader:
        return LdaStats.read(reader)


def read_matrix(path):
    with open_reader(str(path)) as reader:
        return reader.matrix()


@pytest.fixture
def train_features(golden, run, tmp_path):
    """Normalised training features, as Kaldi's steps pipe them."""
    for kind in ("raw_mfcc", "cmvn"):
        parts = sorted((golden / "feats").glob(f"{kind}_train*.ark"))
        (tmp_path / f"{kind}.ark").write_bytes(b"".join(p.read_bytes() for p in parts if "hires" not in p.name))
    utt2spk = f"ark:{golden}/corpus/train/utt2spk"
    run("apply-cmvn", f"--utt2spk={utt2spk}", "ark:cmvn.ark", "ark:raw_mfcc.ark", "ark:feats.ark")
    return "ark:feats.ark"


def test_statistics_are_kaldis(golden, run, tmp_path, train_features):
    """Once as in Kaldi's pipe, with posteriors; once from alignments, spliced and silence-weighted on the way."""
    run("splice-feats", train_features, "ark:splice.ark")
    model = golden / "gmm/tri1/final.mdl"
    run("acc-lda", model, "ark:splice.ark", f"ark:{golden}/gmm/ops/post_nosil.ark", "a.acc")
    run(
        "acc-lda",
        *("--alignments", "--silence-phones=1:2:3:4:5", "--left-context=4", "--right-context=4", "--binary=false"),
        *(model, train_features, f"ark:{golden}/gmm/ops/tri1_ali.ark", "b.acc"),
    )
    wanted = read_stats(golden / "gmm/ops/lda.acc")
    for name in ("a.acc", "b.acc"):
        ours = read_stats(tmp_path / name)
        np.testing.assert_array_equal(ours.count, wanted.count)
        scale = np.abs(wanted.first).max()
        np.testing.assert_allclose(ours.first, wanted.first, atol=1e-5 * scale)
        np.testing.assert_allclose(ours.second, wanted.second, atol=1e-5 * np.abs(wanted.second).max())


def test_statistics_come_back_byte_for_byte(golden, tmp_path):
    path = golden / "gmm/ops/lda.acc"
    with open_writer(str(tmp_path / "copy")) as writer:
        read_stats(path).write(writer)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_plain_lda_is_kaldis(golden):
    """Up to the sign of each row, which singular vectors leave open."""
    full, kept = read_matrix(golden / "gmm/ops/lda_full.mat"), read_matrix(golden / "gmm/ops/lda.mat")
    stats = read_stats(golden / "gmm/ops/lda.acc")
    ours = estimate_transform(stats, PLAIN)
    signs = np.sign((ours * full).sum(axis=1))[:, None]
    informative = slice(0, 60)  # beyond, eigenvalues of noise lie close together and mix
    np.testing.assert_allclose((signs * ours)[informative], full[informative], atol=1e-3 * np.abs(full).max())
    reduced = estimate_transform(stats, FeatureTransformOptions(False, 40, 1.0, 0.0))
    np.testing.assert_allclose(np.abs(reduced), np.abs(kept), atol=1e-3 * np.abs(kept).max())


def test_input_transform_of_kaldis_network(golden, run, tmp_path, train_features):
    """golden/nnet2/lda.mat: Kaldi took a random quarter of the frames (--rand-prune=4), which leaves 30 for a class:
    two such draws of ours differ as much from each other as from Kaldi's, so the spectrum is compared."""
    lda_mllt, trans = golden / "gmm/ops/lda_mllt.ark.gz", golden / "gmm/tri3b_ali"
    (tmp_path / "trans.ark").write_bytes(b"".join((trans / f"trans.{j}").read_bytes() for j in (1, 2)))
    run("transform-feats", f"--utt2spk=ark:{golden}/corpus/train/utt2spk", "ark:trans.ark",
        f"ark:gunzip -c {lda_mllt} |", "ark:fmllr.ark")  # fmt: skip
    run(
        "acc-lda",
        *("--alignments", "--silence-phones=1:2:3:4:5", "--left-context=3", "--right-context=3", "--rand-prune=4"),
        *(trans / "final.mdl", "ark:fmllr.ark", f"ark:gunzip -c {trans}/ali.1.gz {trans}/ali.2.gz |", "lda.acc"),
    )
    run("nnet-get-feature-transform", "--write-within-covar=w", "--within-class-factor=0.0001", "lda.mat", "lda.acc")
    ours, kaldis = read_matrix(tmp_path / "lda.mat"), read_matrix(golden / "nnet2/lda.mat")
    assert ours.shape == kaldis.shape
    a, b = (np.linalg.svd(m[:, :-1])[1] for m in (ours, kaldis))
    np.testing.assert_allclose(a[:100], b[:100], rtol=0.1)
    assert (a**2).sum() == pytest.approx((b**2).sum(), rel=0.1)
    with open_reader(str(tmp_path / "w")) as reader:
        within = read_symmetric(reader)
    np.testing.assert_allclose(within, within.T)
    assert np.linalg.eigvalsh(within).min() > 0


def test_transform_does_what_it_promises():
    """Mean 0; unit total variance where classes differ much, little where they do not; bounded singular values."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 30, 20000)
    x = rng.standard_normal((20000, 4)) @ rng.standard_normal((4, 4)) + 7
    x[:, :2] += 20 * rng.standard_normal((30, 2))[label]
    stats = LdaStats.zeros(30, 4)
    stats.accumulate(x.astype(np.float32), label, np.ones(len(x)))
    matrix = estimate_transform(stats, FeatureTransformOptions(within_class_factor=0.01))
    y = x @ matrix[:, :-1].T + matrix[:, -1]
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-3)
    assert (y.var(axis=0)[:2] > 10).all() and (y.var(axis=0)[2:] < 0.15).all()
    limited = estimate_transform(stats, FeatureTransformOptions(max_singular_value=0.05))
    assert np.linalg.svd(limited[:, :-1])[1].max() == pytest.approx(0.05, rel=1e-4)


def test_statistics_add_up_in_any_order():
    rng = np.random.default_rng(0)
    x, label, weight = rng.standard_normal((90, 3)), rng.integers(0, 4, 90), rng.random(90)
    whole, parts = LdaStats.zeros(5, 3), []
    whole.accumulate(x, label, weight)
    for rows in (slice(0, 20), slice(20, 90), slice(0, 0)):
        part = LdaStats.zeros(5, 3)
        part.accumulate(x[rows], label[rows], weight[rows])
        parts.append(part)
    total = parts[1] + parts[2] + parts[0]
    for name in ("count", "first", "second"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-12)
    with pytest.raises(DataError, match="do not add up"):
        whole + LdaStats.zeros(5, 4)


def test_splicing_repeats_the_ends_and_keeps_the_constant_part():
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    y = spliced(x, AccLdaOptions(left_context=1, right_context=1, const_dim=1))
    assert y.shape == (4, 7)
    np.testing.assert_array_equal(y[0, :6], [0, 1, 0, 1, 3, 4])
    np.testing.assert_array_equal(y[3, :6], [6, 7, 9, 10, 9, 10])


def test_singular_and_empty_statistics():
    stats = LdaStats.zeros(2, 3)
    with pytest.raises(DataError, match="no frames"):
        estimate_transform(stats, PLAIN)
    x = np.random.default_rng(0).standard_normal((50, 3))
    x[:, 2] = x[:, 1]
    stats.accumulate(x, np.arange(50) % 2, np.ones(50))
    assert np.isfinite(estimate_transform(stats, FeatureTransformOptions())).all()
    constant = LdaStats.zeros(2, 3)
    constant.accumulate(np.zeros((5, 3)), np.zeros(5, int), np.ones(5))
    with pytest.raises(DataError, match="constant features"):
        estimate_transform(constant, PLAIN)
    with pytest.raises(DataError, match="only 3 dimensions"):
        estimate_transform(stats, FeatureTransformOptions(dim=4))


def test_bad_utterances_are_named_and_the_rest_counts(golden, run, tmp_path):
    """One utterance without labels, one with far too few, one shorter by a frame; and pruning is seeded."""
    features = {"ok": 10, "short": 9, "far": 20, "none": 5}
    lines = [f"{key} [\n" + "".join(f"{t} {t % 3}\n" for t in range(n)) + "]\n" for key, n in features.items()]
    (tmp_path / "feats").write_text("".join(lines))
    (tmp_path / "ali").write_text("".join(f"{key} {'3 4 5 6 ' * 2}7 8\n" for key in ("ok", "short", "far")))
    call = ("--alignments", golden / "gmm/mono/final.mdl", "ark:feats", "ark:ali")
    result = run("acc-lda", *call, "a.acc")
    assert "skipped far: 20 frames of features, 10 in the alignment" in result.stderr
    assert "skipped none: no labels" in result.stderr and "done 2 utterances, failed 2" in result.stderr
    assert read_stats(tmp_path / "a.acc").count.sum() == 19
    for name in ("b.acc", "c.acc"):
        run("acc-lda", "--rand-prune=4", *call, name)
    b = read_stats(tmp_path / "b.acc")
    assert b.count.sum() % 4 == 0 and (tmp_path / "b.acc").read_bytes() == (tmp_path / "c.acc").read_bytes()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("size", [0, 1, 4])
def test_packed_matrices(tmp_path, binary, size):
    matrix = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    matrix += matrix.T
    with open_writer(str(tmp_path / "m"), binary) as writer:
        write_symmetric(writer, matrix)
    with open_reader(str(tmp_path / "m")) as reader:
        np.testing.assert_allclose(read_symmetric(reader), matrix, rtol=1e-6)
        assert reader.at_end()
