"""N-gram language models from text: interpolated Kneser-Ney over a closed vocabulary, entropy pruning.

    f(w|h)  = max(c(h w) - D_n, 0) / c(h)          c: counts; in lower orders, of distinct left neighbours         (1)
    g(h)    = 1 - Σ_w f(w|h)                                                                                      (2)
    p(w|h)  = f(w|h) + g(h) p(w|h')                h' is h without its first word; g(h) is the back-off weight     (3)
    p(w)    = f(w) + g / V                         V: size of the vocabulary with </s>                            (4)
    D_n     = min(n1 / (n1 + 2 n2), 0.9)           numbers of n-grams seen once and twice

(Kneser and Ney 1995; interpolation: Chen and Goodman 1998.) Counts, D_n and (1) for n > 1 are kaldingram's. It stops at
p = f and re-normalised back-off weights: there an n-gram that was seen can be less likely than through its back-off,
which a decoder would then take; and it knows only the words of its text, whereas a decoder's vocabulary also has words
that were never seen.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.lang.dict_dir import FORBIDDEN_WORDS
from ngsgd.lang.symbols import fields_of, text_lines
from ngsgd.lang.word_loop import is_word
from ngsgd.options import opt

log = logging.getLogger(__name__)

BOS, EOS = "<s>", "</s>"
_MAX_DISCOUNT = 0.9  # in a small text where nothing is seen twice D would be 1, and what was seen would not matter
_NO_SINGLETONS = 0.5  # discount of unigrams where no word is seen once


@dataclass
class NgramOptions:
    """How the language model is trained."""

    order: int = opt(3, "order N of the model: 1 to 5")
    prune: float = opt(0.0, "drop n-grams that change the perplexity less, relative, than this, such as 1e-7; 0: none")
    unk: str = opt("<unk>", "symbol in the model for words of the text that the vocabulary has not")


def read_vocabulary(path: str) -> tuple[list[str], set[str]]:
    """The words of a words.txt, or of any file with a word first on the line.

    Returns:
        (words, in the file's order, that always get a probability; these and the others, such as <UNK> or !SIL, that
        get one only where the text has them)
    """
    symbols = list(dict.fromkeys(fields[0] for _, line in text_lines(path) if (fields := fields_of(line))))
    words = [w for w in symbols if is_word(w)]
    if not words:
        raise DataError(f"{path}: no words for a language model")
    return words, set(symbols) - FORBIDDEN_WORDS


def sentences_of(path: str, allowed: set[str], unk: str, unknown: Counter[str]) -> Iterator[list[str]]:
    """The sentences of a text, one a line; words not allowed become `unk` and are counted. Empty lines are passed over.

    DataError for a line with <s> or </s> in it: the model adds them.
    """
    for number, line in text_lines(path):
        words = fields_of(line)
        for word in words:
            if word in FORBIDDEN_WORDS:
                raise DataError(f"{path}:{number}: the text has {word}, which the model adds or reserves; remove it")
            if word not in allowed:
                unknown[word] += 1
        if words:
            yield [w if w in allowed else unk for w in words]


def _kaldingram():
    os.environ.setdefault("TQDM_DISABLE", "1")  # its progress bars would fill the log
    from kaldingram import prune, train

    return train, prune


def count_ngrams(sentences: Iterable[list[str]], order: int):
    """kaldingram's NgramCounts of the sentences."""
    train, _ = _kaldingram()
    counts = train.NgramCounts(order, bos_symbol=BOS, eos_symbol=EOS)
    for words in sentences:
        counts.add_raw_counts_from_line(" ".join(words))
    return counts


def estimate(counts, vocabulary: Iterable[str]) -> None:
    """Probabilities and back-off weights of kaldingram's counts in place, over the vocabulary, by (1) to (4)."""
    counts.cal_discounting_constants()
    counts.d = [min(d, _MAX_DISCOUNT) for d in counts.d]
    counts.cal_f()
    _estimate_unigrams(counts, vocabulary)
    for n in range(1, counts.ngram_order):
        for history, entry in counts.counts[n].items():
            left = 1.0 - sum(entry.word_to_f.values())
            lower = counts.counts[n - 1][history[1:]].word_to_f
            entry.word_to_f = {w: f + left * lower[w] for w, f in entry.word_to_f.items()}
            counts.counts[n - 1][history[:-1]].word_to_bow[history[-1]] = left


