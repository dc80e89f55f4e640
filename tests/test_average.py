"""Averaging models, against Kaldi's and on what does not fit."""

import tracemalloc

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.nnet.average import average, parse_weights
from ngsgd.nnet.model import read_model


def largest_difference(ours, theirs):
    return max(
        np.linalg.norm(a.params - b.params) / np.linalg.norm(b.params)
        for a, b in zip(ours.updatable, theirs.updatable, strict=True)
    )


@pytest.mark.parametrize("weights,expected", [("", "average"), ("0.2:0.3:0.5", "average_weighted"), ("2:3:5", None)])
def test_averages_are_kaldis(weights, expected, golden, run, tmp_path):
    models = [golden / "nnet2" / f"{i}.mdl" for i in (8, 9, 10)]
    run("nnet-average", f"--weights={weights}", *models, "out.mdl")
    ours, first = read_model(str(tmp_path / "out.mdl")), read_model(str(models[0]))
    theirs = read_model(str(golden / "ops" / f"{expected or 'average_weighted'}.mdl"))
    assert largest_difference(ours.nnet, theirs.nnet) < 1e-6
    for a, b in zip(ours.nnet.with_statistics, theirs.nnet.with_statistics, strict=True):
        assert a.count == pytest.approx(b.count, rel=1e-6)
        assert np.allclose(a.value_sum, b.value_sum, rtol=1e-6) and np.allclose(a.deriv_sum, b.deriv_sum, rtol=1e-6)
    assert ours.nnet.learning_rates == first.nnet.learning_rates
    assert np.array_equal(ours.priors, first.priors)
    assert np.array_equal(ours.transitions.log_prob, first.transitions.log_prob)


def test_the_last_layer_can_be_left_alone(golden):
    paths = [str(golden / "nnet2" / f"{i}.mdl") for i in (9, 10)]
    result = average(map(read_model, paths), [0.5, 0.5], skip_last_layer=True)
    first, whole = read_model(paths[0]), average(map(read_model, paths), [0.5, 0.5])
    assert np.array_equal(result.nnet.updatable[-1].params, first.nnet.updatable[-1].params)
    for a, b in zip(result.nnet.updatable[:-1], whole.nnet.updatable):
        assert np.array_equal(a.params, b.params)


def test_memory_is_that_of_two_models_however_many(golden):
    path = str(golden / "nnet2" / "10.mdl")

    def peak(count):
        tracemalloc.start()
        average((read_model(path) for _ in range(count)), [1.0 / count] * count)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(2)
    assert peak(12) < 1.2 * peak(3)


def test_models_that_do_not_fit_are_refused_naming_the_difference(golden, run, tmp_path):
    a, b = golden / "nnet2" / "1.mdl", golden / "nnet2" / "2.mdl"
    result = run("nnet-average", a, b, "out.mdl", status=1)
    assert "cannot be averaged" in result.stderr and "components" in result.stderr
    result = run("nnet-average", "--weights=1:2", b, b, b, "out.mdl", status=1)
    assert "2 weights for 3 models" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["1:x", "1:-1", "nan:1", "0:0", "1:2:3"])
def test_weights_that_cannot_be(text):
    with pytest.raises(DataError, match="--weights"):
        parse_weights(text, 2)
