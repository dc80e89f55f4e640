"""Writes the dictionary directory that `ngsgd.lang.dict_dir` reads: from a lexicon and the names of silence phones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.options import opt

Entry = tuple[str, tuple[str, ...]]


@dataclass
class DictOptions:
    """Options of `prepare_dict.py`."""

    silence_phones: str = opt("SIL", "phones that are no speech, separated by spaces")
    optional_silence: str = opt("SIL", "the silence phone allowed between words")
    extra_words: str = opt("", "one-phone entries 'WORD=PHONE', separated by spaces, put first; e.g. '<UNK>=SPN'")


def read_lexicon(path: str) -> list[Entry]:
    """(word, phones) of each line. Raises DataError for a line without phones, and for an empty file."""
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        word, *phones = line.split() or [""]
        if not phones:
            raise DataError(f"{path}:{number}: expected a word and its phones, got '{line}'")
        entries.append((word, tuple(phones)))
    if not entries:
        raise DataError(f"{path}: the lexicon is empty")
    return entries


def read_words(path: str) -> list[str]:
    """The first field of each line that has one: a word list or a symbol table. DataError for an empty file."""
    words = [line.split()[0] for line in read_lines(path) if line.strip()]
    if not words:
        raise DataError(f"{path}: the list of words is empty")
    return words


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """A text file, whole or not at all; one that says the same already is left alone, and what depends on it fresh."""
    text = "".join(line + "\n" for line in lines)
    if os.path.isfile(path) and Path(path).read_bytes() == text.encode():
        return
    with open_text_writer(str(path)) as stream:
        stream.write(text)


def write_lexicon(path: str | Path, entries: Iterable[Entry]) -> None:
    """ "word phone phone ..." a line, in the order given."""
    write_lines(path, (" ".join((word, *phones)) for word, phones in entries))


def write_dictionary(path: str | Path, entries: Sequence[Entry], silence: Sequence[str], optional: str) -> None:
    """The five files of a dictionary directory; every phone of its own, in sorted order.

    extra_questions.txt asks for silence as a whole when it has more than one phone, and is empty otherwise.
    Raises DataError when `optional` is not in `silence`, or no entry has a phone of speech.
    """
    if optional not in silence:
        raise DataError(f"the optional silence {optional} is not among the silence phones {' '.join(silence)}")
    speech = sorted({phone for _, phones in entries for phone in phones} - set(silence))
    if not speech:
        raise DataError(f"no phone in the lexicon besides silence ({' '.join(silence)})")
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "lexiconp.txt").unlink(missing_ok=True)
    write_lines(directory / "silence_phones.txt", silence)
    write_lines(directory / "nonsilence_phones.txt", speech)
    write_lines(directory / "optional_silence.txt", [optional])
    write_lines(directory / "extra_questions.txt", [" ".join(silence)] if len(silence) > 1 else [])
    write_lexicon(directory / "lexicon.txt", entries)


def prepare_dictionary(lexicon: str, path: str, options: DictOptions) -> int:
    """A dictionary directory from a lexicon file, duplicates dropped. Returns the number of entries."""
    extra: list[Entry] = []
    for item in options.extra_words.split():
        word, equals, phones = item.partition("=")
        if not (word and equals and phones):
            raise DataError(f"--extra-words: expected WORD=PHONE, got '{item}'")
        extra.append((word, (phones,)))
    entries = list(dict.fromkeys(extra + read_lexicon(lexicon)))
    write_dictionary(path, entries, options.silence_phones.split(), options.optional_silence)
    return len(entries)
