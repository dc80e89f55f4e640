#!/usr/bin/env python3
"""Write utt2num_frames of a data directory: the number of frames of each utterance.

Usage: get_utt2num_frames.py [options] DATA
e.g.: get_utt2num_frames.py data/train

From the headers of the features; without feats.scp from utt2dur, which is made if missing.
"""

from ngsgd import cli
from ngsgd.features.num_frames import NumFramesOptions, write_utt2num_frames


@cli.program(__doc__)
@cli.options_from(NumFramesOptions)
@cli.argument("data")
def main(num_frames, data):
    cli.finish(*write_utt2num_frames(data, num_frames))


if __name__ == "__main__":
    main()
