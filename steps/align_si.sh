#!/usr/bin/env bash
# Align a data directory with a model: a GMM that takes deltas or, with final.mat, LDA features; or a network.
#
# Usage: align_si.sh [options] DATA LANG SRC_DIR ALI_DIR
#   e.g.: align_si.sh --nj 4 --boost-silence 1.25 data/train data/lang exp/mono exp/mono_ali
#
# SRC_DIR holds final.mdl, tree and how its features are made (the files that feature_pipeline.sh names), this
# toolkit's or Kaldi's; align_nnet.sh is for networks. ALI_DIR gets ali.1.gz ... ali.N.gz, num_jobs, and copies of what
# says how to use them. What an earlier run has done with the same model and data is not done again.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --per-spk true        divide speakers between the jobs instead
#   --model FILE          (default SRC_DIR/final.mdl; without transforms SRC_DIR/final.alimdl, where there is one)
#   --transform-dir DIR   fMLLR transforms of the speakers of DATA (align_fmllr.sh makes them)
#   --cmd CMD             launcher (default run.py)
#   --beam X, --retry-beam X, --careful true    see gmm-align-compiled (its defaults)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --use-graphs true     use the training graphs of SRC_DIR, made there from the same data with the same number of jobs
#   --graphs DIR          use those of DIR, likewise
#   --network true        the model is a network
#   --acwt X              scale on its log-likelihoods (default 0.1)
set -euo pipefail

nj=4
cmd=run.py
beam=
retry_beam=
careful=
boost_silence=1
use_graphs=false
graphs=
network=false
acwt=0.1
per_spk=false
model=
transform_dir=
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
data=$1
lang=$2
src=$3
dir=$4

if [ -z "$model" ]; then
  model=$src/final.mdl
  if [ -z "$transform_dir" ] && [ -f "$src/final.alimdl" ]; then model=$src/final.alimdl; fi
fi
if $use_graphs; then graphs=$src; fi
expect_files "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$lang/L.fst" "$lang/words.txt" "$lang/phones.txt" \
  "$lang/oov.int" "$lang/phones/optional_silence.csl" "$model" "$src/tree" \
  ${graphs:+"$graphs/num_jobs"}
if [ -f "$src/phones.txt" ] && ! cmp -s "$src/phones.txt" "$lang/phones.txt"; then
  echo "${0##*/}: $src and $lang have different phones (phones.txt)" >&2
  exit 1
fi
split_jobs "$(if $per_spk; then echo spk; else echo utt; fi)"
if [ -n "$graphs" ] && [ "$(cat "$graphs/num_jobs")" != "$nj" ]; then
  echo "${0##*/}: the graphs of $graphs are of $(cat "$graphs/num_jobs") jobs, asked for $nj" >&2
  exit 1
fi
mkdir -p "$dir/log"
printf '%s\n' "$nj" >"$dir/num_jobs"
cp "$lang/phones.txt" "$dir/phones.txt"
for file in tree final.mdl final.alimdl final.occs full.mat $feature_files; do
  [ ! -f "$src/$file" ] || cp "$src/$file" "$dir/$file"
done
if $network; then cp "$model" "$dir/final.mdl"; fi

transforms=()
if [ -n "$transform_dir" ]; then
  transform_files "$transform_dir"
  expect_files "${files[@]}"
  transforms=("${files[@]}")
fi
feats=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$src" "$(if $network; then echo raw; else echo delta; fi)" \
  "$transform_dir")
if $network; then
  align=(nnet-align --acoustic-scale="$acwt")
else
  align=(gmm-align-compiled --boost-silence="$boost_silence"
    --silence-phones="$(cat "$lang/phones/optional_silence.csl")")
fi
align+=(${beam:+--beam="$beam"} ${retry_beam:+--retry-beam="$retry_beam"} ${careful:+--careful="$careful"})
if [ -n "$graphs" ]; then
  source="ark:gunzip -c $(printf %q "$graphs/fsts.JOB.gz") |"
else
  transcripts=$(printf 'ark:sym2int.py --map-oov=%q --fields=2- %q %q |' "$(cat "$lang/oov.int")" "$lang/words.txt" \
    "$split/JOB/text")
  source=$(printf 'ark:compile-train-graphs %q %q %q %q ark:- |' "$src/tree" "$model" "$lang/L.fst" "$transcripts")
fi
echo "${0##*/}: aligning $data with $model, alignments to $dir" >&2
$cmd JOB=1:"$nj" "$dir/log/align.JOB.log" \
  unless_done.sh "$dir/log/align.JOB.done" "$dir/ali.JOB.gz" "$model" "$lang/L.fst" "$split/JOB/text" \
  "$split/JOB/feats.scp" "${transforms[@]}" -- \
  "${align[@]}" "$model" "$source" "ark,s,cs:${feats#ark:}" "ark:| gzip -nc > $(printf %q "$dir/ali.JOB.gz")"
