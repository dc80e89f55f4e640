#!/usr/bin/env bash
# Makes data/lang, and data/lang_test with a trigram of the training sentences as its grammar.
#
# Usage: prepare_lang.sh [--cmd CMD]
# e.g.: prepare_lang.sh
set -euo pipefail

cmd=run.py
. parse_options.sh
prepare_dict.sh data
prepare_lang.py data/local/dict "<UNK>" data/local/lang data/lang
make_lm.sh --cmd "$cmd" data/lang data/local/lm/train.txt data/lang_test
