#!/usr/bin/env python3
"""Turn utt2spk round: print each speaker with the utterances, both sorted in the C locale.

Usage: utt2spk_to_spk2utt.py [options] [UTT2SPK [SPK2UTT]]
e.g.: utt2spk_to_spk2utt.py data/train/utt2spk data/train/spk2utt

Without names, from standard input to standard output.
"""

from ngsgd import cli
from ngsgd.data.datadir import write_spk2utt


@cli.program(__doc__)
@cli.argument("utt2spk", default="-")
@cli.argument("spk2utt", default="-")
def main(utt2spk, spk2utt):
    write_spk2utt(utt2spk, spk2utt)


if __name__ == "__main__":
    main()
