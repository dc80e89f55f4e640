"""The dictionary directory that a recipe prepares, with Kaldi's file names, and everything that can be wrong with it.

lexicon.txt            word phone phone ...
lexiconp.txt           word probability phone phone ...   (instead of, or agreeing with, lexicon.txt)
silence_phones.txt     phones on one line share a decision-tree root
nonsilence_phones.txt  the same, for real phones
optional_silence.txt   one silence phone, allowed between words
extra_questions.txt    sets of phones (may be empty or missing)
"""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.lang.symbols import fields_of

log = logging.getLogger(__name__)

FORBIDDEN_WORDS = frozenset(["<s>", "</s>", "<eps>", "#0"])
_DISALLOWED_PHONE = re.compile(r"#.*|.*_[BESI]|<eps>")


@dataclass(frozen=True)
class Pronunciation:
    """A line of the lexicon."""

    word: str
    probability: float
    phones: tuple[str, ...]


@dataclass
class Dictionary:
    """A dictionary directory in memory. Lines of phones are lists of those that share a root."""

    silence: list[list[str]] = field(default_factory=list)
    nonsilence: list[list[str]] = field(default_factory=list)
    optional_silence: str = ""
    extra_questions: list[list[str]] = field(default_factory=list)
    lexicon: list[Pronunciation] = field(default_factory=list)

    @property
    def phones(self) -> set[str]:
        """All phones."""
        return {p for line in self.silence + self.nonsilence for p in line}


class _Checker:
    """Reads the files, collecting faults as "file:line: what is wrong"."""

    def __init__(self, path: str):
        self.path = path
        self.faults: list[str] = []

    def exists(self, name: str) -> bool:
        return os.path.isfile(f"{self.path}/{name}")

    def fault(self, name: str, number: int | None, text: str) -> None:
        self.faults.append(f"{self.path}/{name}" + (f":{number}" if number else "") + f": {text}")

    def lines(self, name: str, required: bool = True) -> Iterator[tuple[int, list[str]]]:
        """(line number, fields) of the lines that are not empty; complains of encoding, white space, empty lines."""
        try:
            raw_lines = Path(self.path, name).read_bytes().splitlines(keepends=True)
        except OSError as error:
            if required:
                self.fault(name, None, f"cannot be read: {error.strerror}")
            return
        if required and not raw_lines:
            self.fault(name, None, "is empty")
        for number, raw in enumerate(raw_lines, 1):
            try:
                line = raw.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                self.fault(name, number, f"byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8")
                continue
            odd = next((c for c in line if c not in " \t" and (c.isspace() or unicodedata.category(c) == "Cc")), None)
            if odd is not None:
                kind = "carriage return" if odd == "\r" else unicodedata.name(odd, "control character").lower()
                self.fault(name, number, f"contains U+{ord(odd):04X} ({kind}); only space and tab may separate fields")
                continue
            fields = fields_of(line)
            if not fields:
                self.fault(name, number, "is an empty line")
                continue
            yield number, fields

    def phone_lines(self, name: str, seen: dict[str, str]) -> list[list[str]]:
        """Lines of a phone list; `seen` (phone -> where) is shared by the lists, so that they stay disjoint."""
        result = []
        for number, fields in self.lines(name):
            for phone in fields:
                if phone in seen:
                    self.fault(name, number, f"phone {phone} is already in {seen[phone]}")
                elif _DISALLOWED_PHONE.fullmatch(phone):
                    self.fault(name, number, f"phone {phone}: a phone may not begin with # or end in _B _E _S _I")
                seen.setdefault(phone, f"{name} line {number}")
            result.append(fields)
        return result

    def questions(self, name: str, phones: set[str]) -> list[list[str]]:
        result = []
        for number, fields in self.lines(name, required=False):
            for phone in fields:
                if phone not in phones:
                    self.fault(name, number, f"phone {phone} is in neither list of phones")
            result.append(fields)
        return result

    def optional_silence(self, name: str, silence: list[list[str]]) -> str:
        found = list(self.lines(name))
        if not found:
            return ""
        number, fields = found[0]
        if len(found) > 1 or len(fields) > 1:
            self.fault(name, number, "must hold exactly one phone")
        if fields[0] not in {p for line in silence for p in line}:
            self.fault(name, number, f"phone {fields[0]} is not in silence_phones.txt")
        return fields[0]

    def lexicon(self, name: str, with_probability: bool, phones: set[str]) -> list[tuple[int, Pronunciation]]:
        result = []
        seen: dict[tuple[str, tuple[str, ...]], int] = {}
        for number, (word, *rest) in self.lines(name):
            if word in FORBIDDEN_WORDS:
                self.fault(name, number, f"the word {word} is reserved")
            probability = 1.0
            if with_probability:
                probability = _probability(rest.pop(0) if rest else "")
                if not 0.0 < probability <= 1.0:
                    self.fault(name, number, f"word {word}: the second field must be a probability in (0, 1]")
            pronunciation = Pronunciation(word, probability, tuple(rest))
            if not rest:
                self.fault(name, number, f"word {word} has an empty pronunciation")
            for phone in dict.fromkeys(rest):
                if phone not in phones:
                    self.fault(name, number, f"word {word}: phone {phone} is in neither list of phones")
            first = seen.setdefault((word, pronunciation.phones), number)
            if first != number:
                self.fault(name, number, f"repeats line {first}: {word} {' '.join(rest)}")
            result.append((number, pronunciation))
        return result

    def same(self, plain: list[tuple[int, Pronunciation]], weighted: list[tuple[int, Pronunciation]]) -> None:
        if len(plain) != len(weighted):
            self.fault(
                "lexiconp.txt",
                None,
                f"has {len(weighted)} pronunciations, lexicon.txt {len(plain)}; remove the one that is out of date",
            )
        for (_, a), (number, b) in zip(plain, weighted, strict=False):
            if (a.word, a.phones) != (b.word, b.phones):
                self.fault(
                    "lexiconp.txt",
                    number,
                    f"has {b.word} {' '.join(b.phones)} where lexicon.txt has "
                    f"{a.word} {' '.join(a.phones)}; remove the one that is out of date",
                )
                return

    def distinguishable(self, dictionary: Dictionary) -> None:
        """Phones that share a root must be told apart by some extra question, or no tree ever separates them."""
        questions = [set(q) for q in dictionary.extra_questions]
        for number, line in enumerate(dictionary.nonsilence, 1):
            kinds: dict[tuple[bool, ...], str] = {}
            for phone in dict.fromkeys(line):
                other = kinds.setdefault(tuple(phone in q for q in questions), phone)
                if other != phone:
                    self.fault(
                        "nonsilence_phones.txt",
                        number,
                        f"phones {other} and {phone} share a root but no line of extra_questions.txt tells them apart",
                    )


