#!/usr/bin/env python3
"""Print a number of jobs that a data directory has work for: N, or with a warning the number of utterances if less.

Usage: limit_jobs.py [options] DATA N
e.g.: nj=$(limit_jobs.py data/train $nj)
"""

import click

from ngsgd import cli
from ngsgd.data.split import LimitOptions, limit_jobs


@cli.program(__doc__)
@cli.options_from(LimitOptions)
@cli.argument("data")
@cli.argument("jobs", type=click.IntRange(min=1))
def main(limit, data, jobs):
    print(limit_jobs(data, jobs, limit))


if __name__ == "__main__":
    main()
