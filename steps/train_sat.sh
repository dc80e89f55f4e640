#!/usr/bin/env bash
# Speaker-adaptive training (SAT): triphone models on features with an fMLLR transform for each speaker.
#
# Usage: train_sat.sh [options] NUM_LEAVES TOT_GAUSS DATA LANG ALI_DIR DIR
#   e.g.: train_sat.sh --nj 4 2500 15000 data/train data/lang exp/tri2b_ali exp/tri3b
#
# ALI_DIR holds final.mdl, alignments of DATA (ali.1.gz ..., num_jobs), how its features are made (final.mat and
# splice_opts, or delta_opts; cmvn_opts) and perhaps transforms of the speakers (trans.1 ...), this toolkit's or Kaldi's.
# Writes to DIR: final.mdl, trans.1 ... trans.N (N in num_jobs), final.alimdl (the same model for features without
# transforms: for a first pass), tree, final.mat and the others, final.occs, ali.1.gz ..., fsts.1.gz ..., plan.tsv, log/.
# A run that was interrupted goes on where it was and gives the same bytes; with other options or inputs it is refused,
# or with --overwrite begun anew.
#
#   --nj N                jobs (default 4); speakers are divided between them
#   --cmd CMD             launcher (default run.py)
#   --fmllr-iters "2 4 ..."  iterations that estimate transforms anew (default "2 4 6 12")
#   --silence-weight X    weight of frames of silence for the transforms (default 0)
#   --fmllr-update-type T, --fmllr-min-count N    see gmm-est-fmllr (its defaults)
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
fmllr_iters="2 4 6 12"
silence_weight=0
fmllr_update_type=
fmllr_min_count=
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
. fmllr_step.sh

expect_arguments "$@"
num_leaves=$1
totgauss=$2
data=$3
lang=$4
ali=$5
dir=$6
transform_iters=$fmllr_iters

expect_files "$lang/phones/silence.csl"
gmm_tree_inputs
given_transforms=()
if [ -f "$ali/trans.1" ]; then
  transform_files "$ali"
  expect_files "${files[@]}"
  given_transforms=("${files[@]}")
fi
inputs+=("${given_transforms[@]}")
for file in final.mat splice_opts delta_opts cmvn_opts; do
  if [ -f "$ali/$file" ]; then inputs+=("$ali/$file"); fi
done
gmm_begin spk "nj num_leaves totgauss fmllr_iters silence_weight fmllr_update_type fmllr_min_count num_iters max_iter_inc
  realign_iters beam retry_beam careful boost_silence power cluster_thresh context_opts" "${inputs[@]}"
for file in final.mat full.mat splice_opts delta_opts cmvn_opts; do
  if [ -f "$ali/$file" ]; then cp "$ali/$file" "$dir/$file"; fi
done
silence_phones=$(cat "$lang/phones/silence.csl")

# Features under transform N of the speakers; without an argument, under none.
gmm_pipeline() { feature_pipeline "$data" "$split/JOB/feats.scp" "$dir" delta ${1:+"ark:$dir/trans.$1.JOB"}; }

# Transforms on top of those so far.
gmm_transform() {
  fmllr_transforms "$dir/log/fmllr.$1.JOB.log" "$dir/trans.$1.JOB" "$feats" "$model" \
    "$dir/trans.$current_transform.JOB" --alignments -- "$dir/ali.JOB.gz"
}

if [ ! -f "$dir/plan.tsv" ]; then
  each_job "$dir/trans.0.JOB"
  if [ ${#given_transforms[@]} -gt 0 ]; then
    for file in "${files[@]}"; do cat "${given_transforms[@]}" >"$file.tmp" && mv "$file.tmp" "$file"; done
  else
    echo "$step: estimating the first transforms" >&2
    alignment_files=()
    for job in $(seq "$(cat "$ali/num_jobs")"); do alignment_files+=("$ali/ali.$job.gz"); done
    fmllr_transforms "$dir/log/fmllr.0.JOB.log" "$dir/trans.0.JOB" "$(gmm_pipeline)" "$ali/final.mdl" "" \
      --alignments -- "${alignment_files[@]}"
  fi
fi
gmm_start_from_tree "$num_leaves" "$ali"
gmm_iterate

if [ ! -f "$dir/final.alimdl" ]; then
  echo "$step: estimating the alignment model" >&2
  gmm_features "$current_transform"
  $cmd JOB=1:"$nj" "$dir/log/acc_alimdl.JOB.log" gmm-acc-stats-twofeats --alignments \
    "$dir/$last.mdl" "$feats" "$(gmm_pipeline)" "$alignments" "$dir/alimdl.JOB.acc"
  each_job "$dir/alimdl.JOB.acc"
  $cmd "$dir/log/est_alimdl.log" gmm-est --power="$power" --remove-low-count-gaussians=false \
    "$dir/$last.mdl" "${files[@]}" "$dir/final.alimdl"
fi
each_job "$dir/alimdl.JOB.acc"
rm -f "${files[@]}"
for job in $(seq "$nj"); do
  if [ -f "$dir/trans.$current_transform.$job" ]; then mv "$dir/trans.$current_transform.$job" "$dir/trans.$job"; fi
done
for iteration in 0 $fmllr_iters; do
  each_job "$dir/trans.$iteration.JOB"
  rm -f "${files[@]}"
done
gmm_finish
