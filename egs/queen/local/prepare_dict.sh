#!/usr/bin/env bash
# Makes the dictionary directory data/local/dict of the vocabulary that prepare_data.py wrote: pronunciations of CMUdict
# without stress, further words by rule or model (data/local/lexicon_sources.txt says which). The word for the unknown
# is <UNK>, spoken SPN.
#
# Usage: prepare_dict.sh [<data-dir>]
# e.g.: prepare_dict.sh data
set -euo pipefail

data=${1:-data}
make-lexicon --sources="$data/local/lexicon_sources.txt" "$data/local/lm/vocabulary.txt" "$data/local/lexicon.txt"
prepare_dict.py --silence-phones="SIL SPN" --extra-words="!SIL=SIL <UNK>=SPN" "$data/local/lexicon.txt" \
  "$data/local/dict"
validate_dict_dir.py "$data/local/dict"
