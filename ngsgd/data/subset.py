"""Choosing a part of a data directory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngsgd.data.datadir import DataDir
from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_map
from ngsgd.options import opt
from ngsgd.registry import Registry

log = logging.getLogger(__name__)

ways = Registry("way of choosing utterances")
"""name -> function(directory, number, seed) -> utterance ids"""


@dataclass
class SubsetOptions:
    """How utterances are chosen; without any of these, at random."""

    first: bool = opt(False, "the first N utterances")
    last: bool = opt(False, "the last N utterances")
    shortest: bool = opt(False, "the N shortest utterances, by utt2num_frames, utt2dur or segments")
    speakers: bool = opt(False, "whole speakers, at random, until N utterances are reached")
    per_spk: bool = opt(False, "N utterances of each speaker, at random")
    utt_list: str = opt("", "file whose lines begin with the utterances to take; no N")
    spk_list: str = opt("", "file whose lines begin with the speakers to take; no N")
    seed: int = opt(0, "seed of the random choices")

    @property
    def way(self) -> str:
        """The one way asked for. Raises DataError for two."""
        given = [name for name in ("first", "last", "shortest", "speakers", "per_spk") if getattr(self, name)]
        given += [name for name in ("utt_list", "spk_list") if getattr(self, name)]
        if len(given) > 1:
            raise DataError(f"expected one way of choosing, got --{' and --'.join(given)}".replace("_", "-"))
        return given[0] if given else "random"


def subset(source: str | Path, target: str | Path, number: int | None, options: SubsetOptions) -> DataDir:
    """Write the chosen part of the data directory `source` to `target`.

    A directory with fewer utterances than `number` is taken as a whole, with a warning. Raises DataError when nothing
    would be chosen.
    """
    directory = DataDir.load(source)
    way = options.way
    if way in ("utt_list", "spk_list"):
        chosen = _listed(directory, way, getattr(options, way))
    else:
        if number is None or number < 1:
            raise DataError(f"expected a positive number of utterances, got {number}")
        if number > len(directory.utterances):
            log.warning("%s: %d utterances asked for, %d there: taking all", source, number, len(directory.utterances))
        choose: Callable[[DataDir, int, int], list[str]] = ways[way]
        chosen = choose(directory, number, options.seed)
    if not chosen:
        raise DataError(f"{source}: no utterance chosen")
    part = directory.select(chosen)
    part.write(target)
    log.info("%s: %d of %d utterances to %s", source, len(chosen), len(directory.utterances), target)
    return part


def _listed(directory: DataDir, way: str, path: str) -> list[str]:
    wanted = read_map(path)
    utt2spk = directory.utt2spk or {}
    there = set(directory.utterances if way == "utt_list" else utt2spk.values())
    absent = [key for key in wanted if key not in there]
    if absent:
        counts = f"{len(absent)} of {len(wanted)}"
        log.warning("%s: %s ids are not in %s, such as '%s'", path, counts, directory.path, absent[0])
    if way == "utt_list":
        return [u for u in directory.utterances if u in wanted]
    return [u for u in directory.utterances if utt2spk.get(u) in wanted]


@ways.register("first")
def _first(directory: DataDir, number: int, seed: int) -> list[str]:
    return directory.utterances[:number]


@ways.register("last")
def _last(directory: DataDir, number: int, seed: int) -> list[str]:
    return directory.utterances[-number:]


@ways.register("random")
def _random(directory: DataDir, number: int, seed: int) -> list[str]:
    return _draw(directory.utterances, number, [seed])


@ways.register("per_spk")
def _per_speaker(directory: DataDir, number: int, seed: int) -> list[str]:
    chosen = []
    for speaker, utterances in _speakers(directory).items():
        if len(utterances) < number:
            log.warning("speaker '%s' has %d utterances, %d asked for", speaker, len(utterances), number)
        chosen += _draw(utterances, number, [seed, *speaker.encode()])
    return chosen


@ways.register("speakers")
def _whole_speakers(directory: DataDir, number: int, seed: int) -> list[str]:
    spk2utt = _speakers(directory)
    chosen: list[str] = []
    for speaker in np.random.default_rng(seed).permutation(list(spk2utt)):
        if len(chosen) >= number:
            break
        chosen += spk2utt[str(speaker)]
    return chosen


@ways.register("shortest")
def _shortest(directory: DataDir, number: int, seed: int) -> list[str]:
    lengths = _lengths(directory)
    return sorted(sorted(lengths), key=lengths.__getitem__)[:number]


def _draw(utterances: list[str], number: int, seed: list[int]) -> list[str]:
    order = np.random.default_rng(seed).permutation(len(utterances))[:number]
    return [utterances[i] for i in sorted(order)]


def _speakers(directory: DataDir) -> dict[str, list[str]]:
    if directory.spk2utt is None:
        raise DataError(f"{directory.path}/utt2spk: no such file, and speakers are asked for")
    return directory.spk2utt


def _lengths(directory: DataDir) -> dict[str, float]:
    for name in ("utt2num_frames", "utt2dur"):
        if name in directory.files:
            try:
                return {u: float(directory.files[name][u]) for u in directory.utterances}
            except (KeyError, ValueError) as error:
                raise DataError(f"{directory.path}/{name}: expected a number for every utterance: {error}") from None
    if directory.segments:
        return {u: s.end - s.start if s.end >= 0 else float("inf") for u, s in directory.segments.items()}
    raise DataError(
        f"{directory.path}: none of utt2num_frames, utt2dur, segments is there to tell the shortest; "
        "utils/get_utt2dur.py makes utt2dur"
    )
