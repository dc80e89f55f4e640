"""Posteriors, LDA and MLLT, program by program, against Kaldi's results of each step (golden/gmm/ops)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.features.cmvn import CmvnOptions, apply
from ngsgd.features.compose import ComposeOptions, compose, compose_files
from ngsgd.gmm.lda import AccLdaOptions, EstLdaOptions, LdaStats, accumulate_lda, discriminants, estimate_lda
from ngsgd.gmm.mllt import (
    AccMlltOptions,
    EstMlltOptions,
    MlltAccumulator,
    MlltStats,
    accumulate_mllt,
    estimate_mllt,
    estimate_mllt_file,
    transform_means,
    transform_model_means,
)
from ngsgd.gmm.model import AmDiagGmm, read_model
from ngsgd.gmm.posteriors import (
    WeightSilenceOptions,
    convert_alignments,
    pruned,
    uniform,
    weight_silence,
    weight_silence_archive,
)
from ngsgd.kaldi_io.copying import OutputOptions
from ngsgd.kaldi_io.posteriors import Posteriors
from ngsgd.kaldi_io.stream import open_reader, open_writer
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.reference.gmm import log_likelihood

SILENCE = "1:2:3:4:5"


def read_matrix(path):
    with open_reader(str(path)) as reader:
        return reader.matrix()


def read_stats(path, kind):
    with open_reader(str(path)) as reader:
        return kind.read(reader)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference, of the largest value."""
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def up_to_sign(ours: np.ndarray, theirs: np.ndarray) -> float:
    """As `difference`, with the sign of each row left open."""
    return difference(np.sign((ours * theirs).sum(axis=1))[:, None] * ours, theirs)


