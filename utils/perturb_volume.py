#!/usr/bin/env python3
"""Make a data directory of another's utterances at random volumes, the same ones whenever it is made.

Usage: perturb_volume.py [options] SOURCE TARGET
e.g.: perturb_volume.py data/train data/train_vol
      perturb_volume.py --scale-low=0.5 --scale-high=1.5 data/train_sp data/train_sp_vol

The recordings are written to TARGET/audio; the features are to be made anew.
"""

from ngsgd import cli
from ngsgd.data.perturb import PerturbVolumeOptions
from ngsgd.data.perturb import perturb_volume as perturb


@cli.program(__doc__)
@cli.options_from(PerturbVolumeOptions)
@cli.argument("source")
@cli.argument("target")
def main(perturb_volume, source, target):
    cli.finish(*perturb(source, target, perturb_volume))


if __name__ == "__main__":
    main()
