"""Splitting a data directory between jobs, by whole speakers or by utterances: `DATA/splitN/J`, J from 1."""

import logging
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from ngsgd.data.datadir import NAMES_UTTERANCES, DataDir
from ngsgd.errors import DataError
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class SplitOptions:
    """How a directory is divided."""

    per_utt: bool = opt(False, "divide utterances evenly, without regard to speakers")
    per_reco: bool = opt(False, "keep the utterances of a recording together, instead of those of a speaker")

    @property
    def unit(self) -> str:
        """What stays together: `per_spk`, `per_utt` or `per_reco`. Raises DataError for two of them."""
        if self.per_utt and self.per_reco:
            raise DataError("expected one of --per-utt and --per-reco")
        return "per_utt" if self.per_utt else "per_reco" if self.per_reco else "per_spk"


@dataclass
class LimitOptions:
    """What jobs are limited by."""

    per_spk: bool = opt(False, "at most one job for each speaker, instead of for each utterance")


def limit_jobs(path: str | Path, jobs: int, options: LimitOptions) -> int:
    """`jobs`, or with a warning the number of utterances or speakers when that is less."""
    directory = DataDir.load(path, ["utt2spk"] if options.per_spk else NAMES_UTTERANCES)
    items = (directory.spk2utt or {}) if options.per_spk else directory.utterances
    what = "speakers" if options.per_spk else "utterances"
    if not items:
        raise DataError(f"{path}: no {what}")
    if len(items) < jobs:
        log.warning("%s: %d jobs for %d %s: running %d jobs", path, jobs, len(items), what, len(items))
    return min(jobs, len(items))


def split_path(path: str | Path, jobs: int, unit: str = "per_spk") -> Path:
    """Where the parts are: `DATA/splitN`, per utterance `DATA/splitNutt`, per recording `DATA/splitNreco`."""
    return Path(path) / f"split{jobs}{unit.removeprefix('per_') if unit != 'per_spk' else ''}"


def split(path: str | Path, jobs: int, unit: str = "per_spk") -> Path:
    """Write the parts of the data directory and return where.

    `unit` says what stays together: `per_spk`, `per_utt`, `per_reco`. Files that would not change stay untouched, so
    that jobs that are reading them are not disturbed. With more jobs than speakers or recordings, these are divided,
    with a warning. Raises DataError for more jobs than utterances.
    """
    directory = DataDir.load(path)
    utterances = directory.utterances
    if jobs < 1:
        raise DataError(f"{path}: expected at least one job, got {jobs}")
    if jobs > len(utterances):
        raise DataError(f"{path}: {jobs} jobs for {len(utterances)} utterances; use at most {len(utterances)} jobs")
    target = split_path(path, jobs, unit)
    groups = _groups(directory, unit)
    if len(groups) < jobs:
        what = "speakers" if unit == "per_spk" else "recordings"
        log.warning("%s: %d jobs for %d %s: dividing %s between jobs", path, jobs, len(groups), what, what)
        groups = [[utterance] for utterance in utterances]
    for job, (first, last) in enumerate(balanced([len(g) for g in groups], jobs), 1):
        part = [utterance for group in groups[first:last] for utterance in group]
        directory.select(part).write(target / str(job))
    return target


def _groups(directory: DataDir, unit: str) -> list[list[str]]:
    """Utterances that stay together; without speakers each is on its own."""
    if unit == "per_reco":
        by_recording: dict[str, list[str]] = {}
        for utterance in directory.utterances:
            by_recording.setdefault(directory.recording_of(utterance), []).append(utterance)
        return list(by_recording.values())
    if unit == "per_spk" and directory.spk2utt:
        return list(directory.spk2utt.values())
    return [[utterance] for utterance in directory.utterances]


def balanced(sizes: list[int], parts: int) -> list[tuple[int, int]]:
    """Cut a row of items into `parts` stretches [first, last) of about equal total size, none of them empty.

    Each cut is made where the running total is nearest to its share; len(sizes) >= parts.
    """
    totals = [0, *accumulate(sizes)]
    cuts = [0]
    for part in range(1, parts):
        share = totals[-1] * part / parts
        at = bisect_left(totals, share)
        if at and share - totals[at - 1] < totals[at] - share:
            at -= 1
        cuts.append(min(max(at, cuts[-1] + 1), len(sizes) - (parts - part)))
    cuts.append(len(sizes))
    return list(pairwise(cuts))
