#!/usr/bin/env bash
# Makes data/train and data/test of CMU's AN4, a folder with flac/, train/, test/, lexicon.txt and an4.ug.lm.
#
# Usage: prepare_data.sh <corpus-dir>
# e.g.: prepare_data.sh ~/corpora/an4
set -euo pipefail

[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for set in train test; do
  adopt_data_dir.py "$1/$set" "data/$set"
  validate_data_dir.py --no-feats "data/$set"
done
