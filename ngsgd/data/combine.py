"""Putting several data directories together into one."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngsgd.data.datadir import FILES, UTTERANCE, DataDir, with_spk2utt
from ngsgd.data.fix import fix
from ngsgd.errors import DataError
from ngsgd.options import opt

log = logging.getLogger(__name__)

NAMED = 5
REMADE = ("cmvn.scp", "spk2warp")  # of a speaker in two directories each says something else, and both are wrong then


@dataclass
class CombineOptions:
    """Options of `combine_data.py`."""

    skip_fix: bool = opt(False, "leave utterances that are not in all of the files, as fix_data_dir.py would not")


def combine(target: str | Path, sources: Sequence[str | Path], options: CombineOptions) -> DataDir:
    """Write the utterances of all data directories `sources` to `target`.

    A file that one of them lacks is left out, with a warning. Exceptions: where only some have segments, utterances
    of the others become segments from 0 to the end; where only some have utt2uniq, utterances of the others are their
    own originals. Speakers may be in several. Raises DataError, and writes nothing, for an utterance in two of them
    and for a recording or speaker of which they say different things.
    """
    if any(Path(target).resolve() == Path(source).resolve() for source in sources):
        raise DataError(f"{target} is to be written and is one of the directories to combine")
    directories = [_consistent(source) for source in sources]
    _refuse_duplicates(directories)
    if any("segments" in d.files for d in directories):
        for d in directories:
            if "wav.scp" in d.files:
                d.files.setdefault("segments", {u: f"{u} 0 -1" for u in d.utterances})
    if any("utt2uniq" in d.files for d in directories):
        for d in directories:
            d.files.setdefault("utt2uniq", {u: u for u in d.utterances})
    files = {}
    for name in FILES:
        if name != "spk2utt" and any(name in d.files for d in directories):
            merged = _merged(name, directories)
            if merged is not None:
                files[name] = merged
    combined = DataDir(Path(target), with_spk2utt(files))
    combined.write(target)
    if options.skip_fix:
        return combined
    del directories, files, combined  # they may be large
    return fix(target)[0]


def _consistent(source: str | Path) -> DataDir:
    directory = DataDir.load(source)
    if directory.utt2spk is None:
        raise DataError(f"{source}/utt2spk: no such file")
    return directory.select(directory.utterances)


def _refuse_duplicates(directories: Sequence[DataDir]) -> None:
    owner: dict[str, Path] = {}
    twice = []
    for directory in directories:
        for utterance in directory.utterances:
            if owner.setdefault(utterance, directory.path) is not directory.path:
                twice.append(f"'{utterance}' in {owner[utterance]} and {directory.path}")
    if twice:
        examples = ", ".join(twice[:NAMED]) + (", ..." if len(twice) > NAMED else "")
        raise DataError(
            f"{len(twice)} utterances are in two directories: {examples}; "
            "copy_data_dir.py --utt-prefix=... --spk-prefix=... gives other names"
        )


def _merged(name: str, directories: Sequence[DataDir]) -> dict[str, str] | None:
    """The lines of all, or None where the file has to be left out."""
    lacking = [str(d.path) for d in directories if name not in d.files]
    if lacking:
        log.warning("%s is left out: %s has none", name, ", ".join(lacking))
        return None
    merged: dict[str, str] = {}
    for directory in directories:
        lines = directory.files[name]
        for key in () if FILES[name] == UTTERANCE else merged.keys() & lines.keys():
            if merged[key] != lines[key]:
                said = f"{name}: '{key}' has '{merged[key]}' in one directory, '{lines[key]}' in {directory.path}"
                if name not in REMADE:
                    raise DataError(f"{said}; copy_data_dir.py gives other names")
                log.warning("%s; the file is left out and to be made anew", said)
                return None
        merged |= lines
    return merged