def _estimate_unigrams(counts, vocabulary: Iterable[str]) -> None:
    """Equations (1) and (4); the words of the vocabulary that the text has not are entered."""
    unigrams = counts.counts[0][()]
    if counts.ngram_order == 1:  # no left neighbours are counted: plain counts
        number = {w: c for w, c in unigrams.word_to_count.items() if w != BOS}
    else:
        number = {w: len(unigrams.word_to_context[w]) for w in unigrams.word_to_count if w != BOS}
    once, twice = (sum(n == k for n in number.values()) for k in (1, 2))
    discount = min(once / (once + 2 * twice), _MAX_DISCOUNT) if once else _NO_SINGLETONS
    total = sum(number.values())
    words = list(dict.fromkeys([*number, *vocabulary]))
    uniform = sum(min(n, discount) for n in number.values()) / total / len(words)
    for word in words:
        unigrams.word_to_count.setdefault(word, 0)
        unigrams.word_to_f[word] = max(number.get(word, 0) - discount, 0.0) / total + uniform
    unigrams.word_to_f[BOS] = 0.0


def _log10(value: float) -> float:
    return math.log10(value) if value > 0.0 else -99.0


def arpa_lines(counts) -> Iterator[str]:
    """The estimated model in ARPA form, log10; <s>, which is never predicted, has -99."""
    yield "\\data\\\n"
    for n, histories in enumerate(counts.counts, 1):
        yield f"ngram {n}={sum(len(h.word_to_f) for h in histories.values())}\n"
    for n, histories in enumerate(counts.counts, 1):
        yield f"\n\\{n}-grams:\n"
        for history, entry in histories.items():
            for word in entry.word_to_count:
                probability, bow = entry.word_to_f[word], entry.word_to_bow.get(word)
                line = f"{_log10(probability):.7f}\t{' '.join((*history, word))}"
                yield line + ("\n" if bow is None or n == len(counts.counts) else f"\t{_log10(bow):.7f}\n")
    yield "\n\\end\\\n"


def prune_arpa(text: str, threshold: float) -> str:
    """Entropy pruning (Stolcke 1998) of a model in ARPA form, by kaldingram."""
    _, prune = _kaldingram()
    model = prune.ArpaParser().loads(text)[0]
    try:
        prune.prune(model, threshold, 1)
    except ValueError as error:
        raise DataError(
            f"the model cannot be pruned ({error}): a context has all words of the vocabulary; "
            "it is small enough without pruning"
        ) from None
    return prune.ArpaParser().dumps(model)


def train_ngram(vocabulary: str, text: str, arpa: str, options: NgramOptions) -> tuple[list[int], int]:
    """Train on a text, write an ARPA file. Returns (n-grams of each order, sentences). Unknown words go to the log."""
    from ngsgd.kaldi_io.files import open_text_writer
    from ngsgd.lang.arpa import check_arpa

    if not 1 <= options.order <= 5:
        raise DataError(f"--order={options.order}: expected 1 to 5")
    words, allowed = read_vocabulary(vocabulary)
    unknown: Counter[str] = Counter()
    sentences = list(sentences_of(text, allowed, options.unk, unknown))
    if not sentences:
        raise DataError(f"{text}: no sentences for a language model")
    if unknown:
        shown = ", ".join(f"{w} ({c})" for w, c in sorted(unknown.items(), key=lambda x: (-x[1], x[0]))[:20])
        log.warning(
            "%d tokens of %d words not in %s became %s: %s%s",
            unknown.total(),
            len(unknown),
            vocabulary,
            options.unk,
            shown,
            " ..." if len(unknown) > 20 else "",
        )
    counts = count_ngrams(sentences, options.order)
    estimate(counts, words)
    model = "".join(arpa_lines(counts))
    if options.prune > 0.0:
        model = prune_arpa(model, options.prune)
    sizes = check_arpa(model.splitlines(), arpa).counts
    with open_text_writer(arpa) as out:
        out.write(model)
    return sizes, len(sentences)
