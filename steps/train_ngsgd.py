#!/usr/bin/env python3
"""Train a network by natural-gradient SGD with parameter averaging, from alignments to final.mdl.

Usage: train_ngsgd.py [options] DATA LANG ALI_DIR DIR
e.g.: train_ngsgd.py --num-jobs-initial 4 --num-jobs-final 4 data/train data/lang exp/mono_ali exp/nnet
      train_ngsgd.py --cmd "queue.pl --mem 2G" --train-opts "--gpu 1" data/train data/lang exp/tri3b_ali exp/nnet

DIR gets the schedule (plan.tsv), what came of it (progress.tsv, and report.html to look at), the models, and logs in
log/. The same command goes on where an earlier run was interrupted and ends with the same model; with other options it
is refused.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from ngsgd import cli
from ngsgd.train.options import DriverOptions, TrainOptions


@cli.program(__doc__)
@cli.options_from(TrainOptions, DriverOptions)
@cli.argument("data")
@cli.argument("lang")
@cli.argument("ali_dir")
@cli.argument("directory")
def main(train, driver, data, lang, ali_dir, directory):
    from ngsgd.train.run import train_network

    train_network(data, lang, ali_dir, directory, train, driver)


if __name__ == "__main__":
    main()
