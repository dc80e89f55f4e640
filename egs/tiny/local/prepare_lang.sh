#!/usr/bin/env bash
# Makes data/lang, and data/lang_test with the digit loop as its grammar.
#
# Usage: prepare_lang.sh [<corpus-dir>]
# e.g.: prepare_lang.sh corpus
set -euo pipefail

corpus=${1:-corpus}
prepare_dict.sh "$corpus"
prepare_lm.sh "$corpus"
prepare_lang.py data/local/dict "<SIL>" data/local/lang data/lang
make_lm.sh --from grammar data/lang data/local/lm/G.txt data/lang_test
