#!/usr/bin/env bash
# Train monophone models from a flat start, on features with deltas.
#
# Usage: train_mono.sh [options] DATA LANG DIR
#   e.g.: train_mono.sh --nj 4 --boost-silence 1.25 data/train data/lang exp/mono
#
# Writes to DIR: final.mdl, tree, final.occs, ali.1.gz ... ali.N.gz (N in num_jobs), fsts.1.gz ... (the training graphs),
# plan.tsv (the schedule), cmvn_opts, delta_opts, phones.txt, log/. A run that was interrupted goes on where it was and
# gives the same bytes; with other options or inputs it is refused, or with --overwrite begun anew.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --cmd CMD             launcher (default run.py)
#   --num-iters N, --totgauss N, --max-iter-inc N, --realign-iters "1 2 ...", --initial-beam X, --regular-beam X
#                         the schedule: see gmm-plan (its defaults)
#   --retry-beam X, --careful true    see gmm-align-compiled (its defaults)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --power X             exponent by which pdfs share the Gaussians (default 0.25)
#   --cmvn-opts OPTS, --delta-opts OPTS    of apply-cmvn and add-deltas
#   --cache-feats BOOL    keep the features with deltas in DIR while training, instead of making them in each iteration:
#                         160 bytes a frame, removed at the end (default true)
#   --overwrite           begin anew
set -euo pipefail

nj=4
cmd=run.py
num_iters=
totgauss=
max_iter_inc=
realign_iters=
initial_beam=
regular_beam=
retry_beam=
careful=
boost_silence=1
power=0.25
cmvn_opts=
delta_opts=
cache_feats=true
overwrite=false
. parse_options.sh
. feature_pipeline.sh
. gmm_step.sh

expect_arguments "$@"
data=$1
lang=$2
dir=$3

expect_files "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$data/utt2spk" "$lang/topo" "$lang/L.fst" \
  "$lang/words.txt" "$lang/phones.txt" "$lang/oov.int" "$lang/phones/sets.int" "$lang/phones/optional_silence.csl"
gmm_begin utt "nj num_iters totgauss max_iter_inc realign_iters initial_beam regular_beam retry_beam careful boost_silence
  power cmvn_opts delta_opts" "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$data/utt2spk" "$lang/topo" "$lang/L.fst" \
  "$lang/words.txt" "$lang/phones/sets.int"
put "$dir/cmvn_opts" "$cmvn_opts"
put "$dir/delta_opts" "$delta_opts"

gmm_pipeline() { feature_pipeline "$data" "$split/JOB/feats.scp" "$dir" delta; }
gmm_features 0

if [ ! -f "$dir/plan.tsv" ]; then
  if [ ! -f "$dir/0.mdl" ]; then
    first_feats=${feats//JOB/1}
    dim=$(feat-to-dim "$first_feats" -)
    $cmd "$dir/log/init.log" gmm-init-mono --shared-phones="$lang/phones/sets.int" --train-feats="$first_feats" \
      "$lang/topo" "$dim" "$dir/0.mdl" "$dir/tree"
  fi
  gmm_plan "$dir/0.mdl"
fi

# Pass 0: equal alignment. Few frames make a Gaussian here, or rare phones would never get one.
if [ -f "$dir/0.mdl" ]; then
  gmm_compile_graphs "$dir/0.mdl"
  if [ ! -f "$dir/1.mdl" ]; then
    $cmd JOB=1:"$nj" "$dir/log/align_acc.0.JOB.log" align-equal-compiled "$graphs" "$feats" ark:- '|' \
      gmm-acc-stats-ali "$dir/0.mdl" "$feats" ark,s,cs:- "$dir/0.JOB.acc"
    gmm_estimate 0 1 0 "$dir/0.mdl" --min-gaussian-occupancy=3
  fi
  gmm_clean 0
fi

gmm_iterate
gmm_finish
