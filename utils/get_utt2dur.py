#!/usr/bin/env python3
"""Write utt2dur of a data directory: the length of each utterance in seconds, from the headers of the recordings.

Usage: get_utt2dur.py DATA
e.g.: get_utt2dur.py data/train
"""

from ngsgd import cli
from ngsgd.data.durations import write_utt2dur


@cli.program(__doc__)
@cli.argument("data")
def main(data):
    cli.finish(*write_utt2dur(data))


if __name__ == "__main__":
    main()
