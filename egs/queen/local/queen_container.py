"""Reads the recordings and their texts out of `queen.1c`, the container of the game Flight of the Amazon Queen.

The format (all integers big-endian; verified on version 1.0.0-9 of Debian's package): a table of 7,671 named entries,
of which `*.SB` are one MP3 each, and the texts are in `*.DOG` (dialogues), `QUEEN2.JAS` (Joe's remarks) and `*.CUT`
(cut scenes).  A line of text is cut into separately recorded segments at its `*XX` commands; the recording of segment j
(from 1) is PREFIX + hexadecimal j + `.SB`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ngsgd.errors import DataError

ENTRY_BYTES = 21  # name[12], bundle u8, offset u32, size u32
HEADER_BYTES = 20  # skipped at the start of .DOG and .CUT entries
MP3 = 1
# `*XY` takes 11 more characters; `*GD` and `*GM` stay inside a recording: everything else cuts.
COMMAND = re.compile(r"\*(?:XY.{11}|G[DM]|[0-9A-Za-z]{2})", re.DOTALL)
JAS_LINES = 1000  # the remarks; later lines of QUEEN2.JAS hold other things, except for
JAS_FIRST_40_AT = 1187  # ... the lines of JOE0001 to JOE0040


@dataclass(frozen=True)
class Line:
    """One recording with its text.

    name: the entry in the container, as `020007J1.SB`; speaker: the character, upper case, "" in cut scenes, whose
    texts don't name one; source: `dialogue`, `remark` or `cutscene`; text: as printed by the game.
    """

    name: str
    speaker: str
    source: str
    text: str


class Container:
    """The table of a container and its bytes: `container["X.SB"]` is the content of an entry, `"X.SB" in container`."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            self.data = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot read the container: {error.strerror}") from None
        if self.data[:4] != b"QTBL":
            raise DataError(f"{path}: expected a container starting with 'QTBL', got {self.data[:4]!r}")
        if len(self.data) < 15:
            raise DataError(f"{path}: cut off in its header")
        if self.data[12] != MP3:
            raise DataError(f"{path}: expected speech codec {MP3} (MP3), got {self.data[12]}")
        (count,) = struct.unpack_from(">H", self.data, 13)
        if len(self.data) < 15 + count * ENTRY_BYTES:
            raise DataError(f"{path}: cut off in its table of {count} entries")
        self.entries: dict[str, tuple[int, int]] = {}
        for i in range(count):
            raw, _bundle, offset, size = struct.unpack_from(">12sBII", self.data, 15 + i * ENTRY_BYTES)
            name = raw.rstrip(b"\0").decode("latin-1")
            if offset + size > len(self.data):
                raise DataError(
                    f"{path}: entry {name} ends at byte {offset + size}, the file has only {len(self.data)}: cut off?"
                )
            self.entries[name] = (offset, size)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> bytes:
        if name not in self.entries:
            raise DataError(f"{self.path}: no entry {name} among its {len(self.entries)}")
        offset, size = self.entries[name]
        return self.data[offset : offset + size]

    def names(self, suffix: str) -> list[str]:
        """Names of the entries that end in `suffix`, sorted."""
        return sorted(name for name in self.entries if name.endswith(suffix))


def _i16(data: bytes, at: int) -> int:
    return struct.unpack_from(">h", data, at)[0]


def _u16(data: bytes, at: int) -> int:
    return struct.unpack_from(">H", data, at)[0]


def _string(data: bytes, at: int, align: int) -> tuple[str, int]:
    """(string at `at`, position of the next one): a length byte, Latin-1 text, padding; an empty one is one byte."""
    length = data[at]
    at += 1
    if length == 0:
        return "", at
    if at + length > len(data):
        raise IndexError(f"string of {length} bytes at {at}, but only {len(data)} bytes in all")
    text = data[at : at + length].decode("latin-1")
    at += length
    return text, at + -at % align


