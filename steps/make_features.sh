#!/usr/bin/env bash
# MFCC features and the normalisation statistics of each speaker, for several data directories.
#
# Usage: make_features.sh [options] DATA...
# e.g.: make_features.sh --nj 4 data/train data/test
#
# Archives go to DATA/data, logs to DATA/log.
#
# Options:
#   --nj N              jobs for each directory (4)
#   --cmd CMD           launcher (run.py)
#   --mfcc-config FILE  options of make-mfcc (conf/mfcc.conf)

set -eu -o pipefail
nj=4
cmd=run.py
mfcc_config=conf/mfcc.conf
. parse_options.sh
expect_arguments "$@"
for data in "$@"; do
  make_mfcc.sh --nj "$nj" --cmd "$cmd" --mfcc-config "$mfcc_config" "$data"
  compute_cmvn.sh --cmd "$cmd" "$data"
done