def agreement(golden: Path) -> Iterator[tuple[str, float, float]]:
    """Each step of golden/gmm/ops/commands.txt about posteriors, LDA and MLLT: (case, difference, bound)."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _agreement(golden, f"{folder}/out")


def _agreement(golden: Path, out: str) -> Iterator[tuple[str, float, float]]:
    ops = golden / "gmm/ops"
    for name, ali, model in (("post_nosil", "tri1_ali", "tri1_ali"), ("post2b_nosil", "tri2b_ali", "tri2b")):
        model = golden / "gmm" / model.removesuffix("_ali") / "final.mdl"
        convert_alignments(f"ark:{ops}/{ali}.ark", f"ark:{out}.post")
        weight_silence_archive("0.0", SILENCE, str(model), f"ark:{out}.post", f"ark:{out}", WeightSilenceOptions())
        same = Path(out).read_bytes() == (ops / f"{name}.ark").read_bytes()
        yield f"{name}.ark, byte for byte", 0.0 if same else 1.0, 0.0
    feats = " ".join(f"{golden}/feats/raw_mfcc_train.{job}.ark" for job in (1, 2))
    by_speaker = CmvnOptions(utt2spk=f"{golden}/corpus/train/utt2spk")
    apply(f"ark:{golden}/feats/cmvn_train.ark", f"ark:cat {feats} |", f"ark:{out}.feats", by_speaker)
    options = AccLdaOptions(left_context=4, right_context=4)
    model = str(golden / "gmm/tri1/final.mdl")
    accumulate_lda(model, f"ark:{out}.feats", f"ark:{ops}/post_nosil.ark", out, options)
    ours, theirs = read_stats(out, LdaStats), read_stats(ops / "lda.acc", LdaStats)
    yield "lda.acc, frames of classes", float(np.abs(ours.count - theirs.count).max()), 0.0
    yield "lda.acc, first moments", difference(ours.first, theirs.first), 1e-5
    yield "lda.acc, second moments", difference(ours.second, theirs.second), 1e-5
    estimate_lda(out, (f"{ops}/lda.acc",), EstLdaOptions(write_full_matrix=f"{out}.full"))
    yield "lda.mat, up to sign", up_to_sign(read_matrix(out), read_matrix(ops / "lda.mat")), 1e-3
    ours, theirs = read_matrix(f"{out}.full"), read_matrix(ops / "lda_full.mat")
    # Beyond the rank of the between-class covariance, classes - 1, all directions are as good as each other.
    with_variance = np.count_nonzero(discriminants(read_stats(ops / "lda.acc", LdaStats)).variance > 1e-9)
    yield "lda_full.mat, rows with variance, up to sign", up_to_sign(ours[:with_variance], theirs[:with_variance]), 1e-3
    projections = (np.linalg.pinv(m) @ m for m in (ours[with_variance:], theirs[with_variance:]))
    yield "lda_full.mat, space of the other rows", difference(*projections), 1e-3
    model = str(golden / "gmm/tri2b/final.mdl")
    labels = f"ark:{ops}/post2b_nosil.ark"
    accumulate_mllt(model, f"ark:gunzip -c {ops}/lda_mllt.ark.gz |", labels, out, AccMlltOptions())
    ours, theirs = read_stats(out, MlltStats), read_stats(ops / "mllt.macc", MlltStats)
    yield "mllt.macc, statistics", difference(ours.G, theirs.G), 1e-4
    yield "mllt.macc, frames", abs(ours.beta / theirs.beta - 1), 1e-6
    estimate_mllt_file(out, (f"{ops}/mllt.macc",), EstMlltOptions())
    yield "mllt.mat", difference(read_matrix(out), read_matrix(ops / "mllt.mat")), 1e-3
    transform_model_means(f"{ops}/mllt.mat", model, out, OutputOptions())
    ours, theirs = read_model(out)[1], read_model(str(ops / "mllt_transformed.mdl"))[1]
    yield "mllt_transformed.mdl, means", difference(ours.means(), theirs.means()), 1e-5
    yield "mllt_transformed.mdl, constants", difference(ours.gconsts, theirs.gconsts), 1e-5
    compose_files(f"{ops}/mllt.mat", str(golden / "gmm/tri2b/final.mat"), out, ComposeOptions())
    yield "mllt_composed.mat", difference(read_matrix(out), read_matrix(ops / "mllt_composed.mat")), 1e-5


def test_every_step_agrees_with_kaldi(golden):
    missed = [(case, found, bound) for case, found, bound in agreement(golden) if found > bound]
    assert not missed


@pytest.mark.parametrize("name, kind", [("lda.acc", LdaStats), ("mllt.macc", MlltStats)])
def test_statistics_come_back(golden, tmp_path, name, kind):
    """Binary byte for byte, and through text to seven digits."""
    path = golden / "gmm/ops" / name
    stats = read_stats(path, kind)
    for file, binary in (("binary", True), ("text", False)):
        with open_writer(str(tmp_path / file), binary) as writer:
            stats.write(writer)
    assert (tmp_path / "binary").read_bytes() == path.read_bytes()
    again = read_stats(tmp_path / "text", kind)
    for field, value in vars(stats).items():
        np.testing.assert_allclose(getattr(again, field), value, rtol=1e-5, atol=1e-6 * np.abs(value).max())


# ---- posteriors


def some_posteriors(rng, frames=400):
    """Runs of frames with none, one, two and three pairs."""
    counts = np.repeat(rng.integers(0, 4, frames // 8), rng.integers(1, 16, frames // 8)).astype(np.int32)
    pairs = int(counts.sum())
    return Posteriors(counts, rng.integers(1, 99, pairs).astype(np.int32), rng.random(pairs).astype(np.float32))


def as_lists(posteriors):
    pairs = iter(zip(posteriors.label.tolist(), posteriors.weight.tolist()))
    return [[next(pairs) for _ in range(n)] for n in posteriors.counts]


@pytest.mark.parametrize("form", ["ark", "ark,t"])
@pytest.mark.parametrize("through", ["file", "pipe"])
def test_posteriors_as_arrays_are_those_as_lists(form, through, tmp_path):
    """Both ways, longer than a buffer, empty ones among them."""
    rng = np.random.default_rng(0)
    made = {
        "a": some_posteriors(rng),
        "b": Posteriors.of_alignment(np.zeros(0, np.int32)),
        "c": some_posteriors(rng, 20000),
    }
    for kind, values in (("posterior_arrays", made), ("posterior", {k: as_lists(v) for k, v in made.items()})):
        with Writer(f"{form}:{tmp_path}/{kind}", kind) as out:
            for key, value in values.items():
                out.write(key, value)
    assert (tmp_path / "posterior_arrays").read_bytes() == (tmp_path / "posterior").read_bytes()
    source = f"ark:{tmp_path}/posterior" if through == "file" else f"ark:cat {tmp_path}/posterior |"
    back = dict(SequentialReader(source, "posterior_arrays"))
    assert list(back) == list(made)
    for key, value in made.items():
        np.testing.assert_array_equal(back[key].counts, value.counts)
        np.testing.assert_array_equal(back[key].label, value.label)
        np.testing.assert_allclose(back[key].weight, value.weight, rtol=1e-6 if form == "ark,t" else 0)


def test_silence_is_weighted_pair_by_pair_or_distributed():
    """Transition-ids 1 and 2 are silence; a frame without weight stays as it is; nothing is left of weight 0."""
    silent = np.array([False, True, True, False])
    frames = [[(1, 0.5), (3, 0.5)], [(2, 1.0)], [], [(3, 1.0)], [(1, 0.0)]]
    posteriors = Posteriors(
        np.array([len(f) for f in frames], np.int32),
        np.array([i for f in frames for i, _ in f], np.int32),
        np.array([w for f in frames for _, w in f], np.float32),
    )
    wanted = {
        (0.0, False): [[(3, 0.5)], [], [], [(3, 1.0)], []],
        (0.5, False): [[(1, 0.25), (3, 0.5)], [(2, 0.5)], [], [(3, 1.0)], [(1, 0.0)]],
        (0.0, True): [[(1, 0.25), (3, 0.25)], [], [], [(3, 1.0)], [(1, 0.0)]],
        (0.5, True): [[(1, 0.375), (3, 0.375)], [(2, 0.5)], [], [(3, 1.0)], [(1, 0.0)]],
    }
    for (weight, distribute), lists in wanted.items():
        assert as_lists(weight_silence(posteriors, silent, weight, distribute)) == lists


def test_posterior_programs_and_their_refusals(golden, call, tmp_path):
    model = golden / "gmm/tri1/final.mdl"
    alignments = f"ark:{golden}/gmm/ops/tri1_ali.ark"
    call("ali-to-post", alignments, "ark:post")
    call("weight-silence-post", "0.25", "1:2:3:4:5", model, "ark:post", "ark,t:weighted")
    weights = {w for _, p in SequentialReader(f"ark:{tmp_path}/weighted", "posterior") for f in p for _, w in f}
    assert weights == {0.25, 1.0}
    refused = call("weight-silence-post", "much", "1", model, "ark:post", "ark:no", status=1)
    assert "expected the weight of silence, got 'much'" in refused.stderr
    other = call("weight-silence-post", "0", "1", golden / "gmm/mono/final.mdl", "ark:post", "ark:no", status=1)
    assert "belongs to another model" in other.stderr and not (tmp_path / "no").exists()


def test_pruning_at_random_keeps_the_mean_and_is_the_utterances_own():
    weight = np.linspace(0.01, 1.5, 200000)
    after = pruned(weight, 1.0, uniform("a", len(weight)))
    assert set(np.unique(after[weight < 1.0])) == {0.0, 1.0}
    np.testing.assert_array_equal(after[weight >= 1.0], weight[weight >= 1.0])
    small = weight < 1.0
    assert after[small].mean() == pytest.approx(weight[small].mean(), rel=0.01)
    np.testing.assert_array_equal(uniform("a", 5), uniform("a", 5))
    assert not np.array_equal(uniform("a", 5), uniform("b", 5))


# ---- LDA


def lda_stats(x, label, classes):
    stats = LdaStats.zeros(classes, x.shape[1])
    stats.accumulate(x.astype(np.float32), label, np.ones(len(x)))
    return stats


def stored(stats, path):
    """As a file keeps them, in single precision."""
    with open_writer(str(path)) as writer:
        stats.write(writer)
    return read_stats(path, LdaStats)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1000.0])
def test_a_constant_column_counts_for_nothing(constant, tmp_path, caplog):
    """Whatever its value, before it and after it was rounded: the other columns' transform, and 0 for it."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 8, 3000)
    x = rng.standard_normal((3000, 5)) + 3 * rng.standard_normal((8, 5))[label]
    with_it = np.insert(x, 2, constant, axis=1)
    alone = discriminants(lda_stats(x, label, 8))
    for stats in (lda_stats(with_it, label, 8), stored(lda_stats(with_it, label, 8), tmp_path / "x")):
        caplog.clear()
        found = discriminants(stats)
        assert "1 of 6 columns of the features are constant within the classes, such as column 2" in caplog.text
        assert not found.rows[:, 2].any()
        assert up_to_sign(np.delete(found.rows, 2, axis=1)[:5], alone.rows) < 1e-3
        np.testing.assert_allclose(found.variance[:5], alone.variance, rtol=1e-3)


