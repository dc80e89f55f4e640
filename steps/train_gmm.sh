#!/usr/bin/env bash
# Train GMM-HMMs from a flat start to speaker-adaptive training, each system on the alignments of the one before.
#
# Usage: train_gmm.sh [options] DATA LANG EXP
#   e.g.: train_gmm.sh --nj 4 --tri1 "2000 10000" --tri2 "2500 15000" --tri3 "2500 15000" data/train data/lang exp
#
# Makes EXP/mono, EXP/tri1 (triphones on deltas), EXP/tri2b (LDA and MLLT), EXP/tri3b (SAT on fMLLR features), and the
# alignments of DATA with each, EXP/mono_ali ... EXP/tri3b_ali; a network is trained on the last. What is done already
# with the same options is not done again; with others it is refused, or with --overwrite begun anew.
#
#   --nj N                jobs (default 4)
#   --cmd CMD             launcher (default run.py)
#   --mono N              Gaussians of the monophones (default 1000)
#   --tri1, --tri2, --tri3 "LEAVES GAUSSIANS"    sizes (default "2000 10000", "2500 15000", "2500 15000")
#   --mono-opts, --tri1-opts, --tri2-opts, --tri3-opts OPTS    further options of train_mono.sh, train_deltas.sh,
#                         train_lda_mllt.sh, train_sat.sh
#   --boost-silence X     factor on silence while aligning (default 1)
#   --last SYSTEM         stop after mono, tri1 or tri2b
#   --overwrite           begin anew
set -euo pipefail

nj=4
cmd=run.py
mono=1000
tri1="2000 10000"
tri2="2500 15000"
tri3="2500 15000"
mono_opts=
tri1_opts=
tri2_opts=
tri3_opts=
boost_silence=1
last=tri3b
overwrite=false
. parse_options.sh

expect_arguments "$@"
data=$1
lang=$2
exp=$3
case $last in
  mono | tri1 | tri2b | tri3b) ;;
  *)
    echo "train_gmm.sh: --last: expected mono, tri1, tri2b or tri3b, got '$last'; see train_gmm.sh --help" >&2
    exit 2
    ;;
esac

how=(--nj "$nj" --cmd "$cmd" --boost-silence "$boost_silence")

# system NAME ALIGN_STEP TRAIN_STEP OPTIONS SIZES [ALI_DIR]: trains EXP/NAME, aligns with it, and ends here if it is the last.
system() {
  local name=$1 align=$2 train=$3 options sizes
  read -ra options <<<"$4"
  read -ra sizes <<<"$5"
  "$train" "${how[@]}" --overwrite="$overwrite" "${options[@]}" "${sizes[@]}" "$data" "$lang" "${@:6}" "$exp/$name"
  "$align" "${how[@]}" "$data" "$lang" "$exp/$name" "$exp/${name}_ali"
  if [ "$name" = "$last" ]; then exit 0; fi
}

system mono align_si.sh train_mono.sh "--totgauss $mono $mono_opts" ""
system tri1 align_si.sh train_deltas.sh "$tri1_opts" "$tri1" "$exp/mono_ali"
system tri2b align_si.sh train_lda_mllt.sh "$tri2_opts" "$tri2" "$exp/tri1_ali"
system tri3b align_fmllr.sh train_sat.sh "$tri3_opts" "$tri3" "$exp/tri2b_ali"
