"""The training loop: Kaldi's steps and its whole run replayed; seeds, frozen layers, divergence."""

import json
import re

import numpy as np
import pytest

from ngsgd.egs.minibatch import Minibatch, read_minibatches
from ngsgd.errors import DataError
from ngsgd.nnet.average import average
from ngsgd.nnet.compute import objective_of_examples
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.gradient import minibatches_for
from ngsgd.nnet.model import read_model, read_nnet, write_model
from ngsgd.nnet.train import Trainer, TrainOptions, train

# Largest ‖Δours − ΔKaldi‖ / ‖ΔKaldi‖ of a matrix or bias after 1 and 10 (20) minibatches: shared/golden/README.md.
EXACT, ONLINE, PNORM = (1e-4, 1e-4), (2e-4, 2e-4), (2e-3, 1e-3)
STEPS = {
    "pnorm_plain": EXACT,
    "pnorm_simple": EXACT,
    "pnorm_simple_fast": EXACT,
    "tanh": ONLINE,
    "sigmoid": ONLINE,
    "relu": ONLINE,
    "softhinge": ONLINE,
    "maxout": ONLINE,
    "block": ONLINE,
    "block_precon": ONLINE,
    "fixed": ONLINE,
    "pnorm_online": PNORM,
    "pnorm_online1": PNORM,
    "pnorm_online_fast": PNORM,
    "pnorm_p3": PNORM,
    "power": PNORM,
    "sumgroup": PNORM,
    "multisplice": (1e-3, 1e-3),
    "pnorm_onlinebig": (5e-3, 3e-2),
}


def largest_difference(start, ours, theirs):
    """Of the changes of all matrices and biases, relative to the change of `theirs`."""
    worst = 0.0
    for a, b, c in zip(start.updatable, ours.updatable, theirs.updatable, strict=True):
        for part in ("linear", "bias"):
            before, mine, kaldis = (getattr(x, part).astype(np.float64) for x in (a, b, c))
            worst = max(worst, np.linalg.norm(mine - kaldis) / np.linalg.norm(kaldis - before))
    return worst


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_kaldis(name, golden):
    steps = golden / "steps"
    one, ten = STEPS[name]
    for kind, egs, passes, tolerance in (
        ("1mb", "egs64.ark", 1, one),
        ("10mb", "egs640.ark", 1, ten),
        ("20mb", "egs640.ark", 2, ten),
    ):
        if kind == "20mb" and not (steps / f"{name}.20mb.mdl").exists():
            continue
        start, ours = (read_nnet(str(steps / f"{name}.0.mdl")) for _ in range(2))
        theirs = read_nnet(str(steps / f"{name}.{kind}.mdl"))
        train(ours, minibatches_for(ours, f"ark:{steps}/{egs}", 64) * passes, TrainOptions(minibatch_size=64))
        assert largest_difference(start, ours, theirs) < tolerance
        for a, b in zip(ours.with_statistics, theirs.with_statistics, strict=True):
            assert a.count == b.count
            assert np.allclose(a.value_sum, b.value_sum, rtol=2e-3, atol=2e-3)
            assert np.allclose(a.deriv_sum, b.deriv_sum, rtol=2e-3, atol=2e-3)


def kaldis_run(base):
    """Replay Kaldi's training: its examples in its order, its minibatches, its choice of job or average, its layer.

    Yields (iteration, which examples, our log-probability before the iteration, Kaldi's).
    """

    def kaldis(iteration, which):
        text = (base / "log" / f"compute_prob_{which}.{iteration}.log").read_text()
        return float(re.search(r"average probability is (\S+)", text)[1])

    model = read_model(str(base / "0.mdl"))
    for iteration in range(10):
        for which in ("valid", "train"):
            ours = objective_of_examples(model.nnet, f"ark:{base}/egs/{which}_diagnostic.egs").log_prob_per_frame
            yield iteration, which, ours, kaldis(iteration, which)
        size, jobs, objectives = (64 if iteration < 2 else 128), [], []
        for job in (1, 2):
            jobs.append(read_model(str(base / "order" / "1.in.mdl")) if iteration == 1 else model.copy())
            nnet = jobs[-1].nnet
            if iteration == 1:  # Kaldi's inserted layer and new last layer, on our first one
                nnet.updatable[0].params[...] = model.nnet.updatable[0].params
            egs = minibatches_for(nnet, f"ark:gunzip -c {base}/order/{iteration}.{job}.egs.gz |", size)
            objectives.append(train(nnet, egs, TrainOptions(minibatch_size=size)).score.log_prob_per_frame)
        model = jobs[int(np.argmax(objectives))] if iteration < 2 else average(jobs, [0.5, 0.5])
        model.nnet.set_learning_rates(read_nnet(str(base / f"{iteration + 1}.mdl")).learning_rates)


