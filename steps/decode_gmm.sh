#!/usr/bin/env bash
# Decode a data directory with a GMM and score it: decode_model.sh with Kaldi's usual options for GMMs.
#
# Usage: decode_gmm.sh [options] GRAPH DATA MODEL_DIR/DECODE
#   e.g.: decode_gmm.sh --nj 4 exp/mono/graph data/test exp/mono/decode
#
# Options: those of decode_model.sh; defaults here --features delta --beam 13 --lattice-beam 6 --max-active 7000
# --acwt 0.083333.
case ${1-} in
  --help | -h) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
exec decode_model.sh --features delta --beam 13 --lattice-beam 6 --max-active 7000 --acwt 0.083333 "$@"
