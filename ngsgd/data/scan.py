"""Reading the text files of a data directory, collecting what is wrong instead of stopping at it.

Separators are the space and the tab; other white space (a non-breaking space, a carriage return, ...) looks like one
to a person and not to a program, so it is named by its code point.

A file with nothing odd in it is split as a whole; any other is gone through line by line, several times as slowly.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ngsgd.errors import DataError

DAMAGED = "damaged"  # cannot be read without guessing: `DataDir.load` refuses it
ERROR = "error"  # readable, but wrong: `validate` fails
WARNING = "warning"

NAMED = 10  # problems of one kind in one file that are kept with their lines
NOT_UTF8 = "not UTF-8"

# White space that is not a space; control characters; characters that cannot be seen. Not the joiners U+200C and
# U+200D, which belong to the spelling of words in Persian, Hindi, ...
_ODD = re.compile(
    r"[^\S ]|[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_PLAIN = bytes([*range(0x20, 0x7F), ord("\n")])  # characters that need no second look


@dataclass(frozen=True)
class Problem:
    """Something wrong in `path`, at `line` (from 1; 0: the file as a whole)."""

    path: str
    line: int
    level: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


class Problems:
    """Problems in the order of their finding: `NAMED` of each kind in each file, and how many more there are.

    A million lines that all end in a carriage return are one mistake, and are told as one.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], list[Problem]] = {}  # by file, level and kind
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, problem: Problem, kind: str) -> None:
        """`kind`: what the same mistake on other lines is called: `3 more: KIND`."""
        key = (problem.path, problem.level, kind)
        self._counts[key] += 1
        if self._counts[key] <= NAMED:
            self._kept.setdefault(key, []).append(problem)

    def extend(self, others: "Problems") -> None:
        """Add the problems of other files."""
        self._counts += others._counts
        self._kept |= others._kept

    def __iter__(self) -> Iterator[Problem]:
        for key, problems in self._kept.items():
            yield from problems
            path, level, kind = key
            if self._counts[key] > len(problems):
                yield Problem(path, 0, level, f"{self._counts[key] - len(problems)} more: {kind}")

    def count(self, *levels: str, kind: str | None = None) -> int:
        """How many of these levels, and of this kind, there are."""
        return sum(n for (_, level, k), n in self._counts.items() if level in levels and kind in (None, k))


