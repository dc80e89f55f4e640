"""Text files of a data directory: `utt2spk`, `text`, `spk2utt` and their like, one id and its values a line, UTF-8."""

from collections.abc import Mapping

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes, open_text_writer
from ngsgd.kaldi_io.stream import split_words


def read_lines(path: str) -> list[str]:
    """The lines of a UTF-8 file. Raises DataError naming line and byte that are not UTF-8."""
    with open_bytes(path) as stream:
        data = stream.read()
    lines = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8: byte 0x{line[error.start]:02x}") from None
    return lines[:-1] if lines and not lines[-1] else lines


def read_map(path: str) -> dict[str, str]:
    """Id to the rest of its line. Raises DataError for an id that comes twice."""
    entries: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        words = split_words(line, 1)
        if not words:
            raise DataError(f"{path}:{number}: an empty line")
        if words[0] in entries:
            raise DataError(f"{path}:{number}: '{words[0]}' comes twice")
        entries[words[0]] = words[1] if len(words) > 1 else ""
    return entries


def read_lists(path: str) -> dict[str, list[str]]:
    """Id to the words behind it."""
    return {key: split_words(rest) for key, rest in read_map(path).items()}


def write_map(path: str, entries: Mapping[str, str | list[str]]) -> None:
    """Write ids and values, sorted as in the C locale, whole or not at all."""
    with open_text_writer(path) as out:
        for key in sorted(entries, key=str.encode):
            value = entries[key]
            text = value if isinstance(value, str) else " ".join(value)
            out.write(f"{key} {text}".rstrip() + "\n")
