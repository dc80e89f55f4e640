#!/usr/bin/env python3
"""Make a data directory of a part of another: N utterances at random, or as the options say.

Usage: subset_data_dir.py [options] SOURCE [N] TARGET
e.g.: subset_data_dir.py data/train 1000 data/train_1k
      subset_data_dir.py --shortest data/train 500 data/train_short
      subset_data_dir.py --per-spk data/train 5 data/train_5each
      subset_data_dir.py --utt-list=ids.txt data/train data/part

Fewer utterances than asked for: all of them, with a warning; a subset of none is an error.
"""

import click

from ngsgd import cli
from ngsgd.data.subset import SubsetOptions
from ngsgd.data.subset import subset as make_subset


@cli.program(__doc__)
@cli.options_from(SubsetOptions)
@cli.argument("source")
@cli.argument("number_and_target", nargs=-1, required=True)
def main(subset, source, number_and_target):
    *number, target = number_and_target
    if len(number) != (0 if subset.way in ("utt_list", "spk_list") else 1) or not all(n.isdigit() for n in number):
        raise click.UsageError("expected SOURCE N TARGET, or with --utt-list or --spk-list SOURCE TARGET")
    make_subset(source, target, int(number[0]) if number else None, subset)


if __name__ == "__main__":
    main()