@pytest.mark.parametrize("kind", ["copied column", "few frames", "one frame a class"])
def test_singular_scatter_is_floored_and_said(kind, tmp_path, caplog):
    """The directions found are finite, and tell the classes of new frames apart as they should."""
    rng = np.random.default_rng(0)
    centres = 5 * rng.standard_normal((4, 30))
    centres[:, 10:] = 0.0
    frames = {"copied column": 2000, "few frames": 25, "one frame a class": 4}[kind]
    label = np.arange(frames) % 4
    x = rng.standard_normal((frames, 30)) + centres[label]
    if kind == "copied column":
        x[:, 20] = x[:, 7] * 2 + x[:, 8]
    stats = stored(lda_stats(x, label, 4), tmp_path / "x")
    if kind == "one frame a class":
        with pytest.raises(DataError, match="zero: constant features"):
            discriminants(stats)
        return
    found = discriminants(stats)
    assert "the within-class covariance is singular" in caplog.text
    assert np.isfinite(found.rows).all() and np.isfinite(found.variance).all()
    new = rng.standard_normal((400, 30)) + centres[np.arange(400) % 4]
    if kind == "copied column":
        new[:, 20] = new[:, 7] * 2 + new[:, 8]
    y = new @ found.rows[:3].T
    between = np.var([y[c::4].mean(axis=0) for c in range(4)], axis=0)
    assert (between > 3 * np.var(y[0::4], axis=0)).all()


