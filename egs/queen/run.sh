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
data=data exp=exp nnet_conf=conf/nnet.conf
# The system whose alignments the network is trained on, and the sizes of all up to it.
gmm=tri3b gmm_opts=(--tri1 "1800 15000" --tri2 "1800 15000" --tri3 "1800 15000")
if $quick; then
  data=data_quick exp=exp_quick nnet_conf=conf/nnet_quick.conf
  gmm=tri1 gmm_opts=(--mono 500 --tri1 "800 5000" --last tri1)
fi
gmm_dirs=("$exp"/{mono,tri1,tri2b,tri3b}{,_ali})
if $quick; then gmm_dirs=("$exp"/{mono,tri1}{,_ali}); fi
stage_dir=$exp/.stages
. recipe.sh

stage 1 "The corpus" corpus -- get_corpus.sh ${deb:+--deb "$deb"} corpus
stage 2 "Data" "$data"/{train,test,test_unseen} -- prepare_data.py --quick=$quick corpus/queen.1c conf "$data"
stage 3 "Dictionary and language model" "$data"/{lang,lang_test} -- prepare_lang.sh --cmd "$cmd" "$data"
stage 4 "Features" "$data"/{train,test,test_unseen}/{feats,cmvn}.scp -- \
  make_features.sh --cmd "$cmd" --nj "$nj" "$data"/{train,test,test_unseen}
stage 5 "Gaussian mixtures, from a flat start" "${gmm_dirs[@]}" -- \
  train_gmm.sh --cmd "$cmd" --nj "$nj" "${gmm_opts[@]}" "$data/train" "$data/lang" "$exp"
stage 6 "Decoding with the Gaussian mixtures" "$exp/$gmm"/{graph,decode_test,decode_test_unseen} -- \
  test_gmm.sh --cmd "$cmd" --nj "$nj" "$data/lang_test" "$data/test" "$data/test_unseen" "$exp/$gmm"
stage 7 "Network" "$exp/nnet" -- \
  train_ngsgd.py --cmd "$cmd" --nj "$nj" --config $nnet_conf "$data/train" "$data/lang" "$exp/${gmm}_ali" "$exp/nnet"
decode_nnet() {
  for test in test test_unseen; do
    transforms=()
    if ! $quick; then transforms=(--transform-dir "$exp/$gmm/decode_$test"); fi
    decode_nnet.sh --cmd "$cmd" --nj "$nj" "${transforms[@]}" "$exp/$gmm/graph" "$data/$test" "$exp/nnet/decode_$test"
  done
}
stage 8 "Decoding with the network" "$exp"/nnet/decode_test{,_unseen} -- decode_nnet

echo "Unseen sentences of seen characters:"
show_results.py "$exp/$gmm/decode_test" "$exp/nnet/decode_test"
echo "Characters never heard in training:"
show_results.py "$exp/$gmm/decode_test_unseen" "$exp/nnet/decode_test_unseen"
