#!/usr/bin/env bash
# Decode and score data directories with GMM systems: the graph of each, then its own kind of decoding.
#
# Usage: test_gmm.sh [options] LANG DATA... MODEL_DIR
#   e.g.: test_gmm.sh --nj 4 data/lang_test data/test exp/tri1
#
# Makes MODEL_DIR/graph, and MODEL_DIR/decode_NAME for each data directory, NAME being the last part of its path. Systems
# trained speaker-adaptively are decoded with fMLLR. What is done already is not done again.
#
#   --nj N, --cmd CMD     jobs (default 4) and launcher
#   --decode-opts OPTS    further options of decode_gmm.sh or decode_fmllr.sh
set -euo pipefail

nj=4
cmd=run.py
decode_opts=
. parse_options.sh

expect_arguments "$@"
lang=$1
model=${*: -1}
decode=decode_gmm.sh
if [ -f "$model/final.alimdl" ]; then decode=decode_fmllr.sh; fi
read -ra options <<<"$decode_opts"

mkgraph.sh --cmd "$cmd" "$lang" "$model" "$model/graph"
for data in "${@:2:$#-2}"; do
  $decode --nj "$nj" --cmd "$cmd" "${options[@]}" "$model/graph" "$data" "$model/decode_$(basename "$data")"
done
