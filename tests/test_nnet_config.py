"""Networks from config lines: nnet-init, nnet-am-init, nnet-make-config."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.model import read_model, read_nnet
from ngsgd.nnet.network import NetworkOptions, contexts, hidden_layer_config, network_config


@pytest.fixture
def write_array(tmp_path):
    def write(name, array):
        with open_writer(str(tmp_path / name)) as writer:
            (writer.matrix if array.ndim == 2 else writer.vector)(array.astype(np.float32))
        return tmp_path / name

    return write


@pytest.mark.parametrize("path", ["nnet2/nnet.config", "nnet2_iv/nnet.config"])
def test_kaldis_script_writes_the_same_network(path, golden):
    """train_pnorm_simple2.sh's network, line by line; only the file of the transform is somewhere else."""
    lines = (golden / path).read_text().splitlines()
    iv = "iv" in path
    options = NetworkOptions(
        feat_dim=13 if iv else 40,
        ivector_dim=10 if iv else 0,
        num_targets=96,
        left_context=4 if iv else 3,
        right_context=4 if iv else 3,
        lda_matrix=str(golden / path.replace("nnet.config", "lda.mat")),
        hidden_layers=1,
        pnorm_input_dim=100,
        pnorm_output_dim=20,
    )

    def parsed(line):
        name, *options = line.split()
        return name, {k: v if k == "matrix" else str(float(v)) for k, v in (o.split("=") for o in options)}

    ours = [parsed(line) for line in network_config(options).splitlines()]
    kaldis = [parsed(line) for line in lines]
    ours[1][1]["matrix"] = kaldis[1][1]["matrix"]
    assert ours == kaldis
    if not iv:
        hidden = (golden / "nnet2/hidden.config").read_text().splitlines()
        assert [parsed(x) for x in hidden_layer_config(options).splitlines()] == [parsed(x) for x in hidden]


def test_default_network_chains_and_starts_undecided(write_array):
    scales = write_array("scales", np.arange(1, 8))
    options = NetworkOptions(
        13, 5, 7, 2, 1, hidden_layers=3, pnorm_input_dim=20, pnorm_output_dim=4, presoftmax_scales=str(scales)
    )
    nnet = nnet_from_config(network_config(options), 0)
    assert (nnet.input_dim, nnet.output_dim, nnet.left_context, nnet.right_context) == (18, 7, 2, 1)
    assert len(nnet.updatable) == 4
    assert not nnet.updatable[-1].params.any()
    assert nnet.updatable[1].linear.std() == pytest.approx(20**-0.5, rel=0.3)


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("online", {"preconditioner": "online", "alpha": 3, "rank_in": 7, "max_change_per_sample": 0.25}),
        ("simple", {"preconditioner": "simple", "alpha": 3, "max_change": 5}),
        ("sgd", {"preconditioner": "none"}),
    ],
)
def test_the_update_rule_is_that_of_every_layer(rule, settings):
    given = {"alpha": 3, "rank_in": 7, "max_change_per_sample": 0.25, "max_change": 5, "learning_rate": 0.125}
    options = NetworkOptions(
        13, 0, 7, hidden_layers=2, pnorm_input_dim=20, pnorm_output_dim=4, update_rule=rule, **given
    )
    layers = (
        nnet_from_config(network_config(options), 0).updatable
        + nnet_from_config(hidden_layer_config(options), 0).updatable
    )
    assert len(layers) == 4
    for layer in layers:
        assert layer.learning_rate == 0.125
        assert {name: getattr(layer, name) for name in settings} == settings
    # Only how it is trained differs, not what it is at first.
    online = nnet_from_config(network_config(NetworkOptions(**(vars(options) | {"update_rule": "online"}))), 0)
    assert all(np.array_equal(a.params, b.params) for a, b in zip(layers, online.updatable))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_targets": 0}, "--num-targets: expected 1 or more"),
        ({"pnorm_input_dim": 30}, "--pnorm-input-dim=30: not a multiple of --pnorm-output-dim=20"),
        ({"left_context": 9}, "expected 520 . 1 columns, for the spliced input, got 281"),
    ],
)
def test_options_that_do_not_fit_together(golden, change, message):
    given = {
        "feat_dim": 40,
        "num_targets": 96,
        "left_context": 3,
        "right_context": 3,
        "lda_matrix": str(golden / "nnet2/lda.mat"),
        "pnorm_input_dim": 100,
        "pnorm_output_dim": 20,
    }
    with pytest.raises(DataError, match=message):
        network_config(NetworkOptions(**(given | change)))


