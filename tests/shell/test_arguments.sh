#!/usr/bin/env bash
# The checks of arguments and files in utils/parse_options.sh, and that every step makes them.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"
export PATH=$root/steps:$PATH

# step USAGE: a script step.sh that has it.
step() {
  printf '%s\n' "# Usage: step.sh $1" 'nj=4' '. parse_options.sh' 'expect_arguments "$@"' 'expect_files "$@"' 'echo fine' >step.sh
}
touch a b o s

# counted USAGE ALLOWED...: with 0 to 4 arguments only these numbers are accepted.
counted() {
  local files=(a b a b) n message status
  step "$1"
  for n in 0 1 2 3 4; do
    message=$(bash step.sh --nj 2 "${files[@]:0:n}" 2>&1)
    status=$?
    if [[ " ${*:2} " == *" $n "* ]]; then
      check "$1 with $n" "$status $message" "0 fine"
    else
      check "$1 with $n" "$status $message" "2 step.sh: got $n arguments, expected: step.sh $1; see step.sh --help"
    fi
  done
}
counted "[options] DATA DIR" 2
counted "[options] DATA [LOGDIR [ARKDIR]]" 1 2 3
counted "[options] DATA..." 1 2 3 4
counted "[options] TARGET [SOURCE...]" 1 2 3 4
counted "[options] GRAPH DATA MODEL_DIR/DECODE" 3

step "[options] A B"
mkdir folder
check "a file that is not there" "$(bash step.sh a none 2>&1; echo $?)" "step.sh: no such file: none
1"
check "a folder is no file" "$(bash step.sh folder a 2>&1; echo $?)" "step.sh: no such file: folder
1"

for path in "$root"/steps/*.sh "$root/utils/mkgraph.sh"; do
  usage=$(sed -n 's/^# Usage: [^ ]* \[options\] //p' "$path")
  [ -n "$usage" ] || continue # to be sourced
  name=$(basename "$path")
  message=$("$name" 2>&1)
  check "$name without arguments: status" "$?" 2
  check "$name without arguments" "${message//decode_model.sh/$name}" \
    "$name: got 0 arguments, expected: $name [options] $usage; see $name --help"
  usage=${usage%% \[*}
  message=$("$name" $(sed -E "s/(NUM|TOT)_[A-Z]+/7/g; s/[A-Z][^ ]*/none/g" <<<"$usage") 2>&1)
  check "$name with files that are not there: status" "$?" 1
  check_match "$name with files that are not there" "$message" "*no such *"
done
check "nothing is left behind" "$(ls)" "$(printf '%s\n' a b folder o s step.sh)"

finish
