"""Combining models: as good a fit as Kaldi's, and never worse on held-out frames than what there was before."""

import json
import re

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.nnet.combine import Combination, CombineOptions, combine, fisher_factor, lbfgs_path
from ngsgd.nnet.compute import objective_of_examples
from ngsgd.nnet.gradient import minibatches_for
from ngsgd.nnet.model import read_model, read_nnet, write_model


@pytest.fixture(scope="module")
def nnets(golden):
    return [read_nnet(str(golden / "nnet2" / f"{i}.mdl")) for i in (7, 8, 9, 10)]


def kaldis_log(golden):
    return (golden / "ops" / "combine.log").read_text()


def test_gradient_with_respect_to_the_weights_is_kaldis_and_that_of_finite_differences(golden, nnets):
    combination = Combination(nnets, 512)
    egs = minibatches_for(nnets[0], f"ark:{golden}/nnet2/egs/combine.egs", 512)
    weights = np.full(combination.shape, 0.25)
    value, gradient = combination.gradient(weights, egs)
    found = re.search(r"Objf is (\S+), raw gradient is  \[ (.*) \]", kaldis_log(golden))
    assert value == pytest.approx(float(found[1]), abs=1e-4)
    assert np.allclose(gradient.ravel(), np.array(found[2].split(), float), atol=2e-5)
    for m, l in ((0, 2), (3, 0)):  # noqa: E741
        step = np.zeros_like(weights)
        step[m, l] = 0.01
        slope = (combination.gradient(weights + step, egs)[0] - combination.gradient(weights - step, egs)[0]) / 0.02
        assert slope == pytest.approx(gradient[m, l], abs=2e-4)


def test_the_fit_is_as_good_as_kaldis(golden, nnets):
    combination = Combination(nnets, 512)
    egs = minibatches_for(nnets[0], f"ark:{golden}/nnet2/egs/combine.egs", 512)
    average = np.full(combination.shape, 0.25)
    combination.set(average)
    factor = fisher_factor(combination, minibatches_for(nnets[0], f"ark:{golden}/nnet2/egs/combine.egs", 64), 0.01)
    path = lbfgs_path(combination, egs, factor, average, 40)
    before, after = re.search(r"objf per frame changed from (\S+) to (\S+)", kaldis_log(golden)).groups()
    assert path[0][1] == pytest.approx(float(before), abs=1e-4)
    assert path[-1][1] > float(after) - 0.01
    assert np.allclose(path[0][0], average)


def test_held_out_frames_choose_and_fitting_to_ten_frames_does_no_harm(golden, nnets, run, tmp_path):
    heldout, few = f"ark:{golden}/nnet2/egs/valid_diagnostic.egs", f"ark:{tmp_path}/few.ark"
    run("egs-copy", f"ark:{golden}/nnet2/egs/combine.egs", "ark,t:all.txt")
    lines = (tmp_path / "all.txt").read_text().split("</NnetExample>")
    (tmp_path / "few.txt").write_text("</NnetExample>".join(lines[:10]) + "</NnetExample>\n")
    run("egs-copy", "ark,t:few.txt", few)
    weights, candidates = combine(nnets, few, heldout, CombineOptions())
    by_name = {c.name: c for c in candidates}
    simple = [by_name[n] for n in by_name if n.startswith("average") or n.endswith(".mdl")]
    fitted = [c for c in candidates if c.name.startswith("L-BFGS")]
    assert len(simple) == 7 and fitted
    last = max(fitted, key=lambda c: int(c.name.split()[-1]))
    assert last.log_prob < by_name["average of all"].log_prob - 0.1  # the fit alone would have done harm
    chosen = Combination(nnets, 1000)
    chosen.set(weights)
    ours = objective_of_examples(chosen.nnet, heldout).log_prob_per_frame
    assert ours == pytest.approx(candidates[0].log_prob, abs=1e-5)
    singles = [objective_of_examples(n, heldout).log_prob_per_frame for n in nnets]
    assert ours >= max(*singles, by_name["average of all"].log_prob) - 1e-6


def test_program_lists_candidates_and_writes_the_best(golden, run, tmp_path):
    models = [golden / "nnet2" / f"{i}.mdl" for i in (9, 10)]
    egs, heldout = (f"ark:{golden}/nnet2/egs/{n}.egs" for n in ("combine", "valid_diagnostic"))
    result = run("nnet-combine", *models, egs, heldout, "out.mdl")
    rows = re.findall(r"^LOG \(nnet-combine\)\s+(-\d+\.\d+)\s+(\d\.\d+)  (.+)$", result.stderr, re.MULTILINE)
    assert [float(r[0]) for r in rows] == sorted((float(r[0]) for r in rows), reverse=True)
    assert {"average of all", *map(str, models)} <= {r[2] for r in rows}
    out = read_nnet(str(tmp_path / "out.mdl"))
    assert objective_of_examples(out, heldout).log_prob_per_frame == pytest.approx(float(rows[0][0]), abs=1e-4)
    first = (tmp_path / "out.mdl").read_bytes()
    run("nnet-combine", "--stats-out=stats.json", *models, egs, heldout, "out.mdl")
    assert (tmp_path / "out.mdl").read_bytes() == first
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert [(c["name"], f"{c['log_prob_per_frame']:.5f}") for c in stats["candidates"]] == [(r[2], r[0]) for r in rows]
    assert stats["models"] == list(map(str, models))
    assert np.shape(stats["weights"]) == (2, 3)