def test_dimensions_of_lda(tmp_path, call):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 8, 500)
    stats = lda_stats(rng.standard_normal((500, 5)) + 2, label, 8)
    for name in ("a.acc", "b.acc"):
        stored(stats, tmp_path / name)
    assert "only 5 dimensions" in call("est-lda", "x", "a.acc", status=1).stderr
    assert not (tmp_path / "x").exists()
    call("est-lda", "--allow-large-dim", "x", "a.acc")
    assert read_matrix(tmp_path / "x").shape == (5, 5)
    call("sum-lda-accs", "sum", "a.acc", "b.acc")
    call("est-lda", "--dim=3", "--remove-offset", "y", "sum")
    y = read_matrix(tmp_path / "y")
    assert y.shape == (3, 6)
    np.testing.assert_allclose(y[:, :5] @ (stats.first.sum(axis=0) / 500), -y[:, 5], rtol=1e-4)
    assert up_to_sign(y[:, :5], read_matrix(tmp_path / "x")[:3]) < 1e-4
    call("est-lda", "--dim=3", "--shrinkage=1", "z", "sum")  # no correlations are left: each column for itself
    within, between, _ = stats.covariances()
    scale = np.sqrt(np.diag(within))
    variance = np.linalg.eigvalsh(between / np.outer(scale, scale))[::-1][:3]
    z = read_matrix(tmp_path / "z").astype(float)
    np.testing.assert_allclose(np.diag(z @ between @ z.T), variance, rtol=1e-3)


# ---- MLLT


def small_model(rng, pdfs=3, dim=4):
    counts = np.arange(1, pdfs + 1)
    gauss = int(counts.sum())
    inv_vars = rng.uniform(0.5, 2, (gauss, dim))
    weights = np.concatenate([np.full(n, 1 / n) for n in counts])
    return AmDiagGmm(
        np.concatenate([[0], np.cumsum(counts)]), weights, rng.standard_normal((gauss, dim)) * inv_vars, inv_vars
    )


