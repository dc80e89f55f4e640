#!/usr/bin/env bash
# Makes the grammar data/local/lm/G.txt: a loop over the words with the corpus's own unigrams.
#
# Usage: prepare_lm.sh <corpus-dir>
# e.g.: prepare_lm.sh ~/corpora/an4
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p data/local/lm
make-word-loop --arpa="$1/an4.ug.lm" "$1/lexicon.txt" data/local/lm/G.txt
