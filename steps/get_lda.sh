#!/usr/bin/env bash
# Estimate the LDA-like input transform of a network, lda.mat, from the training utterances of its examples.
#
# Usage: get_lda.sh [options] DATA LANG ALI_DIR EGS_DIR DIR
#   e.g.: get_lda.sh --nj 4 data/train data/lang exp/mono_ali exp/nnet/egs exp/nnet
#
# EGS_DIR says which utterances are held out and how the features are made (see make_egs.sh). DIR gets lda.mat; silence
# phones do not count. A rerun does what is missing.
#
#   --nj N                             jobs (default 4); those that made the examples, where their lists are there
#   --cmd CMD                          launcher (default run.py)
#   --left-context N, --right-context N   frames to splice (default 4)
#   --dim N                            rows to keep, the most discriminative (default: all)
#   --transform-dir DIR                fMLLR transforms (default: those of the examples; if they don't say, ALI_DIR's)
set -euo pipefail

nj=4
cmd=run.py
left_context=4
right_context=4
dim=
transform_dir=
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
data=$1
lang=$2
ali=$3
egs=$4
dir=$5

expect_files "$data/feats.scp" "$lang/phones/silence.csl" "$ali/final.mdl" "$ali/num_jobs" "$ali/ali.1.gz"
[ ! -f "$dir/lda.mat" ] || exit 0
mkdir -p "$dir/log" "$dir/lda"

[ ! -f "$egs/lists/num_jobs" ] || nj=$(cat "$egs/lists/num_jobs")
lists=$egs/lists/train.JOB.scp
for job in $(seq "$nj"); do
  [ -f "$egs/lists/train.$job.scp" ] && continue
  nj=1 # examples made by others: no lists of theirs
  lists=$data/feats.scp
  break
done
# Kaldi's examples do not say how their features were made; its alignments do.
features=$egs
if [ -n "$transform_dir" ]; then
  expect_files "$transform_dir/trans.1"
elif [ -f "$egs/feat_type" ]; then
  transform_dir=$(cat "$egs/transform_dir" 2>/dev/null || true)
elif [ -f "$ali/trans.1" ] && [ -f "$ali/final.mat" ]; then
  transform_dir=$ali
fi
[ -f "$egs/feat_type" ] || features=$ali
files=
for n in $(seq "$(cat "$ali/num_jobs")"); do files+=$(printf ' %q' "$ali/ali.$n.gz"); done

stats=()
for job in $(seq "$nj"); do stats+=("$dir/lda/acc.$job-of-$nj"); done
$cmd JOB=1:"$nj" "$dir/log/acc_lda.JOB.log" test -f "$dir/lda/acc.JOB-of-$nj" '||' \
  acc-lda --alignments --silence-phones="$(cat "$lang/phones/silence.csl")" \
  --left-context="$left_context" --right-context="$right_context" "$ali/final.mdl" \
  "$(feature_pipeline "$data" "$lists" "$features" raw "$transform_dir")" "ark:gunzip -c$files |" "$dir/lda/acc.JOB-of-$nj"
$cmd "$dir/log/lda.log" nnet-get-feature-transform ${dim:+--dim="$dim"} "$dir/lda.mat" "${stats[@]}"
rm -r "$dir/lda"
