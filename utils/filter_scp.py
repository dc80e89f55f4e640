#!/usr/bin/env python3
"""Print the lines of a file whose id is in a list, in the order of the file.

Usage: filter_scp.py [options] IDS [IN [OUT]]
e.g.: filter_scp.py data/dev/utt2spk data/all/feats.scp data/dev/feats.scp
      filter_scp.py --exclude bad.txt data/all/text > text
      filter_scp.py -f 2 speakers.txt data/all/utt2spk > utt2spk

The first field of each line of IDS is an id. Without names, from standard input to standard output.
"""

import logging

from ngsgd import cli
from ngsgd.data.filter import FilterOptions, filter_file


@cli.program(__doc__)
@cli.options_from(FilterOptions)
@cli.argument("ids")
@cli.argument("source", default="-")
@cli.argument("target", default="-")
def main(filter, ids, source, target):
    kept, seen = filter_file(ids, source, target, filter)
    logging.getLogger(__name__).log(logging.INFO if kept else logging.WARNING, "kept %d of %d lines", kept, seen)


if __name__ == "__main__":
    main()
