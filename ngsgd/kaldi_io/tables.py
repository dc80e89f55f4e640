"""Tables: archives (`ark:`) and script files (`scp:`) of keyed values.

An rspecifier is `[ark|scp][,options]:rxfilename`, a wspecifier `ark[,t]:wxfilename` or `ark,scp[,t]:ARK,SCP`.
Options on reading: `s` the keys are sorted, `cs` they are asked for in sorted order (both are checked), `o` each is
asked for once, `p` skip what cannot be read; on writing: `t` text, `f` flush after each entry. An scp line may end in
a range, `feats.ark:6[0:9,2:5]`: rows and columns, both ends included.
"""

import functools
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.compressed import CompressedMatrix, CompressOptions
from ngsgd.kaldi_io.files import is_input_pipe, open_bytes, open_bytes_writer, open_file, split_offset
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_reader, split_words

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Specifier:
    """A parsed rspecifier or wspecifier."""

    form: str
    """ark, scp or (written) ark,scp"""
    path: str
    flags: frozenset[str] = field(default_factory=frozenset)


_FLAGS = frozenset(["b", "t", "f", "nf", "s", "ns", "cs", "ncs", "o", "no", "p", "np", "bg", "i", "ni"])


def parse_specifier(text: str) -> Specifier:
    """Raises DataError naming what is wrong with it."""
    head, colon, path = text.partition(":")
    words = head.split(",")
    forms = [w for w in words if w in ("ark", "scp")]
    unknown = [w for w in words if w not in ("ark", "scp") and w not in _FLAGS]
    if not colon or not forms or unknown:
        raise DataError(f"expected a table like 'ark:FILE' or 'scp:FILE', got '{text}'")
    return Specifier(",".join(sorted(forms)), path.strip(), frozenset(words) - {"ark", "scp"})


def is_table(text: str) -> bool:
    """Whether an argument is a table (`ark:...`, `scp:...`) and not a file name."""
    return re.match(r"(ark|scp)(,\w+)*:", text) is not None


def read_object(rxfilename: str, kind: str) -> Any:
    """The one object of a file, by the name of a method of TokenReader, or the range of it that FILE[0:9] asks for."""
    target, limits = _split_range(rxfilename)
    with open_reader(target) as reader:
        value = getattr(reader, kind)()
    return value if limits is None else _cut(value, limits, target)


def _read_entry(stream: BinaryIO, where: str, kind: str) -> Any:
    reader = TokenReader(stream, where)
    reader.detect_mode()
    return holders[kind].read(reader)


def _read_key(reader: TokenReader) -> tuple[str, bool] | None:
    """The key of the next entry, and whether its line ends there (an empty text value); None at the end."""
    stream, key = reader.stream, bytearray()
    byte = stream.read(1)
    while byte and byte in b" \t\r\n":
        byte = stream.read(1)
    if not byte:
        return None
    while byte and byte not in b" \t\n":
        key += byte
        if len(key) > 10000 or byte < b" ":
            hint = "a Windows line end?" if byte == b"\r" else "not an archive?"
            raise reader.error(f"expected a key and a space, found {bytes(key[-20:])!r}: {hint}")
        byte = stream.read(1)
    if not byte:
        raise reader.error(f"expected a value behind the key {bytes(key[:40])!r}, found the end: cut off?")
    try:
        return key.decode(), byte == b"\n"
    except UnicodeDecodeError:
        raise reader.error(f"expected a key in UTF-8, found {bytes(key[:40])!r}") from None


def read_scp(rxfilename: str) -> list[tuple[str, str]]:
    """(key, rxfilename) for each line of a script file. Raises DataError naming the line that is wrong."""
    entries = []
    with open_bytes(rxfilename) as stream:
        for number, line in enumerate(stream, 1):
            try:
                words = split_words(line.decode(), 1)
            except UnicodeDecodeError as error:
                raise DataError(f"{rxfilename}:{number}: not UTF-8: byte 0x{line[error.start]:02x}") from None
            if len(words) != 2:
                raise DataError(f"{rxfilename}:{number}: expected a key and a file, found '{' '.join(words)[:100]}'")
            entries.append((words[0], words[1]))
    return entries


class _OutOfRange(DataError):
    """A range that does not fit its value."""


