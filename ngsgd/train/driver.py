"""Walks the plan: every iteration whose model is not there yet, then the final model.

Existence means done, and all that is random is seeded by what it is for, so a run that was killed anywhere goes on with
the same command to the same bytes. Diagnostics run beside the training; only early stopping and the end wait for them.
"""

import logging

from ngsgd.errors import DataError
from ngsgd.launch.client import Launcher
from ngsgd.report.display import Display
from ngsgd.report.progress import Progress, format_record
from ngsgd.train.diagnostics import Diagnostics, Scores
from ngsgd.train.final import candidates, first_whole_model, make_final
from ngsgd.train.iteration import Iteration, JobFigures, remove_leftovers
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import Row
from ngsgd.train.workdir import Workdir

log = logging.getLogger(__name__)

KEEP_EVERY = 10
OVERFITTED = 0.02  # nats per frame below the best model on held-out frames, to be mentioned
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
    ):
        self.work, self.egs, self.plan, self.options, self.how = work, egs, plan, options, how
        self.launcher, self.display = launcher, display
        self.progress = Progress(work.file("progress.tsv"))
        self.diagnostics = Diagnostics(work, egs, launcher, self._scored)
        self.resumed_at = 0

    def run(self) -> Scores:
        """Train to final.mdl; returns its scores. Raises DataError when that cannot be."""
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
                self.display.at(x, len(self.plan), f"iteration {x + 1}, {row.jobs} jobs")
                figures, seconds = self._iteration(row).run(self._next_rate(x), self.diagnostics)
                self._note(row, figures, seconds)
            remove_leftovers(self.work, x)
            if self.how.cleanup:
                self._remove_models(x + 1)
        self.diagnostics.add(last)
        return self._finish(self.plan[:last])

    def _iteration(self, row: Row) -> Iteration:
        return Iteration(row, self.work, self.egs, self.options, self.how, self.launcher)

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

    def _note(self, row: Row, figures: JobFigures, seconds: float) -> None:
        self.progress.note(
            row.iteration + 1,
            epoch=row.epoch + row.jobs * self._epochs_per_job(),
            jobs=row.jobs,
            learning_rate=row.learning_rate,
            minibatch_size=row.minibatch_size,
            frames=figures.frames,
            seconds=seconds,
            slowest_job_s=figures.slowest_s,
            job_objective=figures.objective,
        )

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
        left = self.progress.seconds_left([row.jobs for row in self.plan[done:]])
        self.display.line(format_record(record, len(self.plan), left))

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
        needed = {latest, *self.diagnostics.pending, *self.diagnostics.failed}
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
            self._warn_of_overfitting(len(rows))
        scores = make_final(self.work, self.egs, rows, self.diagnostics.scores, self.options, self.launcher)
        self.display.line(
            f"final model: train {scores.train_logprob:.3f} ({100 * scores.train_accuracy:.1f} %), "
            f"valid {scores.valid_logprob:.3f} ({100 * scores.valid_accuracy:.1f} %)"
        )
        if self.how.cleanup:
            self.work.remove("combined.mdl")
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

    def _warn_of_overfitting(self, last: int) -> None:
        scores = self.diagnostics.scores
        if not scores or last not in scores:
            return
        best = max(scores, key=lambda x: (scores[x].valid_logprob, -x))
        loss = scores[best].valid_logprob - scores[last].valid_logprob
        if loss > OVERFITTED:
            then = "the final model is not the last one" if self.options.final != "last" else "--final choose uses it"
            log.warning(
                "overfitting: held-out log-prob was best after iteration %d and has fallen by %.3f since; %s",
                best,
                loss,
                then,
            )
