#!/usr/bin/env bash
# The little corpus of synthetic connected digits: from recordings to word error rates in about a minute.
#
# Usage: run.sh [--stage N]
# e.g.: egs/tiny/run.sh
#
# Rerun after an interruption, it goes on where it was; --stage N redoes everything from stage N on.

set -euo pipefail
cd "$(dirname "$0")"
. ../../utils/path.sh
. cmd.sh
stage=0
. parse_options.sh
. recipe.sh

stage 1 "Data" data/train data/test -- prepare_data.sh
stage 2 "Dictionary and grammar" data/local data/lang data/lang_test -- prepare_lang.sh
stage 3 "Features" data/{train,test}/{feats,cmvn}.scp -- make_features.sh --cmd "$cmd" --nj 2 data/train data/test
stage 4 "Monophones from a flat start" exp/mono -- \
  train_mono.sh --cmd "$cmd" --nj 2 --num-iters 25 --totgauss 200 data/train data/lang exp/mono
stage 5 "Decoding graph" exp/mono/graph -- mkgraph.sh --cmd "$cmd" data/lang_test exp/mono exp/mono/graph
stage 6 "Decoding with the monophones" exp/mono/decode_test -- \
  decode_gmm.sh --cmd "$cmd" --nj 2 exp/mono/graph data/test exp/mono/decode_test
stage 7 "More voices by other speeds" data/train_sp exp/mono_ali_sp -- \
  perturb_and_align.sh --cmd "$cmd" --nj 2 --speeds 0.85,1.0,1.15 data/train data/lang exp/mono data/train_sp exp/mono_ali_sp
stage 8 "Network" exp/nnet -- \
  train_ngsgd.py --cmd "$cmd" --nj 2 --config conf/nnet.conf data/train_sp data/lang exp/mono_ali_sp exp/nnet
stage 9 "Decoding with the network" exp/nnet/decode_test -- \
  decode_nnet.sh --cmd "$cmd" --nj 2 exp/mono/graph data/test exp/nnet/decode_test
show_results.py exp/mono/decode_test exp/nnet/decode_test