class _ScpSource:
    """Reads the entries that script lines name, keeping the archive of the last one open."""

    def __init__(self, kind: str):
        self.kind = kind
        self._path: str | None = None
        self._stream: BinaryIO | None = None

    def read(self, key: str, rxfilename: str) -> Any:
        target, limits = _split_range(rxfilename)
        where = f"{target} (key {key})"
        if target == "-" or is_input_pipe(target):
            with open_bytes(target) as stream:
                value = _read_entry(stream, where, self.kind)
        else:
            value = _read_entry(self._seek(target), where, self.kind)
        return value if limits is None else _cut(value, limits, where)

    def _seek(self, rxfilename: str) -> BinaryIO:
        path, offset = split_offset(rxfilename)
        if path != self._path or self._stream is None:
            self.close()
            self._stream, self._path = open_file(path), path
        if self._stream.seekable():
            self._stream.seek(offset or 0)
        return self._stream

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _split_range(rxfilename: str) -> tuple[str, str | None]:
    match = re.fullmatch(r"(.*)\[([^][/]*)\]", rxfilename.strip())
    return (match[1].strip(), match[2]) if match else (rxfilename.strip(), None)


def _cut(value: Any, limits: str, where: str) -> np.ndarray:
    """The rows and columns `first:last[,first:last]` of a matrix (or elements of a vector), both ends included."""
    if isinstance(value, CompressedMatrix):
        value = value.to_dense()
    slices = []
    for axis, part in enumerate(limits.split(",")):
        if axis >= np.ndim(value):
            raise _OutOfRange(f"{where}: the range [{limits}] has more parts than the value has dimensions")
        size = value.shape[axis]
        if part in ("", ":"):
            slices.append(slice(None))
            continue
        match = re.fullmatch(r"(\d+):(\d+)", part)
        if not match:
            raise _OutOfRange(f"{where}: expected a range first:last, got '{part}'")
        first, last = int(match[1]), int(match[2])
        # Kaldi tolerates a last row slightly behind the end (features are sometimes shorter than the segment says).
        if first > last or first >= size or last >= size + 3:
            raise _OutOfRange(f"{where}: the range {part} does not lie within 0:{size - 1}")
        slices.append(slice(first, last + 1))
    return value[tuple(slices)]