def split_segments(line: str) -> list[str]:
    """The separately recorded pieces of a line, commands removed, pieces without any text kept as ''."""
    pieces = [""]
    at = 0
    for command in COMMAND.finditer(line):
        pieces[-1] += line[at : command.start()]
        if command.group()[1:] not in ("GD", "GM"):
            pieces.append("")
        at = command.end()
    pieces[-1] += line[at:]
    return [piece.strip() for piece in pieces]


def _recordings(container: Container, prefix: str, line: str, speaker: str, source: str) -> Iterator[Line]:
    """The Lines of those segments of a text line that are recorded and say something."""
    for j, piece in enumerate(split_segments(line), start=1):
        name = f"{prefix}{j:X}.SB"
        if piece and name in container:
            yield Line(name, speaker, source, piece)


def _dialogue(container: Container, name: str) -> Iterator[Line]:
    data = container[name][HEADER_BYTES:]
    levels, key, joe_lines, other_lines = (_i16(data, at) for at in (0, 4, 6, 8))
    other_start, second_talk = _u16(data, 22), _u16(data, 26)
    joe_start = 32 + 96 * abs(levels)
    other = re.sub(r"\d", "", name.removesuffix(".DOG")).upper()
    for start, count, letter, speaker in ((joe_start, joe_lines, "J", "JOE"), (other_start, other_lines, "P", other)):
        at = start
        for _ in range(count):
            ident = _i16(data, at + 2) & 0xFFFF
            text, at = _string(data, at + 4, 4)
            yield from _recordings(container, f"{key:02d}{ident:04X}{letter}", text, speaker, "dialogue")
    if _i16(data, joe_start + 2) == 0:
        text, _ = _string(data, joe_start + 4, 2)
        yield from _recordings(container, f"{key:02d}SSSSJ", text, "JOE", "dialogue")
    text, at = _string(data, second_talk, 2)
    yield from _recordings(container, f"{key:02d}XXXXP", text, other, "dialogue")
    text, _ = _string(data, at, 2)
    yield from _recordings(container, f"{key:02d}XXXXJ", text, "JOE", "dialogue")


def _remarks(container: Container, name: str) -> Iterator[Line]:
    lines = container[name].decode("latin-1").split("\r\n")
    if len(lines) < JAS_FIRST_40_AT + 40:
        raise DataError(f"{container.path}: {name} has {len(lines)} lines, expected {JAS_FIRST_40_AT + 40} or more")
    for number in range(1, JAS_LINES + 41):
        at = JAS_FIRST_40_AT + number - 1 if number <= 40 else number - 41
        yield from _recordings(container, f"JOE{number:04d}", lines[at], "JOE", "remark")


def _cutscene(container: Container, name: str) -> Iterator[Line]:
    data = container[name][HEADER_BYTES:]
    stem = name.removesuffix(".CUT").ljust(5, "_")
    _, at = _string(data, _u16(data, 8), 2)
    for number in range(1, abs(_i16(data, 2)) + 1):
        text, at = _string(data, at, 2)
        yield from _recordings(container, f"{stem}{number:02d}", text, "", "cutscene")


def all_lines(container: Container) -> dict[str, Line]:
    """Every recording that has a text, by name.

    Three recordings (290020...) are claimed by two dialogues with different texts: the later dialogue in the order of
    names has the word, as in the lists of the recipe.  Raises DataError for a damaged entry, naming it.
    """
    lines: dict[str, Line] = {}
    readers = [(_dialogue, name) for name in container.names(".DOG")]
    readers += [(_remarks, "QUEEN2.JAS")]
    readers += [(_cutscene, name) for name in container.names(".CUT")]
    for read, name in readers:
        try:
            lines.update((line.name, line) for line in read(container, name))
        except (IndexError, struct.error) as error:
            raise DataError(f"{container.path}: entry {name} is damaged: {error}") from None
    return lines
