"""Every operation on networks that Kaldi was run for, beside ours: rows of `tests.golden_report`.

shared/golden/ops/commands.txt line by line. Not there: nnet-relabel-egs (run on nothing) and nnet-replace-last-layers
(which failed for want of an option); what they do is tested without Kaldi. Where Kaldi draws random numbers, the rows
compare what does not depend on them.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ngsgd.hmm.align import AlignOptions
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.nnet import compute as computing
from ngsgd.nnet import edit
from ngsgd.nnet.alignment import NnetAlignOptions, align_archive
from ngsgd.nnet.average import AverageOptions, HistoryOptions, average_files
from ngsgd.nnet.averaging.rule import AveragingOptions
from ngsgd.nnet.combine import Combination, fisher_factor, lbfgs_path
from ngsgd.nnet.config import NnetInitOptions, initialise
from ngsgd.nnet.copy_model import CopyOptions, copy
from ngsgd.nnet.gradient import minibatches_for
from ngsgd.nnet.info import InfoOptions, describe
from ngsgd.nnet.insert import InsertOptions, insert
from ngsgd.nnet.learning_rates import ModifyLearningRatesOptions
from ngsgd.nnet.mixup import MixupOptions, mix_up_model
from ngsgd.nnet.model import Nnet, read_model, read_nnet
from ngsgd.nnet.priors import AdjustPriorsOptions, adjust_priors, posterior_sum
from ngsgd.nnet.progress import ProgressOptions, show_progress
from ngsgd.nnet.surgery import FixOptions, NormalizeStddevOptions, SwitchPreconditioningOptions, WidenOptions
from tests.test_average import largest_difference
from tests.test_nnet_align import share_of_equal_frames
from tests.test_nnet_model import models_of

Row = tuple[str, float, float]  # case, difference, bound
Operation = Callable[[str], None]  # writes to the path that it is given


def operations(golden: Path) -> Iterator[Row]:
    """All of them."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        yield "copy: models of 97 that do not come back byte for byte", _changed_by_copying(golden, out), 0.0
        for name, make in _same_bytes(golden).items():
            make(out)
            same = Path(out).read_bytes() == (golden / "ops" / name).read_bytes()
            yield f"{name}, byte for byte", 0.0 if same else 1.0, 0.0
        for name, (make, bound) in _same_parameters(golden).items():
            make(out)
            ours, theirs = read_nnet(out), read_nnet(str(golden / "ops" / name))
            yield f"{name}, parameters", largest_difference(ours, theirs), bound
            rates = np.array(ours.learning_rates) / np.array(theirs.learning_rates) - 1
            yield f"{name}, learning rates", float(np.abs(rates).max()), 1e-4
        yield from _random(golden, out)
        yield from _outputs(golden, out)
        yield from _alignments(golden, out)
    yield from _combination(golden)
    yield from _progress(golden)


def _changed_by_copying(golden: Path, out: str) -> float:
    """How many of Kaldi's models do not come back byte for byte."""
    changed = 0
    for path in models_of(golden):
        data = path.read_bytes()
        copy(str(path), out, CopyOptions(binary=data[:2] == b"\0B"))
        changed += Path(out).read_bytes() != data
    return float(changed)


def _same_bytes(golden: Path) -> dict[str, Operation]:
    model, hidden = f"{golden}/nnet2/10.mdl", f"{golden}/ops/hidden.raw"
    switch = SwitchPreconditioningOptions(num_samples_history=1000)
    inserting = InsertOptions(insert_at=7, randomize_next_component=False)
    return {
        "learning_rate.mdl": lambda out: copy(model, out, CopyOptions(learning_rate=0.0123)),
        "learning_rate_factor.mdl": lambda out: copy(model, out, CopyOptions(learning_rate_factor=0.5)),
        "10.txt.mdl": lambda out: copy(model, out, CopyOptions(binary=False)),
        "10.info": lambda out: Path(out).write_text(describe(model, InfoOptions())),
        "switch_preconditioning.mdl": lambda out: edit.switch_preconditioning(model, out, switch),
        "insert.mdl": lambda out: insert(model, hidden, out, inserting),
    }


