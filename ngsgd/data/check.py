"""Checking a data directory: everything that is wrong with it, each with file and line.

The rules are those of Kaldi's data preparation; messages name what was expected and found. Of one mistake that is on
many lines of a file some are named and the others counted.
"""

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ngsgd.data.datadir import FILES, RECORDING, SPEAKER, UTTERANCE, scan_directory
from ngsgd.data.scan import DAMAGED, ERROR, NOT_UTF8, WARNING, Problem, Problems, Scan, reserved_words
from ngsgd.data.segments import parse_segment
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import is_input_pipe, split_offset
from ngsgd.options import opt

log = logging.getLogger(__name__)

SHOWN = 5  # examples of ids that are missing


@dataclass
class ValidateOptions:
    """What may be missing or odd."""

    no_wav: bool = opt(False, "wav.scp may be missing, and the files that it names are not looked for")
    no_text: bool = opt(False, "text may be missing, as in a directory that is only decoded")
    no_feats: bool = opt(False, "feats.scp may be missing, as before features are made")
    non_print: bool = opt(False, "odd white space and characters that cannot be seen are warnings, not errors")
    no_spk_sort: bool = opt(False, "speaker ids need not be prefixes of utterance ids, nor be in order with them")


def validate(path: str | Path, options: ValidateOptions | None = None) -> Problems:
    """All problems of the data directory `path`, file by file. Raises DataError when there is no such directory."""
    options = options or ValidateOptions()
    path = Path(path)
    scans = scan_directory(path, odd=WARNING if options.non_print else ERROR)
    for name, check in VALUE_CHECKS.items():
        if name in scans and not (name == "wav.scp" and options.no_wav):
            _check_values(scans[name], check)
    if "utt2spk" in scans:
        utt2spk = scans["utt2spk"]
        if not options.no_spk_sort:
            _check_order_of_speakers(utt2spk)
        if "spk2utt" in scans:
            _check_inverse(utt2spk, scans["spk2utt"])
        _check_ids(scans)
    problems = Problems()
    for scan in scans.values():
        problems.extend(scan.problems)
    problems.extend(_missing_files(path, scans, options))
    return problems


def report(path: str | Path, options: ValidateOptions) -> None:
    """Log all problems of the data directory. Raises DataError when there are more than warnings."""
    problems = validate(path, options)
    for problem in problems:
        log.log(logging.WARNING if problem.level == WARNING else logging.ERROR, "%s", problem)
    errors, warnings = problems.count(ERROR, DAMAGED), problems.count(WARNING)
    if errors:
        counts = f"{errors} errors, {warnings} warnings"
        raise DataError(f"{path}: {counts}; utils/fix_data_dir.py repairs what it can")
    log.info("%s is valid, with %d warnings", path, warnings)


def _missing_files(path: Path, scans: dict[str, Scan], options: ValidateOptions) -> Problems:
    problems = Problems()
    for name in ("utt2spk", "spk2utt", "wav.scp", "text", "feats.scp"):
        flag = "no_" + name.split(".")[0]
        may_miss = getattr(options, flag, None)
        if name not in scans and not may_miss:
            hint = "" if may_miss is None else f" (--{flag.replace('_', '-')} if that is intended)"
            problems.add(Problem(str(path / name), 0, ERROR, f"no such file{hint}"), "no such file")
    return problems


Check = Callable[[str], str | None]
"""What is wrong with the value of a line, if anything."""


def _check_values(scan: Scan, check: Check) -> None:
    for key, value in scan.values.items():
        message = check(value)
        if message:
            scan.report(scan.line_of(key), ERROR, "such values", f"'{key}': {message}")


def words_problem(words: str) -> str | None:
    """What is wrong with a transcript."""
    reserved = reserved_words(words)
    return f"the word '{reserved[0]}', which the toolkit uses as a symbol of its own" if reserved else None


def recording_problem(rxfilename: str) -> str | None:
    """What is wrong with an entry of wav.scp, as far as can be seen without reading the recording."""
    if is_input_pipe(rxfilename):
        command = rxfilename.rstrip()[:-1].strip()
        if os.path.isfile(command) and not os.access(command, os.X_OK):
            return f"'{command}' is a file, not a command: remove the '|' behind it"
        return None
    if rxfilename.startswith("~"):
        return f"'~' is not expanded in {rxfilename}: write the whole path"
    file = split_offset(rxfilename)[0]
    if not os.path.exists(file):
        relative = "" if os.path.isabs(file) else f", looked for from {os.getcwd()}"
        return f"no such file {file}{relative}"
    return None


