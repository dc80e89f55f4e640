#!/usr/bin/env bash
# Decode a data directory with a network and score it: decode_model.sh with Kaldi's usual options for networks.
#
# Usage: decode_nnet.sh [options] GRAPH DATA MODEL_DIR/DECODE
#   e.g.: decode_nnet.sh --nj 4 exp/mono/graph data/test exp/nnet/decode
#
# Options: those of decode_model.sh; defaults here --features raw --beam 15 --lattice-beam 8 --max-active 7000
# --acwt 0.1.
case ${1-} in
  --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
exec decode_model.sh --features raw --beam 15 --lattice-beam 8 --max-active 7000 --acwt 0.1 "$@"
