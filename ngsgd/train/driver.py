"""Walks the plan: every iteration whose model is not there yet, then the final model.

Existence means done, and all that is random is seeded by what it is for, so a run that was killed anywhere goes on with
the same command to the same bytes. Diagnostics run beside the training; only early stopping and the end wait for them.
"""

import logging

from ngsgd.errors import DataError
from ngsgd.launch.client import Launcher
from ngsgd.launch.process import Interrupted
from ngsgd.report.display import Display
from ngsgd.report.page import FINISHED, Reporter
from ngsgd.report.progress import Progress, Record, format_record, format_scores, seconds_left
from ngsgd.report.watch import Watch, best_valid
from ngsgd.train.diagnostics import Diagnostics, Scores
from ngsgd.train.final import candidates, choice, first_whole_model, make_final
from ngsgd.train.iteration import Iteration, JobFigures, Times, remove_leftovers
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import Row, ages
from ngsgd.train.realign import Realigner
from ngsgd.train.workdir import Workdir

log = logging.getLogger(__name__)

KEEP_EVERY = 10
DIAGNOSTICS_BEHIND = 2  # models whose scores early stopping does without, so that it need not wait for them


class Driver:
    """One training in `work`, by the rows of `plan`, on the examples in the directory `egs`."""

    def __init__(
        self,
        work: Workdir,
        egs: str,
        plan: list[Row],
        options: TrainOptions,
        how: DriverOptions,
        launcher: Launcher,
        display: Display,
        realigner: Realigner,
    ):
        self.work, self.egs, self.plan, self.options, self.how = work, egs, plan, options, how
        self.ages, self.launcher, self.display, self.realigner = ages(plan), launcher, display, realigner
        self.progress = Progress(work.file("progress.tsv"))
        self.reporter = Reporter(str(work.path))
        self.watch = Watch(lambda words: log.warning("%s", words), first_whole_model(plan))
        self.diagnostics = Diagnostics(work, egs, plan, launcher, self._scored, display.tick)
        self.resumed_at = 0

    def run(self) -> Scores:
        """Train to final.mdl; returns its scores. Raises DataError when that cannot be."""
        try:
            scores = self._run()
        except (DataError, OSError) as error:
            self.reporter.update(f"stopped: {error}")
            raise
        except Interrupted as reason:
            self.reporter.update(f"interrupted ({reason})")
            raise
        self.reporter.update(FINISHED)
        return scores

    def _run(self) -> Scores:
        if self.work.has("final.mdl"):
            return self._finish(self.plan)
        self._check_start()
        last = len(self.plan)
        for row in self.plan:
            x = row.iteration
            self.diagnostics.add(x)
            self.diagnostics.pump()
            if self._should_stop(x):
                last = x
                break
            if x >= self.resumed_at:
                self._show(x)
                self.realigner.make(row)
                self._note(row, *self._iteration(row).run(self._next_rate(x), self.diagnostics))
            else:
                self._recall(row)
            remove_leftovers(self.work, x)
            if self.how.cleanup:
                self._remove_models(x + 1)
        self.diagnostics.add(last)
        return self._finish(self.plan[:last])

    def _iteration(self, row: Row) -> Iteration:
        return Iteration(row, self.ages[row.iteration], self.work, self.egs, self.options, self.how, self.launcher)

    def _next_rate(self, x: int) -> float:
        return self.plan[min(x + 1, len(self.plan) - 1)].learning_rate

    def _check_start(self) -> None:
        """Go on from the latest model. Raises DataError when a model that is needed has been removed by someone."""
        models = self.work.models()
        if not models:
            raise DataError(f"{self.work.model(0)} is not there: nothing to start from")
        if models[-1] > len(self.plan):
            raise DataError(f"{self.work.model(models[-1])} is beyond the plan's {len(self.plan)} iterations")
        self.resumed_at = models[-1]
        if self.resumed_at:
            self.display.line(f"going on from iteration {self.resumed_at} of {len(self.plan)}")

    def _show(self, x: int) -> None:
        """Iteration x of the plan is the state of the moment."""
        row, records = self.plan[x], self.progress.records
        made = [f"epoch {row.epoch:.1f}", f"{row.jobs} jobs at rate {row.learning_rate:.3g}"]
        made.append(f"minibatches of {row.minibatch_size}")
        if x in records and records[x].frames_per_s:
            made.append(f"{records[x].frames_per_s:,.0f} frames/s")
        details = [", ".join(made)]
        if latest := max((m for m, r in records.items() if r.valid_logprob is not None), default=0):
            best = best_valid(records.values())
            scores = ", ".join(format_scores(records[latest]))
            details.append(
                f"after iteration {latest}: {scores}; best valid {best.valid_logprob:.3f} after {best.model}"
            )
        self.display.at(x, len(self.plan), f"iteration {x + 1}", details, self._seconds_left(x))

    def _seconds_left(self, done: int) -> float | None:
        return seconds_left(self.progress.records, (row.jobs for row in self.plan[done:]))

    def _recall(self, row: Row) -> None:
        """Note the jobs' figures of an iteration whose driver was ended before it could, without times."""
        iteration = self._iteration(row)
        record = self.progress.records.get(row.iteration + 1, Record(0))
        if record.frames is None and iteration.has_figures():
            self._note(row, iteration.figures(), None)

    def _note(self, row: Row, figures: JobFigures, times: Times | None) -> None:
        self.progress.note(
            row.iteration + 1,
            epoch=row.epoch + row.jobs * self._epochs_per_job(),
            jobs=row.jobs,
            learning_rate=row.learning_rate,
            minibatch_size=row.minibatch_size,
            frames=figures.frames,
            slowest_job_s=max(figures.seconds),
            mean_job_s=sum(figures.seconds) / row.jobs,
            job_objective=figures.objective,
            **(vars(times) if times else {}),
        )
        self.watch.look(self.progress.records)
        self.reporter.update()

    def _epochs_per_job(self) -> float:
        """The part of the data that one job sees in one iteration."""
        if len(self.plan) > 1:
            return self.plan[1].epoch / self.plan[0].jobs
        return (self.options.num_epochs + self.options.num_epochs_extra) / self.plan[0].jobs

    def _scored(self, x: int, scores: Scores) -> None:
        """Show what came of iteration x. Called when the diagnostics of model x are there."""
        if x in self.progress.records and self.progress.records[x].valid_logprob is not None:
            return  # an earlier run showed it
        record = self.progress.note(x, **vars(scores))
        done = max(self.work.models(), default=0)
        self.display.line(format_record(record, len(self.plan), self._seconds_left(done)))
        if done < len(self.plan):
            self._show(done)
        self.watch.look(self.progress.records)
        self.reporter.update()

    def _should_stop(self, x: int) -> bool:
        """Early stopping before iteration x, by scores of models that are surely there by then, so always the same."""
        patience, latest = self.options.early_stop_epochs, x - DIAGNOSTICS_BEHIND
        first = first_whole_model(self.plan)
        if not patience or latest <= first:
            return False
        self.diagnostics.wait(lambda model: model <= latest)
        scores = self.diagnostics.scores
        best = max(
            (m for m in scores if first <= m <= latest), key=lambda m: (scores[m].valid_logprob, -m), default=latest
        )
        if self.plan[latest].epoch - self.plan[best].epoch < patience:
            return False
        self.display.line(
            f"stopping before iteration {x + 1}: no model was better on held-out frames than that of iteration {best}"
        )
        return True

    def _remove_models(self, latest: int) -> None:
        """Remove models that nothing needs any more, now that model `latest` is there."""
        first = first_whole_model(self.plan)
        needed = {latest, *self.diagnostics.needed}
        if latest >= first:
            needed |= set(candidates(self.diagnostics.scores, first, latest, self.options))
        needed |= {x for x in self.work.models() if x > latest - self.options.max_models_combine}
        for x in self.work.models():
            if x not in needed and x % KEEP_EVERY and x < latest:
                self.work.remove(f"{x}.mdl")

    def _finish(self, rows: list[Row]) -> Scores:
        """The final model of the iterations in `rows`, its scores shown."""
        self.display.at(len(rows), len(self.plan), "final model")
        if not self.work.has("final.mdl"):
            if self.options.final == "last":
                self._drain()
            else:
                self.diagnostics.wait()
        scores = make_final(self.work, self.egs, rows, self.diagnostics.scores, self.options, self.launcher)
        if words := choice(self.work):
            self.display.line(f"final model: {words}")
        self.display.line(f"final model: {', '.join(format_scores(scores))}")
        if self.how.cleanup:
            self.work.remove("combined.mdl")
            self.work.remove_matching("start.*.mdl")
            self.work.remove_matching("state.*.nnet")
            for x in self.work.models():
                if x % KEEP_EVERY and x != len(rows):
                    self.work.remove(f"{x}.mdl")
        return scores

    def _drain(self) -> None:
        """Let the diagnostics end; a failure was said and does not matter to the final model."""
        try:
            self.diagnostics.wait()
        except DataError as error:
            log.warning("%s", error)
