#!/usr/bin/env bash
# What utils/recipe.sh promises: skipping, redoing, failing, resuming.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cat >recipe.sh <<'END'
set -euo pipefail
stage=0
stage_dir=exp/.stages
break=none
. parse_options.sh
. "$(command -v recipe.sh)"
make() { # OUTPUT FROM: notes that it ran
  echo "$1" >>calls
  [ "$1" != "$break" ] || { echo "cannot make it"; false; echo "went on after a failure"; }
  mkdir -p exp
  { cat "${2:-/dev/null}"; echo "$1"; } >"exp/$1"
}
stage 1 "The first" exp/a -- make a
stage 2 "The second" exp/b -- make b exp/a
stage 5 "The last" exp/c -- make c exp/b
END
run() {
  : >calls
  output=$(PATH=.:$PATH bash "$scratch/run.sh" "$@" 2>&1)
  status=$?
  called=$(xargs <calls)
}
# The recipe itself must not be found in place of utils/recipe.sh.
mv recipe.sh run.sh

run
check "all run" "$status $called" "0 a b c"
check_match "header" "$output" "=== Stage 1: The first (at 0:00:00) ===*"
check_match "elapsed time" "$output" "*=== Stage 5 done in 0:00:0? ==="
run
check "a finished recipe does nothing" "$status $called" "0 "
check_match "and says so" "$output" "*=== Stage 2: The second: done before, skipped ===*"
run --stage 2
check "--stage redoes from there" "$status $called" "0 b c"
run --stage 2 --break b
check "failure: status, nothing after it" "$status $called" "1 b"
check_match "failure: stage and log are named" "$output" \
  "*run.sh: stage 2 (The second) failed with status 1 after 0:00:0?; its log: exp/.stages/log/2.log;*"
check "failure: the log has what was said, and the function stopped" "$(cat exp/.stages/log/2.log)" "cannot make it"
check "outputs of the later stages are gone" "$(ls exp)" "a"
run
check "going on after a failure" "$status $called" "0 b c"
rm exp/b
run
check "a missing output is made again, with all after it" "$status $called" "0 b c"
run --stage 9
check "--stage beyond the end redoes nothing" "$status $called" "0 "
rm -rf exp
run --stage 5
check "--stage does not skip what was never done" "$status $called" "0 a b c"
run --stage x
check "bad --stage" "$status $output" "2 run.sh: --stage: expected a number, got 'x'"
sed -i 's/-- make c exp\/b/-- make c exp\/a/' run.sh
run
check_match "other arguments: said, not redone" "$status $called $output" "0  *stage 5 was done with other arguments; --stage 5*"

cat >bad.sh <<'END'
stage_dir=$PWD/.stages
. "$(command -v recipe.sh)"
stage 1 "Removes too much" "$1" -- true
END
for path in / . .. "$HOME" "$scratch/../"; do
  mkdir -p .stages && printf 'command true \noutput %s\n' "$path" >.stages/1.done
  message=$(bash bad.sh "$path" 2>&1)
  check "output $path: accepted as existing, skipped" "$?" 0
  message=$(stage=1 bash bad.sh "$path" 2>&1)
  check "output $path is never removed" "$? $message" "2 bad.sh: refusing to remove '$path', declared as the output of a stage"
done
check "still here" "$(test -d "$scratch" && echo yes)" yes

cat >order.sh <<'END'
. "$(command -v recipe.sh)"
stage 2 "B" -- true
stage 1 "A" -- true
END
message=$(bash order.sh 2>&1)
check "numbers must go up" "$?" 2
check_match "and the message says so" "$message" '*N going up; got stage 1 "A"'
cat >noout.sh <<'END'
. "$(command -v recipe.sh)"
stage 1 "A" nothing-there -- true
END
rm -rf exp
message=$(bash noout.sh 2>&1)
check "a stage that makes nothing fails" "$?" 1
check_match "and is named" "$message" "*stage 1 (A) succeeded, but nothing-there is not there*"

# Killed with SIGKILL, the recipe leaves its running command; the next run waits for it instead of working beside it.
cat >slow.sh <<'END'
stage_dir=slow
. "$(command -v recipe.sh)"
stage 1 "Slow" out -- bash -c 'echo in >>seen; read -r _ <gate; echo out >>seen; touch out'
END
mkfifo gate
bash slow.sh 2>first.log &
until [ -s seen ]; do :; done
kill -9 $!
wait $! 2>/dev/null
bash slow.sh 2>second.log &
until grep -q waiting second.log; do :; done
check "the second waits while the first one's command runs" "$(xargs <seen)" "in"
echo >gate # the first command goes on and ends; the second begins
until [ "$(wc -l <seen)" -eq 3 ]; do :; done
echo >gate
wait $!
check "one after the other" "$? $(xargs <seen)" "0 in out in out"

finish
