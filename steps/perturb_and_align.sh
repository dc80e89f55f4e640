#!/usr/bin/env bash
# Copies of the training data at other speeds, each copy of a speaker a speaker of its own, and their alignments.
#
# Usage: perturb_and_align.sh [options] DATA LANG MODEL_DIR NEW_DATA ALI_DIR
# e.g.: perturb_and_align.sh --speeds 0.9,1.0,1.1 data/train data/lang exp/mono data/train_sp exp/mono_ali_sp
#
# NEW_DATA gets the copies with their features, ALI_DIR their alignments with the model of MODEL_DIR; where that was
# trained speaker-adaptively, with fMLLR transforms of every copy of a speaker.
#
# Options:
#   --nj N              jobs (4)
#   --cmd CMD           launcher (run.py)
#   --speeds X,Y,...    1.0 is the original (0.9,1.0,1.1)
#   --mfcc-config FILE  options of make-mfcc (conf/mfcc.conf)

set -eu -o pipefail
nj=4
cmd=run.py
speeds=0.9,1.0,1.1
mfcc_config=conf/mfcc.conf
. parse_options.sh
expect_arguments "$@"
perturb_speed.py --speeds="$speeds" "$1" "$4"
make_features.sh --cmd "$cmd" --nj "$nj" --mfcc-config "$mfcc_config" "$4"
align=align_si.sh
if [ -f "$3/final.alimdl" ]; then align=align_fmllr.sh; fi
$align --cmd "$cmd" --nj "$nj" "$4" "$2" "$3" "$5"
