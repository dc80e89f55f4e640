#!/usr/bin/env bash
# Train triphone models on features with deltas, with a decision tree built from alignments.
#
# Usage: train_deltas.sh [options] NUM_LEAVES TOT_GAUSS DATA LANG ALI_DIR DIR
#   e.g.: train_deltas.sh --nj 4 --boost-silence 1.25 2000 10000 data/train data/lang exp/mono_ali exp/tri1
#
# ALI_DIR holds final.mdl and alignments of DATA (ali.1.gz ..., num_jobs), this toolkit's or Kaldi's. Writes to DIR:
# final.mdl, tree, questions.int, final.occs, ali.1.gz ... ali.N.gz (N in num_jobs), fsts.1.gz ... (the training graphs),
# plan.tsv (the schedule), cmvn_opts, delta_opts, phones.txt, log/. A run that was interrupted goes on where it was and
# gives the same bytes; with other options or inputs it is refused, or with --overwrite begun anew.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --cmd CMD             launcher (default run.py)
#   --num-iters N, --max-iter-inc N, --realign-iters "10 20 ..."   the schedule: see gmm-plan (default 35, 25, "10 20 30")
#   --beam X, --retry-beam X, --careful true    see gmm-align-compiled (default beam 10)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --power X             exponent by which pdfs share the Gaussians (default 0.25)
#   --cluster-thresh X    see build-tree (default -1)
#   --context-opts OPTS   the window of phones: "--context-width=5 --central-position=2" for two on each side
#   --cmvn-opts OPTS      of apply-cmvn (default: those of ALI_DIR)
#   --delta-opts OPTS     of add-deltas
#   --cache-feats BOOL    keep the features with deltas in DIR while training, instead of making them in each iteration:
#                         160 bytes a frame, removed at the end (default true)
#   --overwrite           begin anew
set -euo pipefail

nj=4
cmd=run.py
num_iters=
max_iter_inc=
realign_iters=
beam=
retry_beam=
careful=
boost_silence=1
power=0.25
cluster_thresh=-1
context_opts=
cmvn_opts=
delta_opts=
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

gmm_tree_inputs
if [ -z "$cmvn_opts" ] && [ -f "$ali/cmvn_opts" ]; then cmvn_opts=$(cat "$ali/cmvn_opts"); fi
gmm_begin utt "nj num_leaves totgauss num_iters max_iter_inc realign_iters beam retry_beam careful boost_silence power
  cluster_thresh context_opts cmvn_opts delta_opts" "${inputs[@]}"
put "$dir/cmvn_opts" "$cmvn_opts"
put "$dir/delta_opts" "$delta_opts"

gmm_pipeline() { feature_pipeline "$data" "$split/JOB/feats.scp" "$dir" delta; }

gmm_start_from_tree "$num_leaves" "$ali"
gmm_iterate
gmm_finish
