#!/usr/bin/env bash
# Add a grammar G.fst to a lang directory: from text (an n-gram model is trained), an ARPA file, or a text FST.
#
# Usage: make_lm.sh [options] LANG SOURCE LANGTEST
# e.g.: make_lm.sh --prune 1e-7 data/lang data/local/lm/train.txt data/lang_test
#       make_lm.sh --from grammar data/lang data/local/lm/G.txt data/lang_test
#
# LANGTEST becomes a copy of LANG with G.fst; it may be LANG itself. With --from text the model is in LANGTEST/lm.arpa.
# A G.fst that is newer than its sources is kept.
#
# Options:
#   --cmd CMD          launcher (run.py)
#   --from KIND        what SOURCE is: text (a sentence a line), arpa (perhaps .gz), grammar (text FST); (text)
#   --order N          order of the model trained from text (3)
#   --prune X          n-grams that change the perplexity less than this, relative, are dropped (0.0)

set -eu -o pipefail
cmd=run.py
from=text
order=3
prune=0.0
. parse_options.sh
expect_arguments "$@"
lang=$1
source=$2
target=$3

expect_files "$source" "$lang/words.txt" "$lang/L_disambig.fst"
if [ -s "$target/G.fst" ] && ! [ "$source" -nt "$target/G.fst" ] && ! [ "$lang/words.txt" -nt "$target/G.fst" ]; then
  echo "${0##*/}: $target/G.fst is up to date" >&2
  exit 0
fi
mkdir -p "$target/log"
if ! [ "$target" -ef "$lang" ]; then
  mkdir -p "$target/phones"
  cp -p "$lang"/phones/* "$target/phones"
  cp -p "$lang"/{phones.txt,words.txt,topo,oov.txt,oov.int,L.fst,L_disambig.fst} "$target"
fi

case $from in
  text)
    $cmd "$target/log/train.log" \
      ngram-train --order="$order" --prune="$prune" "$lang/words.txt" "$source" "$target/lm.arpa"
    source=$target/lm.arpa
    ;;
  arpa | grammar) ;;
  *)
    echo "${0##*/}: --from $from: expected text, arpa or grammar" >&2
    exit 2
    ;;
esac
if [ "$from" = grammar ]; then
  $cmd "$target/log/G.log" fst-compile "$lang/words.txt" "$lang/words.txt" "$source" "$target/G.fst"
else
  case $source in *.gz) source="gunzip -c '$source' |" ;; esac
  $cmd "$target/log/G.log" arpa-to-fst "$lang/words.txt" "$source" "$target/G.fst"
fi
