#!/usr/bin/env python3
"""Replace the symbols of a text by their integers in a symbol table.

Usage: sym2int.py [options] <symtab> [<text-in> [<text-out>]]
e.g.: sym2int.py --map-oov='<UNK>' -f 2- data/lang/words.txt data/train/text - > text.int

Words that are not in the table are an error, or with --map-oov mapped to that symbol and listed with their counts.
"""

from dataclasses import dataclass

from ngsgd import cli
from ngsgd.options import opt


@dataclass
class Sym2intOptions:
    fields: str = opt("all", "fields to map, counted from 1: N, N-M, N- or all", short="-f")
    map_oov: str = opt("", "symbol or integer that stands for symbols not in the table; an error when empty")


@cli.program(__doc__)
@cli.options_from(Sym2intOptions)
@cli.argument("table")
@cli.argument("source", default="-")
@cli.argument("target", default="-")
def main(sym2int, table, source, target):
    import logging

    from ngsgd.kaldi_io.files import open_text_writer
    from ngsgd.lang.symbols import FieldRange, SymbolsToIntegers, SymbolTable, map_lines, text_lines

    to_int = SymbolsToIntegers(SymbolTable.read(table), sym2int.map_oov)
    done = 0
    with open_text_writer(target) as out:
        for line in map_lines(text_lines(source), FieldRange(sym2int.fields), to_int, source):
            out.write(line + "\n")
            done += 1
    if to_int.unknown:
        logging.getLogger(__name__).warning("%s", to_int.report())
    cli.finish(done, what="lines")


if __name__ == "__main__":
    main()