def component_lines(config):
    """Component types and their dimensions and contexts, without the settings of training."""
    keys = ("input-dim", "output-dim", "dim", "context", "left-context", "right-context", "p")
    return [
        (line.split()[0], *(w for w in line.split()[1:] if w.split("=")[0] in keys)) for line in config.splitlines()
    ]


@pytest.mark.parametrize("name", ["tanh", "relu", "maxout"])
def test_layers_of_each_kind_are_as_in_kaldis_scripts(golden, name):
    """One hidden layer of 64 neurons or 100 / 20, as shared/golden has them, trained there by Kaldi."""
    options = NetworkOptions(
        40, 0, 96, 3, 3, lda_matrix=str(golden / "nnet2/lda.mat"), hidden_layers=1, nonlinearity=name,
        pnorm_input_dim=100, pnorm_output_dim=20, hidden_dim=64,
    )  # fmt: skip
    ours = component_lines(network_config(options).replace(" const-component-dim=0", ""))
    assert ours == component_lines((golden / f"steps/config/{name}.config").read_text())
    nnet = nnet_from_config(network_config(options), 0)
    assert nnet.updatable[0].linear.std() == pytest.approx((64 if name != "maxout" else 100) ** -0.5, rel=0.05)


def test_layers_may_see_several_frames_of_the_layer_below(golden):
    options = NetworkOptions(
        40, 0, 96, splice_indexes="layer0/-2:-1:0:1:2 layer1/-1:1", pnorm_input_dim=100, pnorm_output_dim=20
    )
    kaldis = component_lines((golden / "steps/config/multisplice.config").read_text())
    assert component_lines(network_config(options))[1:] == kaldis[1:]
    # The layer to be inserted has its own splicing; the network without it the context of the first layer.
    assert component_lines(hidden_layer_config(options, 1)) == kaldis[4:8]
    whole, first = (nnet_from_config(network_config(options, layers), 0) for layers in (None, 1))
    assert (whole.left_context, whole.right_context, first.left_context) == (3, 3, 2)
    with_ivector = NetworkOptions(13, 5, 7, splice_indexes="layer0/-3:0:1", hidden_layers=1)
    assert nnet_from_config(network_config(with_ivector), 0).updatable[0].input_dim == 3 * 13 + 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer1/-1:1", "expected frames of layer0, too"),
        ("layer0/-1:1 layer3/0:1", "'layer3/0:1', expected each of the 3 layers, counted from 0, once at most"),
        ("layer0/-1:1 layer0/0:1", "'layer0/0:1', expected each of the 3 layers"),
        ("layer0/1:-1", "increasing and from 0 or less to 0 or more, as layer1/-3:1, got 'layer0/1:-1'"),
        ("layer0/1:2", "got 'layer0/1:2'"),
        ("layer0:-1:1", "got 'layer0:-1:1'"),
    ],
)
def test_splice_indexes_that_cannot_be(text, message):
    with pytest.raises(DataError, match=message):
        contexts(text, 4, 4, 3)


def test_the_seed_decides_the_bytes(run, tmp_path):
    (tmp_path / "config").write_text(
        "# comment\n\nAffineComponent input-dim=50 output-dim=40 param-stddev=0.2 bias-stddev=0.5\n"
        "PermuteComponent dim=40\nAffineComponent input-dim=40 output-dim=50 learning-rate=0.3\n"
    )
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        run("nnet-init", f"--srand={seed}", "config", name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b and a != c
    first, _, last = read_nnet(str(tmp_path / "a"))
    assert first.linear.std() == pytest.approx(0.2, rel=0.05) and first.bias.std() == pytest.approx(0.5, rel=0.3)
    assert last.linear.std() == pytest.approx(40**-0.5, rel=0.05) and last.bias.std() == pytest.approx(1, rel=0.3)
    assert last.learning_rate == pytest.approx(0.3) and first.learning_rate == pytest.approx(0.001)
    assert abs(np.corrcoef(first.linear.ravel(), last.linear.ravel())[0, 1]) < 0.1


def test_parameters_from_files(write_array):
    matrix = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    path, vector = write_array("m", matrix), write_array("v", matrix[:, 0])
    text = (
        f"FixedLinearComponent matrix={path}\nFixedBiasComponent bias={vector}\nFixedScaleComponent scales={vector}\n"
        "FixedLinearComponent matrix={transposed}\n"
    )
    nnet = nnet_from_config(text.format(transposed=write_array("t", matrix.T)), 0)
    assert (nnet.input_dim, nnet.output_dim) == (5, 5)
    affine = nnet_from_config(f"AffineComponentPreconditionedOnline matrix={path} input-dim=4 rank-in=2", 0)[0]
    np.testing.assert_array_equal(affine.params, matrix)
    with pytest.raises(DataError, match=r"input-dim=5, but .* has 4"):
        nnet_from_config(f"AffineComponent matrix={path} input-dim=5", 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("GeluComponent dim=3", "config:2: unknown component 'GeluComponent'; known: "),
        ("TanhComponent dim=3 speed=9", "config:2: TanhComponent: unknown option 'speed'; known: dim"),
        ("TanhComponent dim", "config:2: TanhComponent: expected name=value, got 'dim'"),
        ("TanhComponent dim=3 dim=3", "config:2: TanhComponent: option 'dim' is given twice"),
        ("TanhComponent dim=x", "config:2: TanhComponent dim: expected int, got 'x'"),
        ("TanhComponent dim=99999999999", "config:2: TanhComponent dim: expected 4194304 at most, got 99999999999"),
        (
            "SpliceComponent input-dim=3 left-context=999999999 right-context=0",
            "config:2: SpliceComponent left-context",
        ),
        ("TanhComponent dim=4", r"config: component 0 \(TanhComponent\) outputs 3, but component 1"),
    ],
)
def test_bad_lines_are_named(line, message):
    with pytest.raises(DataError, match=message):
        nnet_from_config(f"TanhComponent dim=3\n{line}\n", 0)


