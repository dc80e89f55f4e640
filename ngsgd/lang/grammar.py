"""Grammars written as text FSTs, with words for labels: to G.fst.

source target input output [cost]
state [cost]                              a final state
"""

from __future__ import annotations

from ngsgd.errors import DataError
from ngsgd.lang.symbols import SymbolTable, fields_of, text_lines


def numbered_text(lines, isymbols: SymbolTable, osymbols: SymbolTable, where: str) -> str:
    """OpenFst text with integers for symbols. DataError names the line with an unknown symbol or the wrong fields."""
    result = []
    for number, line in lines:
        fields = fields_of(line)
        try:
            if len(fields) in (4, 5):
                fields[2:4] = str(isymbols[fields[2]]), str(osymbols[fields[3]])
            elif len(fields) not in (1, 2):
                raise DataError(f"expected 'from to input output [cost]' or 'state [cost]', got '{line}'")
            for state in fields[: 2 if len(fields) > 2 else 1]:
                if not state.isdigit():
                    raise DataError(f"expected the number of a state, got '{state}'")
            if len(fields) in (2, 5):
                _check_cost(fields[-1])
        except DataError as error:
            raise DataError(f"{where}:{number}: {error}") from None
        result.append("\t".join(fields) + "\n")
    if not result:
        raise DataError(f"{where}: the grammar is empty")
    return "".join(result)


def _check_cost(text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise DataError(f"expected a cost, got '{text}'") from None


def compile_grammar(isymbols: str, osymbols: str, text: str, fst: str) -> int:
    """Compile a text FST, sorted by input symbol, as OpenFst's fstcompile and fstarcsort. Returns its states."""
    import kaldifst

    from ngsgd.kaldi_io.fst import write_fst

    tables = SymbolTable.read(isymbols), SymbolTable.read(osymbols)
    grammar = kaldifst.compile(numbered_text(text_lines(text), *tables, text))
    kaldifst.arcsort(grammar, "ilabel")
    write_fst(fst, grammar)
    return grammar.num_states
