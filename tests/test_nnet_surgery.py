"""Operations on trained networks, against Kaldi's (golden/ops) where Kaldi draws no random numbers."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.nnet.components.pooling import SumGroupComponent
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.insert import InsertOptions, inserted, with_last_replaced
from ngsgd.nnet.learning_rates import ModifyLearningRatesOptions, modify
from ngsgd.nnet.mixup import MixupOptions, mix_up
from ngsgd.nnet.model import Nnet, read_model, read_nnet
from ngsgd.nnet.surgery import FixOptions, WidenOptions, fix, normalise_stddev, widen

PROGRAMS = {
    "learning_rate": ["nnet-copy", "--learning-rate=0.0123", "nnet2/10.mdl"],
    "learning_rate_factor": ["nnet-copy", "--learning-rate-factor=0.5", "nnet2/10.mdl"],
    "switch_preconditioning": ["nnet-switch-preconditioning", "--num-samples-history=1000", "nnet2/10.mdl"],
    "insert": ["nnet-insert", "--insert-at=7", "--randomize-next-component=false", "nnet2/10.mdl", "ops/hidden.raw"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_kaldis_byte_for_byte(name, golden, run, tmp_path):
    words = [golden / w if w.endswith((".mdl", ".raw")) else w for w in PROGRAMS[name]]
    run(*words, "out.mdl")
    assert (tmp_path / "out.mdl").read_bytes() == (golden / f"ops/{name}.mdl").read_bytes()


def assert_parameters_equal(ours, kaldis, rtol):
    assert ours.shape_difference(kaldis) == ""
    for a, b in zip(ours.updatable, kaldis.updatable):
        assert np.linalg.norm(a.params - b.params) <= rtol * np.linalg.norm(b.params)


def test_normalize_stddev(golden, run, tmp_path):
    run("nnet-normalize-stddev", golden / "ops/combine.mdl", "out.mdl")
    ours, kaldis = (read_nnet(str(p)) for p in (tmp_path / "out.mdl", golden / "ops/normalize.mdl"))
    assert_parameters_equal(ours, kaldis, 1e-6)
    assert ours[2].params.std() == pytest.approx(1, rel=1e-5)
    run("nnet-normalize-stddev", f"--stddev-from={golden}/nnet2/10.mdl", golden / "ops/combine.mdl", "out.mdl")
    wanted = read_nnet(str(golden / "nnet2/10.mdl"))[5].params.std()
    assert read_nnet(str(tmp_path / "out.mdl"))[5].params.std() == pytest.approx(wanted, rel=1e-5)


def test_normalising_leaves_other_layers_and_zero_layers_alone():
    nnet = nnet_from_config(
        "AffineComponent input-dim=4 output-dim=6\nPnormComponent input-dim=6 output-dim=3\n"
        "PowerComponent dim=3 power=0.5\nNormalizeComponent dim=3\n"
        "AffineComponent input-dim=3 output-dim=6 param-stddev=0 bias-stddev=0\n"
        "PnormComponent input-dim=6 output-dim=3\nNormalizeComponent dim=3\nAffineComponent input-dim=3 output-dim=2\n",
        0,
    )
    last = nnet[7].params.copy()
    assert normalise_stddev(nnet, 2.0) == [0]
    assert nnet[0].params.std() == pytest.approx(2, rel=1e-5)
    np.testing.assert_array_equal(nnet[7].params, last)


def test_fix(golden, run, tmp_path):
    run("nnet-fix", "--min-average-deriv=0.1", golden / "steps/tanh.10mb.mdl", "out.mdl")
    ours, kaldis = (read_nnet(str(p)) for p in (tmp_path / "out.mdl", golden / "ops/fix_tanh.mdl"))
    assert_parameters_equal(ours, kaldis, 1e-6)


@pytest.mark.parametrize(
    ("name", "slopes", "rows", "biases"),
    [
        ("SigmoidComponent", [0.005, 0.02, 0.1, 0.24], [0.5, 0.8, 1, 1.28], [0.5, 0.8, 1, 1.28]),
        ("RectifiedLinearComponent", [0.0, 0.5, 0.5, 1.0], [1, 1, 1, 1], [3, 1, 1, -1]),
    ],
)
def test_fix_of_other_neurons(name, slopes, rows, biases):
    """Slopes are averages of 100 frames; parameters were 1; a rectified neuron's bias moves by 2."""
    nnet = nnet_from_config(f"AffineComponent input-dim=2 output-dim=4\n{name} dim=4\n", 0)
    nnet[0].params[...] = 1
    assert fix(nnet, FixOptions()) == (0, 0)  # no statistics
    nnet[1].deriv_sum, nnet[1].count = 100 * np.array(slopes), 100.0
    few = 2 if name == "SigmoidComponent" else 1
    assert fix(nnet, FixOptions(relu_bias_change=2.0)) == (few, 1)
    np.testing.assert_allclose(nnet[0].linear, np.outer(rows, [1, 1]), rtol=1e-6)
    np.testing.assert_allclose(nnet[0].bias, biases, rtol=1e-6)


