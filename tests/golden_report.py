"""How far we are from Kaldi on its own files, as one table: case, largest relative difference, bound, verdict.

Usage: python -m tests.golden_report [--markdown]

Features, trees, GMMs, networks and training; the reference files are where `tests/conftest.py` looks for them. Exits 1
when a bound is missed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ngsgd.kaldi_io.tables import SequentialReader
from ngsgd.nnet.compute import Computer, objective_of_examples
from ngsgd.nnet.model import read_nnet
from ngsgd.nnet.train import TrainOptions, train
from tests import test_features_golden as mfcc
from tests.conftest import SHARED
from tests.golden_operations import operations
from tests.test_fmllr import agreement as speaker_adaptation
from tests.test_gmm_training import agreement as gmm_training
from tests.test_lda_mllt import agreement as lda_and_mllt
from tests.test_train import STEPS, kaldis_run, largest_difference, minibatches_for
from tests.test_tree import agreement as trees

Row = tuple[str, float, float]  # case, difference, bound


def features(golden: Path) -> Iterator[Row]:
    """MFCC of the recordings, in units of each utterance's range; CMVN and transforms, relative."""
    for name in mfcc.SETS:
        limits, quantiles = mfcc.before_compression(golden, name)
        yield f"MFCC {name}, smallest and largest value before compression", limits, 1e-5
        yield f"MFCC {name}, quartiles of columns (of 16 bits) before compression", quantiles, 2e-5
        yield (
            f"MFCC {name}, codes of the compressed one step away, part of all",
            mfcc.compression_steps(golden, name)[1],
            2e-3,
        )
    for part in ("train", "test"):
        yield f"CMVN statistics, {part}", mfcc.statistics(golden, part), 0.0
    yield from ((what, difference, 1e-5) for what, difference in mfcc.transformed(golden))


def forward_outputs(steps: Path) -> Iterator[Row]:
    """Output on three utterances, before and after ten minibatches."""
    for name in STEPS:
        worst = 0.0
        for model, out in (("0", "out0"), ("10mb", "out10")):
            computer = Computer(read_nnet(str(steps / f"{name}.{model}.mdl")))
            theirs = dict(SequentialReader(f"ark:{steps}/{name}.{out}.ark", "matrix"))
            for key, features in SequentialReader(f"ark:{steps}/feats3.ark", "matrix"):
                difference = np.abs(computer.output(features) - theirs[key]).max() / np.abs(theirs[key]).max()
                worst = max(worst, float(difference))
        yield f"forward output, {name}", worst, 1e-5


def training_steps(steps: Path) -> Iterator[Row]:
    """Change of the parameters by 1, 10 and 20 minibatches."""
    for name, (one, ten) in STEPS.items():
        for kind, egs, passes, bound in (
            ("1mb", "egs64.ark", 1, one),
            ("10mb", "egs640.ark", 1, ten),
            ("20mb", "egs640.ark", 2, ten),
        ):
            path = steps / f"{name}.{kind}.mdl"
            if not path.exists():
                continue
            start, ours = (read_nnet(str(steps / f"{name}.0.mdl")) for _ in range(2))
            train(ours, minibatches_for(ours, f"ark:{steps}/{egs}", 64) * passes, TrainOptions(minibatch_size=64))
            yield f"change by {kind}, {name}", largest_difference(start, ours, read_nnet(str(path))), bound


def log_probs(golden: Path) -> Iterator[Row]:
    """Valid log-probability of given models, and of the whole run replayed."""
    egs = f"ark:{golden}/nnet2/egs/valid_diagnostic.egs"
    worst = 0.0
    for name in STEPS:
        lines = (golden / "steps" / f"{name}.prob").read_text().splitlines()
        for kind, line in zip(("0", "1mb", "10mb"), lines):
            ours = objective_of_examples(read_nnet(str(golden / "steps" / f"{name}.{kind}.mdl")), egs)
            theirs = float(line.split("probability is ")[1].split()[0])
            worst = max(worst, abs(ours.log_prob_per_frame - theirs) / abs(theirs))
    yield "valid log-prob of given models", worst, 1e-4
    for iteration, which, ours, theirs in kaldis_run(golden / "nnet2"):
        yield f"replayed run, {which} log-prob before iteration {iteration} (absolute)", abs(ours - theirs), 0.005


def main(markdown: bool) -> int:
    """Print the table; the number of rows that miss their bound."""
    golden, missed = SHARED / "golden", 0
    if not golden.is_dir():
        print(f"the reference files are not at {golden}", file=sys.stderr)
        return 1
    row = "| {:76} | {:>10} | {:>8} | {} |" if markdown else "{:76} {:>10} {:>8}  {}"
    print(row.format("case", "difference", "bound", "verdict"))
    if markdown:
        print("|---|---|---|---|")
    steps = golden / "steps"
    for rows in (
        features(golden),
        forward_outputs(steps),
        training_steps(steps),
        log_probs(golden),
        operations(golden),
        trees(golden),
        gmm_training(golden),
        lda_and_mllt(golden),
        speaker_adaptation(golden),
    ):
        for case, difference, bound in rows:
            agrees = difference <= bound
            missed += not agrees
            print(row.format(case, f"{difference:.1e}", f"{bound:.0e}", "agrees" if agrees else "DIFFERS"), flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(1 if main("--markdown" in sys.argv) else 0)
