"""Grammars that are a loop over words: any words in any order, equally likely or by the unigrams of an ARPA file.

One state, text form of OpenFst with words for labels: "0 0 WORD WORD cost" for each word, then "0 cost" of ending;
costs are negated natural logarithms. To be compiled with the words.txt of a lang directory.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.options import opt

log = logging.getLogger(__name__)

END = "</s>"


@dataclass
class WordLoopOptions:
    """Options of `make-word-loop`."""

    arpa: str = opt("", "ARPA language model that the words' and the end's probabilities are taken from; none: uniform")
    end_prob: float = opt(0.25, "probability of ending after each word, 0 < p < 1; not with --arpa")


def is_word(word: str) -> bool:
    """False for <UNK>, <s>, !SIL and their like."""
    return not word.startswith(("<", "!", "#"))


def uniform_loop(words: Sequence[str], end_prob: float) -> dict[str, float]:
    """Word -> probability (1 - end_prob) / number of words; END -> end_prob."""
    if not 0.0 < end_prob < 1.0:
        raise DataError(f"--end-prob={end_prob}: expected a probability between 0 and 1")
    if not words:
        raise DataError("no words to make a grammar of")
    return {**dict.fromkeys(words, (1.0 - end_prob) / len(words)), END: end_prob}


def arpa_unigrams(path: str) -> dict[str, float]:
    """Word -> probability of an ARPA file's unigrams. Raises DataError with the line for anything malformed."""
    lines = iter(enumerate(read_lines(path), 1))
    if not any(line.strip() == "\\data\\" for _, line in lines):
        raise DataError(f"{path}: expected an ARPA language model, found no line \\data\\")
    if not any(line.strip() == "\\1-grams:" for _, line in lines):
        raise DataError(f"{path}: no \\1-grams: after \\data\\")
    result: dict[str, float] = {}
    for number, line in lines:
        fields = line.split()
        if line.startswith("\\"):
            return result
        if not fields:
            continue
        try:
            result[fields[1]] = 10.0 ** float(fields[0])
        except (IndexError, ValueError):
            raise DataError(f"{path}:{number}: expected 'log10-probability word [back-off]', got '{line}'") from None
    raise DataError(f"{path}: ends within \\1-grams:")


def unigram_loop(words: Iterable[str], unigrams: dict[str, float]) -> dict[str, float]:
    """The unigrams of `words` and of END, as they are: mass of words that are not asked for is not given to others.

    Words without a unigram are named in a warning and left out. Raises DataError when END or every word lacks one.
    """
    wanted = list(words)
    missing = [w for w in wanted if w not in unigrams]
    if missing:
        shown = " ".join(missing[:20])
        log.warning("%d of %d words are not in the language model: %s", len(missing), len(wanted), shown)
    if END not in unigrams or len(missing) == len(wanted):
        raise DataError(f"the language model lacks {END if END not in unigrams else 'every word'}")
    return {word: unigrams[word] for word in [*wanted, END] if word in unigrams}


def loop_text(probabilities: dict[str, float]) -> list[str]:
    """Lines of the grammar, words in the order given."""
    lines = [f"0 0 {w} {w} {-math.log(p):.6g}" for w, p in probabilities.items() if w != END]
    return [*lines, f"0 {-math.log(probabilities[END]):.6g}"]


def word_loop(words: Iterable[str], options: WordLoopOptions) -> list[str]:
    """The grammar of `options` over those of `words` that are words, duplicates dropped."""
    vocabulary = [w for w in dict.fromkeys(words) if is_word(w)]
    if options.arpa:
        return loop_text(unigram_loop(vocabulary, arpa_unigrams(options.arpa)))
    return loop_text(uniform_loop(vocabulary, options.end_prob))
