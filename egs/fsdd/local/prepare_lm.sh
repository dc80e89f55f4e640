#!/usr/bin/env bash
# Makes the grammar data/local/lm/G.txt: any digits in any order, the end after each with probability 1/4.
#
# Usage: prepare_lm.sh <corpus-dir>
# e.g.: prepare_lm.sh ~/corpora/fsdd
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p data/local/lm
make-word-loop --end-prob=0.25 "$1/lexicon.txt" data/local/lm/G.txt