def test_modify_learning_rates(golden, run, tmp_path):
    """Kaldi computes the norms in single precision, so only nearly the same."""
    models = golden / "nnet2/9.mdl", golden / "nnet2/10.mdl"
    run("nnet-modify-learning-rates", "--average-learning-rate=0.002", *models, "out.mdl")
    ours, kaldis = (read_nnet(str(p)) for p in (tmp_path / "out.mdl", golden / "ops/modify_lr.mdl"))
    np.testing.assert_allclose(ours.learning_rates, kaldis.learning_rates, rtol=1e-4)
    assert_parameters_equal(ours, kaldis, 0)


def test_layers_that_did_not_change_or_were_zero_get_an_average_rate():
    text = "AffineComponent input-dim=3 output-dim=3 learning-rate=0.1\n" * 4
    previous = nnet_from_config(text, 0)
    previous[2].params[...] = 0
    current = previous.copy()
    current[0].params *= 1.1
    current[2].params += 1
    current[3].params *= 1.4
    modify(previous, current, ModifyLearningRatesOptions(retroactive=True))
    first, second, third, fourth = current.learning_rates
    assert second == pytest.approx(third)
    assert first == pytest.approx(4 * fourth, rel=1e-4)
    assert np.prod(current.learning_rates) ** 0.25 == pytest.approx(0.1, rel=1e-5)
    np.testing.assert_allclose(current[0].params, previous[0].params * (1 + 0.1 * first / 0.1), rtol=1e-5)
    with pytest.raises(DataError, match="no layer has a relative change"):
        modify(previous, previous.copy(), ModifyLearningRatesOptions())


def test_widen(golden, run, tmp_path):
    """Shapes and spread as Kaldi's. Its program loses the trained parameters of both layers (the assertions on
    `kaldis` show it), because CuMatrix::Resize cannot keep them; ours keeps them, as both programs promise."""
    run("nnet-widen", "--hidden-layer-dim=100", golden / "steps/tanh.10mb.mdl", "out.mdl")
    before, ours, kaldis = (
        read_nnet(str(p)) for p in (golden / "steps/tanh.10mb.mdl", tmp_path / "out.mdl", golden / "ops/widen.mdl")
    )
    assert ours.shape_difference(kaldis) == ""
    np.testing.assert_array_equal(ours[2].params[:64], before[2].params)
    np.testing.assert_array_equal(ours[4].linear[:, :64], before[4].linear)
    np.testing.assert_array_equal(ours[4].bias, before[4].bias)
    assert not ours[4].linear[:, 64:].any()  # no effect yet
    assert not kaldis[2].linear[:64].any() and not kaldis[4].linear.any()
    new, wanted = ours[2], kaldis[2]
    assert new.linear[64:].std() == pytest.approx(wanted.linear[64:].std(), rel=0.05)
    assert new.bias[64:].std() == pytest.approx(0.5, rel=0.4)
    assert (ours[3].count, kaldis[3].count) == (0, 0)
    assert ours[3].value_sum.size == kaldis[3].value_sum.size == 100
    failed = run("nnet-widen", "--hidden-layer-dim=64", golden / "steps/tanh.10mb.mdl", "no.mdl", status=1)
    assert "no hidden layer to widen to 64" in failed.stderr
    assert not (tmp_path / "no.mdl").exists()


def test_widening_keeps_the_output_and_the_seed_decides():
    text = "AffineComponent input-dim=3 output-dim=4\nTanhComponent dim=4\nNormalizeComponent dim=4\n"
    a = nnet_from_config("AffineComponent input-dim=3 output-dim=4\nTanhComponent dim=4\n"
                         "AffineComponent input-dim=4 output-dim=2\n", 0)  # fmt: skip
    b, c = a.copy(), a.copy()
    for nnet, seed in ((a, 1), (b, 1), (c, 2)):
        assert widen(nnet, WidenOptions(hidden_layer_dim=9, srand=seed)) == 1
    np.testing.assert_array_equal(a[0].params, b[0].params)
    assert not np.array_equal(a[0].params, c[0].params)
    assert widen(nnet_from_config(text, 0), WidenOptions(hidden_layer_dim=9)) == 0


