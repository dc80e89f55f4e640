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
skip_scoring=false
scoring_opts=
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
graph=$1
data=$2
dir=$3
source=$(dirname "$dir")
: "${model:=$source/final.mdl}"

expect_files "$graph/HCLG.fst" "$graph/words.txt" "$data/feats.scp" "$data/utt2spk" "$model" \
  ${online_ivector_dir:+"$online_ivector_dir/ivector_online.scp" "$online_ivector_dir/ivector_period"}
if [ -z "$transform_dir" ] && [ -f "$source/speaker_transforms" ]; then
  echo "decode_model.sh: $source was trained on features with a transform for each speaker (fMLLR); give those of $data:" \
    "--transform-dir DIR with trans.1 ... and num_jobs" >&2
  exit 1
fi
for file in ${transform_dir:+"$transform_dir/trans.1" "$transform_dir/num_jobs"}; do
  [ -f "$file" ] || { echo "decode_model.sh: no such file: $file, transforms of the speakers" >&2; exit 1; }
done
mkdir -p "$dir/log"
nj=$(limit_jobs.py "$data" "$nj")
split_data_dir.py --per-utt "$data" "$nj"
split=$data/split${nj}utt/JOB

options=(--acoustic-scale="$acwt" ${beam:+--beam="$beam"} ${lattice_beam:+--lattice-beam="$lattice_beam"}
  ${max_active:+--max-active="$max_active"} ${min_lmwt:+--min-lmwt="$min_lmwt"} ${max_lmwt:+--max-lmwt="$max_lmwt"}
  ${word_ins_penalty:+--word-penalties="$word_ins_penalty"})
if [ -f "$graph/num_pdfs" ]; then options+=(--num-pdfs="$(cat "$graph/num_pdfs")"); fi
if [ -n "$online_ivector_dir" ]; then
  options+=(--ivectors="scp:$online_ivector_dir/ivector_online.scp"
    --ivector-period="$(cat "$online_ivector_dir/ivector_period")")
fi
feats=$(feature_pipeline "$data" "$split/feats.scp" "$source" "$features" "$transform_dir")
$cmd JOB=1:"$nj" "$dir/log/decode.JOB.log" \
  unless_done.sh "$dir/log/decode.JOB.done" "$dir/hyp.JOB.gz" "$model" "$graph/HCLG.fst" "$graph/words.txt" \
  "$split/feats.scp" -- \
  decode-faster "${options[@]}" "$model" "$graph/HCLG.fst" "$graph/words.txt" "$feats" \
  "ark:| gzip -nc > $(printf %q "$dir/hyp.JOB.gz")"
printf '%s\n' "$nj" >"$dir/num_jobs"

if ! $skip_scoring && [ -f "$data/text" ]; then
  score.sh --cmd "$cmd" --acwt "$acwt" --scoring-opts "$scoring_opts" "$data" "$dir"
fi
