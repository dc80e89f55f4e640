"""Checking a data directory: everything that is wrong with it, each with file and line.

The rules are those of Kaldi's data preparation; messages name what was expected and found.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from ngsgd.data.datadir import FILES, RECORDING, SPEAKER, UTTERANCE, scan_directory
from ngsgd.data.scan import DAMAGED, ERROR, WARNING, Problem, Scan, reserved_words
from ngsgd.data.segments import parse_segment
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import is_input_pipe, split_offset
from ngsgd.options import opt

log = logging.getLogger(__name__)

SHOWN = 5  # examples of ids that are here and not there


@dataclass
class ValidateOptions:
    """What may be missing."""

    no_wav: bool = opt(False, "wav.scp may be missing, and the files that it names are not looked for")
    no_text: bool = opt(False, "text may be missing, as in a directory that is only decoded")
    no_feats: bool = opt(False, "feats.scp may be missing, as before features are made")


def validate(path: str | Path, options: ValidateOptions | None = None) -> list[Problem]:
    """All problems of the data directory `path`, file by file. Raises DataError when there is no such directory."""
    options = options or ValidateOptions()
    path = Path(path)
    scans = scan_directory(path)
    problems = [p for scan in scans.values() for p in scan.problems]
    problems += _missing_files(path, scans, options)
    if "text" in scans:
        problems += _check_text(scans["text"])
    if "wav.scp" in scans and not options.no_wav:
        problems += check_recordings(scans["wav.scp"])
    if "segments" in scans:
        problems += _check_segments(scans["segments"])
    if "utt2spk" in scans:
        problems += _check_speakers(scans)
        problems += _check_ids(scans)
    return problems


def report(path: str | Path, options: ValidateOptions) -> None:
    """Log all problems of the data directory. Raises DataError when there are more than warnings."""
    problems = validate(path, options)
    for problem in problems:
        log.log(logging.WARNING if problem.level == WARNING else logging.ERROR, "%s", problem)
    errors = sum(problem.level != WARNING for problem in problems)
    if errors:
        counts = f"{errors} errors, {len(problems) - errors} warnings"
        raise DataError(f"{path}: {counts}; utils/fix_data_dir.py repairs what it can")
    log.info("%s is valid, with %d warnings", path, len(problems))


def _missing_files(path: Path, scans: dict[str, Scan], options: ValidateOptions) -> list[Problem]:
    optional = {"wav.scp": options.no_wav, "text": options.no_text, "feats.scp": options.no_feats}
    problems = [Problem(str(path / n), 0, ERROR, "no such file") for n in ("utt2spk", "spk2utt") if n not in scans]
    for name, may_miss in optional.items():
        if name not in scans and not may_miss:
            flag = "--no-" + name.split(".")[0]
            problems.append(Problem(str(path / name), 0, ERROR, f"no such file ({flag} if that is intended)"))
    return problems


def _check_text(scan: Scan) -> list[Problem]:
    problems = []
    for entry in scan.entries.values():
        for word in dict.fromkeys(reserved_words(entry.rest)):
            message = f"'{entry.key}' has the word '{word}', which the toolkit uses as a symbol of its own"
            problems.append(Problem(scan.path, entry.line, ERROR, message))
    return problems


def check_recordings(scan: Scan) -> list[Problem]:
    """The problems of wav.scp's paths that can be seen without reading a recording."""
    problems = []
    for entry in scan.entries.values():
        message = recording_problem(entry.rest)
        if message:
            problems.append(Problem(scan.path, entry.line, ERROR, f"'{entry.key}': {message}"))
    return problems


def recording_problem(rxfilename: str) -> str | None:
    """What is wrong with one entry of wav.scp, if anything."""
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


def _check_segments(scan: Scan) -> list[Problem]:
    problems = []
    for entry in scan.entries.values():
        try:
            parse_segment(entry.rest, f"'{entry.key}'")
        except DataError as error:
            problems.append(Problem(scan.path, entry.line, ERROR, str(error)))
    return problems


