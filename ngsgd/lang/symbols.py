"""Symbol tables (phones.txt, words.txt) and the mapping of text to integers and back.

A symbol table is text, `symbol integer` a line, with `<eps> 0`. Integers need not be consecutive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes

EPSILON = "<eps>"


def text_lines(rxfilename: str) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its line end) of a UTF-8 text. DataError names the line that is not UTF-8."""
    with open_bytes(rxfilename) as stream:
        for number, raw in enumerate(stream, 1):
            try:
                yield number, raw.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{rxfilename}:{number}: byte 0x{raw[error.start]:02x} at column {error.start + 1} "
                    "is not UTF-8; convert the file"
                ) from None


def fields_of(line: str) -> list[str]:
    """The fields of a line; only space, tab and CR separate (`str.split` would also cut at non-breaking spaces)."""
    return [f for f in line.replace("\t", " ").replace("\r", " ").split(" ") if f]


def read_integers(path: str) -> list[int]:
    """A file of integers such as phones/disambig.int, one or more a line. DataError names the line that has others."""
    result = []
    for number, line in text_lines(path):
        for part in fields_of(line):
            if not part.isdigit():
                raise DataError(f"{path}:{number}: expected integers, got '{part}'")
            result.append(int(part))
    return result


class SymbolTable:
    """Symbols and their integers. `table["word"]` -> int, `table.symbol(7)` -> str; unknown ones are a DataError."""

    def __init__(self, ids: dict[str, int], name: str = "symbol table"):
        self.name = name
        self.ids = ids
        self.symbols = {number: symbol for symbol, number in ids.items()}

    @classmethod
    def read(cls, path: str) -> SymbolTable:
        """Read a table. DataError for a bad line, a symbol given twice or a number given twice, with line numbers."""
        ids: dict[str, int] = {}
        seen: dict[int, int] = {}
        for number, line in text_lines(path):
            parts = fields_of(line)
            if len(parts) != 2 or not parts[1].isdigit():
                raise DataError(f"{path}:{number}: expected 'symbol integer', got '{line}'")
            symbol, value = parts[0], int(parts[1])
            if symbol in ids or value in seen:
                what = f"symbol {symbol}" if symbol in ids else f"number {value} (line {seen[value]})"
                raise DataError(f"{path}:{number}: {what} is given twice")
            ids[symbol], seen[value] = value, number
        if not ids:
            raise DataError(f"{path}: the symbol table is empty")
        return cls(ids, path)

    @classmethod
    def numbered(cls, symbols: Iterable[str], name: str = "symbol table") -> SymbolTable:
        """`<eps>` 0, then the symbols from 1 in their order."""
        return cls({symbol: i for i, symbol in enumerate([EPSILON, *symbols])}, name)

    def text(self) -> str:
        """The file's content."""
        return "".join(f"{symbol} {number}\n" for symbol, number in self.ids.items())

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.ids

    def __getitem__(self, symbol: str) -> int:
        try:
            return self.ids[symbol]
        except KeyError:
            raise DataError(f"symbol '{symbol}' is not in {self.name}") from None

    def symbol(self, number: int) -> str:
        """The symbol of an integer."""
        try:
            return self.symbols[number]
        except KeyError:
            raise DataError(f"no symbol has the number {number} in {self.name}") from None


class FieldRange:
    """Which fields of a line to map, as in `-f 2-`: `all`, `N`, `N-M`, `N-` (from 1, inclusive)."""

    def __init__(self, text: str = "all"):
        first, dash, last = ("1", "-", "") if text in ("all", "") else text.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or int(first) < 1:
            raise DataError(f"field range '{text}': expected N, N- or N-M, counted from 1")
        self.first = int(first) - 1
        self.end = (int(last) if last else None) if dash else int(first)

    def map(self, fields: list[str], function) -> list[str]:
        """The fields with those of the range replaced by `function` of them."""
        end = len(fields) if self.end is None else self.end
        return [*fields[: self.first], *map(function, fields[self.first : end]), *fields[end:]]


class SymbolsToIntegers:
    """Maps symbols of text to integers, unknown ones to `oov`, and counts those.

    Args:
        table: the symbol table.
        oov: symbol that stands for unknown ones, or its integer (digits are always an integer, as in Kaldi); "" to
            make them an error.
    """

    def __init__(self, table: SymbolTable, oov: str = ""):
        self.table = table
        self.unknown: Counter[str] = Counter()
        self.oov = None
        if oov:
            self.oov = int(oov) if oov.isdigit() else table[oov]
            table.symbol(self.oov)

    def __call__(self, symbol: str) -> int:
        number = self.table.ids.get(symbol)
        if number is None:
            if self.oov is None:
                return self.table[symbol]
            self.unknown[symbol] += 1
            return self.oov
        return number

    def report(self, most: int = 20) -> str:
        """One line: how many tokens and types were unknown and the commonest of them with counts; "" when none."""
        if not self.unknown:
            return ""
        ranked = sorted(self.unknown.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{word} ({count})" for word, count in ranked[:most])
        more = f", and {len(ranked) - most} more" if len(ranked) > most else ""
        return (
            f"{self.unknown.total()} tokens of {len(ranked)} symbols not in {self.table.name} "
            f"became '{self.table.symbol(self.oov)}': {shown}{more}"
        )


class IntegersToSymbols:
    """Maps integers written as text to their symbols."""

    def __init__(self, table: SymbolTable):
        self.table = table

    def __call__(self, field: str) -> str:
        if not field.isdigit():
            raise DataError(f"expected an integer, got '{field}'")
        return self.table.symbol(int(field))


def map_lines(lines: Iterable[tuple[int, str]], fields: FieldRange, function, where: str) -> Iterator[str]:
    """Each line with the fields of the range mapped by `function`; its DataError gets the line number."""
    for number, line in lines:
        try:
            yield " ".join(fields.map(fields_of(line), lambda f: str(function(f))))
        except DataError as error:
            raise DataError(f"{where}:{number}: {error}") from None
