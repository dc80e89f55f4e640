#!/usr/bin/env bash
# Makes DATA/lang, and DATA/lang_test with a trigram of the training sentences as its grammar.
#
# Usage: prepare_lang.sh [--cmd CMD] DATA
# e.g.: prepare_lang.sh data
set -euo pipefail

cmd=run.py
. parse_options.sh
[ $# -eq 1 ] || { echo "Usage: ${0##*/} [--cmd CMD] DATA" >&2; exit 2; }
data=$1
prepare_dict.sh "$data"
prepare_lang.py "$data/local/dict" "<UNK>" "$data/local/lang" "$data/lang"
make_lm.sh --cmd "$cmd" "$data/lang" "$data/local/lm/train.txt" "$data/lang_test"
