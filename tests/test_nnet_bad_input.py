"""Models, examples and configs that cannot be used: every program of networks says why in one line and writes nothing.

The lines of the cases "Egs, models, i-vectors": `MODELS` and `EXAMPLES` are the kinds of damage, and every program that
takes a model, or examples, is run on each.
"""

import re

import numpy as np
import pytest

from ngsgd.egs.example import NnetExample
from ngsgd.kaldi_io.compressed import CompressedMatrix
from ngsgd.kaldi_io.tables import Writer
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.model import AmNnet, read_model, read_nnet, write_model

PDFS = 5
CONFIG = f"""\
SpliceComponent input-dim=4 left-context=1 right-context=1
AffineComponentPreconditionedOnline input-dim=12 output-dim=6 learning-rate=0.01 rank-in=3 rank-out=3
TanhComponent dim=6
AffineComponentPreconditionedOnline input-dim=6 output-dim={PDFS} learning-rate=0.01 rank-in=3 rank-out=3
SoftmaxComponent dim={PDFS}
"""

MODEL_PROGRAMS = {  # what follows the program, `bad` the damaged model
    "nnet-train-ngsgd": "bad ark:egs out",
    "nnet-average": "good bad out",
    "nnet-combine": "bad ark:egs ark:egs out",
    "nnet-compute": "bad ark:feats ark:out",
    "nnet-compute-prob": "bad ark:egs",
    "nnet-compute-from-egs": "bad ark:egs ark:out",
    "nnet-adjust-priors": "bad ark:egs out",
    "nnet-show-progress": "--stats-out=out good bad ark:egs",
    "nnet-modify-learning-rates": "good bad out",
    "nnet-insert": "bad raw out",
    "nnet-replace-last-layers": "bad raw out",
    "nnet-mixup": "--num-mixtures=7 bad out",
    "nnet-fix": "bad out",
    "nnet-widen": "--hidden-layer-dim=9 bad out",
    "nnet-normalize-stddev": "bad out",
    "nnet-switch-preconditioning": "bad out",
    "nnet-copy": "bad out",
    "nnet-am-init": "good bad out",
    "nnet-align": "bad ark:egs ark:feats ark:out",
    "nnet-train-transitions": "bad ark:ali out",
}
EGS_PROGRAMS = {
    "nnet-train-ngsgd": "good ark:bad out",
    "nnet-compute-prob": "--stats-out=out good ark:bad",
    "nnet-compute-from-egs": "good ark:bad ark:out",
    "nnet-adjust-priors": "good ark:bad out",
    "nnet-show-progress": "--stats-out=out good other ark:bad",
    "nnet-combine": "good other ark:bad ark:egs out",
    "nnet-combine held-out": "good other ark:egs ark:bad out",
}


def transitions(golden):
    return read_model(str(golden / "nnet2/10.mdl")).transitions


def examples(path, count=8, left=1, frames=2, right=1, dim=4, ivector=0, label=None, value=0.0, weight=1.0):
    rng = np.random.default_rng(0)
    with Writer(f"ark:{path}", "nnet_example") as out:
        for i in range(count):
            rows = rng.standard_normal((left + frames + right, dim)).astype(np.float32) + np.float32(value)
            labels = [[(int(rng.integers(PDFS)) if label is None else label, weight)] for _ in range(frames)]
            rows = CompressedMatrix.from_dense(rows) if np.isfinite(value) else rows
            out.write(f"utt-{i}", NnetExample(labels, rows, left, np.ones(ivector, np.float32)))


