#!/usr/bin/env bash
# Build the decoding graph of a model: HCLG.fst, with words.txt, phones.txt, phones/ and num_pdfs beside it, so that
# decoding does not need the lang directory.
#
# Usage: mkgraph.sh [options] LANG MODELDIR GRAPHDIR
# e.g.: mkgraph.sh data/lang_test exp/mono exp/mono/graph
#
# LANG has L_disambig.fst and G.fst, MODELDIR tree and final.mdl. A graph that is newer than all of them is kept.
#
# Options:
#   --cmd CMD               launcher (run.py)
#   --transition-scale X    scale of transition log-probabilities other than self-loops (1.0)
#   --self-loop-scale X     scale of self-loop log-probabilities (0.1)
#   --remove-oov true       no hypothesis may have the word of LANG/oov.int (false)

set -eu -o pipefail
cmd=run.py
transition_scale=1.0
self_loop_scale=0.1
remove_oov=false
. parse_options.sh
expect_arguments "$@"
lang=$1
model=$2
graph=$3

required=("$lang/L_disambig.fst" "$lang/G.fst" "$lang/phones.txt" "$lang/words.txt" "$lang/oov.int"
  "$lang/phones/silence.csl" "$lang/phones/disambig.int" "$model/final.mdl" "$model/tree")
expect_files "${required[@]}"
fresh=true
for file in "${required[@]}"; do
  [ ! "$file" -nt "$graph/HCLG.fst" ] || fresh=false
done
if $fresh && [ -s "$graph/num_pdfs" ]; then
  echo "${0##*/}: $graph/HCLG.fst is up to date" >&2
  exit 0
fi
mkdir -p "$graph/log" "$graph/phones"

cp "$lang/words.txt" "$lang/phones.txt" "$lang/oov.int" "$graph"
for file in word_boundary.txt word_boundary.int align_lexicon.txt align_lexicon.int optional_silence.txt \
  optional_silence.int optional_silence.csl disambig.txt disambig.int silence.csl; do
  [ ! -f "$lang/phones/$file" ] || cp "$lang/phones/$file" "$graph/phones"
done
removed=""
if $remove_oov; then removed=$lang/oov.int; fi
$cmd "$graph/log/mkgraph.log" \
  make-graph --transition-scale="$transition_scale" --self-loop-scale="$self_loop_scale" --remove-oov="$removed" \
  "$lang/L_disambig.fst" "$lang/G.fst" "$lang/phones/disambig.int" "$model/tree" "$model/final.mdl" "$graph/HCLG.fst"
tree-info "$model/tree" | awk '$1 == "num-pdfs" { print $2 }' >"$graph/num_pdfs.tmp"
mv "$graph/num_pdfs.tmp" "$graph/num_pdfs"