def test_mllt_statistics_are_the_obvious_sums():
    """Equation (1) frame by frame in float64, with weights, in batches or not; and they add up."""
    rng = np.random.default_rng(0)
    gmm = small_model(rng)
    x, pdf, weight = rng.standard_normal((60, 4)).astype(np.float32), rng.integers(0, 3, 60), rng.uniform(0.1, 2, 60)
    wanted, beta = np.zeros((4, 4, 4)), 0.0
    for frame, p, w in zip(x.astype(float), pdf, weight, strict=True):
        rows = slice(gmm.offsets[p], gmm.offsets[p + 1])
        means, variances = gmm.means()[rows], gmm.variances()[rows]
        _, post = log_likelihood(frame, gmm.weights[rows], means, variances)
        for gamma, m, v in zip(w * post / post.sum(), means, variances, strict=True):
            beta += gamma
            for d in range(4):
                wanted[d] += gamma / v[d] * np.outer(frame - m, frame - m)
    whole = MlltAccumulator(gmm)
    whole.add("a", x, pdf, weight)
    stats = whole.stats()
    np.testing.assert_allclose(stats.G, wanted, rtol=1e-5, atol=1e-5)
    assert stats.beta == pytest.approx(beta)
    parts = []
    for rows in (slice(0, 17), slice(17, 60)):
        parts.append(MlltAccumulator(gmm))
        parts[-1].add("a", x[rows], pdf[rows], weight[rows])
    both = parts[0].stats()
    both += parts[1].stats()
    np.testing.assert_allclose(both.G, stats.G, rtol=1e-9)
    with pytest.raises(DataError, match="do not add up"):
        both += MlltStats(5)


def test_pruned_mllt_statistics_do_not_depend_on_the_batches(monkeypatch):
    rng = np.random.default_rng(0)
    gmm = small_model(rng)
    utterances = [(f"u{i}", rng.standard_normal((50, 4)), rng.integers(0, 3, 50), np.ones(50)) for i in range(8)]
    found = []
    for batch in (1 << 20, 60):
        monkeypatch.setattr("ngsgd.gmm.mllt._BATCH", batch)
        accumulator = MlltAccumulator(gmm, rand_prune=0.5)
        for utterance in utterances:
            accumulator.add(*utterance)
        found.append(accumulator.stats())
    np.testing.assert_allclose(found[0].G, found[1].G, rtol=1e-9)
    assert found[0].beta != pytest.approx(400)


def test_mllt_finds_the_transform_that_features_lack():
    """Correlated noise around known means: its transform makes the noise of each row unit and uncorrelated."""
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((4, 4)) + 2 * np.eye(4)
    means = 9 * rng.standard_normal((5, 4))
    pdf = rng.integers(0, 5, 20000)
    x = rng.standard_normal((20000, 4)) @ mix.T + means[pdf]
    inv_vars = np.tile(1 / np.diag(mix @ mix.T), (5, 1))
    gmm = AmDiagGmm(np.arange(6), np.ones(5), means * inv_vars, inv_vars)
    accumulator = MlltAccumulator(gmm)
    accumulator.add("a", x, pdf, np.ones(len(x)))
    stats = accumulator.stats()
    matrix = estimate_mllt(stats)
    noise = np.cov((x - means[pdf]) @ matrix.T, rowvar=False)
    off = noise - np.diag(np.diag(noise))
    assert np.abs(off).max() < 0.02 * np.diag(noise).min()
    np.testing.assert_allclose(np.diag(noise), 1 / inv_vars[0], rtol=0.03)
    moved = transform_means(gmm, matrix)
    assert moved.log_likelihoods(x @ matrix.T)[np.arange(len(x)), pdf].mean() + np.linalg.slogdet(matrix)[1] > (
        gmm.log_likelihoods(x)[np.arange(len(x)), pdf].mean() + 0.1
    )


def test_mllt_of_too_little_is_the_unit_matrix(caplog):
    rng = np.random.default_rng(0)
    gmm = small_model(rng)
    for x, words in (
        (rng.standard_normal((7, 4)), "7 frames are too few"),
        (np.tile(rng.standard_normal(4), (500, 1)), "singular MLLT statistics"),
        (rng.standard_normal((500, 2))[:, [0, 1, 1, 0]] * 3, None),
    ):
        caplog.clear()
        accumulator = MlltAccumulator(gmm)
        accumulator.add("a", x, np.zeros(len(x), int), np.ones(len(x)))
        matrix = estimate_mllt(accumulator.stats())
        if words:
            assert words in caplog.text
            np.testing.assert_array_equal(matrix, np.eye(4))
        assert np.isfinite(matrix).all()


