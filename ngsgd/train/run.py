"""A whole training: preparation, plan, iterations, final model."""

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ngsgd.backend import gpu_missing
from ngsgd.errors import DataError
from ngsgd.launch.client import Launcher
from ngsgd.launch.process import Interrupted, raise_on_signals
from ngsgd.report.display import Display, make_display
from ngsgd.report.progress import format_time
from ngsgd.train.driver import Driver
from ngsgd.train.final import is_finished
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import Row, make_plan, read_plan, write_plan
from ngsgd.train.realign import Realigner
from ngsgd.train.setup import Examples, Inputs, make_examples, make_input_transform, make_model_0
from ngsgd.train.workdir import Workdir

log = logging.getLogger(__name__)


def train_network(data: str, lang: str, ali: str, directory: str, options: TrainOptions, how: DriverOptions) -> None:
    """Train in `directory`; see steps/train_ngsgd.py. Raises DataError; KeyboardInterrupt when a signal ended it."""
    options.check()
    how.check()
    if how.egs_dir and options.egs_on_the_fly:
        raise DataError(f"--egs-on-the-fly and --egs-dir {how.egs_dir}, whose examples are made: give one of the two")
    inputs = Inputs(data, lang, ali)
    inputs.check()
    work = Workdir(directory)
    lock = work.lock()
    if how.overwrite:
        work.clear()
    named = {"data": data, "lang": lang, "ali": ali, "egs": how.egs_dir or "made here"}
    work.record(options, {name: os.path.normpath(path) for name, path in named.items()})
    if is_finished(work):
        log.info("%s is there already; --overwrite begins anew", work.file("final.mdl"))
        return
    inputs.check_contents()
    _check_gpu(how)
    work.remove_half_written()
    display = make_display()
    launcher = Launcher(how.cmd, keep=(lock,), stderr=lambda: display.stderr, tick=display.tick)
    start = time.monotonic()
    with ending_jobs(launcher, display):
        examples = make_examples(work, inputs, options, how, launcher)
        work.record_contents({"examples": examples.contents, "alignments": inputs.contents})
        plan = _plan(work, examples, options, display)
        realigner = Realigner(work, inputs, examples, options, how, launcher)
        realigner.check(plan)
        if how.dry_run:
            return
        make_input_transform(work, inputs, examples, options, how, launcher)
        make_model_0(work, inputs, examples, options, plan[0].learning_rate, launcher)
        Driver(work, examples.directory, plan, options, how, launcher, display, realigner).run()
        if how.remove_egs:
            work.remove_matching("realign.*/egs.*.ark")
            if not how.egs_dir:
                shutil.rmtree(examples.directory)
        display.line(f"{work.file('final.mdl')} is ready after {format_time(time.monotonic() - start)}")


def _check_gpu(how: DriverOptions) -> None:
    """DataError when jobs on this machine are to compute on a GPU that it does not have; elsewhere they say so."""
    if how.device == "gpu" and os.path.basename(how.cmd.split()[0]) == "run.py" and (reason := gpu_missing()):
        raise DataError(f"--device gpu: {reason}; give --device cpu, or a --cmd for machines that have one")


@contextmanager
def ending_jobs(launcher: Launcher, display: Display) -> Iterator[None]:
    """Whatever ends the work in here, an error or a signal (then as KeyboardInterrupt), no job outlives it."""
    raise_on_signals()
    try:
        yield
    except Interrupted as reason:
        log.warning("%s: ending the jobs; the same command goes on from here", reason)
        raise KeyboardInterrupt from None
    finally:
        try:
            launcher.end_all()
        finally:
            display.close()


def _plan(work: Workdir, examples: Examples, options: TrainOptions, display: Display) -> list[Row]:
    """The schedule: that of DIR/plan.tsv where there is one (made earlier, edited perhaps), else a new one."""
    path = work.file("plan.tsv")
    if not work.has("plan.tsv"):
        plan = make_plan(options, examples.num_archives, examples.frames_per_eg)
        if plan[-1].jobs < options.num_jobs_final:
            log.warning(
                "the examples are enough for %d jobs at once, not %d: lower --samples-per-iter for more",
                plan[-1].jobs,
                options.num_jobs_final,
            )
        write_plan(path, plan)
    plan = read_plan(path)
    for row in plan:
        wrong = [k for k in row.archives if not 1 <= k <= examples.num_archives]
        wrong_frames = [k for k in row.frames if not 0 <= k < examples.frames_per_eg]
        if wrong or wrong_frames:
            raise DataError(
                f"{path}: iteration {row.iteration} asks for archive or frame {(wrong + wrong_frames)[0]}; the "
                f"examples have archives 1 to {examples.num_archives} and frames 0 to {examples.frames_per_eg - 1}"
            )
    last = plan[-1]
    display.line(
        f"plan: {len(plan)} iterations of {plan[0].jobs} to {last.jobs} jobs, {last.epoch:.1f} epochs, "
        f"learning rate per job {plan[0].learning_rate:.3g} to {last.learning_rate:.3g}; see {path}"
    )
    return plan
