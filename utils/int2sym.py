#!/usr/bin/env python3
"""Replace the integers of a text by their symbols in a symbol table.

Usage: int2sym.py [options] <symtab> [<text-in> [<text-out>]]
e.g.: int2sym.py -f 2- exp/mono/graph/words.txt exp/mono/decode/hyp.int hyp.txt
"""

from dataclasses import dataclass

from ngsgd import cli
from ngsgd.options import opt


@dataclass
class Int2symOptions:
    fields: str = opt("all", "fields to map, counted from 1: N, N-M, N- or all", short="-f")


@cli.program(__doc__)
@cli.options_from(Int2symOptions)
@cli.argument("table")
@cli.argument("source", default="-")
@cli.argument("target", default="-")
def main(int2sym, table, source, target):
    from ngsgd.kaldi_io.files import open_text_writer
    from ngsgd.lang.symbols import FieldRange, IntegersToSymbols, SymbolTable, map_lines, text_lines

    to_symbol = IntegersToSymbols(SymbolTable.read(table))
    done = 0
    with open_text_writer(target) as out:
        for line in map_lines(text_lines(source), FieldRange(int2sym.fields), to_symbol, source):
            out.write(line + "\n")
            done += 1
    cli.finish(done, what="lines")


if __name__ == "__main__":
    main()
