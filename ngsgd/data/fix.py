"""Repairing a data directory: keep what is consistent, say what goes, keep the old files in `.backup`."""

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ngsgd.data.check import VALUE_CHECKS
from ngsgd.data.datadir import FILES, RECORDING, SPEAKER, UTTERANCE, DataDir, scan_directory
from ngsgd.data.scan import NAMED, Scan
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer

log = logging.getLogger(__name__)

DERIVED = ("utt2dur", "utt2num_frames", "reco2dur")  # can be made anew: what is missing there costs only the file


def fix(path: str | Path) -> tuple[DataDir, int]:
    """Rewrite the data directory `path` with the utterances that all of its files agree on, sorted.

    Returns the directory and the number of utterances before.

    Odd white space becomes spaces; of an id that comes twice the first line stays; spk2utt is made from utt2spk.
    Speakers and recordings that are left without utterances go. What `validate` calls an error is not there after it,
    except for files that are missing as a whole. Files that need no change are not touched.  Raises DataError, and
    changes nothing, when there is no utt2spk or no utterance would be left.
    """
    path = Path(path)
    scans = scan_directory(path)
    if "utt2spk" not in scans:
        raise DataError(f"{path}/utt2spk: no such file, and nothing to tell the utterances by")
    for scan in scans.values():
        for problem in scan.problems:
            log.info("%s", problem)
    files = {name: scan.lines() for name, scan in scans.items()}
    dropped = _inconsistent(files, scans)
    kept = [u for u in files["utt2spk"] if u not in dropped]
    _report(path, dropped)
    if not kept:
        sizes = ", ".join(f"{name} {len(lines)}" for name, lines in files.items())
        raise DataError(f"{path}: no utterance is in all of the files ({sizes} lines); nothing changed")
    fixed = DataDir(path, files).select(kept)
    _drop_incomplete(fixed)
    changed = fixed.changed(path)
    if changed or "spk2utt" not in scans:
        _back_up(path, changed)
        fixed.write(path)
    before = len(files["utt2spk"])
    log.info("%s: kept %d of %d utterances, %d speakers", path, len(kept), before, len(fixed.files["spk2utt"]))
    return fixed, before


def _inconsistent(files: dict[str, dict[str, str]], scans: dict[str, Scan]) -> dict[str, str]:
    """Utterances that have to go -> the reason."""
    utt2spk = files["utt2spk"]
    reasons = _bad(UTTERANCE, files, utt2spk)
    segments = files.get("segments", {})
    recording_of = {u: segments[u].partition(" ")[0] if u in segments else u for u in utt2spk}
    for kind, of in ((SPEAKER, utt2spk), (RECORDING, recording_of)):
        bad = _bad(kind, files, dict.fromkeys(of.values()))
        for utterance, other in of.items():
            if other in bad:
                reasons.setdefault(utterance, f"{kind} '{other}': {bad[other]}")
    for name, lines in files.items():
        if FILES[name] == UTTERANCE and name not in DERIVED:
            for utterance in lines.keys() - utt2spk.keys():
                reasons[utterance] = f"in {name} (line {scans[name].line_of(utterance)}) and not in utt2spk"
    return dict(sorted(reasons.items()))


def _bad(kind: str, files: dict[str, dict[str, str]], ids: Iterable[str]) -> dict[str, str]:
    """Those of the utterances, speakers or recordings `ids` that a file lacks, or has wrong -> what is wrong."""
    reasons: dict[str, str] = {}
    for name, lines in files.items():
        if FILES[name] != kind or name in DERIVED or name == "spk2utt":
            continue
        check = VALUE_CHECKS.get(name)
        for key in ids:
            if key not in lines:
                reasons.setdefault(key, f"not in {name}")
            elif check:
                message = check(lines[key])
                if message:
                    reasons.setdefault(key, f"{message} ({name})")
    return reasons


def _drop_incomplete(directory: DataDir) -> None:
    """Drop files that can be made anew, where they lack something or say nonsense."""
    recordings = {directory.recording_of(u) for u in directory.utterances}
    wanted = {UTTERANCE: directory.utterances, RECORDING: recordings}
    for name in DERIVED:
        lines = directory.files.get(name)
        if lines is None:
            continue
        if len(lines) < len(wanted[FILES[name]]) or any(map(VALUE_CHECKS[name], lines.values())):
            log.warning("%s/%s lacks lines or is wrong, and goes: it can be made anew", directory.path, name)
            del directory.files[name]


def _report(path: Path, dropped: dict[str, str]) -> None:
    counts = Counter(dropped.values())
    named: Counter[str] = Counter()
    for utterance, reason in dropped.items():
        named[reason] += 1
        if named[reason] <= NAMED:
            log.warning("%s: dropped '%s': %s", path, utterance, reason)
    for reason, count in counts.items():
        if count > NAMED:
            log.warning("%s: dropped %d utterances in all: %s", path, count, reason)


def _back_up(path: Path, names: Iterable[str]) -> None:
    for name in names:
        (path / ".backup").mkdir(exist_ok=True)
        with open_bytes_writer(str(path / ".backup" / name)) as stream:
            stream.write((path / name).read_bytes())
