#!/usr/bin/env python3
"""Check a data directory: every problem with file, line and, for odd characters, code point.

Usage: validate_data_dir.py [options] DATA
e.g.: validate_data_dir.py --no-feats data/train

Exit status 1 when there are errors; warnings alone are no failure. utils/fix_data_dir.py repairs what it can.
"""

from ngsgd import cli
from ngsgd.data.check import ValidateOptions, report


@cli.program(__doc__)
@cli.options_from(ValidateOptions)
@cli.argument("data")
def main(validate, data):
    report(data, validate)


if __name__ == "__main__":
    main()