def test_a_layer_beyond_memory_is_named(run, tmp_path):
    (tmp_path / "config").write_text("AffineComponent input-dim=2000000 output-dim=2000000\n")
    limited = run("bash", "-c", "ulimit -v 16000000; nnet-init config out.raw", status=1)
    assert "config:1: too large for the memory of this machine" in limited.stderr
    assert limited.stderr.count("\n") == 1 and not (tmp_path / "out.raw").exists()


def test_am_init_takes_transitions_of_a_tree_or_a_model(golden, run, tmp_path):
    model = golden / "nnet2/0.mdl"
    run("nnet-copy", "--raw", model, "raw")
    run("nnet-am-init", golden / "nnet2/tree", golden / "lang/topo", "raw", "from_tree.mdl")
    run("nnet-am-init", model, "raw", "from_model.mdl")
    a, b, wanted = (read_model(str(p)) for p in (tmp_path / "from_tree.mdl", tmp_path / "from_model.mdl", model))
    assert np.array_equal(a.transitions.tid_to_pdf, wanted.transitions.tid_to_pdf)
    assert np.array_equal(b.transitions.log_prob, wanted.transitions.log_prob)
    assert len(a.priors) == len(b.priors) == 0
    run("nnet-copy", "--raw", "--truncate=4", model, "short")
    failed = run("nnet-am-init", model, "short", "bad.mdl", status=1)
    assert "the network has 20 outputs, but" in failed.stderr and "has 96 pdfs" in failed.stderr
    assert not (tmp_path / "bad.mdl").exists()


def test_make_config_writes_both_files(run, tmp_path):
    run("nnet-make-config", "--feat-dim=13", "--num-targets=9", "nnet.config", "hidden.config")
    run("nnet-init", "nnet.config", "0.raw")
    run("nnet-init", "hidden.config", "hidden.raw")
    assert read_nnet(str(tmp_path / "hidden.raw")).input_dim == read_nnet(str(tmp_path / "hidden.raw")).output_dim
    for config, layers in (("nnet.config", 2), ("whole.config", 4)):
        extra = ("hidden.config",) if layers == 2 else ()
        run("nnet-make-config", "--feat-dim=13", "--num-targets=9", "--hidden-layers=3", config, *extra)
        assert len(nnet_from_config((tmp_path / config).read_text(), 0).updatable) == layers
    splice = ("--hidden-layers=3", "--splice-indexes=layer0/-1:1 layer2/-3:3")
    run("nnet-make-config", "--feat-dim=13", "--num-targets=9", *splice, "nnet.config", "h.1", "h.2")
    assert [component_lines((tmp_path / f"h.{i}").read_text())[0][0] for i in (1, 2)] == [
        "AffineComponentPreconditionedOnline",
        "SpliceComponent",
    ]
    failed = run("nnet-make-config", "--feat-dim=13", "--num-targets=9", *splice, "bad.config", "h.1", status=1)
    assert "1 files for the configs of 2 different hidden layers" in failed.stderr
    run("nnet-make-config", "--feat-dim=13", "bad.config", status=1)
    assert not (tmp_path / "bad.config").exists()