def test_one_model_and_no_fitting(golden, run, tmp_path):
    model, egs = golden / "nnet2" / "10.mdl", f"ark:{golden}/nnet2/egs/combine.egs"
    run("nnet-combine", "--num-lbfgs-iters=0", model, egs, egs, "out.mdl")
    ours, theirs = read_nnet(str(tmp_path / "out.mdl")), read_nnet(str(model))
    for a, b in zip(ours.updatable, theirs.updatable, strict=True):
        assert np.array_equal(a.params, b.params)


def damaged(golden, path, kind):
    """10.mdl, not a number or diverged until everything overflows, or until it is certain of the wrong pdfs."""
    model = read_model(str(golden / "nnet2" / "10.mdl"))
    last = model.nnet.updatable[-1].params
    if kind == "nan":
        last[0, 0] = np.nan
    elif kind == "overflow":
        model.nnet.updatable[0].params *= np.float32(1e25)
    else:
        last *= np.float32(-40)
    write_model(model, str(path), finite=False)


@pytest.mark.parametrize("kind", ["nan", "overflow", "wrong"])
def test_a_damaged_model_among_them_does_no_harm(kind, golden, run, tmp_path):
    damaged(golden, tmp_path / "bad.mdl", kind)
    good = [golden / "nnet2" / f"{i}.mdl" for i in (9, 10)]
    egs, heldout = (f"ark:{golden}/nnet2/egs/{n}.egs" for n in ("combine", "valid_diagnostic"))
    result = run("nnet-combine", "--num-lbfgs-iters=4", "bad.mdl", *good, egs, heldout, "out.mdl")
    assert "Warning" not in result.stderr  # numpy's
    if kind != "wrong":
        assert re.search(r"left out.* bad\.mdl", result.stderr)
        assert "average of all" in result.stderr
    ours = objective_of_examples(read_nnet(str(tmp_path / "out.mdl")), heldout).log_prob_per_frame
    rows = [float(x) for x in re.findall(r"^LOG \(nnet-combine\)\s+(-\d+\.\d+)  ", result.stderr, re.MULTILINE)]
    singles = [objective_of_examples(read_nnet(str(m)), heldout).log_prob_per_frame for m in good]
    assert ours >= max(*singles, *rows) - 1e-5


def test_only_damaged_models_are_refused(golden, run, tmp_path):
    egs = f"ark:{golden}/nnet2/egs/combine.egs"
    for kind, message in (("nan", "NaN or infinity in each of them"), ("overflow", "no finite objective")):
        damaged(golden, tmp_path / "bad.mdl", kind)
        result = run("nnet-combine", "bad.mdl", "bad.mdl", egs, egs, "out.mdl", status=1)
        assert message in result.stderr and not (tmp_path / "out.mdl").exists()


@pytest.mark.parametrize("frames", [0, 1, 3])
def test_few_held_out_frames(frames, golden, nnets, run, tmp_path):
    """Never worse on them than a single model or their average, however few; none is an error."""
    egs, heldout = f"ark:{golden}/nnet2/egs/combine.egs", f"ark,t:{tmp_path}/few.ark"
    run("egs-copy", f"ark:{golden}/nnet2/egs/valid_diagnostic.egs", "ark,t:all.txt")
    lines = (tmp_path / "all.txt").read_text().split("</NnetExample>")
    (tmp_path / "few.ark").write_text("".join(f"{text}</NnetExample>" for text in lines[:frames]) + "\n" * bool(frames))
    if not frames:
        with pytest.raises(DataError, match=r"few\.ark"):
            combine(nnets[:2], egs, heldout, CombineOptions(num_lbfgs_iters=0))
        return
    weights, candidates = combine(nnets[2:], egs, heldout, CombineOptions(num_lbfgs_iters=4))
    by_name = {c.name: c.log_prob for c in candidates}
    assert candidates[0].log_prob == max(by_name.values()) >= by_name["average of all"]
    chosen = Combination(nnets[2:], 100)
    chosen.set(weights)
    ours = objective_of_examples(chosen.nnet, heldout).log_prob_per_frame
    assert ours >= max(objective_of_examples(n, heldout).log_prob_per_frame for n in nnets[2:]) - 1e-6


def test_models_of_different_shape_are_refused(golden, run, tmp_path):
    egs = f"ark:{golden}/nnet2/egs/combine.egs"
    result = run("nnet-combine", golden / "nnet2" / "1.mdl", golden / "nnet2" / "2.mdl", egs, egs, "out.mdl", status=1)
    assert "components" in result.stderr and not (tmp_path / "out.mdl").exists()