@pytest.fixture
def work(golden, tmp_path):
    """good, other: models; egs, feats: archives that fit them."""
    nnet = nnet_from_config(CONFIG, 0)
    model = AmNnet(transitions(golden), nnet, np.full(PDFS, 1 / PDFS, np.float32))
    write_model(model, str(tmp_path / "good"))
    model.nnet.updatable[0].params *= np.float32(1.1)
    write_model(model, str(tmp_path / "other"))
    write_model(AmNnet(None, nnet_from_config(f"SoftmaxComponent dim={PDFS}", 0)), str(tmp_path / "raw"))
    examples(tmp_path / "egs")
    with Writer(f"ark:{tmp_path}/feats", "matrix") as out:
        out.write("utt-1", np.ones((7, 4), np.float32))
    with Writer(f"ark:{tmp_path}/ali", "int32_vector") as out:
        out.write("utt-1", np.ones(7, np.int32))
    return tmp_path


def of_good(work, change):
    model = read_model(str(work / "good"))
    change(model)
    write_model(model, str(work / "bad"), finite=False)


def set_nan(model):
    model.nnet.updatable[1].params[2, 3] = np.nan


def cut(work, source, size):
    (work / "bad").write_bytes((work / source).read_bytes()[:size])


MODELS = {
    "NaN": (lambda w: of_good(w, set_nan), r"bad.*NaN or infinity in (the params of component 3 \(Affine|each)"),
    "cut off": (lambda w: cut(w, "good", -300), r"bad at byte \d+: "),
    "empty": (lambda w: cut(w, "good", 0), r"bad at byte 0: expected a token, found the end"),
    "text": (lambda w: (w / "bad").write_text("hello world\n"), r"bad.*'?hello"),
    "absent": (lambda w: None, "bad: No such file"),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("program", MODEL_PROGRAMS)
def test_models_that_cannot_be_used(program, kind, work, call):
    make, message = MODELS[kind]
    make(work)
    assert_refused(call(program, *MODEL_PROGRAMS[program].split(), status=1), message, work)


@pytest.mark.parametrize(
    "command",
    [
        "nnet-copy --scales=1:inf good out",
        "nnet-copy --learning-rates=nan:1 good out",
        "nnet-copy --learning-rate-factor=inf good out",
        "nnet-average --weights=inf:1 good other out",
        "nnet-widen --hidden-layer-dim=9 --bias-stddev=inf good out",
    ],
)
def test_no_model_that_is_not_finite_is_written(command, work, call):
    with np.errstate(all="ignore"):
        assert_refused(call(*command.split(), status=1), "NaN or infinity in the .* of component", work)


def test_a_network_without_an_output_for_each_pdf(golden, work, call):
    message = "has 5 outputs, but the transition model 96 pdfs"
    assert_refused(call("nnet-align", "good", "ark:egs", "ark:feats", "ark:out", status=1), message, work)
    (work / "narrow.config").write_text("AffineComponent input-dim=20 output-dim=5\nSoftmaxComponent dim=5\n")
    call("nnet-init", "narrow.config", "narrow")
    model = golden / "nnet2/10.mdl"
    result = call("nnet-replace-last-layers", "--remove-layers=3", model, "narrow", "out", status=1)
    assert_refused(result, message, work)
    write_model(AmNnet(transitions(golden), read_nnet(str(model))), str(work / "no priors"))
    (work / "more.config").write_text("AffineComponent input-dim=96 output-dim=5\n")
    call("nnet-init", "more.config", "more")
    options = ["--insert-at=11", "--randomize-next-component=false"]
    assert_refused(call("nnet-insert", *options, "no priors", "more", "out", status=1), message, work)


def assert_refused(result, message, work):
    errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR ")]
    assert len(errors) == 1 and result.stderr.splitlines()[-1] == errors[0], result.stderr
    assert re.search(message, errors[0]), errors[0]
    assert not (work / "out").exists() and result.stdout == ""


EXAMPLES = {
    "empty": (lambda w: (w / "bad").write_bytes(b""), "ark:bad: .*empty|no example"),
    "cut off": (lambda w: cut(w, "egs", -40), "ark:bad: example 8 .* cut off"),
    "no archive": (lambda w: cut(w, "good", 2000), "ark:bad: example 1"),
    "features": (lambda w: examples(w / "bad", dim=3), "takes 4 inputs a frame, the examples have 3"),
    "i-vector": (lambda w: examples(w / "bad", ivector=2), r"examples have 6 \(features 4, i-vector 2\)"),
    "left context": (lambda w: examples(w / "bad", left=0), "needs 1 frames of left context, the examples have 0"),
    "right context": (lambda w: examples(w / "bad", right=0), "needs 1 frames of right context, the examples have 0"),
    "label": (lambda w: examples(w / "bad", label=PDFS), f"has label {PDFS}, expected 0..{PDFS - 1}"),
    "NaN": (lambda w: examples(w / "bad", value=np.nan), "example 1 .* NaN or inf in its input"),
}


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("program", EGS_PROGRAMS)
def test_examples_that_cannot_be_used(program, kind, work, call):
    make, message = EXAMPLES[kind]
    make(work)
    assert_refused(call(program.split()[0], *EGS_PROGRAMS[program].split(), status=1), message, work)


# ---- examples that are odd and must do no harm


ODD = {
    "one row": {"count": 1, "frames": 1},
    "constant": {"value": "same"},
    "zeros": {"value": "zero"},
    "no weight": {"weight": 0.0},
    "one label": {"label": 2},
    "huge": {"value": 1e6},
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("layer", ["AffineComponentPreconditionedOnline", "AffineComponentPreconditioned"])
@pytest.mark.parametrize("options", [["--minibatch-size=1"], ["--minibatch-size=3"], []])
def test_training_on_odd_examples_stays_finite(kind, layer, options, work, golden, call):
    """Ranks at and above the dimensions, minibatches of one row, a last one that is smaller."""
    model = read_model(str(work / "good"))
    settings = "rank-in=40 rank-out=40" if layer.endswith("Online") else "alpha=4.0"
    text = CONFIG.replace("AffineComponentPreconditionedOnline", layer).replace("rank-in=3 rank-out=3", settings)
    write_model(AmNnet(model.transitions, nnet_from_config(text, 0)), str(work / "start"))
    made = dict(ODD[kind])
    if isinstance(made.get("value"), str):
        constant_examples(work / "odd", 0.0 if made["value"] == "zero" else 3.0)
    else:
        examples(work / "odd", **made)
    if kind == "no weight":
        result = call("nnet-train-ngsgd", *options, "start", "ark:odd", "out", status=1)
        assert_refused(result, "no frame to train on|weight", work)
        return
    result = call("nnet-train-ngsgd", *options, "start", "ark:odd", "out")
    for component in read_model(str(work / "out")).nnet.updatable:  # which reads finite models only
        assert np.abs(component.params).max() < 10
    assert float(call("nnet-compute-prob", "out", "ark:odd").stdout) > -20


def constant_examples(path, value):
    with Writer(f"ark:{path}", "nnet_example") as out:
        for i in range(8):
            rows = CompressedMatrix.from_dense(np.full((4, 4), value, np.float32))
            out.write(f"utt-{i}", NnetExample([[(i % PDFS, 1.0)]] * 2, rows, 1, np.zeros(0, np.float32)))


def test_training_with_dimension_one(work, call):
    model = read_model(str(work / "good"))
    text = """SpliceComponent input-dim=1 left-context=0 right-context=0
AffineComponentPreconditionedOnline input-dim=1 output-dim=1 learning-rate=0.01 rank-in=20 rank-out=80
NormalizeComponent dim=1
AffineComponentPreconditioned input-dim=1 output-dim=1 learning-rate=0.01 alpha=4
SoftmaxComponent dim=1
"""
    write_model(AmNnet(model.transitions, nnet_from_config(text, 0)), str(work / "one"))
    examples(work / "thin", dim=1, label=0)
    call("nnet-train-ngsgd", "--minibatch-size=3", "one", "ark:thin", "out")
    assert float(call("nnet-compute-prob", "out", "ark:thin").stdout) == 0