def _same_parameters(golden: Path) -> dict[str, tuple[Operation, float]]:
    models = [f"{golden}/nnet2/{i}.mdl" for i in (8, 9, 10)]
    weighted = AverageOptions(weights="0.2:0.3:0.5")
    plain = AveragingOptions(), HistoryOptions()
    rates = ModifyLearningRatesOptions(average_learning_rate=0.002)
    combined, tanh = f"{golden}/ops/combine.mdl", f"{golden}/steps/tanh.10mb.mdl"
    return {
        "average.mdl": (lambda out: average_files(models, out, AverageOptions(), *plain), 1e-6),
        "average_weighted.mdl": (lambda out: average_files(models, out, weighted, *plain), 1e-6),
        "normalize.mdl": (lambda out: edit.normalise_stddev(combined, out, NormalizeStddevOptions()), 1e-6),
        "fix_tanh.mdl": (lambda out: edit.fix(tanh, out, FixOptions(min_average_deriv=0.1)), 1e-6),
        "modify_lr.mdl": (lambda out: edit.modify_learning_rates(models[1], models[2], out, rates), 0.0),
    }


def _random(golden: Path, out: str) -> Iterator[Row]:
    """Shapes and spread of what Kaldi drew at random."""
    initialise(f"{golden}/nnet2/hidden.config", out, NnetInitOptions(srand=1))
    ours, theirs = read_nnet(out), read_nnet(f"{golden}/ops/hidden.raw")
    yield "init: hidden.raw, shapes", _shapes_differ(ours, theirs), 0.0
    yield "init: hidden.raw, standard deviation of the parameters", _spread(ours[0].linear, theirs[0].linear), 0.05

    before = read_nnet(f"{golden}/steps/tanh.10mb.mdl")
    edit.widen(f"{golden}/steps/tanh.10mb.mdl", out, WidenOptions(hidden_layer_dim=100))
    ours, theirs = read_nnet(out), read_nnet(f"{golden}/ops/widen.mdl")
    yield "widen: shapes", _shapes_differ(ours, theirs), 0.0
    yield "widen: standard deviation of new parameters", _spread(ours[2].linear[64:], theirs[2].linear[64:]), 0.05
    lost = 0.0 if not theirs[2].linear[:64].any() and not theirs[4].linear.any() else 1.0
    yield "widen: Kaldi's zeroes the trained parameters, its bug (0: it does)", lost, 0.0
    yield "widen: ours keeps them", float(np.abs(ours[2].params[:64] - before[2].params).max()), 0.0

    mix_up_model(f"{golden}/steps/pnorm_online.10mb.mdl", out, MixupOptions(min_count=3, num_mixtures=150))
    ours, theirs = read_nnet(out), read_nnet(f"{golden}/ops/mixup.mdl")
    yield "mixup: components of each pdf", float(np.abs(ours[7].sizes - theirs[7].sizes).max()), 0.0
    yield "mixup: counts", float(np.abs(ours[6].value_sum / theirs[6].value_sum - 1).max()), 1e-5
    yield "mixup: biases", float(np.abs(ours[5].bias - theirs[5].bias).max()), 1e-5


def _shapes_differ(ours: Nnet, theirs: Nnet) -> float:
    return 1.0 if ours.shape_difference(theirs) else 0.0