def test_the_whole_run_of_kaldi_replayed(golden):
    seen = 0
    for iteration, which, ours, theirs in kaldis_run(golden / "nnet2"):
        assert ours == pytest.approx(theirs, abs=0.005), (iteration, which)
        seen += 1
    assert seen == 20


# ---- without reference files

CONFIG = """\
SpliceComponent input-dim=4 left-context=1 right-context=1
AffineComponentPreconditionedOnline input-dim=12 output-dim=20 learning-rate={rate} rank-in=5 rank-out=6 \
update-period=4 max-change-per-sample={limit}
PnormComponent input-dim=20 output-dim=10 p=2
NormalizeComponent dim=10
DropoutComponent dim=10 dropout-proportion=0.2
AffineComponentPreconditioned input-dim=10 output-dim=8 learning-rate={rate} alpha=4.0
TanhComponent dim=8
AffineComponent input-dim=8 output-dim=5 learning-rate={rate} param-stddev=0
SoftmaxComponent dim=5
"""


def network(rate=0.02, limit=0.1, seed=1):
    return nnet_from_config(CONFIG.format(rate=rate, limit=limit), seed)


def minibatches(count=30, size=32, seed=0):
    """A task that can be learnt: the label is the largest of five sums over the middle frame."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).standard_normal((4, 5))
    for _ in range(count):
        data = rng.standard_normal((size, 3, 4), np.float32)
        pdf = (data[:, 1] @ mixing).argmax(axis=1).astype(np.int32)
        yield Minibatch(data, np.arange(size, dtype=np.int32), pdf, np.ones(size, np.float32))


def parameters(nnet):
    return b"".join(c.params.tobytes() for c in nnet.updatable)


def test_training_learns_and_leaves_no_generator_behind():
    nnet = network()
    stats = train(nnet, minibatches(200), TrainOptions(minibatch_size=32, minibatches_per_phase=150))
    assert stats.frames == 6400 and stats.minibatches == 200
    final = Trainer(nnet, 1000, np.random.default_rng(0)).step(next(minibatches(1, 1000, seed=7)))
    assert final.log_prob_per_frame > -0.7  # guessing: -1.61
    trained = network()
    train(trained, minibatches(2), TrainOptions(minibatch_size=32))
    assert all(getattr(c, "rng", None) is None for c in trained)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    def trained(srand):
        nnet = network()
        train(nnet, minibatches(), TrainOptions(minibatch_size=32, srand=srand))
        return parameters(nnet)

    assert trained("3,1,2") == trained("3,1,2")
    assert trained("3,1,2") != trained("3,1,3")  # dropout


def test_learning_rate_zero_freezes_a_layer_and_only_that():
    nnet, before = network(), network()
    nnet.set_learning_rates([0.02, 0.0, 0.02])
    train(nnet, minibatches(5), TrainOptions(minibatch_size=32))
    moved = [not np.array_equal(a.params, b.params) for a, b in zip(nnet.updatable, before.updatable)]
    assert moved == [True, False, True]


def test_a_smaller_last_minibatch_and_rows_without_labels():
    nnet = network()
    full, part = next(minibatches(1)), next(minibatches(1, 7, seed=1))
    unlabelled = Minibatch(full.input, full.row[::2], full.pdf[::2], full.weight[::2])
    stats = train(nnet, [full, unlabelled, part], TrainOptions(minibatch_size=32))
    assert (stats.frames, stats.score.weight) == (71, 55.0)
    silent = Minibatch(full.input, full.row, full.pdf, 0.0 * full.weight)
    before = parameters(nnet)
    train(nnet, [silent, full], TrainOptions(minibatch_size=32))
    assert parameters(nnet) != before and np.isfinite(np.frombuffer(before, np.float32)).all()


def test_the_limit_on_a_step_is_counted_and_said_once(caplog):
    nnet = network(limit=0.0001)
    nnet.set_learning_rates([1.0, 0.02, 0.02])
    caplog.set_level("WARNING")
    train(nnet, minibatches(1), TrainOptions(minibatch_size=32))  # the last layer is zero: no gradient before this
    caplog.clear()
    stats = train(nnet, minibatches(5), TrainOptions(minibatch_size=32))
    assert stats.limited[1][0] == 5 and stats.limited[1][1] < 0.1
    assert [r.getMessage() for r in caplog.records if "max-change" in r.getMessage()] == [
        "component 1 (AffineComponentPreconditionedOnline): max-change limited 5 of 5 steps, "
        f"to {stats.limited[1][1]:.3g} of their length at least"
    ]


def test_divergence_names_minibatch_layer_learning_rate_and_remedy():
    with pytest.raises(DataError) as error:
        train(network(rate=1e5, limit=0.0), minibatches(300), TrainOptions(minibatch_size=32))
    text = str(error.value)
    assert re.search(
        r"training diverged: .* after \d+ minibatches; component \d \(Affine\w+\) has learning rate 100000 ", text
    )
    assert "half the learning rate" in text and "max-change" in text


def test_an_objective_that_is_merely_finite_and_hopeless_is_divergence_too():
    nnet = network(rate=0.0)
    nnet.updatable[-1].learning_rate = 40.0  # oscillates between certainties
    with pytest.raises(DataError, match="worse than guessing after"):
        train(nnet, minibatches(300), TrainOptions(minibatch_size=32))


def test_a_bad_start_that_improves_is_not_divergence():
    nnet = network()
    nnet.updatable[-1].params[...] = 20.0 * np.random.default_rng(5).standard_normal((5, 9))
    train(nnet, minibatches(100), TrainOptions(minibatch_size=32))


def test_nan_in_the_features_is_named():
    bad = next(minibatches(1))
    bad.input[3, 1, 2] = np.nan
    with pytest.raises(DataError, match="NaN or infinite features in minibatch 3"):
        train(network(), [*minibatches(2), bad], TrainOptions(minibatch_size=32))


def test_nothing_to_train():
    with pytest.raises(DataError, match="no frame to train on"):
        train(network(), [], TrainOptions())
    with pytest.raises(DataError, match="no component with parameters"):
        train(nnet_from_config("SoftmaxComponent dim=5", 1), minibatches(1), TrainOptions())


@pytest.mark.parametrize("text", ["", "1,,2", "-1", "1.5", "x"])
def test_seed_that_is_none(text):
    with pytest.raises(DataError, match="--srand"):
        _ = TrainOptions(srand=text).seed


# ---- the program


def test_program_trains_on_one_frame_of_each_example_reproducibly(golden, run, tmp_path):
    egs, model = f"ark:{golden}/nnet2/egs/egs.1.ark", golden / "nnet2" / "3.mdl"
    options = ["--frame=2", "--shuffle", "--srand=5,3,1", "--minibatch-size=64"]
    for name in ("a", "b"):
        result = run("nnet-train-ngsgd", *options, f"--stats-out={name}.json", model, egs, f"{name}.mdl")
    run("nnet-train-ngsgd", *options[:2], "--srand=5,3,2", options[3], model, egs, "c.mdl")
    assert (tmp_path / "a.mdl").read_bytes() == (tmp_path / "b.mdl").read_bytes()
    assert (tmp_path / "a.mdl").read_bytes() != (tmp_path / "c.mdl").read_bytes()
    stats = json.loads((tmp_path / "a.json").read_text())
    expected = sum(m.num_frames for m in read_minibatches(egs, 64, frame=2))
    assert stats["frames"] == stats["weight"] == expected
    assert stats["minibatches"] == -(-expected // 64)
    assert -1.5 < stats["objective_per_frame"] < -1.2
    assert f"average log-prob per frame {stats['objective_per_frame']:.5f}" in result.stderr
    assert read_nnet(str(tmp_path / "a.mdl")).learning_rates == read_nnet(str(model)).learning_rates


def test_program_leaves_nothing_after_divergence_or_misfit(golden, run, tmp_path):
    egs = f"ark:{golden}/steps/egs640.ark"
    run("nnet-train-ngsgd", golden / "steps" / "tanh.0.mdl", egs, "fine.mdl")
    (tmp_path / "fine.mdl").unlink()
    model = read_model(str(golden / "steps" / "pnorm_plain.0.mdl"))
    model.nnet.set_learning_rates([1e30, 1e30])
    write_model(model, str(tmp_path / "wild.mdl"))
    result = run("nnet-train-ngsgd", "--stats-out=s.json", "wild.mdl", egs, "out.mdl", status=1)
    assert len(result.stderr.strip().splitlines()) == 1 and "training diverged" in result.stderr
    wide = golden / "nnet2_iv" / "0.mdl"
    result = run("nnet-train-ngsgd", wide, egs, "out.mdl", status=1)
    assert len(result.stderr.strip().splitlines()) == 1 and "frames of left context" in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["wild.mdl"]
