#!/usr/bin/env bash
# Align a data directory with a speaker-adaptively trained GMM, or another one, on fMLLR features of its speakers.
#
# Usage: align_fmllr.sh [options] DATA LANG SRC_DIR ALI_DIR
#   e.g.: align_fmllr.sh --nj 4 data/train data/lang exp/tri3b exp/tri3b_ali
#
# Aligns features without transforms with SRC_DIR/final.alimdl (or final.mdl, where there is none), to ALI_DIR/si;
# estimates a transform for each speaker from these alignments; aligns with final.mdl. SRC_DIR is this toolkit's or
# Kaldi's. ALI_DIR gets ali.1.gz ... and trans.1 ... of the same speakers, num_jobs, fsts.1.gz ... (the training
# graphs), and copies of what says how to use them. What an earlier run has done with the same inputs is not done again.
#
#   --nj N                jobs (default 4); speakers are divided between them
#   --cmd CMD             launcher (default run.py)
#   --beam X, --retry-beam X, --careful true    see gmm-align-compiled (its defaults)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --silence-weight X    weight of frames of silence for the transforms (default 0)
#   --fmllr-update-type T, --fmllr-min-count N    see gmm-est-fmllr (its defaults)
set -euo pipefail

nj=4
cmd=run.py
beam=
retry_beam=
careful=
boost_silence=1
silence_weight=0
fmllr_update_type=
fmllr_min_count=
. parse_options.sh
. feature_pipeline.sh
. gmm_step.sh
. fmllr_step.sh

expect_arguments "$@"
data=$1
lang=$2
src=$3
dir=$4

expect_files "$data/feats.scp" "$data/utt2spk" "$data/text" "$lang/L.fst" "$lang/words.txt" "$lang/oov.int" \
  "$lang/phones/silence.csl" "$src/final.mdl" "$src/tree"
silence_phones=$(cat "$lang/phones/silence.csl")
split_jobs spk
mkdir -p "$dir/log"
cp "$src/tree" "$dir/tree"
put "$dir/num_jobs" "$nj"
gmm_compile_graphs "$src/final.mdl"

align=(align_si.sh --nj "$nj" --cmd "$cmd" --per-spk true --graphs "$dir" --beam "$beam" --retry-beam "$retry_beam"
  --careful "$careful" --boost-silence "$boost_silence")
"${align[@]}" "$data" "$lang" "$src" "$dir/si"
alignment_model=()
if [ -f "$src/final.alimdl" ]; then alignment_model=(--alignment-model="$src/final.alimdl"); fi
feats=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$src" delta)
echo "$step: estimating transforms" >&2
fmllr_transforms "$dir/log/fmllr.JOB.log" "$dir/trans.JOB" "$feats" "$src/final.mdl" "" --alignments \
  "${alignment_model[@]}" -- "$dir/si/ali.JOB.gz"
"${align[@]}" --transform-dir "$dir" "$data" "$lang" "$src" "$dir"