class SequentialReader:
    """Iterates over (key, value) of a table.

    >>> for utterance, features in SequentialReader("scp:data/train/feats.scp", "matrix"): ...

    Raises DataError for a damaged entry (with `p` it is skipped with a warning), a failing pipe, and with `s` for keys
    out of order. An entry whose range lies outside of it is always skipped with a warning.
    """

    def __init__(self, rspecifier: str, kind: str):
        self.specifier = parse_specifier(rspecifier)
        self.kind = kind
        holders[kind]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for key, load in self.items():
            try:
                value = load()
            except _OutOfRange as error:
                log.warning("skipped: %s", error)
            except DataError as error:
                if "p" not in self.specifier.flags:
                    raise
                log.warning("skipped: %s", error)
            else:
                yield key, value

    def items(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """(key, load) of each entry; load() gives the value, or raises DataError when a script's entry cannot be read.

        Damage of an archive is raised by the iteration itself, as nothing behind it can be found.
        """
        entries = self._archive() if self.specifier.form == "ark" else self._script()
        if "s" not in self.specifier.flags:
            yield from entries
            return
        previous = None
        for key, load in entries:
            if previous is not None and key.encode() < previous.encode():
                raise DataError(f"{self.specifier.path}: keys are not sorted: '{key}' comes after '{previous}'")
            previous = key
            yield key, load

    def _archive(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        path = self.specifier.path
        with open_bytes(path) as stream:
            last = "the beginning"
            while True:
                try:
                    found = _read_key(TokenReader(stream, f"{path} after {last}"))
                    if found is None:
                        break
                    key, empty = found
                    source = io.BufferedReader(io.BytesIO(b"\n")) if empty else stream
                    value = _read_entry(source, f"{path} (key {key})", self.kind)
                except DataError as error:
                    if "p" not in self.specifier.flags:
                        raise
                    log.warning("reading stops: %s", error)
                    break
                last = key
                yield key, functools.partial(_itself, value)

    def _script(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        source = _ScpSource(self.kind)
        try:
            for key, rxfilename in read_scp(self.specifier.path):
                yield key, functools.partial(source.read, key, rxfilename)
        finally:
            source.close()


def _itself(value: Any) -> Any:
    return value


class RandomReader:
    """Looks up values of a table by key: `key in reader`, `reader[key]`, `reader.get(key)`.

    A script file is read at each look-up; an archive as far as needed, and kept (with `cs` or `o` only until passed).
    """

    def __init__(self, rspecifier: str, kind: str):
        self.specifier = parse_specifier(rspecifier)
        self.kind = kind
        self._values: dict[str, Any] = {}
        self._entries: Iterator[tuple[str, Any]] = iter(())
        self._last_asked = self._last_read = ""
        if self.specifier.form == "scp":
            entries = read_scp(self.specifier.path)
            self._script = dict(entries)
            if len(self._script) < len(entries):
                twice = next(a for a, b in pairwise(sorted(key for key, _ in entries)) if a == b)
                raise DataError(f"{self.specifier.path}: '{twice}' comes twice")
            self._source = _ScpSource(kind)
        else:
            self._script = None
            self._entries = iter(SequentialReader(rspecifier, kind))

    def __contains__(self, key: str) -> bool:
        return self._find(key)

    def __getitem__(self, key: str) -> Any:
        if not self._find(key):
            raise DataError(f"{self.specifier.path}: no entry for '{key}'")
        if self._script is not None:
            return self._source.read(key, self._script[key])
        return self._values.pop(key) if "o" in self.specifier.flags else self._values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or the default when it is absent (or, with `p`, cannot be read)."""
        if not self._find(key):
            return default
        try:
            return self[key]
        except DataError as error:
            if "p" not in self.specifier.flags:
                raise
            log.warning("skipped: %s", error)
            return default

    def _find(self, key: str) -> bool:
        if self._script is not None:
            return key in self._script
        sorted_keys = "s" in self.specifier.flags
        if "cs" in self.specifier.flags:
            if key.encode() < self._last_asked.encode():
                raise DataError(f"{self.specifier.path}: with 'cs', '{key}' was asked for after '{self._last_asked}'")
            self._last_asked = key
            for passed in [k for k in self._values if k.encode() < key.encode()]:
                del self._values[passed]
        while key not in self._values:
            if sorted_keys and self._last_read.encode() > key.encode():
                return False
            entry = next(self._entries, None)
            if entry is None:
                return False
            self._values[entry[0]] = entry[1]
            self._last_read = entry[0]
        return True


class Writer:
    """Writes (key, value) entries; a context manager, so that the files appear whole or not at all.

    >>> with Writer("ark,scp:feats.ark,feats.scp", "matrix", compress=True) as out: out.write("utt", features)

    `compress`: true for Kaldi's automatic method, or the options.
    """

    def __init__(self, wspecifier: str, kind: str, compress: bool | CompressOptions = False):
        self.specifier = parse_specifier(wspecifier)
        self.holder = holders[kind]
        self._compression = CompressOptions(compress=compress) if isinstance(compress, bool) else compress
        self._binary = "t" not in self.specifier.flags
        self._exits = ExitStack()
        self._ark: TokenWriter | None = None
        self._scp: BinaryIO | None = None
        self.count = 0

    def __enter__(self) -> "Writer":
        form, path = self.specifier.form, self.specifier.path
        if form == "scp":
            raise DataError(f"to write a table give 'ark:FILE' or 'ark,scp:ARK,SCP', not 'scp:{path}'")
        self._ark_path = path
        if form == "ark,scp":
            self._ark_path, comma, scp_path = path.partition(",")
            if not comma:
                raise DataError(f"expected 'ark,scp:ARK,SCP', got only '{path}'")
            if self._ark_path.strip() == "-" or self._ark_path.strip().startswith("|"):
                raise DataError(f"a script file cannot point into '{self._ark_path}': give the archive a file name")
            # Entered first, so closed last: the script appears after the archive that it names.
            self._scp = self._exits.enter_context(open_bytes_writer(scp_path.strip()))
        self._ark = TokenWriter(self._exits.enter_context(open_bytes_writer(self._ark_path)), self._binary)
        return self

    def write(self, key: str, value: Any) -> None:
        """Add an entry. Raises DataError naming the key for a key with white space or a value that can't be written."""
        ark = self._ark
        assert ark is not None, "use Writer in a with statement"
        if not key or min(key) <= " ":
            raise DataError(f"the key {key!r} is empty or contains white space")
        if self._compression.compress:
            try:
                value = self._compression.apply(value)
            except DataError as error:
                raise DataError(f"key {key}: {error}") from None
        ark.token(key)
        if self._scp is not None:
            self._scp.write(f"{key} {self._ark_path}:{ark.position}\n".encode())
        if self._binary and getattr(self.holder, "binary_header", True):
            ark.raw(b"\0B")
        self.holder.write(ark, value)
        if "f" in self.specifier.flags:
            ark.stream.flush()
        self.count += 1

    def __exit__(self, *exception: Any) -> bool | None:
        return self._exits.__exit__(*exception)
