"""fMLLR: Kaldi's transforms, the maximum that another method finds, speakers with little to adapt to; its steps."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

from ngsgd.errors import DataError
from ngsgd.features.stream import read_utt2spk
from ngsgd.gmm.adaptation import SpeakerOptions, accumulate_two, estimate_transforms
from ngsgd.gmm.fmllr import FmllrAccumulator, FmllrOptions, FmllrStats, estimate
from ngsgd.gmm.model import AmDiagGmm
from ngsgd.gmm.stats import read_stats
from ngsgd.hmm.labels import LabelOptions
from ngsgd.kaldi_io.copying import copy_table
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.reference import gmm as reference
from tests.test_gmm_model import mixtures

SILENCE = "1:2:3:4:5"
ANY = FmllrOptions(fmllr_min_count=0, fmllr_num_iters=300)


def relative(ours, theirs):
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def table(path, kind="matrix"):
    return dict(SequentialReader(f"ark:{path}", kind))


def estimated(golden, out, labels="post2b_nosil.ark", label_options=None, speakers=None, **options):
    """Write transforms of the golden corpus by its tri2b, and return them."""
    ops = golden / "gmm/ops"
    estimate_transforms(
        *(f"{golden}/gmm/tri2b/final.mdl", f"ark:gunzip -c {ops}/lda_mllt.ark.gz |", f"ark:{ops}/{labels}"),
        f"ark:{out}",
        FmllrOptions(**options),
        speakers or SpeakerOptions(spk2utt=f"ark:{golden}/corpus/train/spk2utt"),
        label_options or LabelOptions(),
    )
    return table(out)


def agreement(golden: Path) -> Iterator[tuple[str, float, float]]:
    """Each step of golden/gmm/ops/commands.txt about speaker adaptation: (case, difference, bound)."""
    ops = golden / "gmm/ops"
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in (("fmllr.ark", "full"), ("fmllr_diag.ark", "diag")):
            ours, theirs = estimated(golden, f"{folder}/out", fmllr_update_type=kind), table(ops / name)
            assert list(ours) == list(theirs)
            yield f"{name}, transforms", max(relative(ours[s], theirs[s]) for s in theirs), 1e-5
        model, feats = f"{golden}/gmm/tri2b/final.mdl", f"ark:gunzip -c {ops}/lda_mllt.ark.gz |"
        accumulate_two(model, feats, feats, f"ark:{ops}/post2b_nosil.ark", f"{folder}/acc", LabelOptions())
        ours, theirs = read_stats([f"{folder}/acc"]), read_stats([str(ops / "twofeats.acc")])
        for part in ("occ", "mean", "var"):
            yield f"twofeats.acc, {part}", relative(getattr(ours, part), getattr(theirs, part)), 1e-6
        yield "twofeats.acc, transitions", float(np.abs(ours.transitions - theirs.transitions).max()), 0.0
        yield "twofeats.acc, log-likelihood", abs(ours.total_like / theirs.total_like - 1), 1e-6
        for path in (golden / "gmm/tri3b/trans.1", golden / "gmm/tri3b_ali/trans.2"):
            copy_table(f"ark:{path}", f"ark:{folder}/copy", "matrix", lambda key, value: value)
            same = Path(f"{folder}/copy").read_bytes() == path.read_bytes()
            yield f"{path.parent.name}/{path.name}, byte for byte", 0.0 if same else 1.0, 0.0


def test_every_step_agrees_with_kaldi(golden):
    rows = list(agreement(golden))
    assert len(rows) == 9
    assert [(case, difference) for case, difference, bound in rows if not difference <= bound] == []


def test_the_gain_that_is_reported_is_kaldis(golden, tmp_path, caplog):
    caplog.set_level("INFO")
    estimated(golden, tmp_path / "out")
    kaldis = re.findall(
        r"For speaker (\S+), auxf-impr from fMLLR is (\S+), over (\d+) frames", (golden / "gmm/ops/log.txt").read_text()
    )[:6]
    for speaker, gain, frames in kaldis:
        found = re.search(rf"{speaker}: (\S+) gained a frame, over (\d+) frames", caplog.text)
        assert float(found[1]) == pytest.approx(float(gain), abs=2e-5) and found[2] == frames


def test_alignments_and_weighted_posteriors_give_the_same(golden, tmp_path):
    plain = estimated(golden, tmp_path / "a")
    options = LabelOptions(alignments=True, silence_phones=SILENCE)
    same = estimated(golden, tmp_path / "b", labels="tri2b_ali.ark", label_options=options)
    assert all(np.array_equal(plain[s], same[s]) for s in plain)
    heard = LabelOptions(alignments=True, silence_phones=SILENCE, silence_weight=1.0)
    other = estimated(golden, tmp_path / "c", labels="tri2b_ali.ark", label_options=heard)
    assert all(relative(other[s], plain[s]) > 1e-3 for s in plain)


def world(seed, frames=60, dim=3, counts=(2, 3, 1)):
    """(model, its parts, features (T, D), labels: frame, pdf, weight (N,), some frames with none or several)."""
    rng = np.random.default_rng(seed)
    gmm, parts = mixtures(rng, counts, dim)
    feats = (rng.standard_normal((frames, dim)) * 1.7 + 0.6).astype(np.float32)
    frame = np.sort(rng.integers(0, frames, 2 * frames))
    return gmm, parts, feats, frame, rng.integers(0, len(counts), len(frame)), rng.random(len(frame))


def accumulated(gmm, *utterances, posteriors_of=None):
    accumulator = FmllrAccumulator(gmm, posteriors_of)
    for utterance in utterances:
        accumulator.add("s", *utterance)
    accumulator.flush()
    return accumulator.of("s")


@pytest.mark.parametrize("seed", range(3))
def test_the_objective_is_the_expected_log_likelihood(seed):
    gmm, parts, feats, frame, pdf, weight = world(seed)
    stats = accumulated(gmm, (feats, frame, pdf, weight))
    assert stats.beta == pytest.approx(weight.sum())
    frames = list(zip(feats[frame].astype(float), pdf, weight, strict=True))
    rng = np.random.default_rng(seed + 100)
    for transform in (np.eye(3, 4), rng.standard_normal((3, 4)), rng.standard_normal((3, 4))):
        expected = reference.fmllr_objective(transform, frames, parts)
        assert stats.objective(transform) == pytest.approx(expected, rel=1e-4)


def test_statistics_add_up_whatever_the_batches(monkeypatch):
    gmm, _, feats, frame, pdf, weight = world(5, frames=700)
    whole = accumulated(gmm, (feats, frame, pdf, weight))
    monkeypatch.setattr("ngsgd.gmm.fmllr._BATCH", 64)
    monkeypatch.setattr("ngsgd.gmm.fmllr._CHUNK", 7)
    parts = []
    for begin in range(0, 700, 50):
        part = (frame >= begin) & (frame < begin + 50)
        parts.append((feats[begin : begin + 50], frame[part] - begin, pdf[part], weight[part]))
    first, second = accumulated(gmm, *parts[:5]), accumulated(gmm, *parts[5:])
    first += second
    np.testing.assert_allclose(first.K, whole.K, rtol=1e-9)
    np.testing.assert_allclose(first.packed, whole.packed, rtol=1e-9)
    assert first.beta == pytest.approx(whole.beta)
    with pytest.raises(DataError, match="2 and 3 dimensions"):
        FmllrStats(2).__iadd__(whole)


@pytest.mark.parametrize("kind", ["full", "diag", "offset"])
@pytest.mark.parametrize("seed", range(4))
def test_no_other_transform_is_better(kind, seed):
    """Another maximiser, from our transform and from the unit transform, finds nothing better."""
    gmm, _, feats, frame, pdf, weight = world(seed)
    stats = accumulated(gmm, (feats, frame, pdf, weight))
    options = FmllrOptions(fmllr_update_type=kind, fmllr_min_count=0, fmllr_num_iters=300)
    transform, gain = estimate(stats, options, "s")
    unit = np.eye(3, 4)
    free = {"full": np.ones((3, 4), bool), "diag": unit + np.eye(3, 4, 3) > 0, "offset": np.zeros((3, 4), bool)}[kind]
    free[:, -1] = True
    assert np.array_equal(transform[~free], unit[~free].astype(np.float32))

    def loss(values):
        candidate = unit.copy()
        candidate[free] = values
        return -stats.objective(candidate)

    for start in (transform, unit):
        best = scipy.optimize.minimize(loss, start[free].astype(float), method="BFGS", options={"maxiter": 2000})
        assert stats.objective(transform) >= -best.fun - 1e-3
    assert gain == pytest.approx(stats.objective(transform) - stats.objective(unit), rel=1e-3)


def test_the_transform_undoes_a_transform_of_the_speaker():
    """Speech of the model, distorted: the estimated transform is the inverse of the distortion."""
    rng = np.random.default_rng(3)
    counts = [1] * 40
    gmm, parts = mixtures(rng, counts, 4)
    pdf = rng.integers(0, 40, 6000)
    means, variances = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    clean = means[pdf] + rng.standard_normal((6000, 4)) * np.sqrt(0.01 * variances[pdf])
    tight = AmDiagGmm(gmm.offsets, gmm.weights, gmm.means_invvars * 100, gmm.inv_vars * 100)
    distortion, offset = np.eye(4) + 0.3 * rng.standard_normal((4, 4)), rng.standard_normal(4)
    feats = (clean @ distortion.T + offset).astype(np.float32)
    stats = accumulated(tight, (feats, np.arange(6000), pdf, np.ones(6000)))
    transform, _ = estimate(stats, ANY, "s")
    np.testing.assert_allclose(transform[:, :-1] @ distortion, np.eye(4), atol=0.02)
    np.testing.assert_allclose(transform[:, :-1] @ offset + transform[:, -1], 0, atol=0.03)


def test_posteriors_of_another_model_of_the_same_gaussians():
    gmm, parts, feats, frame, pdf, weight = world(9)
    other, other_parts = mixtures(np.random.default_rng(10), (2, 3, 1), 3)
    ours = accumulated(gmm, (feats, frame, pdf, weight), posteriors_of=other)
    K = np.zeros((3, 4))
    for x, p, w in zip(feats[frame].astype(float), pdf, weight, strict=True):
        _, post = reference.log_likelihood(x, *other_parts[p])
        K += np.outer(w * (post / post.sum()) @ (parts[p][1] / parts[p][2]), np.append(x, 1))
    np.testing.assert_allclose(ours.K, K, rtol=1e-4, atol=1e-4)
    stranger, _ = mixtures(np.random.default_rng(11), (3, 2, 1), 3)
    with pytest.raises(DataError, match="must be an alignment model"):
        FmllrAccumulator(gmm, stranger)


@pytest.mark.parametrize("kind", ["full", "diag", "offset"])
@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("few", "not more than --fmllr-min-count=500"),
        ("none", "0 frames, not more than"),
        ("alike", "too alike"),
        ("constant column", "too alike"),
        ("one frame", "too alike"),
        ("huge", ""),
    ],
)
def test_what_cannot_be_adapted_to_gets_the_unit_transform(kind, case, said, caplog):
    """Never NaN, and never worse than no transform."""
    gmm, _, feats, frame, pdf, weight = world(1, frames=600)
    minimum = 0.0
    if case == "few":
        minimum = 500.0
        feats, frame, pdf, weight = feats, frame[:300], pdf[:300], np.ones(300)
    elif case == "none":
        weight = 0 * weight
    elif case == "alike":
        feats = np.ones_like(feats)
    elif case == "constant column":
        feats[:, 1] = 2.0
    elif case == "one frame":
        frame, pdf, weight = frame[:1], pdf[:1], weight[:1]
    elif case == "huge":
        feats = feats * np.float32(1e15)
    stats = accumulated(gmm, (feats, frame, pdf, weight))
    options = FmllrOptions(fmllr_update_type=kind, fmllr_min_count=minimum)
    transform, gain = estimate(stats, options, "speaker-7")
    assert transform.dtype == np.float32 and np.isfinite(transform).all() and gain >= 0
    if case == "huge" or (kind == "offset" and case not in ("few", "none")):
        return  # an offset can be told from any frame
    assert np.array_equal(transform, np.eye(3, 4, dtype=np.float32)) and gain == 0
    assert f"speaker-7: {'' if case != 'few' else '300 frames, '}" in caplog.text and said in caplog.text


def test_speakers_and_utterances_that_lack_something(golden, tmp_path, caplog):
    """One bad utterance is named and left out; a speaker of silence, or of no utterance, gets the unit transform."""
    ops = golden / "gmm/ops"
    model = f"{golden}/gmm/tri2b/final.mdl"
    feats = table_of(f"gunzip -c {ops}/lda_mllt.ark.gz |")
    posts = dict(SequentialReader(f"ark:{ops}/post2b_nosil.ark", "posterior"))
    speakers = {s: u.split() for s, u in read_utt2spk(f"{golden}/corpus/train/spk2utt").items()}
    kept = {key for s in ("s01", "s02", "s03") for key in speakers[s]}
    first, second, third, *_ = speakers["s01"]
    feats = {key: x for key, x in feats.items() if key in kept}
    feats[first] = np.where(np.arange(len(feats[first]))[:, None] == 3, np.nan, feats[first]).astype(np.float32)
    feats[second] = feats[second][:, :39]
    del posts[third]
    for key in speakers["s02"]:
        posts[key] = [[] for _ in posts[key]]
    stranger = speakers["s03"].pop()
    with Writer(f"ark:{tmp_path}/feats", "matrix") as out:
        for key, x in feats.items():
            out.write(key, x)
    with Writer(f"ark:{tmp_path}/post", "posterior") as out:
        for key, value in posts.items():
            out.write(key, value)
    (tmp_path / "spk2utt").write_text(
        "".join(f"{s} {' '.join(speakers[s])}\n" for s in ("s01", "s02", "s03")) + "s99 never_heard\n"
    )
    arguments = (model, f"ark:{tmp_path}/feats", f"ark:{tmp_path}/post", f"ark:{tmp_path}/trans", FmllrOptions())
    done = estimate_transforms(*arguments, SpeakerOptions(spk2utt=f"{tmp_path}/spk2utt"), LabelOptions())
    assert done == (len(kept) - 4, 4)
    for key, why in (
        (first, "nan at frame 3"),
        (second, "the model wants 40"),
        (third, "no labels"),
        (stranger, "not in"),
    ):
        assert re.search(rf"skipped {key}: .*{why}", caplog.text)
    ours = table(tmp_path / "trans")
    assert list(ours) == ["s01", "s02", "s03", "s99"]
    for speaker in ("s02", "s99"):
        assert np.array_equal(ours[speaker], np.eye(40, 41)) and f"{speaker}: 0 frames" in caplog.text
    assert not np.array_equal(ours["s01"], np.eye(40, 41))


def table_of(command):
    return dict(SequentialReader(f"ark:{command}", "matrix"))


def test_without_speakers_each_utterance_is_one(golden, tmp_path, caplog):
    ours = estimated(golden, tmp_path / "out", speakers=SpeakerOptions(), fmllr_min_count=150.0)
    assert len(ours) == 144 and ours.keys() == table_of(f"gunzip -c {golden}/gmm/ops/lda_mllt.ark.gz |").keys()
    assert 0 < sum(np.array_equal(t, np.eye(40, 41)) for t in ours.values()) < 144
    estimated(golden, tmp_path / "out", fmllr_update_type="none")
    assert all(np.array_equal(t, np.eye(40, 41)) for t in table(tmp_path / "out").values())


def test_an_utterance_of_two_speakers_is_refused(golden, tmp_path):
    (tmp_path / "spk2utt").write_text("a u1 u2\nb u2\n")
    with pytest.raises(DataError, match="u2 belongs to a and to b"):
        estimated(golden, tmp_path / "out", speakers=SpeakerOptions(spk2utt=f"{tmp_path}/spk2utt"))
    assert not (tmp_path / "out").exists()


def test_two_kinds_of_features_must_go_together(golden, tmp_path, caplog):
    """Statistics have the dimension of the second features; an utterance whose lengths differ is left out."""
    ops = golden / "gmm/ops"
    first = f"ark:gunzip -c {ops}/lda_mllt.ark.gz |"
    with Writer(f"ark:{tmp_path}/second", "matrix") as out:
        for n, (key, x) in enumerate(SequentialReader(first, "matrix")):
            if n != 1:
                out.write(key, x[: len(x) - (n == 2), :13])
    accumulate_two(
        *(f"{golden}/gmm/tri2b/final.mdl", first, f"ark:{tmp_path}/second", f"ark:{ops}/post2b_nosil.ark"),
        *(f"{tmp_path}/acc", LabelOptions()),
    )
    stats = read_stats([f"{tmp_path}/acc"])
    kaldis = read_stats([str(ops / "twofeats.acc")])
    assert stats.dim == 13 and 0.95 < stats.occ.sum() / kaldis.occ.sum() < 1
    assert caplog.text.count("skipped ") == 2 and "frames of the first features" in caplog.text


@pytest.fixture
def adapted(golden, run, tmp_path):
    """A directory with data/train, data/test, data/lang and Kaldi's SAT model in exp/tri3b, its graph in it."""
    for part in ("train", "test"):
        (tmp_path / f"data/{part}").mkdir(parents=True)
        feats = f"ark:cat {golden}/feats/raw_mfcc_{part}.1.ark {golden}/feats/raw_mfcc_{part}.2.ark |"
        run("copy-feats", feats, f"ark,scp:data/{part}/f.ark,data/{part}/feats.scp")
        run("copy-feats", f"ark:{golden}/feats/cmvn_{part}.ark", f"ark,scp:data/{part}/c.ark,data/{part}/cmvn.scp")
        for name in ("utt2spk", "text", "spk2utt"):
            (tmp_path / f"data/{part}/{name}").write_bytes((golden / "corpus" / part / name).read_bytes())
    for source, target in ((golden / "lang", "data/lang"), (golden / "gmm/tri3b", "exp/tri3b")):
        for path in source.rglob("*"):
            if path.is_file():
                copy = tmp_path / target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    graph = tmp_path / "exp/tri3b/graph"
    (graph / "phones").mkdir(parents=True)
    (tmp_path / "exp/tri3b/HCLG.fst").rename(graph / "HCLG.fst")
    for name in ("words.txt", "phones/silence.csl"):
        (graph / name).write_bytes((golden / "lang" / name).read_bytes())
    return tmp_path


