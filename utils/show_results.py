#!/usr/bin/env python3
"""Print the word error rates of decodings, one a line, and how much each is below the first.

Usage: show_results.py DECODE...
e.g.: show_results.py exp/mono/decode_test exp/nnet/decode_test

For each: the rate at the language-model weight fixed beforehand with its 95 % interval, and the best of the grid of
weights and penalties (what Kaldi's recipes report).
"""

from ngsgd import cli
from ngsgd.decode.results import results_table


@cli.program(__doc__)
@cli.argument("directories", nargs=-1, required=True, metavar="DECODE...")
def main(directories):
    print(results_table(directories), end="")


if __name__ == "__main__":
    main()