def segment_problem(line: str) -> str | None:
    """What is wrong with a line of segments."""
    try:
        parse_segment(line, "segment")
    except DataError as error:
        return str(error).removeprefix("segment: ")
    return None


def _single_problem(value: str) -> str | None:
    return f"expected one value, found {len(value.split())}" if " " in value else None


def _seconds_problem(value: str) -> str | None:
    return None if 0 < _number(value) < math.inf else f"expected a length in seconds, found '{value}'"


def _frames_problem(value: str) -> str | None:
    return None if value.isascii() and value.isdigit() else f"expected a number of frames, found '{value}'"


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


VALUE_CHECKS: dict[str, Check] = {
    "utt2spk": _single_problem,
    "text": words_problem,
    "wav.scp": recording_problem,
    "segments": segment_problem,
    "utt2dur": _seconds_problem,
    "utt2num_frames": _frames_problem,
    "utt2uniq": _single_problem,
    "reco2dur": _seconds_problem,
}
"""File -> the check of its values."""


def _check_order_of_speakers(utt2spk: Scan) -> None:
    previous = ""
    no_prefix, example = 0, ""
    for utterance, speaker in utt2spk.values.items():
        if speaker < previous:
            message = (
                f"in the order of utterances the speakers are not in order ('{speaker}' comes late): programs that "
                "read sorted tables by speaker need speaker ids that are prefixes of utterance ids"
            )
            utt2spk.report(utt2spk.line_of(utterance), WARNING, "speakers not in order", message)
            return
        previous = speaker
        if not utterance.startswith(speaker):
            no_prefix += 1
            example = example or utterance
    if no_prefix:
        message = (
            f"speaker '{utt2spk.values[example]}' is no prefix of utterance '{example}' ({no_prefix} such); sorting by "
            "utterance need not sort by speaker then, on which sorted tables depend; name them SPEAKER-..."
        )
        utt2spk.report(utt2spk.line_of(example), WARNING, "speakers that are no prefixes", message)


def _check_inverse(utt2spk: Scan, spk2utt: Scan) -> None:
    """utt2spk and spk2utt must say the same."""
    listed: dict[str, str] = {}

    def report(kind: str, speaker: str, message: str) -> None:
        spk2utt.report(spk2utt.line_of(speaker), ERROR, f"utterances {kind}", message)

    for speaker, utterances in spk2utt.values.items():
        for utterance in utterances.split():
            if utterance in listed:
                message = f"utterance '{utterance}' is listed twice, of '{listed[utterance]}' and of '{speaker}'"
                report("listed twice", speaker, message)
            listed[utterance] = speaker
            known = utt2spk.values.get(utterance)
            if known is None:
                report("not in utt2spk", speaker, f"utterance '{utterance}' of '{speaker}' is not in utt2spk")
            elif known != speaker:
                line = utt2spk.line_of(utterance)
                message = f"utterance '{utterance}' is of '{speaker}' here, of '{known}' in utt2spk:{line}"
                report("of another speaker in utt2spk", speaker, message)
    for utterance in utt2spk.values:
        if utterance not in listed:
            message = f"utterance '{utterance}' is not in spk2utt"
            utt2spk.report(utt2spk.line_of(utterance), ERROR, "utterances not in spk2utt", message)


def _check_ids(scans: dict[str, Scan]) -> None:
    """Each file must be about exactly the utterances, speakers or recordings that the others are about."""
    utt2spk = scans["utt2spk"].values
    wanted = {UTTERANCE: utt2spk.keys(), SPEAKER: set(utt2spk.values()), RECORDING: utt2spk.keys()}
    source = dict.fromkeys(wanted, "utt2spk")
    if "segments" in scans:
        wanted[RECORDING] = {line.split(" ", 1)[0] for line in scans["segments"].values.values()}
        source[RECORDING] = "segments"
    for name, scan in scans.items():
        kind = FILES[name]
        if name in ("utt2spk", "spk2utt"):
            continue
        # A recording that no segment uses does no harm.
        level = WARNING if source[kind] == "segments" else ERROR
        if scan.values.keys() != wanted[kind]:
            for key in scan.values:
                if key not in wanted[kind]:
                    message = f"{kind} '{key}' is not in {source[kind]}"
                    scan.report(scan.line_of(key), level, f"{kind} ids not in {source[kind]}", message)
        missing = sorted(wanted[kind] - scan.values.keys())
        if missing and not scan.problems.count(DAMAGED, kind=NOT_UTF8):  # the ids of those lines are not known
            examples = ", ".join(f"'{m}'" for m in missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
            message = f"{len(missing)} of {len(wanted[kind])} {kind} ids in {source[kind]} are missing: {examples}"
            scan.report(0, ERROR, "missing", message)
