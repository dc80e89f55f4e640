"""Models: Kaldi's files byte for byte, Kaldi's outputs, and forward and backward through whole networks."""

import json

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader
from ngsgd.nnet.backprop import Workspace, frame_times
from ngsgd.nnet.components.base import all_components, component_class
from ngsgd.nnet.compute import (
    ComputeFromEgsOptions,
    ComputeOptions,
    Computer,
    compute,
    compute_from_egs,
    divisor_priors,
    finish_output,
    objective_of_examples,
)
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.copy_model import CopyOptions, copy
from ngsgd.nnet.info import InfoOptions, describe
from ngsgd.nnet.model import Nnet, read_model, read_nnet, write_model, write_nnet

NETWORKS = """block block_precon fixed maxout multisplice pnorm_online pnorm_online1 pnorm_online_fast pnorm_onlinebig
pnorm_p3 pnorm_plain pnorm_simple pnorm_simple_fast power relu sigmoid softhinge sumgroup tanh"""


# ---- files


def models_of(golden):
    """Every network file there is."""
    found = [p for p in golden.rglob("*") if p.suffix in (".mdl", ".raw") and "gmm" not in p.parts]
    assert len(found) >= 97
    return found


def test_kaldis_models_come_back_byte_for_byte(golden, tmp_path):
    for path in models_of(golden):
        data = path.read_bytes()
        copy(str(path), str(tmp_path / "copy"), CopyOptions(binary=data[:2] == b"\0B"))
        assert (tmp_path / "copy").read_bytes() == data, path


@pytest.mark.parametrize("binary", [True, False])
def test_every_kind_of_component_is_written_and_read_as_a_file(binary, tmp_path):
    """Also a p-norm of infinite p, which is no damage."""
    for name in all_components():
        for component in component_class(name).examples(np.random.default_rng(0)):
            write_nnet(Nnet([component]), f"{tmp_path}/x", binary)
            assert not read_nnet(f"{tmp_path}/x").shape_difference(Nnet([component]))


def text_of_binary_of_text(path, folder):
    """The text forms of a model, and of the binary form of that text."""
    copy(str(path), f"{folder}/text", CopyOptions(binary=False))
    copy(f"{folder}/text", f"{folder}/binary", CopyOptions())
    copy(f"{folder}/binary", f"{folder}/again", CopyOptions(binary=False))
    return [(folder / name).read_bytes() for name in ("text", "again")]


def test_text_form_is_kaldis_and_comes_back_from_binary_byte_for_byte(golden, tmp_path):
    first, again = text_of_binary_of_text(golden / "nnet2/10.mdl", tmp_path)
    assert first == again == (golden / "ops/10.txt.mdl").read_bytes()
    for name in ("fixed", "block_precon", "sumgroup", "multisplice", "pnorm_simple"):
        first, again = text_of_binary_of_text(golden / f"steps/{name}.10mb.mdl", tmp_path)
        assert first == again, name


@pytest.mark.slow
def test_text_form_of_every_model_comes_back_from_binary_byte_for_byte(golden, tmp_path):
    for path in models_of(golden):
        first, again = text_of_binary_of_text(path, tmp_path)
        assert first == again, path


def test_information_is_kaldis(golden):
    assert describe(str(golden / "nnet2/10.mdl"), InfoOptions()) == (golden / "ops/10.info").read_text()
    assert describe(str(golden / "nnet2/10.mdl"), InfoOptions(True)) == "0.002:0.002:0.002\n"


