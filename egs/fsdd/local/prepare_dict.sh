#!/usr/bin/env bash
# Makes the dictionary directory data/local/dict of the ten digits; the word for the unknown is <SIL>.
#
# Usage: prepare_dict.sh <corpus-dir>
# e.g.: prepare_dict.sh ~/corpora/fsdd
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p data/local
prepare_dict.py "$1/lexicon.txt" data/local/dict
