"""nnet-show-progress against Kaldi's, and the sum of the layers' parts against the whole."""

import json
import re

import numpy as np
import pytest

from ngsgd.nnet.compute import objective_of_examples
from ngsgd.nnet.model import read_nnet


def test_figures_are_kaldis(golden, run, tmp_path):
    old, new = golden / "nnet2" / "9.mdl", golden / "nnet2" / "10.mdl"
    run("nnet-show-progress", "--stats-out=p.json", old, new, f"ark:{golden}/nnet2/egs/train_diagnostic.egs")
    ours = json.loads((tmp_path / "p.json").read_text())
    kaldis = (golden / "ops" / "show_progress.log").read_text()
    rows = [np.array(r.split(), float) for r in re.findall(r"\[ (.*) \]", kaldis)]
    for name, theirs in zip(("objective_change", "difference", "relative_difference"), rows, strict=True):
        assert np.allclose(ours[name], theirs, rtol=1e-4), name
    assert ours["objective"][0] == pytest.approx(float(re.search(r"per frame is (\S+)", kaldis)[1]), abs=1e-4)


def test_the_parts_add_up_to_the_whole(golden, run, tmp_path):
    old, new, egs = (
        golden / "nnet2" / "4.mdl",
        golden / "nnet2" / "6.mdl",
        golden / "nnet2" / "egs" / "valid_diagnostic.egs",
    )
    run("nnet-show-progress", "--num-segments=4", "--stats-out=p.json", old, new, f"ark:{egs}")
    parts = json.loads((tmp_path / "p.json").read_text())["objective_change"]
    before, after = (objective_of_examples(read_nnet(str(m)), f"ark:{egs}").log_prob_per_frame for m in (old, new))
    assert sum(parts) == pytest.approx(after - before, rel=0.02)


def test_without_examples_only_the_parameters_are_compared(golden, run, tmp_path):
    model = golden / "nnet2" / "9.mdl"
    result = run("nnet-show-progress", model, model)
    assert "relative change of the parameters by layer: [ 0 0 0 ]" in result.stderr
    assert "objective" not in result.stderr


def test_networks_of_different_shape(golden, run):
    result = run("nnet-show-progress", golden / "nnet2" / "1.mdl", golden / "nnet2" / "2.mdl", status=1)
    assert "components" in result.stderr
