"""Flight of the Amazon Queen as a speech corpus: which recordings are for training and for the tests, their words.

Sets, as lists of "recording character" in conf/:
- `train.ids`, `test.ids`: dialogues and Joe's remarks, without lines that have digits or words outside CMUdict; test
  lines have two words or more, and no test sentence is in training (split by a hash of the sentence).  All 30
  characters of the dialogues are in training: the test is of unseen sentences by seen speakers.
- `unseen.ids`: lines of eight characters who speak only in cut scenes, hence are never heard in training: the head of
  the Amazon guards, two more guards, Rita, Hugh, Rico, Eddy, and the robot.  The game's tables of objects and actors
  name them; where an actor depends on the state of the game, the scene decided.  Lines of two words or more that are
  in the vocabulary of the other two sets and whose sentence is not in training; one of recordings that are identical.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queen_container import Container, Line, all_lines

from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_map
from ngsgd.options import opt

SETS = ("train", "test", "test_unseen")
LISTS = {"train": "train.ids", "test": "test.ids", "test_unseen": "unseen.ids"}
# What version 1.0.0-9 holds: recordings, those with a text, those of dialogues and remarks, characters of these.
EXPECTED = {"recordings": 6745, "with text": 6587, "dialogues and remarks": 4547, "characters": 30}
EACH_SPEAKER = 3  # utterances of every speaker that a shortened training set has at least


@dataclass
class QueenOptions:
    """Options of `prepare_data.py`."""

    quick: bool = opt(False, "train on about an hour of the training list, all speakers in it")
    quick_minutes: float = opt(60.0, "how much --quick keeps, minutes")
    more: bool = opt(
        False,
        "train also on the dialogues and remarks that the list leaves out for words outside CMUdict; "
        "the vocabulary grows, and error rates no longer compare with those of the list",
    )


@dataclass(frozen=True)
class Utterance:
    """An utterance: Kaldi's id, the recording's name in the container, the speaker, the words in upper case."""

    id: str
    recording: str
    speaker: str
    words: tuple[str, ...]


def normalise(text: str) -> tuple[str, ...]:
    """The words of a printed line: upper case, cut at all but letters and apostrophes, none at the edges of a word.

    What is set in <...> and (...) is spoken (a sigh, a cough) and stays.  `Mary-Lou's "NO"...` -> MARY LOU'S NO.
    """
    return tuple(w for match in re.findall(r"[A-Z']+", text.upper()) if (w := match.strip("'")))


def utterance(line: Line, speaker: str) -> Utterance:
    """The utterance of a line; its id is SPEAKER-RECORDING, so that ids sort by speaker."""
    return Utterance(f"{speaker}-{line.name.removesuffix('.SB')}", line.name, speaker, normalise(line.text))


def checked_lines(container: Container) -> dict[str, Line]:
    """All lines of a container. Raises DataError when its counts are not those of the version described here."""
    lines = all_lines(container)
    spoken = [line for line in lines.values() if line.source != "cutscene"]
    found = {
        "recordings": len(container.names(".SB")),
        "with text": len(lines),
        "dialogues and remarks": len(spoken),
        "characters": len({line.speaker for line in spoken}),
    }
    if found != EXPECTED:
        differing = [f"{found[k]} {k}, expected {EXPECTED[k]}" for k in EXPECTED if found[k] != EXPECTED[k]]
        raise DataError(f"{container.path}: {'; '.join(differing)}: not the version this recipe is for")
    return lines


def listed(path: str, lines: Mapping[str, Line]) -> list[Utterance]:
    """The utterances of a list. DataError for a recording that has no text, or another speaker in the container."""
    result = []
    for name, speaker in read_map(path).items():
        line = lines.get(name)
        if line is None:
            raise DataError(f"{path}: no text for recording {name}")
        if line.speaker not in ("", speaker):
            raise DataError(f"{path}: {name} is spoken by {line.speaker}, not by {speaker}")
        result.append(utterance(line, speaker))
    return sorted(result, key=lambda u: u.id)


def left_out(lines: Mapping[str, Line], chosen: Iterable[Utterance]) -> list[Utterance]:
    """Dialogues and remarks that are not chosen, whose sentence is not chosen for a test either, without digits."""
    taken = {u.recording for u in chosen}
    sentences = {u.words for u in chosen}
    rest = [
        utterance(line, line.speaker)
        for line in lines.values()
        if line.source != "cutscene" and line.name not in taken and not re.search(r"\d", line.text)
    ]
    return sorted((u for u in rest if u.words and u.words not in sentences), key=lambda u: u.id)


def shortened(utterances: Sequence[Utterance], seconds: Mapping[str, float], minutes: float) -> list[Utterance]:
    """About `minutes` of the utterances, chosen by a hash of the sentence: the same ones each time, all speakers kept.

    seconds: length of each recording.
    """
    order = sorted(utterances, key=lambda u: (hashlib.sha256(" ".join(u.words).encode()).digest(), u.id))
    of_speaker: dict[str, int] = {}
    first, rest = [], []
    for u in order:
        of_speaker[u.speaker] = of_speaker.get(u.speaker, 0) + 1
        (first if of_speaker[u.speaker] <= EACH_SPEAKER else rest).append(u)
    kept, length = [], 0.0
    for u in first + rest:
        if length >= 60.0 * minutes and u not in first:
            break
        kept.append(u)
        length += seconds[u.recording]
    return sorted(kept, key=lambda u: u.id)
