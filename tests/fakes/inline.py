"""A whole training of the driver in this one process: `inline.py DIR EPOCHS JOBS`; prints the peak memory in MB.

The launcher is a fake that runs the fake programs of programs.py at once, so that hundreds of iterations take seconds.
"""

import contextlib
import io
import os
import resource
import sys
from pathlib import Path

import drive
import programs

from ngsgd.report.display import Lines
from ngsgd.train import iteration
from ngsgd.train.driver import Driver
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import make_plan, write_plan
from ngsgd.train.realign import Realigner
from ngsgd.train.setup import Examples, Inputs
from ngsgd.train.workdir import Workdir


class Done:
    """A launcher that has ended well."""

    what = log = "inline"

    def finished(self) -> bool:
        return True

    def failed(self) -> bool:
        return False


def run(command, text):
    """What a fake program prints with `text` to read."""
    name, *args = command
    given, rest = programs.options(args)
    stdin, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            programs.PROGRAMS[name](given, *rest)
    finally:
        sys.stdin = stdin
    return out.getvalue()


class InlineLauncher:
    """Runs pipelines of the fake programs within this process."""

    def start(self, what, log, words, jobs=None, options=""):
        for job in range(jobs[0], jobs[1] + 1) if jobs else [1]:
            text, command = "", []
            for word in [*words, "|"]:
                if word not in ("|", "&&"):
                    command.append(word.replace("JOB", str(job)))
                    continue
                text, command = run(command, text), []
        return Done()

    def run(self, what, log, words, output):
        self.start(what, log, words)


def main(directory, epochs, jobs):
    jobs = int(jobs)
    iteration.last_updatable = lambda model: 2
    drive.prepare(Path(directory), archives=jobs)
    options = TrainOptions(
        num_epochs=int(epochs), num_epochs_extra=0, num_jobs_initial=jobs, num_jobs_final=jobs, max_models_combine=5
    )
    work = Workdir(directory)
    work.record(options, {})
    plan = make_plan(options, num_archives=jobs, frames_per_eg=1)
    write_plan(work.file("plan.tsv"), plan)
    how, launcher = DriverOptions(), InlineLauncher()
    egs = Examples(f"{directory}/egs", jobs, 1, 0, 0, 1, 0)
    realigner = Realigner(work, Inputs("", "", ""), egs, options, how, launcher)
    Driver(work, egs.directory, plan, options, how, launcher, Lines(), realigner).run()
    print(len(plan), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    os.environ.setdefault("FAKES", sys.argv[1])
    main(*sys.argv[1:])
