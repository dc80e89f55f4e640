#!/usr/bin/env bash
# Flight of the Amazon Queen, an adventure game's spoken dialogue: from the Debian package to word error rates.
#
# Usage: run.sh [--quick] [--stage N]
# e.g.: egs/queen/run.sh
#       egs/queen/run.sh --quick
#
# The whole corpus takes under 40 minutes on 2 cores; --quick, an hour of it and a smaller network, under 10. Rerun after
# an interruption, it goes on where it was; --stage N redoes everything from stage N on. The package is downloaded by
# apt-get (its lists must be there: apt-get update, once, as root) and not installed; --deb FILE takes a copy of it.

set -euo pipefail
cd "$(dirname "$0")"
. ../../utils/path.sh
. cmd.sh
stage=0
quick=false
deb=${QUEEN_DEB:-}
. parse_options.sh
data=data exp=exp totgauss=1000 nnet_conf=conf/nnet.conf
if $quick; then
  data=data_quick exp=exp_quick totgauss=500 nnet_conf=conf/nnet_quick.conf
fi
stage_dir=$exp/.stages
. recipe.sh

stage 1 "The corpus" corpus -- get_corpus.sh ${deb:+--deb "$deb"} corpus
stage 2 "Data" "$data"/{train,test,test_unseen} -- prepare_data.py --quick=$quick corpus/queen.1c conf "$data"
stage 3 "Dictionary and language model" "$data"/{lang,lang_test} -- prepare_lang.sh --cmd "$cmd" "$data"
stage 4 "Features" "$data"/{train,test,test_unseen}/{feats,cmvn}.scp -- \
  make_features.sh --cmd "$cmd" --nj "$nj" "$data"/{train,test,test_unseen}
stage 5 "Monophones from a flat start" "$exp/mono" -- \
  train_mono.sh --cmd "$cmd" --nj "$nj" --totgauss $totgauss "$data/train" "$data/lang" "$exp/mono"
# Triphones come between stages 5 and 6; the network then takes its alignments and graph from them.
stage 6 "Decoding graph" "$exp/mono/graph" -- mkgraph.sh --cmd "$cmd" "$data/lang_test" "$exp/mono" "$exp/mono/graph"
decode_with() { # decode_gmm.sh or decode_nnet.sh, model directory
  "$1" --cmd "$cmd" --nj "$nj" "$exp/mono/graph" "$data/test" "$2/decode_test"
  "$1" --cmd "$cmd" --nj "$nj" "$exp/mono/graph" "$data/test_unseen" "$2/decode_test_unseen"
}
stage 7 "Decoding with the monophones" "$exp"/mono/decode_test{,_unseen} -- decode_with decode_gmm.sh "$exp/mono"
stage 8 "Network" "$exp/nnet" -- \
  train_ngsgd.py --cmd "$cmd" --nj "$nj" --config $nnet_conf "$data/train" "$data/lang" "$exp/mono" "$exp/nnet"
stage 9 "Decoding with the network" "$exp"/nnet/decode_test{,_unseen} -- decode_with decode_nnet.sh "$exp/nnet"

echo "Unseen sentences of seen characters:"
show_results.py "$exp/mono/decode_test" "$exp/nnet/decode_test"
echo "Characters never heard in training:"
show_results.py "$exp/mono/decode_test_unseen" "$exp/nnet/decode_test_unseen"
