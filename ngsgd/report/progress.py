"""What came of each iteration, kept as a table in a file: progress.tsv, one line a model.

A cell is empty until its number is known. Log-probs are per frame, in nats; accuracies are of frames, 0 to 1.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines


@dataclass
class Record:
    """One model: iteration `model` - 1 made it (nothing did model 0), and these came of it."""

    model: int
    epoch: float | None = None  # passes over the data behind it
    jobs: int | None = None
    learning_rate: float | None = None  # of a job
    minibatch_size: int | None = None
    frames: int | None = None  # trained on, by all jobs together
    seconds: float | None = None  # of the iteration, all told
    jobs_s: float | None = None  # from the start of its jobs until the last had ended
    slowest_job_s: float | None = None  # spent training, without starting and reading the model
    mean_job_s: float | None = None
    merge_s: float | None = None  # making one model of the jobs'
    job_objective: float | None = None  # log-prob while training, mean over the jobs' frames
    valid_logprob: float | None = None
    valid_error: float | None = None  # standard error of valid_logprob, its frames taken for independent
    valid_accuracy: float | None = None
    train_logprob: float | None = None
    train_accuracy: float | None = None

    @property
    def frames_per_s(self) -> float | None:
        return self.frames / self.seconds if self.frames and self.seconds else None

    @property
    def idle_share(self) -> float | None:
        """The part of the jobs' time in which they waited for the slowest one."""
        if not self.slowest_job_s or self.mean_job_s is None:
            return None
        return 1 - self.mean_job_s / self.slowest_job_s


COLUMNS = [field.name for field in dataclasses.fields(Record)]
INTEGERS = {"model", "jobs", "minibatch_size", "frames"}


class Progress:
    """The table in the file `path`; a run that goes on takes up what is there. DataError when that is damaged."""

    def __init__(self, path: str):
        self.path = path
        self.records: dict[int, Record] = {}
        if os.path.exists(path):
            self._read()

    def _read(self) -> None:
        lines = read_lines(self.path)
        names = lines[0].split("\t") if lines else []
        if "model" not in names or not set(names) <= set(COLUMNS):  # an older table has fewer columns
            raise DataError(f"{self.path}:1: expected the columns {' '.join(COLUMNS)}; remove the file to go on")
        for number, line in enumerate(lines[1:], 2):
            cells = line.split("\t")
            try:
                values = {n: (int if n in INTEGERS else float)(c) for n, c in zip(names, cells, strict=True) if c}
            except ValueError as error:
                raise DataError(f"{self.path}:{number}: {error}; remove the file to go on") from None
            if "model" not in values:
                raise DataError(f"{self.path}:{number}: no number of a model; remove the file to go on")
            self.records[values["model"]] = Record(**values)

    def note(self, model: int, **values: float | None) -> Record:
        """Enter numbers of a model and write the table."""
        record = self.records.setdefault(model, Record(model))
        for name, value in values.items():
            setattr(record, name, value)
        with open_text_writer(self.path) as out:
            out.write("\t".join(COLUMNS) + "\n")
            for key in sorted(self.records):
                cells = (getattr(self.records[key], name) for name in COLUMNS)
                out.write("\t".join("" if c is None else f"{c:.7g}" if isinstance(c, float) else str(c) for c in cells))
                out.write("\n")
        return record


def seconds_left(records: Mapping[int, Record], jobs_to_come: Iterable[int]) -> float | None:
    """Time for iterations of so many jobs each, from the latest ones' time per job; None before the first."""
    known = [r for _, r in sorted(records.items()) if r.seconds and r.jobs][-5:]
    if not known:
        return None
    return sum(jobs_to_come) * sum(r.seconds for r in known) / sum(r.jobs for r in known)


def format_time(seconds: float) -> str:
    """3725 -> "1:02:05"; 65 -> "1:05"."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def format_scores(scores: Any) -> list[str]:
    """What is known of a model on training and on held-out frames: of a Record, or whatever has its fields."""
    parts = []
    for name in ("train", "valid"):
        logprob, accuracy = getattr(scores, f"{name}_logprob"), getattr(scores, f"{name}_accuracy")
        if logprob is not None and accuracy is not None:
            parts.append(f"{name} {logprob:.3f} ({100 * accuracy:.1f} %)")
    return parts


def format_record(record: Record, total: int, left_s: float | None) -> str:
    """The line that people watch: how the model of an iteration is and how it was made."""
    parts = [f"iteration {record.model}/{total}"]
    if record.epoch is not None:
        parts.append(f"epoch {record.epoch:.1f}")
    if record.jobs is not None:
        parts.append(f"{record.jobs} job{'s' if record.jobs > 1 else ''} at rate {record.learning_rate:.3g}")
    parts += format_scores(record)
    if record.frames_per_s:
        parts.append(f"{record.frames_per_s:,.0f} frames/s")
    if left_s is not None and record.model < total:
        parts.append(f"{format_time(left_s)} left")
    return ", ".join(parts)
