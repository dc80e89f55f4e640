"""What the files of a training directory say of it, gathered for the report; any of them may be missing still."""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.options import format_options
from ngsgd.report.progress import Progress, Record
from ngsgd.train.options import TrainOptions
from ngsgd.train.plan import Row, read_plan


@dataclass
class Run:
    """A training as far as it has come."""

    directory: str
    plan: list[Row] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # directories that it was begun with
    options: dict[str, str] = field(default_factory=dict)  # resolved, by flag
    changes: dict[int, list[float]] = field(default_factory=dict)  # of model x against x - 1: relative, by layer
    network: str = ""  # nnet-info of the latest model
    final: dict[str, Any] = field(default_factory=dict)  # how the final model was chosen: final.json
    combination: dict[str, Any] = field(default_factory=dict)  # what nnet-combine chose from
    final_scores: dict[str, dict[str, float]] = field(default_factory=dict)  # "valid", "train"
    has_final: bool = False

    @property
    def reshaped(self) -> list[int]:
        """The models that were the first with one more layer, or more outputs."""
        return [row.iteration + 1 for row in self.plan if row.reshapes]

    @property
    def done(self) -> int:
        """Iterations that are over."""
        return max((r.model for r in self.records.values() if r.jobs), default=0)

    @property
    def defaults(self) -> dict[str, str]:
        """Default values by flag."""
        lines = format_options(TrainOptions()).splitlines()
        return dict(line.removeprefix("--").split("=", 1) for line in lines)


def read_run(directory: str) -> Run:
    """All that is there. DataError when there is neither plan nor options, or a file is damaged."""
    folder = Path(directory)
    if not (folder / "train.conf").is_file() and not (folder / "progress.tsv").is_file():
        raise DataError(f"{directory}: no train.conf and no progress.tsv; expected a directory of train_ngsgd.py")
    run = Run(directory, has_final=(folder / "final.mdl").is_file())
    run.records = Progress(str(folder / "progress.tsv")).records
    if (folder / "plan.tsv").is_file():
        run.plan = read_plan(str(folder / "plan.tsv"))
    if (folder / "train.conf").is_file():
        _read_options(run, str(folder / "train.conf"))
    run.changes = _read_changes(folder / "stats")
    if (folder / "stats/network.txt").is_file():
        run.network = (folder / "stats/network.txt").read_text(encoding="utf-8")
    run.final = _read_json(folder / "final.json")
    run.combination = _read_json(folder / "stats/combine.json")
    run.final_scores = {s: _read_json(folder / f"stats/{s}.final.json") for s in ("train", "valid")}
    return run


def latest_model(directory: str) -> str | None:
    """The final model's file, else the latest iteration's."""
    final = os.path.join(directory, "final.mdl")
    if os.path.isfile(final):
        return final
    numbers = [int(p.stem) for p in Path(directory).glob("*.mdl") if p.stem.isdecimal()]
    return os.path.join(directory, f"{max(numbers)}.mdl") if numbers else None


def _read_options(run: Run, path: str) -> None:
    for line in read_lines(path):
        if line.startswith("# "):
            name, _, value = line[2:].partition(": ")
            run.inputs[name] = value
        else:
            name, _, value = line.partition("=")
            run.options[name.removeprefix("--")] = value


def _read_changes(stats: Path) -> dict[int, list[float]]:
    found = {}
    for path in stats.glob("change.*.json"):
        if match := re.fullmatch(r"change\.(\d+)\.json", path.name):
            values = _read_json(path).get("relative_difference")
            if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
                raise DataError(f"{path}: expected a list of numbers for relative_difference, got {values}")
            found[int(match[1])] = values
    return dict(sorted(found.items()))


def _read_json(path: Path) -> dict[str, Any]:
    """{} where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{path}: {error}; remove the file to go on") from None
