#!/usr/bin/env bash
# Makes data/lang, and data/lang_test with the corpus's unigrams as its grammar.
#
# Usage: prepare_lang.sh <corpus-dir>
# e.g.: prepare_lang.sh ~/corpora/an4
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
prepare_dict.sh "$1"
prepare_lm.sh "$1"
prepare_lang.py data/local/dict "<UNK>" data/local/lang data/lang
make_lm.sh --from grammar data/lang data/local/lm/G.txt data/lang_test
