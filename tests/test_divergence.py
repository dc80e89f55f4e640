"""A training that diverges, with the real programs: what is said, and what stays."""

import re
import sys
from pathlib import Path

import pytest

from ngsgd.nnet.model import read_model, write_model
from ngsgd.train.options import TrainOptions
from ngsgd.train.plan import NONE, Row, write_plan

DRIVE = """
import sys
from ngsgd import cli
from ngsgd.launch.client import Launcher
from ngsgd.report.display import Lines
from ngsgd.train.driver import Driver
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import read_plan
from ngsgd.train.run import ending_jobs
from ngsgd.train.workdir import Workdir

@cli.program("Usage: drive EGS DIR")
@cli.argument("egs")
@cli.argument("directory")
def main(egs, directory):
    work, options, how, display = Workdir(directory), TrainOptions(final="last"), DriverOptions(), Lines()
    work.record(options, {})
    launcher = Launcher(how.cmd)
    with ending_jobs(launcher, display):
        Driver(work, egs, read_plan(work.file("plan.tsv")), options, how, launcher, display).run()

main()
"""


@pytest.fixture
def wild(golden, tmp_path):
    """A training at its third and last iteration, of two jobs, at an impossible learning rate."""
    folder = tmp_path / "exp"
    folder.mkdir()
    model = read_model(str(golden / "nnet2/9.mdl"))
    model.nnet.set_learning_rates([1e30] * len(model.nnet.updatable))
    for component in model.nnet.updatable:
        component.max_change_per_sample = 0.0
    write_model(model, str(folder / "2.mdl"))
    rest = TrainOptions().averaging, NONE, 0, NONE
    rows = [Row(x, x / 3, 2, 1e30, 128, (1, 1), (0, 1), *rest) for x in range(3)]
    write_plan(str(folder / "plan.tsv"), rows)
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
        r"model 2 stays; lower --initial-effective-lrate \(now 0\.005\) or --max-change-per-sample \(now 0\.075\)",
    ):
        assert re.search(pattern, error), f"{pattern} in: {error}"
    assert (wild / "2.mdl").read_bytes() == before
    assert sorted(p.name for p in wild.glob("*.mdl")) == ["2.mdl"]
    report = Path(wild / "report.html").read_text()
    assert "stopped: iteration 2: 2 of 2 jobs failed" in report and "refresh" not in report
