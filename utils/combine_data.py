#!/usr/bin/env python3
"""Put several data directories together into one, and fix it.

Usage: combine_data.py [options] TARGET SOURCE...
e.g.: combine_data.py data/train data/train_clean data/train_other

An utterance in two of them is an error. A file that one of them lacks is left out, with a warning; where only some have
segments, utterances of the others become segments from 0 to the end (-1).
"""

from ngsgd import cli
from ngsgd.data.combine import CombineOptions
from ngsgd.data.combine import combine as combine_directories


@cli.program(__doc__)
@cli.options_from(CombineOptions)
@cli.argument("target")
@cli.argument("sources", nargs=-1, required=True)
def main(combine, target, sources):
    cli.finish(len(combine_directories(target, sources, combine).utterances))


if __name__ == "__main__":
    main()