def test_bad_utterances_of_mllt_are_named(golden, call, tmp_path):
    """Without labels, far too short, of another dimension; labels of another model; all weighted away."""
    model, rng = golden / "gmm/mono/final.mdl", np.random.default_rng(0)
    with Writer(f"ark:{tmp_path}/feats", "matrix") as out, Writer(f"ark:{tmp_path}/ali", "int32_vector") as ali:
        shapes = {"a": (300, 39), "b": (300, 39), "c": (300, 39), "d": (30, 13), "e": (30, 39), "f": (300, 39)}
        for key, labels in (("a", 300), ("b", 299), ("c", 7), ("d", 30), ("e", 0), ("f", 300)):
            out.write(key, rng.standard_normal(shapes[key]).astype(np.float32))
            if labels:
                ali.write(key, np.full(labels, 1))
    result = call("gmm-acc-mllt", "--alignments", model, "ark:feats", "ark:ali", "x.macc")
    for words in ("skipped c: 300 frames of features, 7", "skipped d: features have shape", "skipped e: no labels"):
        assert words in result.stderr
    assert "done 3 utterances, failed 3" in result.stderr
    assert read_stats(tmp_path / "x.macc", MlltStats).beta == pytest.approx(899)
    call("gmm-acc-mllt", "--alignments", "--silence-phones=1", model, "ark:feats", "ark:ali", "none.macc")
    assert read_stats(tmp_path / "none.macc", MlltStats).beta == 0
    assert "too few" in call("est-mllt", "unit.mat", "none.macc").stderr
    np.testing.assert_array_equal(read_matrix(tmp_path / "unit.mat"), np.eye(39))
    stored(LdaStats.zeros(2, 2), tmp_path / "lda.acc")
    assert "expected <MlltAccs>" in call("est-mllt", "no", "lda.acc", status=1).stderr
    with open_writer(str(tmp_path / "wide")) as writer:
        writer.matrix(np.ones((39, 41), np.float32))
    wrong = call("gmm-transform-means", "wide", model, "no", status=1)
    assert "39 x 41, expected 39 x 39 or 39 x 40" in wrong.stderr and not (tmp_path / "no").exists()


# ---- composing


def test_a_composed_transform_is_one_after_the_other():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 3))

    def do(matrix, y):
        return y @ matrix[:, : y.shape[1]].T + (matrix[:, -1] if matrix.shape[1] > y.shape[1] else 0)

    linear, affine = rng.standard_normal((4, 3)), rng.standard_normal((4, 4))
    for b, b_is_affine in ((linear, False), (affine, True)):
        for a in (rng.standard_normal((2, 4)), rng.standard_normal((2, 5))):
            np.testing.assert_allclose(do(compose(a, b, b_is_affine), x), do(a, do(b, x)))
    with pytest.raises(DataError, match="A has 3 columns, B 4 rows"):
        compose(np.ones((2, 3)), linear)


def test_composed_tables(tmp_path, call):
    """Tables of A, of B, of both, by speaker; one that lacks an entry."""
    rng = np.random.default_rng(0)
    a, b = (
        {key: rng.standard_normal((3, 4)).astype(np.float32) for key in keys} for keys in (("u1", "u2"), ("u1", "s"))
    )
    for name, table in (("a", a), ("b", b)):
        with Writer(f"ark:{tmp_path}/{name}", "matrix") as out:
            for key, value in table.items():
                out.write(key, value)
    with open_writer(str(tmp_path / "u1.mat")) as writer:
        writer.matrix(a["u1"])
    (tmp_path / "utt2spk").write_text("u1 s\nu2 s\n")

    def result():
        return dict(SequentialReader(f"ark:{tmp_path}/out", "matrix"))

    call("compose-transforms", "--b-is-affine", "--utt2spk=ark:utt2spk", "ark:a", "ark:b", "ark:out")
    np.testing.assert_allclose(result()["u2"], compose(a["u2"], b["s"], True), rtol=1e-6)
    call("compose-transforms", "--b-is-affine", "u1.mat", "ark:b", "ark:out")
    assert list(result()) == ["u1", "s"]
    call("compose-transforms", "--b-is-affine", "ark:a", "u1.mat", "ark:out")
    np.testing.assert_allclose(result()["u2"], compose(a["u2"], a["u1"], True), rtol=1e-6)
    one = call("compose-transforms", "--b-is-affine", "ark:a", "ark:b", "ark:out")
    assert "skipped u2" in one.stderr and list(result()) == ["u1"]
    assert "expected a table as output" in call("compose-transforms", "ark:a", "u1.mat", "out.mat", status=1).stderr
