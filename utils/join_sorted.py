#!/usr/bin/env python3
"""Join files of `id value` lines, as the jobs of a step write them, into one sorted in the C locale.

Usage: join_sorted.py [options] TARGET SOURCE...
e.g.: join_sorted.py --expect=data/train/utt2spk data/train/feats.scp mfcc/raw_mfcc_train.{1,2}.scp

An id in two files is an error. With --expect, ids that are missing are counted and some named.
"""

from ngsgd import cli
from ngsgd.data.join import JoinOptions
from ngsgd.data.join import join as join_files


@cli.program(__doc__)
@cli.options_from(JoinOptions)
@cli.argument("target")
@cli.argument("sources", nargs=-1, required=True)
def main(join, target, sources):
    join_files(target, sources, join)


if __name__ == "__main__":
    main()