def _spread(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(abs(ours.std() / theirs.std() - 1))


def _outputs(golden: Path, out: str) -> Iterator[Row]:
    """Outputs, priors and the objective of 10.mdl."""
    model, egs = f"{golden}/nnet2/10.mdl", f"ark:{golden}/nnet2/egs/valid_diagnostic.egs"
    options = computing.ComputeOptions(apply_log=True, divide_by_priors=True)
    computing.compute(model, f"ark:{golden}/ops/feats_fmllr_train1.ark", f"ark:{out}", options)
    theirs = dict(SequentialReader(f"ark:{golden}/ops/loglikes.ark", "matrix"))
    ours = dict(SequentialReader(f"ark:{out}", "matrix"))
    worst = max(float(np.abs(ours[key] - theirs[key]).max()) for key in theirs)
    yield "log-likelihoods of 72 utterances (absolute)", worst, 1e-4
    computing.compute_from_egs(model, egs, f"ark:{out}", computing.ComputeFromEgsOptions())
    ours, theirs = (
        np.vstack([y for _, y in SequentialReader(f"ark:{path}", "matrix")])
        for path in (out, golden / "ops" / "compute_from_egs.ark")
    )
    yield "outputs of 500 examples", float(np.abs(ours - theirs).max() / theirs.max()), 1e-5
    nnet = read_nnet(model)
    with open_reader(str(golden / "ops" / "post.vec")) as reader:
        posteriors = reader.vector()
    ours = posterior_sum(nnet, minibatches_for(nnet, egs, 512), 512)
    yield "posteriors summed over them", float(np.abs(ours - posteriors).max() / posteriors.max()), 1e-5
    adjust_priors(model, str(golden / "ops" / "post.vec"), out, AdjustPriorsOptions())
    theirs = read_model(str(golden / "ops" / "adjust_priors.mdl")).priors
    yield "adjust-priors", float(np.abs(read_model(out).priors / theirs - 1.0).max()), 1e-6
    found = computing.objective_of_examples(nnet, egs)
    line = re.search(r"probability is (\S+) and accuracy is (\S+)", (golden / "ops" / "compute_prob.log").read_text())
    yield "compute-prob, log-prob", abs(found.log_prob_per_frame / float(line[1]) - 1), 1e-4
    yield "compute-prob, accuracy (absolute)", abs(found.accuracy - float(line[2])), 0.0


def _alignments(golden: Path, out: str) -> Iterator[Row]:
    """Frames that took another transition."""
    graphs = dict(SequentialReader(f"ark:gunzip -c {golden}/ops/fsts.1.gz |", "fst"))
    for model, feats, theirs in (
        ("nnet2/10", "ops/feats_fmllr_train1", "ops/ali.nnet.1"),
        ("nnet2/final", "disc/feats12", "disc/ali"),
    ):
        with Writer(f"ark:{out}.fsts", "fst") as writer:
            for key, _ in SequentialReader(f"ark:{golden}/{feats}.ark", "matrix"):
                writer.write(key, graphs[key])
        align_archive(
            *(f"{golden}/{model}.mdl", f"ark:{out}.fsts", f"ark:{golden}/{feats}.ark", f"ark:{out}"),
            AlignOptions(),
            NnetAlignOptions(),
        )
        yield f"align: {theirs}, frames that differ", 1 - share_of_equal_frames(out, f"{golden}/{theirs}.ark"), 0.005


def _combination(golden: Path) -> Iterator[Row]:
    """The objective that L-BFGS begins with and ends at, on the examples that it fits; ours may end higher."""
    nnets = [read_nnet(str(golden / "nnet2" / f"{i}.mdl")) for i in (7, 8, 9, 10)]
    egs = f"ark:{golden}/nnet2/egs/combine.egs"
    log = (golden / "ops" / "combine.log").read_text()
    combination = Combination(nnets, 512)
    average = np.full(combination.shape, 0.25)
    combination.set(average)
    factor = fisher_factor(combination, minibatches_for(nnets[0], egs, 64), 0.01)
    path = lbfgs_path(combination, minibatches_for(nnets[0], egs, 512), factor, average, 40)
    before, after = map(float, re.search(r"objf per frame changed from (\S+) to (\S+)", log).groups())
    yield "combine: objective of the average (absolute)", abs(path[0][1] - before), 1e-4
    yield "combine: objective of the fit, less than Kaldi's by", max(0.0, after - path[-1][1]), 0.01


def _progress(golden: Path) -> Iterator[Row]:
    egs = f"ark:{golden}/nnet2/egs/train_diagnostic.egs"
    ours = show_progress(f"{golden}/nnet2/9.mdl", f"{golden}/nnet2/10.mdl", egs, ProgressOptions())
    log = (golden / "ops" / "show_progress.log").read_text()
    rows = [np.array(row.split(), float) for row in re.findall(r"\[ (.*) \]", log)]
    for name, theirs in zip(("objective_change", "difference", "relative_difference"), rows, strict=True):
        yield f"show-progress: {name}", float(np.abs(np.array(getattr(ours, name)) / theirs - 1).max()), 1e-4
