#!/usr/bin/env bash
# Align a data directory with a GMM model that takes deltas or, with final.mat, LDA features.
#
# Usage: align_si.sh [options] DATA LANG SRC_DIR ALI_DIR
#   e.g.: align_si.sh --nj 4 --boost-silence 1.25 data/train data/lang exp/mono exp/mono_ali
#
# SRC_DIR holds final.mdl, tree and how its features are made (cmvn_opts, delta_opts, splice_opts, final.mat), this
# toolkit's or Kaldi's. ALI_DIR gets ali.1.gz ... ali.N.gz, num_jobs, and copies of what says how to use them. What an
# earlier run has done with the same model and data is not done again.
#
#   --nj N                jobs (default 4); utterances are divided evenly between them
#   --cmd CMD             launcher (default run.py)
#   --beam X, --retry-beam X, --careful true    see gmm-align-compiled (its defaults)
#   --boost-silence X     factor on silence while aligning (default 1)
#   --use-graphs true     use the training graphs of SRC_DIR, made there from the same data with the same number of jobs
set -euo pipefail

nj=4
cmd=run.py
beam=
retry_beam=
careful=
boost_silence=1
use_graphs=false
. parse_options.sh
. feature_pipeline.sh

expect_arguments "$@"
data=$1
lang=$2
src=$3
dir=$4

expect_files "$data/feats.scp" "$data/cmvn.scp" "$data/text" "$lang/L.fst" "$lang/words.txt" "$lang/phones.txt" \
  "$lang/oov.int" "$lang/phones/optional_silence.csl" "$src/final.mdl" "$src/tree"
if [ -f "$src/phones.txt" ] && ! cmp -s "$src/phones.txt" "$lang/phones.txt"; then
  echo "align_si.sh: $src and $lang have different phones (phones.txt)" >&2
  exit 1
fi
nj=$(limit_jobs.py "$data" "$nj")
if $use_graphs && [ "$(cat "$src/num_jobs")" != "$nj" ]; then
  echo "align_si.sh: --use-graphs: $src has $(cat "$src/num_jobs") jobs, asked for $nj" >&2
  exit 1
fi
split_data_dir.py --per-utt "$data" "$nj"
split=$data/split${nj}utt
mkdir -p "$dir/log"
printf '%s\n' "$nj" >"$dir/num_jobs"
cp "$lang/phones.txt" "$dir/phones.txt"
for file in tree final.mdl final.occs cmvn_opts delta_opts splice_opts final.mat full.mat; do
  [ ! -f "$src/$file" ] || cp "$src/$file" "$dir/$file"
done

feats=$(feature_pipeline "$data" "$split/JOB/feats.scp" "$src" delta)
align=(gmm-align-compiled --boost-silence="$boost_silence"
  --silence-phones="$(cat "$lang/phones/optional_silence.csl")" ${beam:+--beam="$beam"}
  ${retry_beam:+--retry-beam="$retry_beam"} ${careful:+--careful="$careful"})
inputs=("$src/final.mdl" "$lang/L.fst" "$split/JOB/text" "$split/JOB/feats.scp")
if $use_graphs; then
  graphs="ark:gunzip -c $(printf %q "$src/fsts.JOB.gz") |"
else
  transcripts=$(printf 'ark:sym2int.py --map-oov=%q --fields=2- %q %q |' "$(cat "$lang/oov.int")" "$lang/words.txt" \
    "$split/JOB/text")
  graphs=$(printf 'ark:compile-train-graphs %q %q %q %q ark:- |' "$src/tree" "$src/final.mdl" "$lang/L.fst" "$transcripts")
fi
echo "align_si.sh: aligning $data with $src, alignments to $dir" >&2
$cmd JOB=1:"$nj" "$dir/log/align.JOB.log" \
  unless_done.sh "$dir/log/align.JOB.done" "$dir/ali.JOB.gz" "${inputs[@]}" -- \
  "${align[@]}" "$src/final.mdl" "$graphs" "ark,s,cs:${feats#ark:}" "ark:| gzip -nc > $(printf %q "$dir/ali.JOB.gz")"
