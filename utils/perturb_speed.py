#!/usr/bin/env python3
"""Make a data directory of copies of another at several speeds, each copy of a speaker a speaker of its own.

Usage: perturb_speed.py [options] SOURCE TARGET
e.g.: perturb_speed.py data/train data/train_sp
      perturb_speed.py --speeds=0.8,0.9,1.0,1.1,1.2 data/train data/train_sp

The recordings are written to TARGET/audio; the features are to be made anew. TARGET/utt2uniq says which utterances are
copies of one, so that the training does not hold out one and train on another.
"""

from ngsgd import cli
from ngsgd.data.perturb import PerturbSpeedOptions
from ngsgd.data.perturb import perturb_speed as perturb


@cli.program(__doc__)
@cli.options_from(PerturbSpeedOptions)
@cli.argument("source")
@cli.argument("target")
def main(perturb_speed, source, target):
    cli.finish(*perturb(source, target, perturb_speed))


if __name__ == "__main__":
    main()
