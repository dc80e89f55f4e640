#!/usr/bin/env bash
# Train triphone models on spliced features, reduced by linear discriminant analysis (LDA) and decorrelated by MLLT.
#
# Usage: train_lda_mllt.sh [options] NUM_LEAVES TOT_GAUSS DATA LANG ALI_DIR DIR
#   e.g.: train_lda_mllt.sh --nj 4 2500 15000 data/train data/lang exp/tri1_ali exp/tri2b
#
# ALI_DIR holds final.mdl and alignments of DATA (ali.1.gz ..., num_jobs), this toolkit's or Kaldi's; its pdfs are the
# classes of the LDA. Writes to DIR: final.mdl, tree, final.mat (LDA and MLLT in one; full.mat: LDA with all rows),
# splice_opts, cmvn_opts, final.occs, ali.1.gz ... ali.N.gz (N in num_jobs), fsts.1.gz ..., plan.tsv, log/. A run that was
# interrupted goes on where it was and gives the same bytes; with other options or inputs it is refused, or with
# --overwrite begun anew.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --cmd CMD             launcher (default run.py)
#   --dim N               dimensions that LDA keeps (default 40)
#   --splice-opts OPTS    of splice-feats (default: 4 frames on each side)
#   --mllt-iters "2 4 ..."   iterations that estimate MLLT anew (default "2 4 6 12")
#   --randprune X         weights below X are drawn from in the statistics of LDA and MLLT (default 0: all count; they
#                         take little time here, and few frames of a class are no fewer)
#   --silence-weight X    weight of silence in the statistics of LDA and MLLT (default 0)
#   --lda-opts OPTS       of est-lda, such as --shrinkage=0.1
#   --cmvn-opts OPTS      of apply-cmvn (default: those of ALI_DIR)
#   --num-iters N, --max-iter-inc N, --realign-iters "10 20 ..."   the schedule: see gmm-plan (default 35, 25, "10 20 30")
#   --beam X, --retry-beam X, --careful true    see gmm-align-compiled (default beam 10)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --power X             exponent by which pdfs share the Gaussians (default 0.2)
#   --cluster-thresh X, --context-opts OPTS     of building the tree
#   --cache-feats BOOL    keep the features in DIR while training, instead of making them in each iteration (default true)
#   --overwrite           begin anew
set -euo pipefail

nj=4
cmd=run.py
dim=40
splice_opts=
mllt_iters="2 4 6 12"
randprune=0
silence_weight=0
lda_opts=
cmvn_opts=
num_iters=
max_iter_inc=
realign_iters=
beam=
retry_beam=
careful=
boost_silence=1
power=0.2
cluster_thresh=-1
context_opts=
cache_feats=true
overwrite=false
. parse_options.sh
. feature_pipeline.sh
. gmm_step.sh

expect_arguments "$@"
num_leaves=$1
totgauss=$2
data=$3
lang=$4
ali=$5
dir=$6
transform_iters=$mllt_iters

gmm_tree_inputs
expect_files "$lang/phones/silence.csl"
if [ -z "$cmvn_opts" ] && [ -f "$ali/cmvn_opts" ]; then cmvn_opts=$(cat "$ali/cmvn_opts"); fi
gmm_begin utt "nj num_leaves totgauss dim splice_opts mllt_iters randprune silence_weight lda_opts cmvn_opts num_iters
  max_iter_inc realign_iters beam retry_beam careful boost_silence power cluster_thresh context_opts" \
  "${inputs[@]}" "$lang/phones/silence.csl"
put "$dir/cmvn_opts" "$cmvn_opts"
put "$dir/splice_opts" "$splice_opts"

weighting=(--alignments --rand-prune="$randprune" --silence-phones="$(cat "$lang/phones/silence.csl")"
  --silence-weight="$silence_weight")

spliced_features() {
  local raw
  raw=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$dir" raw)
  printf '%s splice-feats %s ark:- ark:- |' "$raw" "$splice_opts"
}

gmm_pipeline() { printf '%s transform-feats %q ark:- ark:- |' "$(spliced_features)" "$dir/$1.mat"; }

# MLLT on top of the transform so far; the model's means move with the features.
gmm_transform() {
  $cmd JOB=1:"$nj" "$dir/log/macc.$1.JOB.log" \
    gmm-acc-mllt "${weighting[@]}" "$model" "$feats" "$alignments" "$dir/$1.JOB.macc"
  each_job "$dir/$1.JOB.macc"
  $cmd "$dir/log/mllt.$1.log" est-mllt "$dir/mllt.mat" "${files[@]}"
  $cmd "$dir/log/transform_means.$1.log" gmm-transform-means "$dir/mllt.mat" "$model" "$dir/mllt.mdl"
  $cmd "$dir/log/compose.$1.log" compose-transforms "$dir/mllt.mat" "$dir/$current_transform.mat" "$dir/$1.mat"
  rm "${files[@]}" "$dir/mllt.mat"
  model=$dir/mllt.mdl
}

if [ ! -f "$dir/plan.tsv" ] && [ ! -f "$dir/0.mat" ]; then
  echo "$step: estimating LDA" >&2
  $cmd JOB=1:"$nj" "$dir/log/lda_acc.JOB.log" test -f "$dir/lda.JOB.acc" '||' \
    acc-lda "${weighting[@]}" "$ali/final.mdl" "$(spliced_features)" "$(gmm_all_alignments "$ali")" "$dir/lda.JOB.acc"
  each_job "$dir/lda.JOB.acc"
  read -ra options <<<"$lda_opts"
  $cmd "$dir/log/lda_est.log" \
    est-lda --dim="$dim" "${options[@]}" --write-full-matrix="$dir/full.mat" "$dir/0.mat" "${files[@]}"
  rm "${files[@]}"
fi

gmm_start_from_tree "$num_leaves" "$ali"
gmm_iterate
for iteration in 0 $mllt_iters; do
  if [ "$iteration" != "$current_transform" ]; then rm -f "$dir/$iteration.mat"; fi
done
rm -f "$dir/mllt.mdl"
if [ -f "$dir/$current_transform.mat" ]; then mv "$dir/$current_transform.mat" "$dir/final.mat"; fi
gmm_finish
