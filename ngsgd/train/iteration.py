"""One iteration: the jobs from one model, and one model from theirs."""

import dataclasses
import logging
import os
import shlex
import time
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.launch.client import TICK_S, Launcher, wait_any, wait_for_files
from ngsgd.launch.logfile import reason
from ngsgd.nnet.averaging.rule import averaging_class
from ngsgd.train import programs
from ngsgd.train.diagnostics import Diagnostics
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import BEST, FIX, NONE, SHRINK, Row
from ngsgd.train.workdir import Workdir, finite, read_stats

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Times:
    """How long an iteration took, seconds: all told, its jobs, and making one model of theirs."""

    seconds: float
    jobs_s: float
    merge_s: float


@dataclass(frozen=True)
class JobFigures:
    """What the jobs of an iteration said: each one's seconds of training, mean log-prob, and frames."""

    seconds: tuple[float, ...]
    objectives: tuple[float, ...]
    weights: tuple[int, ...]

    @property
    def frames(self) -> int:
        """Of all jobs."""
        return sum(self.weights)

    @property
    def objective(self) -> float:
        return sum(o * w for o, w in zip(self.objectives, self.weights)) / self.frames

    @property
    def best(self) -> int:
        """The job, from 1, with the highest log-prob; the first of equals."""
        return 1 + max(range(len(self.objectives)), key=lambda i: self.objectives[i])


