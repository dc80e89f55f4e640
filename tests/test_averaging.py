"""Ways to average: what all in the registry have in common, each against its paper's equations, and as files."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.nnet.averaging.rule import AveragingOptions, all_averaging, averaging_class
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.model import read_model, read_nnet, write_model, write_nnet

RNG = np.random.default_rng(5)
WAYS = sorted(all_averaging())


def arrays(count, shape=(3, 5)):
    return [RNG.standard_normal(shape).astype(np.float32) for _ in range(count)]


def way(name, jobs=4, age=1, **settings):
    return averaging_class(name)(AveragingOptions(name, **settings), jobs, age)


def walk(name, averages, model, jobs=4, **settings):
    """The results of iterations one after another, whose jobs' averages are a model's start plus what is given."""
    layers, state, start = [], None, model
    for age, change in enumerate(averages, 1):
        layer = way(name, jobs, age, **settings).step(start + change, model, state)
        layers.append(layer)
        model, start, state = layer
    return layers


@pytest.mark.parametrize("name", WAYS)
def test_without_momentum_the_first_is_the_plain_average(name):
    a, model = arrays(2)
    layer = way(name, averaging_momentum=0.0, averaging_rate=1.0).step(a, model, None)
    assert np.array_equal(layer.model, a) and np.array_equal(layer.start, a)


@pytest.mark.parametrize("name", WAYS)
def test_where_nothing_moves_nothing_changes(name):
    (model,) = arrays(1)
    for layer in walk(name, [np.float32(0.0)] * 4, model):
        np.testing.assert_allclose(layer.model, model, rtol=1e-6)
        assert layer.state is None or not np.abs(layer.state).max() > 1e-6


@pytest.mark.parametrize("name", WAYS)
def test_arguments_are_not_changed_and_precision_is_kept(name):
    before = arrays(3)
    copies = [x.copy() for x in before]
    layer = way(name, age=3).step(*before)
    assert all(np.array_equal(x, y) for x, y in zip(before, copies))
    assert all(x is None or x.dtype == np.float32 for x in layer)
    made = averaging_class(name)
    assert (layer.state is not None) == made.has_state
    assert made.has_start or np.array_equal(layer.model, layer.start)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("settings", [{}, {"averaging_momentum": 0.6, "averaging_rate": 0.5}])
def test_the_gain_is_how_far_steady_changes_lead(name, settings):
    """What the jobs' learning rates are divided by: equal changes in every iteration, in the long run."""
    step = np.full((1, 1), 1e-3, np.float32)
    layers = walk(name, [step] * 200, np.zeros((1, 1), np.float32), **settings)
    pace = float((layers[-1].start - layers[-2].start)[0, 0] / step[0, 0])
    assert pace == pytest.approx(way(name, **settings).gain, rel=1e-3)


def test_one_job_with_block_momentum_is_as_it_would_be_alone():
    a, model, state = arrays(3)
    assert np.array_equal(way("block-momentum", jobs=1, age=4).step(a, model, state).model, a)
    assert way("block-momentum", jobs=8).gain == pytest.approx(8.0)


def test_running_is_the_mean_of_the_window_and_leaves_the_training_alone():
    changes, (model,) = arrays(5), arrays(1)
    plain, running = (walk(name, changes, model, averaging_window=5) for name in ("average", "running"))
    assert all(np.array_equal(p.model, r.start) for p, r in zip(plain, running))
    np.testing.assert_allclose(running[4].model, np.mean([p.model for p in plain], axis=0), rtol=1e-4, atol=1e-6)
    a, b = walk("running", changes, model, averaging_window=2)[2:4]
    np.testing.assert_allclose(b.model, (a.model + plain[3].model) / 2, rtol=1e-4, atol=1e-6)


def test_block_momentum_is_the_papers():
    changes, (model,) = arrays(4), arrays(1)
    delta, weights = 0.0, model.astype(np.float64)
    for layer, g in zip(walk("block-momentum", changes, model, averaging_momentum=0.7, averaging_rate=0.9), changes):
        delta = 0.7 * delta + 0.9 * g
        weights = weights + delta
        np.testing.assert_allclose(layer.model, weights, rtol=1e-4, atol=1e-5)


