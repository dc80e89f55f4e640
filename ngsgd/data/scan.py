"""Reading the text files of a data directory line by line, collecting what is wrong instead of stopping at it.

Separators are the space and the tab; other white space (a non-breaking space, a carriage return, ...) looks like one
to a person and not to a program, so it is named by its code point.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ngsgd.errors import DataError

DAMAGED = "damaged"  # cannot be read without guessing: `DataDir.load` refuses it
ERROR = "error"  # readable, but wrong: `validate` fails
WARNING = "warning"
# White space that is not a space; control characters; characters that cannot be seen. Not the joiners U+200C and
# U+200D, which belong to the spelling of words in Persian, Hindi, ...
_ODD = re.compile(
    r"[^\S ]|[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True)
class Problem:
    """Something wrong in `path`, at `line` (from 1; 0: the file as a whole)."""

    path: str
    line: int
    level: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


@dataclass(frozen=True)
class Entry:
    """A line: its number, its id and the rest of it with single spaces."""

    line: int
    key: str
    rest: str


class Scan:
    """The entries and problems of one file.

    entries: id -> Entry, the first of each id, in the file's order.  Undecodable lines and lines without an id or (by
    default) a value are left out.
    """

    def __init__(self, path: Path, keep_spacing: bool = False, value: bool = True):
        """`keep_spacing`: the rest of a line is a path or a command, in which spaces count.

        Raises DataError when the file cannot be read.
        """
        self.path = str(path)
        self.keep_spacing = keep_spacing
        self.needs_value = value
        self.entries: dict[str, Entry] = {}
        self.problems: list[Problem] = []
        self.unsorted = False
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            self._line(number, line)
        if not lines:
            self.report(0, ERROR, "empty")

    def report(self, line: int, level: str, message: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(self.path, line, level, message))

    def lines(self) -> dict[str, str]:
        """id -> rest of the line, sorted by id."""
        return {key: self.entries[key].rest for key in sorted(self.entries)}

    def _line(self, number: int, raw: bytes) -> None:
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            what = f"not UTF-8: byte 0x{raw[error.start]:02X} at byte {error.start + 1} of the line"
            self.report(number, DAMAGED, what)
            return
        for message in odd_characters(line):
            self.report(number, ERROR, message)
        key, rest = split_line(line)
        if not key:
            self.report(number, ERROR, "empty line")
            return
        if line[:1] in " \t":
            self.report(number, ERROR, "white space before the id")
        if not self.keep_spacing:
            rest = " ".join(rest.split())
        if not rest and self.needs_value:
            self.report(number, ERROR, f"'{key}' has nothing behind it")
            return
        self._enter(Entry(number, key, rest))

    def _enter(self, entry: Entry) -> None:
        if entry.key in self.entries:
            first = self.entries[entry.key]
            same = "with the same value" if first.rest == entry.rest else f"with another value ('{first.rest[:60]}')"
            self.report(entry.line, DAMAGED, f"'{entry.key}' is also on line {first.line}, {same}")
            return
        previous = next(reversed(self.entries), None)
        if previous is not None and entry.key < previous and not self.unsorted:
            self.unsorted = True  # said once a file
            message = f"not sorted in the C locale: '{entry.key}' comes behind '{previous}'; use LC_ALL=C sort"
            self.report(entry.line, ERROR, message)
        self.entries[entry.key] = entry


def split_line(line: str) -> tuple[str, str]:
    """(id, rest) of a line, with odd white space taken for a space."""
    fields = cleaned(line).strip(" ").split(" ", 1)
    return fields[0], fields[1].strip(" ") if len(fields) > 1 else ""


def cleaned(line: str) -> str:
    """The line with every kind of white space replaced by a space, and invisible characters removed."""
    return _ODD.sub(lambda match: " " if match[0].isspace() else "", line)


def odd_characters(line: str) -> Iterator[str]:
    """A message for each kind of character that should not be in a data file, with code point and column."""
    seen = set()
    for match in _ODD.finditer(line):
        if match[0] not in seen:
            seen.add(match[0])
            yield f"{describe(match[0])} at column {match.start() + 1}; expected only spaces and printable characters"


def describe(character: str) -> str:
    """`U+00A0 (NO-BREAK SPACE)`."""
    names = {"\t": "TAB", "\r": "CARRIAGE RETURN", "\ufeff": "BYTE ORDER MARK"}
    name = names.get(character) or unicodedata.name(character, "unnamed")
    return f"U+{ord(character):04X} ({name})"


# What a language model or a lexicon FST uses as symbols of its own.
RESERVED_WORD = re.compile(r"<s>|</s>|<eps>|#\d+")


def reserved_words(words: str) -> list[str]:
    """The words of a transcript that have a meaning to the toolkit and cannot be spoken."""
    return [word for word in words.split() if RESERVED_WORD.fullmatch(word)]
