"""Repairing a data directory: keep what is consistent, say what goes, keep the old files in `.backup`."""

import logging
import os
from collections import Counter
from pathlib import Path

from ngsgd.data.datadir import FILES, UTTERANCE, DataDir, scan_directory
from ngsgd.data.scan import Scan, reserved_words
from ngsgd.data.segments import parse_segment
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import is_input_pipe, open_bytes_writer, split_offset

log = logging.getLogger(__name__)

DERIVED = ("utt2dur", "utt2num_frames")  # can be made anew: an utterance missing there loses only the file
NAMED = 10  # utterances named for each reason


def fix(path: str | Path) -> tuple[DataDir, int]:
    """Rewrite the data directory `path` with the utterances that all of its files agree on, sorted.

    Returns the directory and the number of utterances before.

    Odd white space becomes spaces; of an id that comes twice the first line stays; spk2utt is made from utt2spk.
    Speakers and recordings that are left without utterances go.  Raises DataError, and changes nothing, when there is
    no utt2spk or no utterance would be left.
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
    _back_up(path, scans)
    fixed.write(path)
    before = len(files["utt2spk"])
    log.info("%s: kept %d of %d utterances, %d speakers", path, len(kept), before, len(fixed.spk2utt or {}))
    return fixed, before


def _inconsistent(files: dict[str, dict[str, str]], scans: dict[str, Scan]) -> dict[str, str]:
    """Utterances that have to go -> the reason."""
    reasons: dict[str, str] = {}
    apart = ("utt2spk", *DERIVED)
    by_utterance = [name for name, kind in FILES.items() if kind == UTTERANCE and name in files and name not in apart]
    for utterance, speaker in files["utt2spk"].items():
        absent = [name for name in by_utterance if utterance not in files[name]]
        if len(speaker.split()) != 1:
            reasons[utterance] = "not 'utterance speaker' in utt2spk"
        elif absent:
            reasons[utterance] = f"not in {absent[0]}"
        else:
            reason = _bad_values(utterance, files)
            if reason:
                reasons[utterance] = reason
    for name in by_utterance:
        for utterance in files[name]:
            if utterance not in files["utt2spk"]:
                reasons[utterance] = f"in {name} (line {scans[name].entries[utterance].line}) and not in utt2spk"
    return reasons


def _bad_values(utterance: str, files: dict[str, dict[str, str]]) -> str | None:
    if "text" in files and reserved_words(files["text"][utterance]):
        return f"the word '{reserved_words(files['text'][utterance])[0]}' in text"
    recording = utterance
    if "segments" in files:
        try:
            recording = parse_segment(files["segments"][utterance], "segments").recording
        except DataError as error:
            return str(error)
    if "wav.scp" in files and recording not in files["wav.scp"]:
        return f"recording '{recording}' not in wav.scp"
    if "wav.scp" in files:
        return _absent_file(recording, files["wav.scp"][recording])
    return None


def _absent_file(recording: str, entry: str) -> str | None:
    """Why the file of a recording is not there; commands are not run to see."""
    if is_input_pipe(entry):
        command = entry.rstrip()[:-1].strip()
        return f"recording '{recording}': '{command}' is a file with a stray '|'" if os.path.isfile(command) else None
    path = split_offset(entry)[0]
    return None if os.path.exists(path) else f"recording '{recording}': no such file {path}"


def _drop_incomplete(directory: DataDir) -> None:
    for name in DERIVED:
        if name in directory.files and len(directory.files[name]) < len(directory.utterances):
            log.warning("%s/%s lacks utterances and goes: it can be made anew", directory.path, name)
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


def _back_up(path: Path, scans: dict[str, Scan]) -> None:
    (path / ".backup").mkdir(exist_ok=True)
    for name in scans:
        with open_bytes_writer(str(path / ".backup" / name)) as stream:
            stream.write((path / name).read_bytes())
