"""Statistics, estimation and mixing up: Kaldi's next model, the textbook's sums, and awkward data."""

import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ngsgd.hmm.graphs  # noqa: F401  registers the table kind "fst_arrays"
from ngsgd.errors import DataError
from ngsgd.gmm import stats as stats_module
from ngsgd.gmm.model import AmDiagGmm, read_model
from ngsgd.gmm.plan import PlanOptions, plan
from ngsgd.gmm.stats import Accumulator, GmmStats, read_stats, write_stats
from ngsgd.gmm.update import (
    GmmUpdateOptions,
    SplitOptions,
    TransitionUpdateOptions,
    boost_silence,
    parse_update_flags,
    split,
    split_targets,
    update_gmm,
    update_transitions,
)
from ngsgd.hmm.align import Aligner, AlignOptions
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter
from ngsgd.kaldi_io.tables import SequentialReader
from tests.reference import gmm as reference
from tests.test_gmm_model import mixtures


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def accumulate(gmm, tid_to_pdf, utterances):
    with Accumulator(gmm, tid_to_pdf) as accumulator:
        for feats, tids in utterances:
            accumulator.add(feats, tids)
    return accumulator.stats


@pytest.fixture(scope="module")
def tri1(shared):
    """(ops folder, transitions, gmm, statistics accumulated by us from Kaldi's alignments)."""
    ops = shared / "golden/gmm/ops"
    transitions, gmm = read_model(str(shared / "golden/gmm/tri1/final.mdl"))
    feats = dict(SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"))
    alignments = SequentialReader(f"ark:{ops}/tri1_ali.ark", "int32_vector")
    ours = accumulate(gmm, transitions.tid_to_pdf, ((feats[k], a) for k, a in alignments))
    return ops, transitions, gmm, ours


def test_kaldis_statistics_come_back_byte_for_byte(golden, tmp_path):
    for name in ("tri1.acc", "twofeats.acc"):
        path = golden / "gmm/ops" / name
        stats = read_stats([str(path)])
        write_stats(str(tmp_path / name), stats)
        assert (tmp_path / name).read_bytes() == path.read_bytes()
        text = io.BytesIO()
        stats.write(TokenWriter(text, binary=False))
        again = GmmStats.read(TokenReader(io.BufferedReader(io.BytesIO(text.getvalue())), "x", binary=False))
        assert relative(again.sums, stats.sums) < 1e-6 and again.total_frames == stats.total_frames


def test_statistics_are_kaldis(tri1):
    ops, _, _, ours = tri1
    kaldis = read_stats([str(ops / "tri1.acc")])
    assert np.array_equal(ours.transitions, kaldis.transitions)
    for name in ("occ", "mean", "var"):
        assert relative(getattr(ours, name), getattr(kaldis, name)) < 2e-6
    assert ours.total_like == pytest.approx(kaldis.total_like, rel=1e-6)
    assert ours.total_frames == kaldis.total_frames == 19434


@pytest.mark.parametrize("source", ["ours", "kaldi"])
def test_the_next_model_is_kaldis(source, tri1, tmp_path):
    """From our statistics as from Kaldi's; in the file's float32 one Gaussian has just the 10 frames that remove it."""
    ops, _, gmm, stats = tri1
    transitions, _ = read_model(str(ops / "../tri1/final.mdl"))
    write_stats(str(tmp_path / "ours.acc"), stats)
    stats = read_stats([str(ops / "tri1.acc") if source == "kaldi" else str(tmp_path / "ours.acc")])
    update_transitions(transitions, stats.transitions, TransitionUpdateOptions())
    updated = update_gmm(gmm, stats, GmmUpdateOptions())
    next_transitions, next_gmm = read_model(str(ops / "tri1.next.mdl"))
    assert np.array_equal(updated.offsets, next_gmm.offsets) and updated.num_gauss == gmm.num_gauss - 2
    np.testing.assert_allclose(transitions.log_prob, next_transitions.log_prob, rtol=1e-5, atol=1e-6)
    tolerance = 1e-4 if source == "ours" else 1e-6
    for name in ("weights", "means_invvars", "inv_vars", "gconsts"):
        assert relative(getattr(updated, name), getattr(next_gmm, name)) < tolerance, name
    occs = [float(w) for w in (ops / "tri1.next.occs").read_text().split() if w not in "[]"]
    np.testing.assert_allclose(stats.pdf_occ(), occs, rtol=1e-6)


def agreement(golden: Path) -> Iterator[tuple[str, float, float]]:
    """(case, difference from Kaldi, bound): statistics, the next model, log-likelihoods and alignments of tri1."""
    ops = golden / "gmm/ops"
    model = str(golden / "gmm/tri1/final.mdl")
    transitions, gmm = read_model(model)
    feats = dict(SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"))
    ours = accumulate(
        gmm,
        transitions.tid_to_pdf,
        ((feats[k], a) for k, a in SequentialReader(f"ark:{ops}/tri1_ali.ark", "int32_vector")),
    )
    kaldis = read_stats([str(ops / "tri1.acc")])
    worst = max(relative(getattr(ours, name), getattr(kaldis, name)) for name in ("occ", "mean", "var"))
    yield "GMM statistics of tri1", float(worst), 1e-4
    update_transitions(transitions, kaldis.transitions, TransitionUpdateOptions())
    updated = update_gmm(gmm, kaldis, GmmUpdateOptions())
    next_transitions, next_gmm = read_model(str(ops / "tri1.next.mdl"))
    names = ("weights", "means_invvars", "inv_vars", "gconsts")
    worst = max(relative(getattr(updated, name), getattr(next_gmm, name)) for name in names)
    yield "GMM update of tri1, mixtures", float(worst), 1e-4
    probabilities = np.abs(transitions.log_prob - next_transitions.log_prob).max()
    yield "GMM update of tri1, log transition probabilities", float(probabilities), 1e-4
    worst = 0.0
    for key, expected in SequentialReader(f"ark:{ops}/tri1.likes3.ark", "matrix"):
        worst = max(worst, relative(gmm.log_likelihoods(feats[key]), expected))
    yield "GMM log-likelihoods of tri1", float(worst), 1e-4
    aligner = Aligner(read_model(model)[0], AlignOptions())
    theirs = dict(SequentialReader(f"ark:{ops}/tri1.realigned.ark", "int32_vector"))
    frames = different = 0
    for key, graph in SequentialReader(f"ark:gunzip -c {ops}/tri1.fsts.gz |", "fst_arrays"):
        x = feats[key]
        tids = aligner.align(graph, lambda pdfs, x=x: gmm.log_likelihoods(x, pdfs)).tids
        frames, different = frames + len(tids), different + int((tids != theirs[key]).sum())
    yield "alignment with tri1, part of the frames that differ", different / frames, 5e-3


def test_kaldis_numbers_are_within_their_bounds(golden):
    """What `python -m tests.golden_report` prints."""
    rows = list(agreement(golden))
    assert len(rows) == 5
    for case, difference, bound in rows:
        assert difference <= bound, case


def small(seed=0, frames=400):
    rng = np.random.default_rng(seed)
    gmm, parts = mixtures(rng, [2, 3, 1], 4)
    tid_to_pdf = np.array([0, 0, 1, 1, 2])
    tids = rng.integers(1, 5, frames).astype(np.int32)
    feats = rng.standard_normal((frames, 4)).astype(np.float32)
    return gmm, parts, tid_to_pdf, tids, feats


def test_statistics_are_the_textbooks():
    gmm, parts, tid_to_pdf, tids, feats = small()
    stats = accumulate(gmm, tid_to_pdf, [(feats[:150], tids[:150]), (feats[150:], tids[150:])])
    expected = reference.statistics(feats.astype(np.float64), tid_to_pdf[tids], parts)
    for i, target in enumerate((stats.occ, stats.mean, stats.var)):
        np.testing.assert_allclose(target, np.concatenate([e[i] for e in expected]), rtol=1e-4, atol=1e-4)
    assert stats.transitions.tolist() == np.bincount(tids, minlength=5).tolist()
    like = sum(reference.log_likelihood(x, *parts[p])[0] for x, p in zip(feats, tid_to_pdf[tids], strict=True))
    assert stats.total_like == pytest.approx(like, rel=1e-5)


def test_batches_and_jobs_add_up(monkeypatch):
    gmm, _, tid_to_pdf, tids, feats = small()
    whole = accumulate(gmm, tid_to_pdf, [(feats, tids)])
    monkeypatch.setattr(stats_module, "_BATCH", 64)
    monkeypatch.setattr(stats_module, "_BLOCK", 16)
    parts = [
        accumulate(gmm, tid_to_pdf, [(feats[i : i + 10], tids[i : i + 10]) for i in range(a, b, 10)])
        for a, b in ((0, 250), (250, 400))
    ]
    parts[0] += parts[1]
    assert relative(parts[0].sums, whole.sums) < 1e-5 and parts[0].total_frames == 400
    other, *_ = small(1)
    stranger = GmmStats(4, np.array([0, 1, 2, 3]), other.dim)
    with pytest.raises(DataError, match="different models"):
        whole += stranger


@pytest.mark.parametrize(
    "feats,tids,message",
    [
        (np.zeros((5, 4)), np.ones(4), "5 frames of features, 4 in the alignment"),
        (np.zeros((5, 3)), np.ones(5), "dimension 3, the model wants 4"),
        (np.zeros((5, 4)), np.full(5, 9), "belongs to another model"),
        (np.full((5, 4), np.nan), np.ones(5), "NaN"),
        (np.zeros((0, 4)), np.ones(0), "empty"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_trace(feats, tids, message):
    gmm, _, tid_to_pdf, good_tids, good = small()
    accumulator = Accumulator(gmm, tid_to_pdf)
    accumulator.add(good, good_tids)
    with pytest.raises(DataError, match=message):
        accumulator.add(feats.astype(np.float32), tids.astype(np.int32))
    accumulator.flush()
    assert accumulator.stats.total_frames == len(good)


def test_training_raises_the_likelihood():
    gmm, _, tid_to_pdf, tids, feats = small(frames=3000)
    likes = []
    for _ in range(4):
        stats = accumulate(gmm, tid_to_pdf, [(feats, tids)])
        likes.append(stats.total_like)
        gmm = update_gmm(gmm, stats, GmmUpdateOptions())
    assert likes == sorted(likes) and likes[-1] > likes[0] + 100


def test_gaussians_without_data():
    """One of a pdf's goes, its last stays as it was, an unseen pdf keeps mean and variance; weights sum to one."""
    gmm, _, _, _, _ = small()
    stats = GmmStats(4, gmm.offsets, 4)
    stats.occ[:] = [100, 2, 1, 2, 3, 0]
    stats.sums[:, :4] = 0.5 * stats.occ[:, None]
    stats.sums[:, 4:] = 1.0 * stats.occ[:, None]
    updated = update_gmm(gmm, stats, GmmUpdateOptions())
    assert updated.counts.tolist() == [1, 1, 1]
    np.testing.assert_allclose(updated.means()[0], 0.5, rtol=1e-5)
    np.testing.assert_allclose(updated.means()[1:], gmm.means()[[4, 5]], rtol=1e-5)
    np.testing.assert_allclose(updated.variances()[1:], gmm.variances()[[4, 5]], rtol=1e-5)
    assert updated.weights[0] == 1.0
    kept = update_gmm(gmm, stats, GmmUpdateOptions(remove_low_count_gaussians=False))
    assert kept.num_gauss == 6
    few = update_gmm(gmm, stats, GmmUpdateOptions(min_gaussian_occupancy=1.5))
    assert few.counts.tolist() == [2, 2, 1]


def test_flags_and_variance_floor():
    gmm, *_ = small()
    stats = GmmStats(4, gmm.offsets, 4)
    stats.occ[:] = 50
    stats.sums[:, :4] = 50 * 2.0
    stats.sums[:, 4:] = 50 * 4.0  # variance 0 about the new mean
    floored = update_gmm(gmm, stats, GmmUpdateOptions(min_variance=0.02))
    np.testing.assert_allclose(floored.variances(), 0.02, rtol=1e-5)
    means = update_gmm(gmm, stats, GmmUpdateOptions(update_flags="m"))
    np.testing.assert_allclose(means.means(), 2.0, rtol=1e-5)
    assert np.array_equal(means.inv_vars, gmm.inv_vars) and np.array_equal(means.weights, gmm.weights)
    variances = update_gmm(gmm, stats, GmmUpdateOptions(update_flags="v", min_variance=1e-9))
    np.testing.assert_allclose(variances.means(), gmm.means(), rtol=1e-5)
    np.testing.assert_allclose(variances.variances(), (gmm.means() - 2.0) ** 2, rtol=1e-3)
    with pytest.raises(DataError, match="unknown letter 'x'"):
        parse_update_flags("mx")
    with pytest.raises(DataError, match="do not belong"):
        update_gmm(gmm, GmmStats(4, np.array([0, 6]), 4), GmmUpdateOptions())


def test_transition_probabilities(golden):
    """Relative counts, floored at 0.01 and summing to one; a state of fewer than 5 frames keeps its own."""
    model, _ = read_model(str(golden / "gmm/mono/final.mdl"))
    before = model.log_prob.copy()
    counts = np.zeros(model.num_transition_ids + 1)
    first = int(model.state_to_tid[model.num_transition_states])  # the last state has two transitions
    few = int(model.state_to_tid[model.num_transition_states - 1])
    counts[[first, first + 1]] = 30, 10
    counts[[few, few + 1]] = 3, 1
    silence = int(model.state_to_tid[2])
    counts[silence : silence + 4] = 1000, 0, 0, 0
    update_transitions(model, counts, TransitionUpdateOptions())
    np.testing.assert_allclose(np.exp(model.log_prob[[first, first + 1]]), [0.75, 0.25], rtol=1e-6)
    assert np.array_equal(model.log_prob[[few, few + 1]], before[[few, few + 1]])
    silent = np.exp(model.log_prob[silence : silence + 4])
    assert silent.min() == pytest.approx(0.01, rel=1e-5) and silent.sum() == pytest.approx(1.0, abs=2e-3)
    with pytest.raises(DataError, match="transition-ids"):
        update_transitions(model, counts[:-1], TransitionUpdateOptions())


@pytest.mark.parametrize("target,power,min_count", [(40, 0.25, 20), (200, 0.2, 5), (60, 1.0, 20), (10, 0.25, 20)])
def test_targets_of_mixing_up(target, power, min_count):
    occ = np.array([1000, 400, 90, 20, 0, 5000, 39, 41, 250.5], dtype=np.float32)
    found = split_targets(occ, target, power, min_count)
    assert found.tolist() == reference.split_targets(occ.astype(float).tolist(), target, power, min_count)
    assert found.min() == 1 and ((found == 1) | (found * min_count < occ)).all()


def test_splitting_keeps_the_density_and_repeats():
    gmm, _, _, _, feats = small()
    occ = np.array([500, 900, 100], dtype=np.float32)
    bigger = split(gmm, occ, SplitOptions(mix_up=20))
    assert bigger.num_gauss == 20 and (bigger.counts >= gmm.counts).all()
    sums = np.add.reduceat(bigger.weights, bigger.offsets[:-1])
    np.testing.assert_allclose(sums, 1.0, rtol=1e-5)
    assert np.abs(bigger.log_likelihoods(feats) - gmm.log_likelihoods(feats)).max() < 0.2
    again = split(gmm, occ, SplitOptions(mix_up=20))
    assert np.array_equal(again.means_invvars, bigger.means_invvars)
    assert not np.array_equal(
        split(gmm, occ, SplitOptions(mix_up=20, split_seed=1)).means_invvars, bigger.means_invvars
    )
    pairs = bigger.means()[bigger.offsets[2] : bigger.offsets[3]]
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert split(gmm, occ, SplitOptions(mix_up=3)).num_gauss == gmm.num_gauss
    assert gmm.weights.sum() == pytest.approx(3.0)


def test_boosted_silence_is_kaldis(golden):
    transitions, gmm = read_model(str(golden / "gmm/mono/final.mdl"))
    boosted = boost_silence(transitions, gmm, [1, 2, 3, 4, 5], 1.25)
    _, kaldis = read_model(str(golden / "gmm/ops/boost_silence.mdl"))
    for name in ("weights", "means_invvars", "inv_vars", "gconsts"):
        assert np.array_equal(getattr(boosted, name), getattr(kaldis, name)), name


def test_an_overflowing_frame_is_named():
    gmm, _, tid_to_pdf, tids, feats = small()
    feats[3] = 1e38
    with pytest.raises(DataError, match="overflow in the statistics of pdf"):
        accumulate(gmm, tid_to_pdf, [(feats, tids)])
    assert isinstance(gmm, AmDiagGmm)


def test_the_schedule():
    rows = plan(62, PlanOptions(totgauss=200))
    assert [r.iteration for r in rows] == list(range(1, 40))
    assert (rows[0].gauss, rows[0].beam, rows[1].gauss, rows[1].beam) == (62, 6.0, 66, 10.0)
    assert rows[30].gauss == rows[38].gauss == 62 + 30 * 4
    assert [r.iteration for r in rows if r.realign][-3:] == [32, 35, 38]
    assert {r.gauss for r in plan(62, PlanOptions(totgauss=50))} == {62}
    options = PlanOptions(num_iters=35, max_iter_inc=25, realign_iters="10 20 30", start_gauss=120, totgauss=600)
    tree = plan(120, dataclasses.replace(options, transform_iters="2 4 99"))
    assert [r.gauss for r in tree] == [120 + 19 * min(x, 25) for x in range(34)]
    assert [r.iteration for r in tree if r.transform] == [2, 4]
    with pytest.raises(DataError, match="expected numbers"):
        plan(62, PlanOptions(realign_iters="1 two"))
    with pytest.raises(DataError, match="--transform-iters: expected numbers"):
        plan(62, PlanOptions(transform_iters="x"))
    with pytest.raises(DataError, match="in iteration 1"):
        plan(62, PlanOptions(realign_iters="2 3"))