def _probability(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def examine(path: str) -> tuple[Dictionary, list[str]]:
    """Read a dictionary directory. Returns what was read and the faults found, each "file:line: what"."""
    checker = _Checker(path)
    seen: dict[str, str] = {}
    result = Dictionary()
    result.silence = checker.phone_lines("silence_phones.txt", seen)
    result.nonsilence = checker.phone_lines("nonsilence_phones.txt", seen)
    result.optional_silence = checker.optional_silence("optional_silence.txt", result.silence)
    result.extra_questions = checker.questions("extra_questions.txt", result.phones)
    checker.distinguishable(result)
    weighted = None
    if checker.exists("lexiconp.txt"):
        weighted = checker.lexicon("lexiconp.txt", True, result.phones)
    if weighted is None or checker.exists("lexicon.txt"):
        plain = checker.lexicon("lexicon.txt", False, result.phones)
        if weighted is not None:
            checker.same(plain, weighted)
    result.lexicon = [p for _, p in (plain if weighted is None else weighted)]
    if checker.exists("lexiconp_silprob.txt"):
        checker.fault("lexiconp_silprob.txt", None, "word-dependent silence probabilities are not supported; remove it")
    return result, checker.faults


def load_dictionary(path: str) -> Dictionary:
    """The dictionary of a directory. DataError when it has faults: all go to the log, the message has the first."""
    if not os.path.isdir(path):
        raise DataError(f"{path}: no such dictionary directory")
    dictionary, faults = examine(path)
    if not faults:
        return dictionary
    for fault in faults[:50]:
        log.warning("%s", fault)
    if len(faults) > 50:
        log.warning("and %d more faults in %s", len(faults) - 50, path)
    raise DataError(f"dictionary {path}: {len(faults)} faults, the first: {faults[0]}")