def test_damaged_models_say_where(golden, tmp_path):
    data = (golden / "nnet2/0.mdl").read_bytes()
    for size in (0, 1, 100, len(data) // 2, len(data) - 3):
        (tmp_path / "cut.mdl").write_bytes(data[:size])
        with pytest.raises(DataError, match=r"cut\.mdl"):
            read_model(str(tmp_path / "cut.mdl"))
    with pytest.raises(DataError, match="a raw network"):
        read_model(str(golden / "ops/hidden.raw"))


PLACES = {  # where a number is in a model, and what the error calls it
    "params": ("steps/tanh.10mb", lambda m: m.nnet[2].params, r"the params of component 2 \(Affine"),
    "fixed": ("steps/fixed.10mb", lambda m: m.nnet[1].linear, r"the linear of component 1 \(FixedAffine"),
    "statistics": ("steps/tanh.10mb", lambda m: m.nnet[3].value_sum, r"value_sum of component 3 \(TanhComponent"),
    "priors": ("nnet2/10", lambda m: m.priors, "the priors"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_refused_naming_the_place(place, value, golden, tmp_path):
    name, find, message = PLACES[place]
    model = read_model(str(golden / f"{name}.mdl"))
    find(model).reshape(-1)[-1] = value
    write_model(model, str(tmp_path / "bad.mdl"), finite=False)
    for read in (read_model, read_nnet):
        with pytest.raises(DataError, match=rf"bad\.mdl: NaN or infinity in .*{message}"):
            read(str(tmp_path / "bad.mdl"))
    assert "num-components" in describe(str(tmp_path / "bad.mdl"), InfoOptions())  # to look at it


def test_priors_must_fit(golden, tmp_path):
    model = read_model(str(golden / "nnet2/10.mdl"))
    model.priors = model.priors[:5]
    write_model(model, str(tmp_path / "x.mdl"))
    with pytest.raises(DataError, match="5 priors for a network of 96 outputs"):
        read_model(str(tmp_path / "x.mdl"))


# ---- outputs


@pytest.mark.parametrize("name", NETWORKS.split())
def test_outputs_are_kaldis(name, golden):
    features = dict(SequentialReader(f"ark:{golden}/steps/feats3.ark", "matrix"))
    for model, wanted in (("0", "out0"), ("10mb", "out10")):
        computer = Computer(read_nnet(str(golden / f"steps/{name}.{model}.mdl")))
        for utterance, output in SequentialReader(f"ark:{golden}/steps/{name}.{wanted}.ark", "matrix"):
            np.testing.assert_allclose(computer.output(features[utterance]), output, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NETWORKS.split())
def test_objective_is_kaldis(name, golden):
    lines = (golden / f"steps/{name}.prob").read_text().splitlines()
    for model, line in zip(("0", "1mb", "10mb"), lines):
        words = line.split()
        score = objective_of_examples(
            read_nnet(str(golden / f"steps/{name}.{model}.mdl")), f"ark:{golden}/nnet2/egs/valid_diagnostic.egs", 128
        )
        assert score.log_prob_per_frame == pytest.approx(float(words[words.index("probability") + 2]), abs=1e-4)
        assert score.accuracy == pytest.approx(float(words[words.index("accuracy") + 2]), abs=0.0021)
        assert score.weight == 500


@pytest.mark.parametrize("block_size", [1024, 50])
def test_log_likelihoods_are_kaldis(golden, tmp_path, block_size):
    options = ComputeOptions(apply_log=True, divide_by_priors=True, block_size=block_size)
    done, failed = compute(
        str(golden / "nnet2/10.mdl"),
        f"ark:{golden}/ops/feats_fmllr_train1.ark",
        f"ark:{tmp_path}/out.ark",
        options,
    )
    wanted = dict(SequentialReader(f"ark:{golden}/ops/loglikes.ark", "matrix"))
    assert (done, failed) == (len(wanted), 0)
    for utterance, output in SequentialReader(f"ark:{tmp_path}/out.ark", "matrix"):
        np.testing.assert_allclose(output, wanted[utterance], atol=1e-4)


def test_outputs_of_examples_are_kaldis(golden, tmp_path):
    compute_from_egs(
        str(golden / "nnet2/10.mdl"),
        f"ark:{golden}/nnet2/egs/valid_diagnostic.egs",
        f"ark:{tmp_path}/out.ark",
        ComputeFromEgsOptions(),
    )
    ours, kaldis = (
        np.vstack([value for _, value in SequentialReader(f"ark:{path}/{name}.ark", "matrix")])
        for path, name in ((tmp_path, "out"), (golden / "ops", "compute_from_egs"))
    )
    np.testing.assert_allclose(ours, kaldis, rtol=1e-4, atol=1e-6)


def test_i_vector_network_computes_as_in_kaldis_decoding(golden):
    """A network on features with i-vectors: probabilities in any blocks of frames."""
    nnet = read_nnet(str(golden / "nnet2_iv/final.mdl"))
    assert nnet[0].const_component_dim == 10
    features = np.random.default_rng(0).standard_normal((90, nnet.input_dim)).astype(np.float32)
    whole = Computer(nnet).output(features)
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(Computer(nnet, block_size=7).output(features), whole, rtol=1e-4, atol=1e-7)


def test_blocks_of_a_network_with_splices_inside_agree(golden):
    nnet = read_nnet(str(golden / "steps/multisplice.0.mdl"))
    features = np.random.default_rng(0).standard_normal((45, nnet.input_dim)).astype(np.float32)
    whole = Computer(nnet).output(features)
    np.testing.assert_allclose(Computer(nnet, block_size=4).output(features), whole, rtol=1e-4, atol=1e-7)
    unpadded = Computer(nnet, pad_input=False).output(features)
    np.testing.assert_allclose(unpadded, whole[nnet.left_context : -nnet.right_context], rtol=1e-4, atol=1e-7)


def test_utterances_that_cannot_be_computed_say_why(golden):
    computer = Computer(read_nnet(str(golden / "nnet2/10.mdl")), pad_input=False)
    with pytest.raises(DataError, match="6 frames, but the network needs 7"):
        computer.output(np.zeros((6, 40), np.float32))
    with pytest.raises(DataError, match=r"dimension 39, but .*10\.mdl wants 40"):
        computer.output(np.zeros((9, 39), np.float32))


def test_zero_priors_and_posteriors_stay_finite():
    priors = divisor_priors(np.array([0.5, 0.5, 0.0], np.float32), "x.mdl")
    options = ComputeOptions(apply_log=True, divide_by_priors=True)
    output = finish_output(np.array([[1.0, 1e-20, 0.0]], np.float32), options, priors)
    assert np.isfinite(output).all() and output.argmax() == 0
    with pytest.raises(DataError, match="no priors"):
        divisor_priors(np.zeros(0, np.float32), "x.mdl")


# ---- whole networks


MULTISPLICE = """
SpliceComponent input-dim=3 context=-1:0:1
AffineComponent input-dim=9 output-dim=8
PnormComponent input-dim=8 output-dim=4
NormalizeComponent dim=4
SpliceComponent input-dim=4 context=-2:0:3
AffineComponent input-dim=12 output-dim=6
TanhComponent dim=6
AffineComponent input-dim=6 output-dim=4
SoftmaxComponent dim=4
SumGroupComponent sizes=1:1:2
"""


def test_each_frame_is_computed_once():
    nnet = nnet_from_config(MULTISPLICE, 0)
    assert (nnet.left_context, nnet.right_context) == (3, 4)
    times = frame_times(nnet, 8)
    assert [t.tolist() for t in (times[0], times[1], times[5], times[-1])] == [list(range(8)), [1, 3, 6], [3], [3]]
    assert [len(t) for t in frame_times(nnet, 20)] == [20, 18, 18, 18, 18, 13, 13, 13, 13, 13, 13]


def in_float64(nnet):
    for component in nnet:
        component.astype(np.float64)
    return nnet


@pytest.mark.parametrize("last", ["SumGroupComponent", "SoftmaxComponent"])
def test_gradient_of_a_whole_network(last):
    """Against difference quotients of the objective, in float64; all gradients are at the old parameters."""
    nnet = in_float64(nnet_from_config(MULTISPLICE, 0))
    if last == "SoftmaxComponent":
        nnet = Nnet(nnet.components[:-1])
    rng = np.random.default_rng(0)
    data = rng.standard_normal((5, 8, 3))
    row, pdf, weight = np.array([0, 1, 2, 2, 4]), np.array([0, 2, 1, 2, 2]), np.array([1, 0.5, 1, 0.3, 2.0])
    workspace = Workspace(nnet, 6, 8, dtype=np.float64)

    def objective():
        return float((weight * np.log(workspace.forward(data)[row, pdf])).sum())

    numeric = {}
    for i, component in enumerate(nnet):
        if component in nnet.updatable:
            slopes = np.zeros_like(component.params)
            for index in np.ndindex(*slopes.shape):
                kept = component.params[index]
                component.params[index] = kept + 1e-6
                above = objective()
                component.params[index] = kept - 1e-6
                slopes[index] = (above - objective()) / 2e-6
                component.params[index] = kept
            numeric[i] = slopes
    objective()
    seen = []
    for step in workspace.backward_labels(row, pdf, weight):
        (factors,) = step.factors
        np.testing.assert_allclose(factors.dy.T @ factors.x, numeric[step.index], rtol=1e-5, atol=1e-8)
        seen.append(step.index)
        step.component.params += 100.0  # must not disturb the gradients below
    assert seen == sorted(numeric, reverse=True)


def test_smaller_and_larger_minibatches_use_the_same_workspace():
    nnet = nnet_from_config(MULTISPLICE, 0)
    data = np.random.default_rng(0).standard_normal((7, 8, 3)).astype(np.float32)
    workspace = Workspace(nnet, 4, 8)
    whole = workspace.forward(data).copy()
    np.testing.assert_allclose(workspace.forward(data[:2]), whole[:2], rtol=1e-5)
    np.testing.assert_allclose(workspace.forward(data), whole, rtol=1e-6)


def test_statistics_are_of_the_components_behind_the_first_updatable():
    nnet = nnet_from_config("TanhComponent dim=3\n" + MULTISPLICE, 0)
    workspace = Workspace(nnet, 5, 8)
    workspace.forward(np.random.default_rng(0).standard_normal((5, 8, 3)).astype(np.float32))
    workspace.accumulate_statistics()
    counts = {c.type_name: c.count for c in nnet.with_statistics}
    assert nnet[0].count == 0 and nnet[7].count == 5
    assert counts["SoftmaxComponent"] == 5 and counts["NormalizeComponent"] == 0


def test_dimensions_that_do_not_chain_name_both_components():
    with pytest.raises(DataError, match=r"component 0 \(TanhComponent\) outputs 3, but component 1 \(TanhC.* wants 4"):
        nnet_from_config("TanhComponent dim=3\nTanhComponent dim=4\n", 0)
    with pytest.raises(DataError, match="at least one component"):
        nnet_from_config("# nothing\n", 0)


def test_examples_that_do_not_fit_the_model_are_refused(golden):
    """Context, feature and i-vector dimension, and labels: both numbers are named."""
    egs = f"ark:{golden}/nnet2/egs/valid_diagnostic.egs"  # 40 features, context 3 + 3, 96 pdfs, no i-vector
    splice = "SpliceComponent input-dim=40 "
    for text, message in (
        (splice + "context=-4:0:3\nAffineComponent input-dim=120", "needs 4 frames of left context"),
        ("AffineComponent input-dim=39", "takes 39 inputs a frame, the examples have 40"),
        (splice + "context=0 const-component-dim=10\nAffineComponent input-dim=40", "i-vectors of dimension 10"),
    ):
        nnet = nnet_from_config(f"{text} output-dim=96\nSoftmaxComponent dim=96\n", 0)
        with pytest.raises(DataError, match=message):
            objective_of_examples(nnet, egs)
    nnet = nnet_from_config("AffineComponent input-dim=40 output-dim=20\nSoftmaxComponent dim=20\n", 0)
    with pytest.raises(DataError, match=r"has label \d+, expected 0\.\.19"):
        objective_of_examples(nnet, egs)


def test_wrong_input_names_both_dimensions():
    nnet = nnet_from_config(MULTISPLICE, 0)
    with pytest.raises(DataError, match="dimension 4, wanted is 3"):
        Workspace(nnet, 1, 8).forward(np.zeros((1, 8, 4), np.float32))
    with pytest.raises(DataError, match="7 frames, but the network needs 8"):
        Workspace(nnet, 1, 7)


def test_networks_of_different_shape_say_what_differs(golden):
    a, b = (read_nnet(str(golden / f"steps/{n}.0.mdl")) for n in ("tanh", "sigmoid"))
    assert "component 3 is TanhComponent 64 -> 64" in a.shape_difference(b)
    assert a.shape_difference(a.copy()) == ""


def test_programs_from_files_to_numbers(golden, run, tmp_path):
    model, egs = golden / "nnet2/10.mdl", f"ark:{golden}/nnet2/egs/valid_diagnostic.egs"
    result = run("nnet-compute-prob", "--stats-out=stats.json", model, egs)
    assert float(result.stdout) == pytest.approx(-0.825752, abs=1e-5)
    assert 0.02 < json.loads((tmp_path / "stats.json").read_text())["standard_error"] < 0.2
    run("nnet-copy", "--binary=false", "--learning-rates=1:2:3", model, "text.mdl")
    assert run("nnet-info", "--print-learning-rates", "text.mdl").stdout == "1:2:3\n"
    run("nnet-copy", "--raw", "text.mdl", "raw")
    assert run("nnet-info", "raw").stdout.startswith("num-components 11\n")
    assert run("nnet-info", "--text-out=info.txt", "raw").stdout == ""
    assert (tmp_path / "info.txt").read_text().startswith("num-components 11\n")
    run("nnet-compute", "--apply-log", "raw", f"ark:{golden}/steps/feats3.ark", "ark:out.ark")
    result = run("nnet-compute", "raw", f"ark:{golden}/feats/none.ark", "ark:none.ark", status=1)
    assert "none.ark" in result.stderr


def test_file_reader_stops_behind_the_model(golden):
    """Something may follow a model in a stream: nothing of it is consumed."""
    with open_reader(f"cat {golden}/ops/hidden.raw - < {golden}/ops/10.info |") as reader:
        Nnet.read(reader)
        assert reader.stream.read(14) == b"num-components"
