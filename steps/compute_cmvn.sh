#!/usr/bin/env bash
# Statistics for mean and variance normalisation of each speaker of a data directory: writes cmvn.scp there.
#
# Usage: compute_cmvn.sh [options] DATA [LOGDIR [ARKDIR]]
# e.g.: compute_cmvn.sh data/train exp/make_mfcc/train mfcc
#
# LOGDIR is DATA/log and ARKDIR is DATA/data when not given. One pass over the features, so it is always done anew.
#
# Options:
#   --cmd CMD  launcher (run.py)

set -eu -o pipefail
cmd=run.py
. parse_options.sh
expect_arguments "$@"
data=$1
logdir=${2:-$data/log}
arkdir=${3:-$data/data}
name=$(basename "$data")

expect_files "$data/feats.scp" "$data/spk2utt"
mkdir -p "$logdir" "$arkdir"
cmvn=$arkdir/cmvn_$name
$cmd "$logdir/cmvn_$name.log" \
  compute-cmvn-stats --spk2utt="$data/spk2utt" "scp:$data/feats.scp" "ark,scp:$cmvn.ark,$cmvn.scp"
join_sorted.py "$data/cmvn.scp" "$cmvn.scp"
