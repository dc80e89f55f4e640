#!/usr/bin/env python3
"""Turn spk2utt round: print each utterance with its speaker, sorted in the C locale.

Usage: spk2utt_to_utt2spk.py [options] [SPK2UTT [UTT2SPK]]
e.g.: spk2utt_to_utt2spk.py data/train/spk2utt data/train/utt2spk

Without names, from standard input to standard output.
"""

from ngsgd import cli
from ngsgd.data.datadir import write_utt2spk


@cli.program(__doc__)
@cli.argument("spk2utt", default="-")
@cli.argument("utt2spk", default="-")
def main(spk2utt, utt2spk):
    write_utt2spk(spk2utt, utt2spk)


if __name__ == "__main__":
    main()
