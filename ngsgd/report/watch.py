"""What deserves a warning in the figures of a healthy training: each function returns the words, or None.

They are told once while it runs (`Watch`) and stand in the report.
"""

from collections.abc import Callable, Iterable, Mapping

from ngsgd.report.progress import Record

OVERFITTED = 0.02  # nats per frame below the best model on held-out frames, to be mentioned
NOISY = 0.05  # nats per frame of standard error of the held-out log-prob
IDLE = 0.2  # of the jobs' time
LATEST = 5  # iterations over which waiting is looked at
SHORT_JOB_S = 5.0  # whose waiting does not matter: starting it takes about as long


def best_valid(records: Iterable[Record], first: int = 0) -> Record | None:
    """The model with the highest held-out log-prob, the first of equals; from model `first` on."""
    scored = [r for r in records if r.valid_logprob is not None and r.model >= first]
    return max(scored, key=lambda r: (r.valid_logprob, -r.model), default=None)


def overfitting(records: Mapping[int, Record], first: int = 0) -> str | None:
    """Held-out log-prob has fallen for two models or more while that of training frames has risen."""
    scored = [records[x] for x in sorted(records) if records[x].valid_logprob is not None and x >= first]
    best = best_valid(scored)
    if len(scored) < 2 or best.train_logprob is None:
        return None
    before, last = scored[-2:]
    loss = best.valid_logprob - max(before.valid_logprob, last.valid_logprob)
    if loss <= OVERFITTED or best is before or not (last.train_logprob or best.train_logprob) > best.train_logprob:
        return None
    return (
        f"overfitting: held-out log-prob was best after iteration {best.model} ({best.valid_logprob:.3f}) and has "
        f"fallen to {last.valid_logprob:.3f} while that of training frames has risen to {last.train_logprob:.3f}; "
        f"--early-stop-epochs=1 would end such a run, fewer --num-epochs, a smaller network or more data "
        "(perturb_speed.py) would prevent it; unless --final=last the final model is chosen on held-out frames"
    )


def small_validation_set(records: Mapping[int, Record]) -> str | None:
    """The latest held-out log-prob is known too roughly to choose by it."""
    known = [records[x] for x in sorted(records) if records[x].valid_error is not None]
    if not known or known[-1].valid_error <= NOISY:
        return None
    return (
        f"the validation set is small: held-out log-prob {known[-1].valid_logprob:.3f} has a standard error of "
        f"{known[-1].valid_error:.3f}, and smaller differences between models are chance; make the examples with a "
        "larger --num-utts-subset, or hold out more data"
    )


def waiting(records: Mapping[int, Record]) -> str | None:
    """Jobs have waited for the slowest one."""
    latest = [r for _, r in sorted(records.items()) if (r.jobs or 0) > 1 and r.idle_share is not None][-LATEST:]
    slowest = sum(r.slowest_job_s for r in latest)
    if len(latest) < 2 or slowest < SHORT_JOB_S * len(latest):
        return None
    idle = 1 - sum(r.mean_job_s for r in latest) / slowest
    if idle <= IDLE:
        return None
    return (
        f"jobs waited for the slowest one {100 * idle:.0f} % of their time in the latest {len(latest)} iterations "
        f"(in the last one {latest[-1].slowest_job_s:.0f} s, the mean of {latest[-1].jobs} is "
        f"{latest[-1].mean_job_s:.0f} s): compare frames and seconds in stats/job.{latest[-1].model - 1}.*.json; with "
        "equal frames it is the machine, which has other work or more jobs than cores, else archives of unequal size"
    )


def all_warnings(records: Mapping[int, Record], first: int = 0) -> dict[str, str]:
    """What is to be said now, by kind. first: the first model with all layers."""
    found = {
        "overfitting": overfitting(records, first),
        "small validation set": small_validation_set(records),
        "waiting": waiting(records),
    }
    return {kind: words for kind, words in found.items() if words}


class Watch:
    """Says each kind of warning once."""

    def __init__(self, say: Callable[[str], None], first: int = 0):
        self.say, self.first = say, first
        self.said: set[str] = set()

    def look(self, records: Mapping[int, Record]) -> None:
        """To be called when there are new figures."""
        for kind, words in all_warnings(records, self.first).items():
            if kind not in self.said:
                self.said.add(kind)
                self.say(words)