class Iteration:
    """Runs row x of the plan: model x + 1 from model x. What is there already is not made again.

    age: iterations since the way to average began anew (plan.ages).
    """

    def __init__(
        self, row: Row, age: int, work: Workdir, egs: str, options: TrainOptions, how: DriverOptions, launcher: Launcher
    ):
        self.row, self.age, self.x = row, age, row.iteration
        self.archives = work.realigned(row.alignment) if row.alignment else egs
        self.work, self.egs, self.options, self.how, self.launcher = work, egs, options, how, launcher
        self.way = averaging_class(row.merge) if row.merge != BEST else None

    def run(self, next_learning_rate: float, diagnostics: Diagnostics) -> tuple[JobFigures, Times]:
        """Make model x + 1, with the learning rate of its own jobs in it. Returns the jobs' figures and the times.

        Raises DataError when a job fails; the finished ones' models stay for the next try.
        """
        start = time.monotonic()
        model = self._first_model()
        for job in range(1, self.row.jobs + 1):
            self._write_job(job)
        begin_jobs = time.monotonic()
        for attempt in range(1, self.how.max_tries + 1):
            missing = self._missing()
            if missing and self._train(model, missing, diagnostics):
                break
            if self._missing() and attempt < self.how.max_tries:
                log.warning("iteration %d: trying jobs %s again", self.x, self._missing())
        if missing := self._missing():
            raise self._failed(missing)
        end_jobs = time.monotonic()
        figures = self.figures()
        self._merge(figures, next_learning_rate)
        end = time.monotonic()
        return figures, Times(end - start, end_jobs - begin_jobs, end - end_jobs)

    def _failed(self, missing: list[int]) -> DataError:
        """What to tell of jobs that failed: the first one's own reason, and what to do."""
        log_path = self.work.log(f"train.{self.x}.{missing[0]}")
        why = reason(log_path)
        advice = "the same command does them again"
        if "training diverged" in why:
            advice = (
                f"model {self.x} stays; lower --initial-effective-lrate (now {self.options.initial_effective_lrate:g}) "
                f"or --max-change-per-sample (now {self.options.max_change_per_sample:g}), in another directory or "
                "with --overwrite"
            )
        return DataError(
            f"iteration {self.x}: {len(missing)} of {self.row.jobs} jobs failed, at learning rate "
            f"{self.row.learning_rate:.4g} ({self.row.learning_rate / self.row.jobs:.4g} x {self.row.jobs})"
            f"{f': {why}' if why else ''}; see {log_path}; {advice}"
        )

    def has_figures(self) -> bool:
        """Whether all jobs have left their figures."""
        return all(self.work.has(self._outputs(job)[1]) for job in range(1, self.row.jobs + 1))

    def _outputs(self, job: int) -> tuple[str, str]:
        return f"{self.x + 1}.{job}.mdl", f"stats/job.{self.x}.{job}.json"

    def _missing(self) -> list[int]:
        return [j for j in range(1, self.row.jobs + 1) if not all(map(self.work.has, self._outputs(j)))]

    def _first_model(self) -> str:
        """The model that the jobs start from: model x or the way to average's own, or x.in.mdl of another shape."""
        if not self.row.reshapes:
            return self.work.start(self.x) if self.age > 1 and self.way.has_start else self.work.model(self.x)
        output = self.work.file(f"{self.x}.in.mdl")
        if os.path.exists(output):
            return output
        model, seed, rate = self.work.model(self.x), self.options.seed + self.x, self.row.learning_rate
        if self.row.insert != NONE:
            config = self.work.file(self.row.insert)
            name, words = "insert", programs.insert_layer(model, config, last_updatable(model), seed, rate, output)
        else:
            name, words = "mix_up", programs.mix_up(model, self.row.mix_up, seed, rate, output)
        what = f"iteration {self.x}, {'inserting a layer' if name == 'insert' else 'mixing up'}"
        self.launcher.run(what, self.work.log(f"{name}.{self.x}"), words, output)
        return output

    def _write_job(self, job: int) -> None:
        """The options of a job, and a link to its archive, or the command that makes it, under the job's number."""
        name = self.work.file(f"jobs/{self.x}.{job}")
        with open_text_writer(f"{name}.conf") as out:
            out.write(programs.train_options(self.row, job, self.options, self.how))
        if maker := programs.archive_maker(self.archives):
            with open_text_writer(f"{name}.egs") as out:
                out.write(programs.make_archive(maker, self.row.archives[job - 1], self.row.frames[job - 1]) + "\n")
            return
        archive = os.path.abspath(f"{self.archives}/egs.{self.row.archives[job - 1]}.ark")
        if not os.path.exists(archive):
            raise DataError(f"{archive} is not there; iteration {self.x} of the plan needs it")
        aside = f"{name}.egs.tmp"
        if os.path.lexists(aside):
            os.unlink(aside)
        os.symlink(archive, aside)
        os.replace(aside, f"{name}.egs")

    def _train(self, model: str, missing: list[int], diagnostics: Diagnostics) -> bool:
        """Run the missing jobs, collecting diagnostics meanwhile. Returns whether all went well."""
        runs = []
        for first, last in _ranges(missing):
            files = [self.work.file(f"jobs/{self.x}.JOB.{kind}") for kind in ("conf", "egs")]
            if programs.archive_maker(self.archives):
                files[1] = f"bash {shlex.quote(files[1])} |"
            output, stats = f"{self.x + 1}.JOB.mdl", f"stats/job.{self.x}.JOB.json"
            words = programs.train(files[0], model, files[1], self.work.file(stats), self.work.file(output))
            log_name = self.work.log(f"train.{self.x}.JOB")
            what = f"iteration {self.x}, training"
            runs.append(self.launcher.start(what, log_name, words, (first, last), self.how.train_opts))
        while not all(run.finished() for run in runs):
            wait_any([*(run for run in runs if not run.finished()), *diagnostics.running], TICK_S)
            diagnostics.pump()
        if any(run.failed() for run in runs):
            return False
        outputs = [self.work.file(name) for job in missing for name in self._outputs(job)]
        wait_for_files(outputs, f"iteration {self.x}")
        return True

    def figures(self) -> JobFigures:
        """From the files that the jobs left. Raises DataError for a log-prob that is not finite."""
        seconds, objectives, frames = [], [], []
        for job in range(1, self.row.jobs + 1):
            path = self.work.file(self._outputs(job)[1])
            stats = read_stats(path)
            frames.append(int(finite(stats, "frames", path)))
            seconds.append(finite(stats, "seconds", path))
            objectives.append(finite(stats, "objective_per_frame", path))
        return JobFigures(tuple(seconds), tuple(objectives), tuple(frames))

    def _merge(self, figures: JobFigures, next_learning_rate: float) -> None:
        """Average the jobs' models, or take the best one, with the learning rate of the next iteration's jobs.

        What averaging needs in the next iteration is there before the model.
        """
        models = [self.work.file(self._outputs(job)[0]) for job in range(1, self.row.jobs + 1)]
        output = self.work.model(self.x + 1)
        if self.row.merge == BEST:
            name = "select"
            words = programs.set_learning_rate(models[figures.best - 1], next_learning_rate, output)
        else:
            name = "average"
            way = dataclasses.replace(self.options.ways(), averaging=self.row.merge)
            last = self.row.after == NONE
            words = programs.average(models, next_learning_rate, way, self._history(), output if last else "-")
            if self.row.after == SHRINK:
                words += ["|", *programs.shrink("-", self.egs, self.x, output)]
            elif self.row.after == FIX:
                words += ["|", *programs.fix("-", output)]
        what = f"iteration {self.x}, merging the jobs' models"
        self.launcher.run(what, self.work.log(f"{name}.{self.x}"), words, output)

    def _history(self) -> dict[str, object]:
        """Options of nnet-average for a way that looks back at earlier iterations, or ahead."""
        if not (self.way.has_start or self.way.has_state):
            return {}
        first = self.age == 1
        history: dict[str, object] = {
            "age": self.age,
            "previous": self._first_model() if first else self.work.model(self.x),
        }
        if self.way.has_start:
            history["start_out"] = self.work.start(self.x + 1)
        if self.way.has_state:
            history |= {} if first else {"state": self.work.state(self.x)}
            history["state_out"] = self.work.state(self.x + 1)
        return history


def remove_leftovers(work: Workdir, x: int) -> None:
    """What iteration x needs only as long as model x + 1 is not there."""
    work.remove(f"{x}.in.mdl", f"start.{x}.mdl", f"state.{x}.nnet")
    work.remove_matching(f"{x + 1}.*.mdl")
    work.remove_matching(f"jobs/{x}.*")


def last_updatable(model: str) -> int:
    """The index of a model's last component with parameters: hidden layers go in before it."""
    from ngsgd.nnet.components.base import UpdatableComponent
    from ngsgd.nnet.model import read_nnet

    indices = [i for i, component in enumerate(read_nnet(model)) if isinstance(component, UpdatableComponent)]
    if not indices:
        raise DataError(f"{model}: the network has no component with parameters")
    return indices[-1]


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers: [1, 2, 5] -> [(1, 2), (5, 5)]."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges
