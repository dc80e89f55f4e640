#!/usr/bin/env bash
# Strings of digits joined from the Free Spoken Digit Dataset, four speakers to train on, two others to test.
#
# Usage: run.sh [--stage N] CORPUS
# e.g.: egs/fsdd/run.sh ~/corpora/fsdd
#
# CORPUS has flac/, train/, test/ (wav.scp, text, utt2spk) and lexicon.txt. Rerun after an interruption, it goes on where
# it was; --stage N redoes everything from stage N on.
#
# The difficulty is that four speakers are few: the network trains on copies of them at other speeds too, each a speaker
# of its own.

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

stage 1 "Data" data/train data/test -- prepare_data.sh "$corpus"
stage 2 "Dictionary and grammar" data/local data/lang data/lang_test -- prepare_lang.sh "$corpus"
stage 3 "Features" data/{train,test}/{feats,cmvn}.scp -- \
  make_features.sh --cmd "$cmd" --nj "$nj" data/train data/test
stage 4 "Monophones from a flat start" exp/mono -- \
  train_mono.sh --cmd "$cmd" --nj "$nj" --totgauss 400 data/train data/lang exp/mono
stage 5 "Decoding graph" exp/mono/graph -- mkgraph.sh --cmd "$cmd" data/lang_test exp/mono exp/mono/graph
stage 6 "Decoding with the monophones" exp/mono/decode_test -- \
  decode_gmm.sh --cmd "$cmd" --nj "$nj" exp/mono/graph data/test exp/mono/decode_test
stage 7 "More speakers by other speeds" data/train_sp exp/mono_ali_sp -- \
  perturb_and_align.sh --cmd "$cmd" --nj "$nj" --speeds 0.8,0.9,1.0,1.1,1.2 data/train data/lang exp/mono data/train_sp exp/mono_ali_sp
stage 8 "Network" exp/nnet -- \
  train_ngsgd.py --cmd "$cmd" --nj "$nj" --config conf/nnet.conf data/train_sp data/lang exp/mono_ali_sp exp/nnet
stage 9 "Decoding with the network" exp/nnet/decode_test -- \
  decode_nnet.sh --cmd "$cmd" --nj "$nj" exp/mono/graph data/test exp/nnet/decode_test
show_results.py exp/mono/decode_test exp/nnet/decode_test
