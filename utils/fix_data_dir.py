#!/usr/bin/env python3
"""Repair a data directory: sort, drop what is inconsistent, put odd white space right; the old files go to .backup.

Usage: fix_data_dir.py [options] DATA
e.g.: fix_data_dir.py data/train

What is dropped is named, with the reason.
"""

from ngsgd import cli
from ngsgd.data.fix import fix


@cli.program(__doc__)
@cli.argument("data")
def main(data):
    fix(data)


if __name__ == "__main__":
    main()
