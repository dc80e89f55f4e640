#!/usr/bin/env python3
"""Split a data directory between N jobs: DATA/splitN/J by whole speakers.

Usage: split_data_dir.py [options] DATA N
e.g.: split_data_dir.py data/train 4
      split_data_dir.py --per-utt data/train 4

With --per-utt to DATA/splitNutt/J by utterances, with --per-reco to DATA/splitNreco/J by whole recordings.
With more jobs than speakers, speakers are divided between jobs, with a warning; more jobs than utterances is an error
(utils/limit_jobs.py gives a number that works). Parts that are already right are left untouched.
"""

import click

from ngsgd import cli
from ngsgd.data.split import SplitOptions
from ngsgd.data.split import split as split_data


@cli.program(__doc__)
@cli.options_from(SplitOptions)
@cli.argument("data")
@cli.argument("jobs", type=click.IntRange(min=1))
def main(split, data, jobs):
    split_data(data, jobs, split.unit)


if __name__ == "__main__":
    main()
