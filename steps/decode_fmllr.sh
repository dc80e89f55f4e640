#!/usr/bin/env bash
# Decode a data directory with a speaker-adaptively trained GMM, or another one, on fMLLR features, and score it.
#
# Usage: decode_fmllr.sh [options] GRAPH DATA MODEL_DIR/DECODE
#   e.g.: decode_fmllr.sh --nj 4 exp/tri3b/graph data/test exp/tri3b/decode
#
# Three searches, and transforms of the speakers from the posteriors of the first and of the second:
#
#   DECODE.si      features without transforms, MODEL_DIR/final.alimdl (or final.mdl, where there is none)
#   DECODE.first   the first transforms, final.mdl
#   DECODE         the second transforms, which are trans.1 ... there, for decode_nnet.sh --transform-dir DECODE, too
#
# The first two are narrow. MODEL_DIR is this toolkit's or Kaldi's; decode_model.sh says what else is written. What an
# earlier run has done with the same inputs is not done again.
#
#   --nj N, --cmd CMD          jobs (default 4); speakers are divided between them; and launcher
#   --first-beam X, --first-max-active N        of the first two searches (default 10, 2000)
#   --beam X, --lattice-beam X, --max-active N, --acwt X        (default 13, 6, 7000, 0.083333)
#   --silence-weight X         weight of the posteriors of silence for the transforms (default 0.01)
#   --fmllr-update-type T, --fmllr-min-count N    see gmm-est-fmllr (its defaults)
#   --min-lmwt N, --max-lmwt N, --word-ins-penalty X,Y,...      the grid (decode-faster's defaults)
#   --skip-scoring true        no scoring
#   --scoring-opts OPTS        options of score-wer
set -euo pipefail

nj=4
cmd=run.py
first_beam=10
first_max_active=2000
beam=13
lattice_beam=6
max_active=7000
acwt=0.083333
silence_weight=0.01
fmllr_update_type=
fmllr_min_count=
min_lmwt=
max_lmwt=
word_ins_penalty=
skip_scoring=false
scoring_opts=
. parse_options.sh
. feature_pipeline.sh
. fmllr_step.sh

expect_arguments "$@"
graph=$1
data=$2
dir=$3
source=$(dirname "$dir")

expect_files "$graph/HCLG.fst" "$graph/phones/silence.csl" "$data/feats.scp" "$data/utt2spk" "$source/final.mdl"
silence_phones=$(cat "$graph/phones/silence.csl")
split_jobs spk
model=$source/final.mdl
alignment_model=$model
if [ -f "$source/final.alimdl" ]; then alignment_model=$source/final.alimdl; fi

decode=(decode_gmm.sh --nj "$nj" --cmd "$cmd" --per-spk true --lattice-beam "$lattice_beam" --acwt "$acwt"
  --min-lmwt "$min_lmwt" --max-lmwt "$max_lmwt" --word-ins-penalty "$word_ins_penalty" --skip-scoring "$skip_scoring"
  --scoring-opts "$scoring_opts")
narrow=(--beam "$first_beam" --max-active "$first_max_active" --posteriors true)

# transforms DECODE TO EARLIER [OPTION...]: in the directory TO, from the posteriors of DECODE with the transforms EARLIER.
transforms() {
  local feats
  mkdir -p "$2/log"
  feats=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$source" delta ${3:+"ark:$3"})
  fmllr_transforms "$2/log/fmllr.JOB.log" "$2/trans.JOB" "$feats" "$model" "$3" "${@:4}" -- "$1/post.JOB.gz"
  printf '%s\n' "$nj" >"$2/num_jobs"
}

"${decode[@]}" "${narrow[@]}" --model "$alignment_model" "$graph" "$data" "$dir.si"
transforms "$dir.si" "$dir.first" "" --alignment-model="$alignment_model"
"${decode[@]}" "${narrow[@]}" --transform-dir "$dir.first" "$graph" "$data" "$dir.first"
transforms "$dir.first" "$dir" "$dir.first/trans.JOB"
"${decode[@]}" --beam "$beam" --max-active "$max_active" --transform-dir "$dir" "$graph" "$data" "$dir"
