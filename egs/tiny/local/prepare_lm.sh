#!/usr/bin/env bash
# Makes the grammar data/local/lm/G.txt: any digits in any order, the end after each with probability 1/4.
#
# Usage: prepare_lm.sh [<corpus-dir>]
# e.g.: prepare_lm.sh corpus
set -euo pipefail

corpus=${1:-corpus}
mkdir -p data/local/lm
make-word-loop --end-prob=0.25 "$corpus/lexicon.txt" data/local/lm/G.txt