def _check_speakers(scans: dict[str, Scan]) -> list[Problem]:
    utt2spk = scans["utt2spk"]
    problems = []
    no_prefix, order = [], []
    previous = ""
    for entry in utt2spk.entries.values():
        if len(entry.rest.split()) != 1:
            message = f"expected 'utterance speaker', found {1 + len(entry.rest.split())} fields"
            problems.append(Problem(utt2spk.path, entry.line, ERROR, message))
        if not entry.key.startswith(entry.rest):
            no_prefix.append(entry)
        if entry.rest < previous:
            order.append(entry)
        previous = entry.rest
    if order:
        problems.append(
            Problem(
                utt2spk.path,
                order[0].line,
                WARNING,
                f"in the order of utterances the speakers are not in order ('{order[0].rest}' comes late): programs "
                "that read sorted tables by speaker need speaker ids that are prefixes of utterance ids",
            )
        )
    elif no_prefix:
        example = no_prefix[0]
        problems.append(
            Problem(
                utt2spk.path,
                example.line,
                WARNING,
                f"speaker '{example.rest}' is no prefix of utterance '{example.key}' ({len(no_prefix)} such); sorting "
                "by utterance need not sort by speaker then, on which sorted tables depend; name them SPEAKER-...",
            )
        )
    if "spk2utt" in scans:
        problems += _check_inverse(utt2spk, scans["spk2utt"])
    return problems


def _check_inverse(utt2spk: Scan, spk2utt: Scan) -> list[Problem]:
    """utt2spk and spk2utt must say the same."""
    problems = []
    listed: dict[str, str] = {}
    for entry in spk2utt.entries.values():
        for utterance in entry.rest.split():
            if utterance in listed:
                message = f"utterance '{utterance}' is listed twice, of '{listed[utterance]}' and of '{entry.key}'"
                problems.append(Problem(spk2utt.path, entry.line, ERROR, message))
            listed[utterance] = entry.key
            known = utt2spk.entries.get(utterance)
            if known is None:
                message = f"utterance '{utterance}' of '{entry.key}' is not in utt2spk"
                problems.append(Problem(spk2utt.path, entry.line, ERROR, message))
            elif known.rest != entry.key:
                message = f"utterance '{utterance}' is of '{entry.key}' here, of '{known.rest}' in utt2spk:{known.line}"
                problems.append(Problem(spk2utt.path, entry.line, ERROR, message))
    for entry in utt2spk.entries.values():
        if entry.key not in listed:
            problems.append(Problem(utt2spk.path, entry.line, ERROR, f"utterance '{entry.key}' is not in spk2utt"))
    return problems


def _check_ids(scans: dict[str, Scan]) -> list[Problem]:
    """Each file must be about exactly the utterances, speakers or recordings that the others are about."""
    utt2spk = scans["utt2spk"].entries
    segments = scans["segments"].entries if "segments" in scans else None
    wanted = {UTTERANCE: set(utt2spk), SPEAKER: {e.rest for e in utt2spk.values()}}
    source = {UTTERANCE: "utt2spk", SPEAKER: "utt2spk"}
    if segments is None:
        wanted[RECORDING], source[RECORDING] = wanted[UTTERANCE], "utt2spk"
    else:
        wanted[RECORDING] = {e.rest.split()[0] for e in segments.values()}
        source[RECORDING] = "segments"
    problems = []
    for name, scan in scans.items():
        kind = FILES[name]
        if name in ("utt2spk", "spk2utt") or any(p.level == DAMAGED and "UTF-8" in p.message for p in scan.problems):
            continue
        surplus = [e for e in scan.entries.values() if e.key not in wanted[kind]]
        missing = sorted(wanted[kind] - set(scan.entries))
        # A recording that no segment uses does no harm.
        level = WARNING if kind == RECORDING and segments is not None else ERROR
        shown = surplus[:SHOWN]
        problems += [Problem(scan.path, e.line, level, f"{kind} '{e.key}' is not in {source[kind]}") for e in shown]
        if len(surplus) > SHOWN:
            problems.append(Problem(scan.path, 0, level, f"{len(surplus)} such: not in {source[kind]}"))
        if missing:
            examples = ", ".join(f"'{m}'" for m in missing[:SHOWN]) + (", ..." if len(missing) > SHOWN else "")
            message = f"{len(missing)} of {len(wanted[kind])} {kind} ids in {source[kind]} are missing: {examples}"
            problems.append(Problem(scan.path, 0, ERROR, message))
    return problems
