#!/usr/bin/env bash
# What utils/parse_options.sh does with the arguments of a step.
. "$(dirname "${BASH_SOURCE[0]}")/check.sh"

cat >step.sh <<'END'
#!/usr/bin/env bash
# Usage: step.sh [options] DATA DIR
# e.g.:  step.sh --nj 4 data/train exp/x

# not part of the help
set -euo pipefail
nj=4
cmd=run.py
norm_vars=false
extra=
. parse_options.sh
echo "$nj|$cmd|$norm_vars|$extra|$*"
END
run() { bash step.sh "$@" 2>&1; }

check "defaults" "$(run a b)" "4|run.py|false||a b"
check "separate value" "$(run --nj 8 a b)" "8|run.py|false||a b"
check "value after =" "$(run --nj=8 --cmd='run.py --mem 2G' a)" "8|run.py --mem 2G|false||a"
check "dash for underscore, both ways" "$(run --norm-vars true a; run --norm_vars=true a)" "4|run.py|true||a
4|run.py|true||a"
check "bare boolean" "$(run --norm-vars data)" "4|run.py|true||data"
check "bare boolean turned off" "$(run --norm-vars --norm-vars false data)" "4|run.py|false||data"
check "empty value" "$(run --extra '' x)" "4|run.py|false||x"
check "value with = and spaces" "$(run --extra='a=b c' x)" "4|run.py|false|a=b c|x"
check "end of options" "$(run -- --nj 3)" "4|run.py|false||--nj 3"
check "help is the first comment" "$(run --help)" "Usage: step.sh [options] DATA DIR
e.g.:  step.sh --nj 4 data/train exp/x"
check "Kaldi's help_message" "$(help_message=hello; . parse_options.sh --help)" "hello"

printf '# conf\nnj=9   # jobs\n\n--norm-vars=true\n' >ok.conf
check "configuration file" "$(run --config ok.conf a)" "9|run.py|true||a"
check "command line wins over it, in any order" "$(run --nj 2 --config=ok.conf a)" "2|run.py|true||a"
printf 'nj=9\nnj_max=3\n' >bad.conf

refused() { # WHAT EXPECTED-MESSAGE ARGS...
  local message
  message=$(bash step.sh "${@:3}" 2>&1)
  check "$1: status" "$?" 2
  check "$1: message" "$message" "step.sh: $2; see step.sh --help"
}
refused "unknown option" "unknown option --njj" --njj 4 a
refused "unknown option with =" "unknown option --njj" --njj=4 a
refused "not an option: shell variable" "unknown option --PATH" --PATH /tmp
refused "no value" "--nj: expected a value" --nj
refused "boolean" "--norm-vars: expected true or false, got 'maybe'" --norm-vars=maybe
refused "unknown name in a file" "bad.conf:2: unknown option --nj-max" --config bad.conf
refused "no such file" "cannot read the configuration file 'none.conf'" --config none.conf
refused "injection in a name" "unknown option --nj[\$(touch" '--nj[$(touch' x

finish
