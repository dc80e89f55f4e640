"""Runs the driver on fake programs: `drive.py DIR [--name=value ...]`; DIR/egs holds the fake examples. For tests."""

import sys
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.launch.client import Launcher
from ngsgd.options import convert
from ngsgd.report.display import Lines
from ngsgd.train import iteration
from ngsgd.train.driver import Driver
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import make_plan
from ngsgd.train.realign import Realigner
from ngsgd.train.run import ending_jobs
from ngsgd.train.setup import Examples, Inputs
from ngsgd.train.workdir import Workdir


def drive(directory: str, *args: str) -> None:
    """Train with the given options; without any, the plan has 12 iterations and all that there can be in a plan."""
    iteration.last_updatable = lambda model: 2
    values = {
        "num_epochs": "4",
        "num_epochs_extra": "1",
        "num_jobs_initial": "2",
        "num_jobs_final": "3",
        "cmd": "run.py",
    }
    values |= {name.replace("-", "_"): value for name, value in (arg[2:].split("=", 1) for arg in args)}
    made = []
    for kind in (TrainOptions, DriverOptions):
        own = {n: convert(kind, n, v, n) for n, v in values.items() if n in kind.__dataclass_fields__}
        made.append(kind(**own))
    options, how = made
    work = Workdir(directory)
    lock = work.lock()
    work.record(options, {"egs": f"{directory}/egs"})
    launcher = Launcher(how.cmd, keep=(lock,))
    plan = make_plan(options, num_archives=3, frames_per_eg=2)
    display = Lines()
    egs = Examples(f"{directory}/egs", 3, 2, 0, 0, 1, 0)
    realigner = Realigner(work, Inputs("data", "lang", "ali"), egs, options, how, launcher)
    with ending_jobs(launcher, display):
        Driver(work, egs.directory, plan, options, how, launcher, display, realigner).run()


def prepare(directory: Path, archives: int = 3) -> None:
    """The fake examples, model 0 and layer configuration."""
    (directory / "egs").mkdir(parents=True)
    (directory / "egs/valid_combine.egs").write_text("held out\n")
    for number in range(1, archives + 1):
        (directory / f"egs/egs.{number}.ark").write_text(f"archive {number}\n")
    (directory / "hidden.config").write_text("a layer\n")
    (directory / "0.mdl").write_text('{"age": 0, "weight": 1.0, "rate": 0.01, "layers": 1}\n')


if __name__ == "__main__":
    try:
        drive(*sys.argv[1:])
    except DataError as error:
        print(f"ERROR {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
