"""A training that diverges, with the real programs: what is said, and what stays."""

import re
import sys
from pathlib import Path

import pytest

from ngsgd.nnet.model import read_model, write_model
from ngsgd.train.options import TrainOptions
from ngsgd.train.plan import make_plan, write_plan

OPTIONS = {"num_epochs": 1, "num_epochs_extra": 0, "hidden_layers": 1, "num_jobs_initial": 2, "num_jobs_final": 2}
OPTIONS |= {"initial_effective_lrate": 5e29, "final_effective_lrate": 5e29, "final": "last"}
DRIVE = f"""
from ngsgd import cli
from ngsgd.launch.client import Launcher
from ngsgd.report.display import Lines
from ngsgd.train.driver import Driver
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import read_plan
from ngsgd.train.realign import Realigner
from ngsgd.train.run import ending_jobs
from ngsgd.train.setup import Examples, Inputs
from ngsgd.train.workdir import Workdir

@cli.program("Usage: drive EGS DIR")
@cli.argument("egs")
@cli.argument("directory")
def main(egs, directory):
    work, options, how, display = Workdir(directory), TrainOptions(**{OPTIONS}), DriverOptions(), Lines()
    launcher, plan = Launcher(how.cmd), read_plan(work.file("plan.tsv"))
    realigner = Realigner(work, Inputs("data", "lang", "ali"), Examples.read(egs), options, how, launcher)
    work.record(options, {{}})
    with ending_jobs(launcher, display):
        Driver(work, egs, plan, options, how, launcher, display, realigner).run()

main()
"""


@pytest.fixture
def wild(golden, tmp_path):
    """A training before its last iteration, of two jobs, at an impossible learning rate."""
    folder = tmp_path / "exp"
    folder.mkdir()
    plan = make_plan(TrainOptions(**OPTIONS), num_archives=1, frames_per_eg=6)
    assert len(plan) == 3
    write_plan(str(folder / "plan.tsv"), plan)
    model = read_model(str(golden / "nnet2/9.mdl"))
    model.nnet.set_learning_rates([plan[2].learning_rate] * len(model.nnet.updatable))
    for component in model.nnet.updatable:
        component.max_change_per_sample = 0.0
    write_model(model, str(folder / "2.mdl"))
    return folder


def test_divergence_is_told_with_iteration_layer_rate_and_remedy_and_the_model_before_stays(wild, golden, run):
    before = (wild / "2.mdl").read_bytes()
    result = run(sys.executable, "-c", DRIVE, golden / "nnet2/egs", wild, status=1)
    error = [line for line in result.stderr.splitlines() if line.startswith("ERROR")][-1]
    for pattern in (
        r"iteration 2: 2 of 2 jobs failed, at learning rate 1e\+30 \(5e\+29 x 2\)",
        r"\(nnet-train-ngsgd\) \S+/2\.mdl: training diverged: .* after \d+ minibatches",
        r"component \d \(Affine\w+\) has learning rate 1e\+30 and .* times the norm that it began with",
        r"see \S+/log/train\.2\.1\.log",
        r"model 2 stays; lower --initial-effective-lrate \(now 5e\+29\) or --max-change-per-sample \(now 0\.075\)",
    ):
        assert re.search(pattern, error), f"{pattern} in: {error}"
    assert (wild / "2.mdl").read_bytes() == before
    assert sorted(p.name for p in wild.glob("*.mdl")) == ["2.mdl"]
    report = Path(wild / "report.html").read_text()
    assert "stopped: iteration 2: 2 of 2 jobs failed" in report and "refresh" not in report
