# Sourced by the tests of this folder: a scratch directory, and one line for each comparison that fails.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export PATH=$root/utils:$root/bin:$PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0
comparisons=0

# check WHAT ACTUAL EXPECTED
check() {
  comparisons=$((comparisons + 1))
  [ "$2" == "$3" ] && return
  failures=$((failures + 1))
  printf 'FAILED: %s\n  expected: %s\n  got:      %s\n' "$1" "$3" "$2"
}

# check_match WHAT ACTUAL PATTERN (a glob)
check_match() {
  # shellcheck disable=SC2053
  if [[ $2 == $3 ]]; then comparisons=$((comparisons + 1)); else check "$1" "$2" "$3"; fi
}

finish() {
  echo "${0##*/}: $comparisons comparisons, $failures failed"
  [ "$failures" -eq 0 ]
}
