# The environment of a recipe. To be sourced by egs/*/run.sh, in the recipe's directory:
#
#   . ../../utils/path.sh
#
# Puts the recipe's local/, then steps/, utils/, local/ and bin/ of this checkout on PATH, with a Python that has the package: the
# active one if it can import what is needed, else the checkout's own virtual environment, made here on the first call.
# One thread for each job (parallelism is in the jobs; and sums stay reproducible), C locale for sorting.

_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || return 1
# shellcheck source=utils/setup_env.sh
. "$_root/utils/setup_env.sh" || exit 1
setup_env "$_root" || exit 1
export PATH="$PWD/local:$_root/steps:$_root/utils:$_root/local:$_root/bin:$PATH"
export LC_ALL=C PYTHONUTF8=1
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
unset _root
