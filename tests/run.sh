#!/usr/bin/env bash
# All tests: style, unit tests, shell integration tests, the small recipe. Sets up what it needs.
#
# Usage: tests/run.sh [--slow] [PYTEST OPTION...]
# e.g.:  tests/run.sh
#        tests/run.sh --slow -k natural_gradient

set -euo pipefail
cd "$(dirname "$0")/.."
marks="not slow"
if [ "${1:-}" = --slow ]; then
  marks="slow or not slow"
  shift
fi
# shellcheck source=utils/setup_env.sh
. utils/setup_env.sh
setup_env "$PWD" test
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 LC_ALL=C PYTHONUTF8=1
ruff check .
ruff format --check .
exec python -m pytest -n "$(env -u OMP_NUM_THREADS nproc)" --dist worksteal -m "$marks" "$@"
