#!/usr/bin/env bash
# Makes data/train and data/test of the digit corpus that comes with the recipe.
#
# Usage: prepare_data.sh [<corpus-dir>]
# e.g.: prepare_data.sh corpus
set -euo pipefail

corpus=${1:-corpus}
for set in train test; do
  adopt_data_dir.py "$corpus/$set" "data/$set"
  validate_data_dir.py --no-feats "data/$set"
done
