#!/usr/bin/env python3
"""Copy a data directory, with something added to the ids of utterances and speakers if wanted.

Usage: copy_data_dir.py [options] SOURCE TARGET
e.g.: copy_data_dir.py data/train data/train_copy
      copy_data_dir.py --utt-prefix=noisy- --spk-prefix=noisy- data/train data/train_noisy

Where utterances get other names, utt2uniq says which one each was, so that versions of one are held out together.
"""

from ngsgd import cli
from ngsgd.data.copy import CopyOptions
from ngsgd.data.copy import copy as copy_directory


@cli.program(__doc__)
@cli.options_from(CopyOptions)
@cli.argument("source")
@cli.argument("target")
def main(copy, source, target):
    cli.finish(len(copy_directory(source, target, copy).utterances))


if __name__ == "__main__":
    main()