class Scan:
    """The lines and problems of one file.

    values: id -> rest of the line, with single spaces unless spacing is kept, for the first line of each id, in the
    file's order.  Undecodable lines and lines without an id or a value are left out.
    """

    def __init__(self, path: Path, keep_spacing: bool = False, odd: str = ERROR, keys: Iterable[list[str]] = ()):
        """`keep_spacing`: the rest of a line is a path or a command, in which spaces count.

        `odd`: how bad odd characters are.  `keys`: ids of files read before; where they are the same, so are the
        objects, which saves memory.  Raises DataError when the file cannot be read.
        """
        self.path = str(path)
        self.values: dict[str, str] = {}
        self.problems = Problems()
        self._keep_spacing = keep_spacing
        self._odd = odd
        self._numbers: Iterable[int] = ()  # of the lines that `values` come from
        self._line_of: dict[str, int] = {}
        self._sorted = True
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        if not data:
            self.report(0, ERROR, "empty", "empty")
        elif not self._as_a_whole(data, keys):
            self._line_by_line(data)

    def report(self, line: int, level: str, kind: str, message: str) -> None:
        """Add a problem."""
        self.problems.add(Problem(self.path, line, level, message), kind)

    def lines(self) -> dict[str, str]:
        """id -> rest of the line, sorted by id."""
        return self.values if self._sorted else {key: self.values[key] for key in sorted(self.values)}

    def line_of(self, key: str) -> int:
        """The number of the line that begins with `key`."""
        if not self._line_of:
            self._line_of = dict(zip(self.values, self._numbers, strict=True))
        return self._line_of[key]

    def _as_a_whole(self, data: bytes, known_keys: Iterable[list[str]]) -> bool:
        """Take the file if there is nothing to say about it."""
        try:
            strange = {c for c in data.translate(None, _PLAIN).decode() if _ODD.match(c)}
            text = data.decode()
        except UnicodeDecodeError:
            return False
        if strange or text[0] in " \n" or "\n " in text or "\n\n" in text:
            return False
        lines = text.removesuffix("\n").split("\n")
        single = "  " not in text and " \n" not in text and text[-1] != " "
        del text
        keys, rests = [], []
        for line in lines:
            key, _, rest = line.partition(" ")
            keys.append(key)
            rests.append(rest)
        del lines
        if not single:
            rests = [rest.strip(" ") if self._keep_spacing else " ".join(rest.split()) for rest in rests]
        keys = next((known for known in known_keys if known == keys), keys)
        values = dict(zip(keys, rests, strict=True))
        if len(values) < len(keys) or "" in rests or keys != sorted(keys):
            return False
        self.values, self._numbers = values, range(1, len(keys) + 1)
        return True

    def _line_by_line(self, data: bytes) -> None:
        self._numbers = []
        previous = ""
        for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
            entry = self._entry(number, raw)
            if entry is None:
                continue
            key, rest = entry
            if key in self.values:
                same = "the same value" if self.values[key] == rest else f"another value ('{self.values[key][:60]}')"
                message = f"'{key}' is also on line {self.line_of(key)}, with {same}"
                self.report(number, DAMAGED, "ids that come twice", message)
                continue
            if key < previous and self._sorted:
                self._sorted = False  # said once a file
                message = f"not sorted in the C locale: '{key}' comes behind '{previous}'; use LC_ALL=C sort"
                self.report(number, ERROR, "not sorted", message)
            self.values[key] = rest
            self._numbers.append(number)
            self._line_of[key] = number
            previous = key

    def _entry(self, number: int, raw: bytes) -> tuple[str, str] | None:
        """Id and rest of a line, if it has both."""
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            what = f"not UTF-8: byte 0x{raw[error.start]:02X} at byte {error.start + 1} of the line"
            self.report(number, DAMAGED, NOT_UTF8, what)
            return None
        for character, column in odd_characters(line).items():
            message = f"{character} at column {column}; expected only spaces and printable characters"
            self.report(number, self._odd, character, message)
        key, rest = split_line(line)
        if not key:
            self.report(number, ERROR, "empty lines", "empty line")
            return None
        if line[:1] in (" ", "\t"):
            self.report(number, ERROR, "white space before the id", "white space before the id")
        if not self._keep_spacing:
            rest = " ".join(rest.split())
        if not rest:
            self.report(number, ERROR, "ids with nothing behind them", f"'{key}' has nothing behind it")
            return None
        return key, rest


def split_line(line: str) -> tuple[str, str]:
    """(id, rest) of a line, with odd white space taken for a space."""
    key, _, rest = cleaned(line).strip(" ").partition(" ")
    return key, rest.strip(" ")


def cleaned(line: str) -> str:
    """The line with every kind of white space replaced by a space, and invisible characters removed."""
    return _ODD.sub(lambda match: " " if match[0].isspace() else "", line)


def odd_characters(line: str) -> dict[str, int]:
    """Each kind of character that should not be in a data file, described -> its first column, from 1."""
    found: dict[str, int] = {}
    for match in _ODD.finditer(line):
        found.setdefault(describe(match[0]), match.start() + 1)
    return found


def describe(character: str) -> str:
    """`U+00A0 (NO-BREAK SPACE)`."""
    names = {"\t": "TAB", "\r": "CARRIAGE RETURN", "\ufeff": "BYTE ORDER MARK"}
    name = names.get(character) or unicodedata.name(character, "unnamed")
    return f"U+{ord(character):04X} ({name})"


# What a language model or a lexicon FST uses as symbols of its own.
RESERVED_WORD = re.compile(r"<s>|</s>|<eps>|#\d+")


def reserved_words(words: str) -> list[str]:
    """The words of a transcript that have a meaning to the toolkit and cannot be spoken."""
    if "<" not in words and "#" not in words:
        return []
    return [word for word in words.split() if RESERVED_WORD.fullmatch(word)]
