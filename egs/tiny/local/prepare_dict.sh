#!/usr/bin/env bash
# Makes the dictionary directory data/local/dict; the word for the unknown is <SIL>.
#
# Usage: prepare_dict.sh [<corpus-dir>]
# e.g.: prepare_dict.sh corpus
set -euo pipefail

corpus=${1:-corpus}
mkdir -p data/local
prepare_dict.py "$corpus/lexicon.txt" data/local/dict
