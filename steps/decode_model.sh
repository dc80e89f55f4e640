#!/usr/bin/env bash
# Decode a data directory with any acoustic model and score it; decode_gmm.sh and decode_nnet.sh know the usual options.
#
# Usage: decode_model.sh [options] GRAPH DATA MODEL_DIR/DECODE
#   e.g.: decode_model.sh --features raw --acwt 0.1 exp/mono/graph data/test exp/nnet/decode
#
# GRAPH has HCLG.fst and words.txt. MODEL_DIR, the parent of the output directory, has the model and says in cmvn_opts
# and the other files of feature_pipeline.sh how its features are made. DECODE gets hyp.1.gz ... (hypotheses of a grid
# of language-model weights and word insertion penalties) and, where DATA has a text, scoring/ (see score-wer). A job
# that was done with the same model, graph and options is not run again.
#
#   --nj N, --cmd CMD          jobs (default 4; fewer when there are fewer utterances) and launcher
#   --model FILE               (default MODEL_DIR/final.mdl)
#   --features raw|delta       features of the model, where MODEL_DIR does not say (default raw)
#   --beam X, --lattice-beam X, --max-active N, --acwt X        the search (decode-faster's defaults)
#   --min-lmwt N, --max-lmwt N, --word-ins-penalty X,Y,...      the grid (decode-faster's defaults)
#   --transform-dir DIR        fMLLR transforms of the speakers of DATA; asked for where the model was trained on some
#   --online-ivector-dir DIR   append these i-vectors
#   --posteriors true          also write post.1.gz ...: posteriors of transition-ids, of all paths in the lattice beam
#   --per-spk true             divide speakers between the jobs instead of utterances
#   --skip-scoring true        no scoring
#   --scoring-opts OPTS        options of score-wer
set -euo pipefail

nj=4
cmd=run.py
model=
features=raw
beam=
lattice_beam=
max_active=
acwt=0.1
min_lmwt=
max_lmwt=
word_ins_penalty=
transform_dir=
online_ivector_dir=
posteriors=false
per_spk=false
skip_scoring=false
scoring_opts=
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
graph=$1
data=$2
dir=$3
source=$(dirname "$dir")
needs_transforms=false
if [ -z "$model" ] && { [ -f "$source/speaker_transforms" ] || [ -f "$source/final.alimdl" ]; }; then
  needs_transforms=true
fi
: "${model:=$source/final.mdl}"

expect_files "$graph/HCLG.fst" "$graph/words.txt" "$data/feats.scp" "$data/utt2spk" "$model" \
  ${online_ivector_dir:+"$online_ivector_dir/ivector_online.scp" "$online_ivector_dir/ivector_period"}
if [ -z "$transform_dir" ] && $needs_transforms; then
  echo "decode_model.sh: $source was trained on features with a transform for each speaker (fMLLR); give those of $data:" \
    "--transform-dir DIR with trans.1 ... and num_jobs; for a GMM, decode_fmllr.sh makes them" >&2
  exit 1
fi
transforms=()
if [ -n "$transform_dir" ]; then
  expect_files "$transform_dir/num_jobs"
  transform_files "$transform_dir"
  expect_files "${files[@]}"
  transforms=("${files[@]}")
fi
mkdir -p "$dir/log"
split_jobs "$(if $per_spk; then echo spk; else echo utt; fi)"

options=(--acoustic-scale="$acwt" ${beam:+--beam="$beam"} ${lattice_beam:+--lattice-beam="$lattice_beam"}
  ${max_active:+--max-active="$max_active"} ${min_lmwt:+--min-lmwt="$min_lmwt"} ${max_lmwt:+--max-lmwt="$max_lmwt"}
  ${word_ins_penalty:+--word-penalties="$word_ins_penalty"})
if [ -f "$graph/num_pdfs" ]; then options+=(--num-pdfs="$(cat "$graph/num_pdfs")"); fi
if [ -n "$online_ivector_dir" ]; then
  options+=(--ivectors="scp:$online_ivector_dir/ivector_online.scp"
    --ivector-period="$(cat "$online_ivector_dir/ivector_period")")
fi
if $posteriors; then options+=(--posteriors="ark:| gzip -1nc > $(printf %q "$dir/post.JOB.gz")"); fi
feats=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$source" "$features" "$transform_dir")
$cmd JOB=1:"$nj" "$dir/log/decode.JOB.log" \
  unless_done.sh "$dir/log/decode.JOB.done" "$dir/hyp.JOB.gz" "$model" "$graph/HCLG.fst" "$graph/words.txt" \
  "$split/JOB/feats.scp" "${transforms[@]}" -- \
  decode-faster "${options[@]}" "$model" "$graph/HCLG.fst" "$graph/words.txt" "$feats" \
  "ark:| gzip -nc > $(printf %q "$dir/hyp.JOB.gz")"
printf '%s\n' "$nj" >"$dir/num_jobs"

if ! $skip_scoring && [ -f "$data/text" ]; then
  score.sh --cmd "$cmd" --acwt "$acwt" --scoring-opts "$scoring_opts" "$data" "$dir"
fi
