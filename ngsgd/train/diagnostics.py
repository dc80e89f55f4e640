"""What is computed of each model beside the training: log-prob and accuracy on held-out and on training frames.

For the report also how far each layer has moved, and what a network with a new layer consists of. One model at a time,
so that the jobs are not crowded out; the training never waits for them unless it must know (early stopping, the choice
of the final model). A computation that fails is said at once, tried a second time, and remembered.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.launch.client import TICK_S, Launched, Launcher, wait_any, wait_for_files
from ngsgd.train.plan import Row
from ngsgd.train.programs import compute_prob, describe, show_change
from ngsgd.train.workdir import Workdir, finite, read_stats

log = logging.getLogger(__name__)

TRIES = 2


@dataclass(frozen=True)
class Scores:
    """Of one model: nats per frame, proportion of frames right."""

    valid_logprob: float
    valid_accuracy: float
    train_logprob: float
    train_accuracy: float
    valid_error: float | None = None  # standard error of valid_logprob; None where it was not computed


class Diagnostics:
    """`scores` by model; `add` a model, then `pump` now and then.

    on_result(x, scores) is called once for each model, tick() whenever there is time.
    """

    def __init__(
        self,
        work: Workdir,
        egs: str,
        plan: list[Row],
        launcher: Launcher,
        on_result: Callable[[int, Scores], None],
        tick: Callable[[], None],
    ):
        self.work, self.egs, self.plan, self.launcher = work, egs, plan, launcher
        self.on_result, self.tick = on_result, tick
        self.scores: dict[int, Scores] = {}
        self.failed: set[int] = set()
        self.queue: deque[int] = deque()
        self.tries: dict[int, int] = {}
        self.current: tuple[int, Launched] | None = None

    @property
    def running(self) -> list[Launched]:
        return [self.current[1]] if self.current else []

    @property
    def pending(self) -> set[int]:
        """Models whose scores are to come."""
        return {*self.queue, *([self.current[0]] if self.current else [])}

    @property
    def needed(self) -> set[int]:
        """Models that must not be removed yet: those, what they are compared with, and those to be tried again."""
        return self.pending | {x - 1 for x in self.pending} | self.failed

    def add(self, x: int) -> None:
        """Have model x's scores computed, unless an earlier run did."""
        if self._stored(x):
            self._take(x)
        elif self.work.has_model(x):
            self.queue.append(x)

    def _stored(self, x: int) -> bool:
        return all(map(self.work.has, _files(x)))

    def _take(self, x: int) -> None:
        self.scores[x] = read_scores(self.work, str(x))
        self.on_result(x, self.scores[x])

    def pump(self) -> None:
        """Collect what has been computed and start the next. Never waits for a computation."""
        self.tick()
        if self.current and self.current[1].finished():
            (x, launched), self.current = self.current, None
            if not launched.failed():
                wait_for_files([self.work.file(name) for name in _files(x)], launched.what)
                self._take(x)
            elif self._stored(x):
                log.warning("%s; the report does without what came after the scores", launched.complaint())
                self._take(x)
            elif self.tries[x] < TRIES:
                log.warning("%s; trying it once more", launched.complaint())
                self.queue.append(x)
            else:
                log.warning("%s; its scores stay unknown", launched.complaint())
                self.failed.add(x)
        if self.queue and not self.current:
            x = self.queue.popleft()
            self.tries[x] = self.tries.get(x, 0) + 1
            what = f"diagnostics of model {x}"
            self.current = x, self.launcher.start(what, self.work.log(f"compute_prob.{x}"), self._command(x))

    def _command(self, x: int) -> list[str]:
        """The scores, and after them what else there is to know of model x; it may fail without harm to them."""
        words = score_command(self.work, self.egs, self.work.model(x), str(x))
        changed = x == 0 or self.plan[x - 1].reshapes
        if changed:
            words += ["&&", *describe(self.work.model(x), self.work.file("stats/network.txt"))]
        elif self.work.has_model(x - 1):
            stats = self.work.file(f"stats/change.{x}.json")
            words += ["&&", *show_change(self.work.model(x - 1), self.work.model(x), stats)]
        return words

    def wait(self, needed: Callable[[int], bool] = lambda x: True) -> None:
        """Return when no model that `needed` says is pending. Raises DataError when one's scores are not to be had."""
        self.pump()
        while any(map(needed, self.pending)):
            wait_any(self.running, TICK_S)
            self.pump()
        if lost := sorted(filter(needed, self.failed)):
            raise DataError(
                f"no scores of model {', '.join(map(str, lost))}: see {self.work.log(f'compute_prob.{lost[0]}')}; "
                "the same command tries again, --final last does without them"
            )


def _files(x: int) -> list[str]:
    return [f"stats/valid.{x}.json", f"stats/train.{x}.json"]


def score_command(work: Workdir, egs: str, model: str, name: str) -> list[str]:
    """Compute the scores of `model` on both diagnostic subsets, into stats/{valid,train}.NAME.json."""
    valid = compute_prob(model, f"{egs}/valid_diagnostic.egs", work.file(f"stats/valid.{name}.json"))
    train = compute_prob(model, f"{egs}/train_diagnostic.egs", work.file(f"stats/train.{name}.json"))
    return [*valid, "&&", *train]


def read_scores(work: Workdir, name: str) -> Scores:
    """The scores that `score_command` left. Raises DataError when the model's output is not finite."""
    numbers, errors = [], {}
    for subset in ("valid", "train"):
        path = work.file(f"stats/{subset}.{name}.json")
        stats = read_stats(path)
        errors[subset] = stats.get("standard_error")
        numbers += [finite(stats, "log_prob_per_frame", path), finite(stats, "accuracy", path)]
    return Scores(*numbers, errors["valid"])
