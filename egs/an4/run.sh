#!/usr/bin/env bash
# CMU's AN4, spelling and short commands by 84 speakers: from its directory to word error rates.
#
# Usage: run.sh [--stage N] CORPUS
# e.g.: egs/an4/run.sh ~/corpora/an4
#
# CORPUS has flac/, train/, test/ (wav.scp, text, utt2spk), lexicon.txt and an4.ug.lm. Rerun after an interruption, it
# goes on where it was; --stage N redoes everything from stage N on.

set -euo pipefail
corpus_from=$PWD
cd "$(dirname "$0")"
. ../../utils/path.sh
. cmd.sh
stage=0
. parse_options.sh
[ $# -eq 1 ] || { echo "Usage: run.sh [--stage N] CORPUS; see --help" >&2; exit 2; }
corpus=$(cd "$corpus_from" && realpath -- "$1")
. recipe.sh

test_gmms() {
  for system in mono tri1 tri2b tri3b; do
    test_gmm.sh --cmd "$cmd" --nj "$nj" data/lang_test data/test "exp/$system"
  done
}

stage 1 "Data" data/train data/test -- prepare_data.sh "$corpus"
stage 2 "Dictionary and grammar" data/local data/lang data/lang_test -- prepare_lang.sh "$corpus"
stage 3 "Features" data/{train,test}/{feats,cmvn}.scp -- \
  make_features.sh --cmd "$cmd" --nj "$nj" data/train data/test
stage 4 "Gaussian mixtures, from a flat start to speaker-adaptive training" exp/{mono,tri1,tri2b,tri3b}{,_ali} -- \
  train_gmm.sh --cmd "$cmd" --nj "$nj" --tri1 "1800 9000" --tri2 "1800 9000" --tri3 "1800 9000" data/train data/lang exp
stage 5 "Decoding with the Gaussian mixtures" exp/{mono,tri1,tri2b,tri3b}/{graph,decode_test} -- test_gmms
stage 6 "Network" exp/nnet -- \
  train_ngsgd.py --cmd "$cmd" --nj "$nj" --config conf/nnet.conf data/train data/lang exp/tri3b_ali exp/nnet
stage 7 "Decoding with the network" exp/nnet/decode_test -- \
  decode_nnet.sh --cmd "$cmd" --nj "$nj" --transform-dir exp/tri3b/decode_test exp/tri3b/graph data/test exp/nnet/decode_test
show_results.py exp/{mono,tri1,tri2b,tri3b,nnet}/decode_test