def test_mixup(golden, run, tmp_path):
    """The same numbers of mixture components as Kaldi's; other random numbers, but the same invariants."""
    before = read_nnet(str(golden / "steps/pnorm_online.10mb.mdl"))
    run("nnet-mixup", "--min-count=3", "--num-mixtures=150", golden / "steps/pnorm_online.10mb.mdl", "out.mdl")
    ours, kaldis = (read_nnet(str(p)) for p in (tmp_path / "out.mdl", golden / "ops/mixup.mdl"))
    assert ours.shape_difference(kaldis) == ""
    np.testing.assert_array_equal(ours[7].sizes, kaldis[7].sizes)
    assert len(ours[7].sizes) == 96 and ours[7].input_dim > 96
    np.testing.assert_allclose(ours[6].value_sum, kaldis[6].value_sum, rtol=1e-5)
    assert ours[6].count == pytest.approx(kaldis[6].count, rel=1e-5)
    np.testing.assert_allclose(ours[5].bias, kaldis[5].bias, rtol=1e-5, atol=1e-6)
    starts = np.cumsum(ours[7].sizes) - ours[7].sizes
    means = np.add.reduceat(ours[5].linear, starts) / ours[7].sizes[:, None]
    doubled = ours[7].sizes == 2  # these moved by the same vector to both sides
    np.testing.assert_allclose(means[doubled], before[5].linear[doubled], atol=1e-6)
    away = (ours[5].linear[starts[doubled]] - before[5].linear[doubled]).ravel()
    assert away.std() == pytest.approx(0.01, rel=0.2)


def test_mixing_up_again_keeps_what_is_there(golden):
    once = read_nnet(str(golden / "ops/mixup.mdl"))
    twice = mix_up(once, MixupOptions(num_mixtures=180, min_count=1))
    assert isinstance(twice[7], SumGroupComponent) and len(twice) == 8
    assert (twice[7].sizes >= once[7].sizes).all() and 180 <= twice[7].sizes.sum() < 190
    with pytest.raises(DataError, match=r"expected an affine component and a softmax at the end, found .*Sum.*Tanh"):
        mix_up(Nnet([*once, *nnet_from_config("TanhComponent dim=96", 0)]), MixupOptions(num_mixtures=150))
    with pytest.raises(DataError, match="the softmax has no counts"):
        mix_up(read_nnet(str(golden / "steps/pnorm_online.0.mdl")), MixupOptions(num_mixtures=150))
    with pytest.raises(DataError, match="expected at least the 96 pdfs"):
        mix_up(once, MixupOptions())


def test_mixing_up_behind_the_scaling_by_priors_leaves_the_outputs(golden):
    """A p-norm network of train_pnorm_simple2.sh; halves are not moved apart here, so nothing may change."""
    before = read_nnet(str(golden / "nnet2/10.mdl"))
    mixed = mix_up(before, MixupOptions(num_mixtures=150, min_count=10, perturb_stddev=0))
    assert [c.type_name for c in mixed][-4:] == [
        "AffineComponentPreconditionedOnline", "FixedScaleComponent", "SoftmaxComponent", "SumGroupComponent",
    ]  # fmt: skip
    assert 140 < mixed[-2 + len(mixed)].dim <= 150 and (mixed.output_dim, before.output_dim) == (96, 96)
    x = np.random.default_rng(0).standard_normal((9, before[len(before) - 3].input_dim)).astype(np.float32)

    def outputs(nnet, last):
        y = np.hstack((x, np.ones((9, 1), np.float32)))
        for component in nnet.components[-last:]:
            y = component.forward(y)
        return y

    np.testing.assert_allclose(outputs(mixed, 4), outputs(before, 3), rtol=1e-4, atol=1e-6)
    again = mix_up(mixed, MixupOptions(num_mixtures=170, min_count=1, perturb_stddev=0))
    np.testing.assert_allclose(outputs(again, 4), outputs(before, 3), rtol=1e-4, atol=1e-6)