def jobs(pattern, kind="matrix"):
    """Entries of the tables of two jobs, `*` being the job's number."""
    merged = {}
    for job in "12":
        merged |= dict(SequentialReader(f"ark:{pattern.replace('*', job)}", kind))
    return merged


def test_alignments_and_transforms_are_kaldis(adapted, golden, run):
    """align_fmllr.sh with Kaldi's model; once done it is not done again."""
    command = ("align_fmllr.sh", "--nj", 2, "data/train", "data/lang", "exp/tri3b", "exp/ali")
    run(*command)
    ali = "gunzip -c {}/ali.*.gz |"
    ours = jobs(ali.format(adapted / "exp/ali"), "int32_vector")
    theirs = jobs(ali.format(golden / "gmm/tri3b_ali"), "int32_vector")
    assert ours.keys() == theirs.keys()
    assert np.mean(np.concatenate([ours[k] == theirs[k] for k in theirs])) > 0.995
    ours, theirs = jobs(f"{adapted}/exp/ali/trans.*"), jobs(f"{golden}/gmm/tri3b_ali/trans.*")
    assert ours.keys() == theirs.keys() and max(relative(ours[s], theirs[s]) for s in theirs) < 1e-3
    stamps = {p.name: p.stat().st_mtime_ns for p in (adapted / "exp/ali").glob("*.[12]*")}
    assert len(stamps) == 6
    run(*command)
    assert stamps == {p.name: p.stat().st_mtime_ns for p in (adapted / "exp/ali").glob("*.[12]*")}


@pytest.mark.slow
def test_error_counts_of_decoding_with_transforms_are_kaldis(adapted, golden, run):
    """decode_fmllr.sh with Kaldi's model; other decodings of it ask for transforms."""
    refused = run("decode_gmm.sh", "exp/tri3b/graph", "data/test", "exp/tri3b/decode", status=1)
    assert "decode_fmllr.sh" in refused.stderr
    run("decode_fmllr.sh", "--nj", 2, "exp/tri3b/graph", "data/test", "exp/tri3b/decode")
    best = {
        name: (adapted / f"exp/tri3b/{name}/scoring/best_wer").read_text().partition("]")[0]
        for name in ("decode.si", "decode")
    }
    assert best["decode"] == (golden / "gmm/tri3b/best_wer").read_text().partition("]")[0]
    assert float(best["decode.si"].split()[1]) > float(best["decode"].split()[1])
    assert jobs(f"{adapted}/exp/tri3b/decode/trans.*").keys() == {"s07", "s08"}
    assert (adapted / "exp/tri3b/decode/num_jobs").read_text() == "2\n"
