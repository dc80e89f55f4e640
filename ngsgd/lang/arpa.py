"""ARPA files: checked before they are used, turned into G.fst, and scored in plain Python.

    \\data\\
    ngram 1=3
    ngram 2=2

    \\1-grams:
    -1.2  word  -0.3          log10 probability, words, log10 back-off weight (0 when missing)
    ...
    \\end\\
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ngsgd.errors import DataError
from ngsgd.lang.symbols import EPSILON, SymbolTable, fields_of, text_lines
from ngsgd.options import opt

log = logging.getLogger(__name__)

_TOLERANCE = 1e-3  # other toolkits' rounding lets a log10 probability be a little above 0


@dataclass
class ArpaToFstOptions:
    """How G.fst is made."""

    disambig_symbol: str = opt("#0", "input symbol of the back-off arcs, from the word table")


@dataclass
class ArpaModel:
    """A checked model: number of n-grams of each order, and what of them cannot be used.

    unknown counts the n-grams with a word that is not known; orphans those whose first n - 1 words are no n-gram.
    entries[n - 1] maps a tuple of n words to (log10 probability, log10 back-off weight); empty unless kept.
    """

    counts: list[int]
    unknown: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    entries: list[dict[tuple[str, ...], tuple[float, float]]] = field(default_factory=list)

    def log10_probability(self, words: Sequence[str]) -> float:
        """Of the last word after the others, by back-off. DataError for a word without a unigram."""
        ngram = tuple(words)[-len(self.entries) :]
        if ngram in self.entries[len(ngram) - 1]:
            return self.entries[len(ngram) - 1][ngram][0]
        if len(ngram) == 1:
            raise DataError(f"the language model has no unigram '{ngram[0]}'")
        backoff = self.entries[len(ngram) - 2].get(ngram[:-1], (0.0, 0.0))[1]
        return backoff + self.log10_probability(ngram[1:])

    def sentence_log10(self, words: Sequence[str]) -> float:
        """Of a sentence, its end included."""
        sentence = ["<s>", *words, "</s>"]
        return sum(self.log10_probability(sentence[:i]) for i in range(2, len(sentence) + 1))


class _Parser:
    """Walks the lines of an ARPA file; every complaint has the line number."""

    def __init__(self, lines: Iterable[str], name: str):
        self.lines = enumerate((line.strip(" \t\r\n") for line in lines), 1)
        self.name = name
        self.number = 0

    def error(self, message: str) -> DataError:
        return DataError(f"{self.name}:{self.number}: {message}")

    def next(self) -> str | None:
        """The next line that is not empty; None at the end."""
        for number, line in self.lines:
            self.number = number
            if line:
                return line
        return None

    def header(self) -> tuple[list[int], str | None]:
        """Counts of the \\data\\ section, and the line that follows it."""
        line = self.next()
        while line is not None and line != "\\data\\":
            line = self.next()
        if line is None:
            raise DataError(f"{self.name}: no \\data\\ line: not an ARPA language model")
        counts = []
        line = self.next()
        while line is not None and line.startswith("ngram "):
            order, equals, count = line[6:].replace(" ", "").partition("=")
            if not equals or not order.isdigit() or not count.isdigit() or int(order) != len(counts) + 1:
                raise self.error(f"expected 'ngram {len(counts) + 1}=COUNT', got '{line}'")
            counts.append(int(count))
            line = self.next()
        if not counts:
            raise self.error("no 'ngram N=COUNT' lines after \\data\\")
        return counts, line

    def entry(self, line: str, order: int, highest: bool) -> tuple[tuple[str, ...], float, float]:
        fields = fields_of(line)
        if len(fields) not in ((order + 1,) if highest else (order + 1, order + 2)):
            raise self.error(
                f"expected a {order}-gram: probability, {order} words"
                f"{'' if highest else ', perhaps a back-off weight'}; got '{line}'"
            )
        try:
            probability, backoff = float(fields[0]), float(fields[order + 1]) if len(fields) > order + 1 else 0.0
        except ValueError:
            raise self.error(f"expected numbers for probability and back-off weight, got '{line}'") from None
        if not (math.isfinite(probability) and probability <= _TOLERANCE and math.isfinite(backoff)):
            raise self.error(
                f"expected a log10 probability, finite and not above 0, and a finite back-off weight, got '{line}'"
            )
        return tuple(fields[1 : order + 1]), probability, backoff


def check_arpa(lines: Iterable[str], name: str, known=None, keep: bool = False) -> ArpaModel:
    """Check a model: header, sections, counts, numbers, n-grams given twice. DataError with the line number.

    Args:
        lines: of the file.
        known: words that will be kept (anything with `in`); n-grams with others are counted by word in `unknown`.
        keep: keep the entries.
    """
    parser = _Parser(lines, name)
    counts, line = parser.header()
    model = ArpaModel(counts)
    previous: dict[tuple[str, ...], tuple[float, float]] = {}
    for order, count in enumerate(counts, 1):
        if line != f"\\{order}-grams:":
            found = "the end of the file" if line is None else f"'{line}'"
            raise parser.error(f"expected \\{order}-grams:, got {found}")
        section: dict[tuple[str, ...], tuple[float, float]] = {}
        line = parser.next()
        while line is not None and not line.startswith("\\"):
            words, probability, backoff = parser.entry(line, order, order == len(counts))
            if words in section:
                raise parser.error(f"the {order}-gram '{' '.join(words)}' is given twice")
            model.orphans += order > 1 and words[:-1] not in previous
            section[words] = (probability, backoff)
            if known is not None:
                model.unknown.update({w for w in words if w not in known and w not in ("<s>", "</s>")})
            line = parser.next()
        if len(section) != count:
            raise parser.error(f"expected {count} {order}-grams by the header, found {len(section)}")
        if order == 1 and ("<s>",) not in section and ("</s>",) not in section:
            raise parser.error("neither <s> nor </s> among the unigrams: no sentence can begin or end")
        if keep:
            model.entries.append(section)
        previous = section
    if line != "\\end\\":
        raise parser.error("expected \\end\\: the file is cut off")
    return model


def read_arpa(rxfilename: str) -> ArpaModel:
    """Read and check a model with its entries."""
    return check_arpa((line for _, line in text_lines(rxfilename)), rxfilename, keep=True)


def arpa_to_fst(arpa: str, words: str, fst: str, options: ArpaToFstOptions) -> int:
    """Write G.fst, as Kaldi's arpa2fst --disambig-symbol=#0 --read-symbol-table=words.txt. Returns its states.

    N-grams with words that are not in the table are dropped; the log names those words with the number of n-grams.
    """
    from ngsgd.kaldi_io.files import open_bytes
    from ngsgd.kaldi_io.fst import read_fst, write_fst

    table = SymbolTable.read(words)
    for symbol in (options.disambig_symbol, EPSILON):
        table[symbol]
    with tempfile.TemporaryDirectory() as directory:
        plain = os.path.join(directory, "lm.arpa")
        with open_bytes(arpa) as source, open(plain, "wb") as copy:
            copy.write(source.read())
        model = check_arpa((line for _, line in text_lines(plain)), arpa, known=table)
        if model.unknown:
            shown = ", ".join(f"{w} ({c})" for w, c in model.unknown.most_common(20))
            more = " ..." if len(model.unknown) > 20 else ""
            log.warning(
                "%s: dropped n-grams with %d words that %s has not: %s%s", arpa, len(model.unknown), words, shown, more
            )
        if model.orphans:
            log.warning("%s: dropped %d n-grams whose beginning is no n-gram of the model", arpa, model.orphans)
        made = os.path.join(directory, "G.fst")
        _compile(plain, made, words, options.disambig_symbol)
        grammar = read_fst(made)
    write_fst(fst, grammar)
    return grammar.num_states


def _compile(arpa: str, fst: str, words: str, disambig_symbol: str) -> None:
    """kaldilm in a process of its own: it logs at length, and a model that it cannot take ends the process."""
    import subprocess
    import sys

    code = (
        "import sys, kaldilm; a, f, w, d = sys.argv[1:]; "
        "kaldilm.arpa2fst(a, f, disambig_symbol=d, read_symbol_table=w, max_arpa_warnings=0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, arpa, fst, words, disambig_symbol],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if result.returncode or not os.path.exists(fst):
        last = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "no message")
        raise DataError(f"kaldilm could not compile the language model (status {result.returncode}): {last.strip()}")
