"""What lies where in a training directory, the record of its options, and the lock that makes its user the only one.

train.conf         resolved options and inputs; another run with others is refused
contents.conf      what the inputs were; another run is refused when they are not the same any more
plan.tsv           the schedule (plan.py);  progress.tsv  what came of it, a line a model
X.mdl              the model after X iterations; X.in.mdl with another shape; X.J.mdl of job J of iteration X - 1
start.X.mdl, state.X.nnet    from which the jobs of iteration X start, state of averaging; if --averaging has such
report.html        the whole of it for people (ngsgd/report/page.py)
realign.K/         the K-th realignment: alignments, archives with their labels
stats/             job.X.J.json of jobs, valid.X.json, train.X.json, change.X.json of models: numbers for programs
jobs/              X.J.conf and X.J.egs: options and (a link to the) archive of job J of iteration X
final.mdl          the end; final.json says how it was chosen
log/
"""

import errno
import fcntl
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.options import format_options
from ngsgd.train.options import TrainOptions

# How features are made, for whoever uses the model: feature_pipeline.sh reads these.
FEATURE_FILES = (
    *("cmvn_opts", "feat_type", "delta_opts", "delta_order", "splice_opts", "final.mat"),
    "speaker_transforms",
)


class Workdir:
    """Paths in the training directory `path`; makes it. Raises DataError when it cannot be written."""

    def __init__(self, path: str):
        self.path = Path(path)
        try:
            for folder in ("log", "stats", "jobs"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(path, error) from None

    def file(self, name: str) -> str:
        return str(self.path / name)

    def log(self, name: str) -> str:
        return self.file(f"log/{name}.log")

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def model(self, x: int) -> str:
        """The model after x iterations."""
        return self.file(f"{x}.mdl")

    def start(self, x: int) -> str:
        """The model from which the jobs of iteration x start, where that is not model x."""
        return self.file(f"start.{x}.mdl")

    def state(self, x: int) -> str:
        """The state of averaging after x iterations, where the way to average has one."""
        return self.file(f"state.{x}.nnet")

    def realigned(self, alignment: int) -> str:
        """Where the archives with the labels of a realignment are, counted from 1."""
        return self.file(f"realign.{alignment}")

    def has_model(self, x: int) -> bool:
        return self.has(f"{x}.mdl")

    def models(self) -> list[int]:
        """The x of all models there are, in order."""
        return sorted(int(p.stem) for p in self.path.glob("*.mdl") if p.stem.isdecimal())

    def remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def remove_matching(self, pattern: str) -> None:
        for path in self.path.glob(pattern):
            path.unlink(missing_ok=True)

    def remove_half_written(self) -> None:
        """Remove what was being written aside when a program was killed; only whoever holds the lock may do this."""
        folders = [self.path, *(self.path / name for name in ("stats", "jobs", "egs", "lda"))]
        for folder in (*folders, *self.path.glob("realign.*")):
            for path in folder.glob("*.tmp.*"):
                path.unlink(missing_ok=True)

    def lock(self) -> int:
        """The descriptor of the lock on this directory, waited for: whoever inherits it keeps the directory busy.

        Raises DataError when the directory cannot be written.
        """
        try:
            descriptor = os.open(self.path / ".lock", os.O_WRONLY | os.O_CREAT, 0o666)
        except OSError as error:
            raise _cannot_write(self.path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{self.path}: another training, or a job of one, is at work here; waiting for it", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def record(self, options: TrainOptions, inputs: dict[str, str]) -> None:
        """Write the options and inputs down the first time; DataError with the difference when they were others.

        An option that the record does not have, because it is newer, was at its default.
        """
        text = _comments(inputs) + format_options(options)
        changed = self._changed("train.conf", text, format_options(type(options)()))
        if changed:
            raise DataError(
                f"{self.path} was begun with other options: {'; '.join(changed)}; give those again, use another "
                "directory, or --overwrite to begin anew"
            )

    def record_contents(self, contents: dict[str, str]) -> None:
        """Write down what the inputs are the first time; DataError with the difference when they were others."""
        if changed := self._changed("contents.conf", _comments(contents)):
            raise DataError(
                f"{self.path} was begun with other data: {'; '.join(changed)}; use another directory, or "
                "--overwrite to begin anew"
            )

    def _changed(self, name: str, text: str, defaults: str = "") -> list[str]:
        """Write the file where there is none; else what its lines, those of `defaults` where it has none, say else."""
        if not self.has(name):
            with open_text_writer(self.file(name)) as out:
                out.write(text)
            return []
        then, now = (
            dict(map(_split_line, lines))
            for lines in (defaults.splitlines() + read_lines(self.file(name)), text.splitlines())
        )
        return [
            f"{key} was {then.get(key, 'not there')}, is {now.get(key, 'not there')}"
            for key in then | now
            if then.get(key) != now.get(key)
        ]

    def clear(self) -> None:
        """Remove all that a training wrote here (its log and examples as well), and nothing else."""
        for folder in ("log", "stats", "jobs", "egs", "lda"):
            shutil.rmtree(self.path / folder, ignore_errors=True)
        names = (
            *("train.conf", "contents.conf", "plan.tsv", "progress.tsv", "report.html", "final.json"),
            *("nnet.config", "hidden.config", "lda.mat", "prior_scales", "tree", "phones.txt", *FEATURE_FILES),
        )
        self.remove(*names)
        self.remove_matching("*.mdl")
        self.remove_matching("state.*.nnet")
        self.remove_matching("hidden.*.config")
        for path in self.path.glob("realign.*"):
            shutil.rmtree(path)
        self.__init__(str(self.path))


def _comments(values: dict[str, str]) -> str:
    return "".join(f"# {name}: {value}\n" for name, value in values.items())


def _cannot_write(path: str | Path, error: OSError) -> DataError:
    advice = "make room on its disk" if error.errno == errno.ENOSPC else "change its permissions"
    return DataError(f"cannot write into {path}: {error.strerror}; {advice}, or train in another directory")


def _split_line(line: str) -> tuple[str, str]:
    """`--name=value` or `# name: value`."""
    name, _, value = line.partition(": " if line.startswith("#") else "=")
    return name.removeprefix("# "), value


def read_stats(path: str) -> dict[str, Any]:
    """Numbers that a program left in a JSON file. Raises DataError when it is damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot read the figures of a job: {error}") from None


def finite(stats: dict[str, Any], name: str, path: str) -> float:
    """The number `name` of the figures read from `path`. Raises DataError when it is missing or not finite."""
    value = stats.get(name)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{path}: expected a finite number for {name}, got {value}")
    return float(value)