def test_nesterov_is_the_optimisers():
    """In the form in which torch.optim.SGD has it: buf = mu buf + g; x -= lr (g + mu buf), g = -change."""
    changes, (model,) = arrays(4), arrays(1)
    buffer, weights = 0.0, model.astype(np.float64)
    for layer, change in zip(walk("nesterov", changes, model), changes):
        buffer = 0.9 * buffer - change
        weights = weights - 0.7 * (-change + 0.9 * buffer)
        np.testing.assert_allclose(layer.model, weights, rtol=1e-4, atol=1e-5)


def test_an_unknown_way_is_told_the_known_ones():
    with pytest.raises(DataError, match="unknown way to average 'mean'; known: average, block-momentum, nesterov, run"):
        AveragingOptions("mean").check()


# ---- as files


@pytest.fixture
def models(golden, tmp_path):
    """Golden models of one shape: 8.mdl, and those of two jobs in each of three iterations after it."""
    first = read_model(str(golden / "nnet2/8.mdl"))
    write_model(first, str(tmp_path / "0.mdl"))
    for t in (1, 2, 3):
        for job in (1, 2):
            model = first.copy()
            for layer in model.nnet.updatable:
                layer.params += np.float32(0.01) * RNG.standard_normal(layer.params.shape, np.float32)
            write_model(model, str(tmp_path / f"{t}.{job}.mdl"))
    return tmp_path


def iterate(call, name, t):
    history = [f"--averaging={name}", f"--previous={t - 1}.mdl", f"--age={t}", "--learning-rate=0.25"]
    history += [f"--state=state.{t - 1}"] if t > 1 and averaging_class(name).has_state else []
    call("nnet-average", *history, f"--state-out=state.{t}", f"--start-out=start.{t}.mdl", f"{t}.1.mdl", f"{t}.2.mdl",
         f"{t}.mdl")  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_files_hold_all_that_a_resume_needs(models, call, name):
    for t in (1, 2, 3):
        iterate(call, name, t)
    made = averaging_class(name)
    assert (models / "state.3").exists() == made.has_state and (models / "start.3.mdl").exists() == made.has_start
    outputs = [p for p in (models / "3.mdl", models / "state.3", models / "start.3.mdl") if p.exists()]
    before = [p.read_bytes() for p in outputs]
    for path in outputs:
        path.unlink()
    iterate(call, name, 3)
    assert [p.read_bytes() for p in outputs] == before
    assert set(read_model(str(models / "3.mdl")).nnet.learning_rates) == {0.25}
    # and what they hold is what the way says, in all layers
    layers = [[read_nnet(str(models / f"{t}.{j}.mdl")).updatable[1].params for j in (1, 2)] for t in (1, 2, 3)]
    model, state = read_nnet(str(models / "0.mdl")).updatable[1].params, None
    for t, (one, two) in enumerate(layers, 1):
        layer = way(name, 2, t).step((one + two) / 2, model, state)
        model, state = layer.model, layer.state
    np.testing.assert_allclose(read_nnet(str(models / "3.mdl")).updatable[1].params, model, rtol=1e-5, atol=1e-6)


def test_what_a_way_needs_must_be_there_and_fit(models, call):
    paths = ("1.1.mdl", "1.2.mdl", "out.mdl")
    assert "needs --state-out" in call("nnet-average", "--averaging=nesterov", *paths, status=1).stderr
    options = ("--averaging=nesterov", "--state-out=s")
    assert "needs --previous" in call("nnet-average", *options, *paths, status=1).stderr
    nnet = nnet_from_config("AffineComponent input-dim=3 output-dim=4\n", 0)
    write_nnet(nnet, str(models / "other"))
    failed = call("nnet-average", *options, "--previous=other", *paths, status=1)
    assert "cannot be averaged" in failed.stderr
    assert not any((models / name).exists() for name in ("out.mdl", "s"))