def test_insertion_before_the_last_layer_randomises_it(golden):
    nnet, new = read_nnet(str(golden / "steps/pnorm_online.10mb.mdl")), read_nnet(str(golden / "ops/hidden.raw"))
    last = nnet[5].params.copy()
    result = inserted(nnet, new, InsertOptions(srand=3))
    assert [c.type_name[:6] for c in result][5:] == ["Affine", "PnormC", "Normal", "Affine", "Softma"]
    assert result[8].params.std() == pytest.approx(0.1 * 20**-0.5, rel=0.1)
    np.testing.assert_array_equal(nnet[5].params, last)
    kept = inserted(nnet, new, InsertOptions(randomize_next_component=False))
    np.testing.assert_array_equal(kept[8].params, last)
    with pytest.raises(DataError, match=r"component after .* \(PnormComponent\) has no parameters"):
        inserted(nnet, nnet_from_config("TanhComponent dim=100", 0), InsertOptions(insert_at=3))
    with pytest.raises(DataError, match="cannot insert before component 20"):
        inserted(nnet, new, InsertOptions(insert_at=20))
    with pytest.raises(DataError, match="outputs 100, but component 3"):
        inserted(nnet, new, InsertOptions(insert_at=3))


def test_replacing_the_last_layers(golden, run, tmp_path):
    (tmp_path / "config").write_text("AffineComponent input-dim=20 output-dim=96\nLogSoftmaxComponent dim=96\n")
    run("nnet-init", "config", "last.raw")
    run("nnet-replace-last-layers", "--remove-layers=3", golden / "nnet2/10.mdl", "last.raw", "out.mdl")
    before, after = read_model(str(golden / "nnet2/10.mdl")), read_model(str(tmp_path / "out.mdl"))
    assert [c.type_name for c in after.nnet][8:] == ["AffineComponent", "LogSoftmaxComponent"]
    np.testing.assert_array_equal(after.nnet[5].params, before.nnet[5].params)
    failed = run(
        "nnet-replace-last-layers", "--remove-layers=3", golden / "nnet2/10.mdl", golden / "ops/hidden.raw", "bad.mdl",
        status=1,
    )  # fmt: skip
    assert "the network has 20 outputs, but the transition model 96 pdfs" in failed.stderr
    with pytest.raises(DataError, match="cannot remove 9 of 8"):
        with_last_replaced(read_nnet(str(golden / "ops/mixup.mdl")), 9, before.nnet)


def test_changes_on_copying(golden, run, tmp_path):
    model = golden / "steps/tanh.10mb.mdl"
    before = read_nnet(str(model))
    run("nnet-copy", "--scales=2:3", "--remove-preconditioning", "--truncate=4", model, "a.mdl")
    a = read_model(str(tmp_path / "a.mdl"))
    assert [c.type_name for c in a.nnet.updatable] == ["AffineComponent"] and len(a.priors) == 0
    run(
        "nnet-copy",
        "--learning-rate-scales=AffineComponentPreconditionedOnline=0.5",
        f"--stats-from={golden}/steps/tanh.1mb.mdl",
        model,
        "b.mdl",
    )
    b = read_nnet(str(tmp_path / "b.mdl"))
    assert b.learning_rates == pytest.approx([0.005, 0.005])
    assert before[3].count == 640 and b[3].count == 64
    for option, message in (
        ("--learning-rates=1:2:3", "expected 2 numbers separated by colons"),
        ("--scales=1", "expected 2 numbers"),
        ("--learning-rate-scales=Tanh=1", "unknown component 'Tanh'"),
        ("--learning-rate-scales=TanhComponent", "expected Type=factor"),
        ("--truncate=0", "at least one component"),
        (f"--stats-from={golden}/nnet2/10.mdl", "has 6 components"),
    ):
        failed = run("nnet-copy", option, model, "bad.mdl", status=1)
        assert message in failed.stderr
    assert not (tmp_path / "bad.mdl").exists()


def test_dropout_can_be_set_and_removed(run, golden, tmp_path):
    (tmp_path / "config").write_text("AffineComponent input-dim=20 output-dim=96\nDropoutComponent dim=96\n"
                                     "SoftmaxComponent dim=96\n")  # fmt: skip
    run("nnet-init", "config", "raw")
    run("nnet-am-init", golden / "nnet2/0.mdl", "raw", "0.mdl")
    run("nnet-copy", "--dropout-scale=0.25", "0.mdl", "1.mdl")
    assert read_nnet(str(tmp_path / "1.mdl"))[1].dropout_scale == 0.25
    run("nnet-copy", "--remove-dropout", "0.mdl", "2.mdl")
    assert len(read_nnet(str(tmp_path / "2.mdl"))) == 2
