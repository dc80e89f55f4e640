"""Joining what the jobs of a step have written into one file of a data directory."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_map, write_map
from ngsgd.options import opt

log = logging.getLogger(__name__)

NAMED = 5


@dataclass
class JoinOptions:
    """What should come out."""

    expect: str = opt("", "file whose lines begin with the ids that should be there")


def join(target: str, sources: Sequence[str], options: JoinOptions) -> None:
    """Write the lines of all `sources`, sorted by id, to `target`.

    Raises DataError for an id in two files, nothing at all, or more than half of the expected ids missing; then
    `target` stays as it was.
    """
    joined: dict[str, str] = {}
    origin: dict[str, str] = {}
    for source in sources:
        for key, rest in read_map(source).items():
            if key in joined:
                raise DataError(f"'{key}' is in {origin[key]} and in {source}")
            joined[key], origin[key] = rest, source
    if not joined:
        raise DataError(f"nothing in {', '.join(sources)}")
    if options.expect:
        expected = read_map(options.expect)
        missing = sorted(key for key in expected if key not in joined)
        if missing:
            examples = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
            counts = f"{len(missing)} of {len(expected)} ids of {options.expect} are not in {target}: {examples}"
            if len(missing) > len(expected) / 2:
                raise DataError(counts)
            log.warning("%s; the logs say why, utils/fix_data_dir.py drops them", counts)
    write_map(target, joined)
