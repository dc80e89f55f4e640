#!/usr/bin/env bash
# Align a data directory with a network.
#
# Usage: align_nnet.sh [options] DATA LANG SRC_DIR ALI_DIR
#   e.g.: align_nnet.sh --nj 4 data/train data/lang exp/nnet exp/nnet_ali
#
# Options: those of align_si.sh; --transform-dir where the network was trained on fMLLR features.
set -- --network true "$@"
. align_si.sh
