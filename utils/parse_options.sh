# Options of a step's script, from its own variables. To be sourced:
#
#   # Usage: make_thing.sh [options] DATA DIR         <- the first comment of the script is what --help prints
#   nj=4
#   cmd=run.py
#   norm_vars=false
#   . parse_options.sh
#
# sets those variables from --nj 8 or --nj=8, --norm-vars (true for a variable that is true or false) or --norm-
# vars=false, and leaves the other arguments in $@. A name takes `-` for `_`. `--config FILE` reads lines `--nj=8` or
# `nj=8` with `#` comments; the command line wins over it, wherever it stands. `--` ends the options. Only a variable
# that the script has set before is an option: any other is a usage error (status 2) that names it. Where Kaldi's
# scripts set $help_message, it is printed instead of the first comment.
#
# And two checks of what is left, each with a message and the exit status:
#
#   expect_arguments "$@"       as many as the `# Usage: NAME [options] DATA [LOGDIR [ARKDIR]]` line names, where `DATA...` stands for one or
#                               more; else status 2
#   expect_files FILE...        each is a file that can be read; else status 1, naming the first that is not

expect_arguments() {
  local usage words word least=0 most=0
  usage=$(sed -n 's/^# Usage: //p' "$0" | head -n 1)
  read -ra words <<<"$usage"
  for word in "${words[@]:1}"; do
    case $word in
      "[options]") continue ;;
      *...*) most=$# ;;
    esac
    [[ $word == "["* ]] || least=$((least + 1))
    most=$((most + 1))
  done
  if [ $# -lt "$least" ] || [ $# -gt "$most" ]; then
    echo "${0##*/}: got $# arguments, expected: $usage; see ${0##*/} --help" >&2
    exit 2
  fi
}

expect_files() {
  local file
  for file in "$@"; do
    if ! [ -f "$file" ] || ! [ -r "$file" ]; then
      echo "${0##*/}: no such file: $file" >&2
      exit 1
    fi
  done
}

_options_script=$0

_options_help() {
  if [ -n "${help_message:-}" ]; then
    printf '%s\n' "$help_message"
  else
    awk 'NR == 1 && /^#!/ { next } /^#/ { sub(/^# ?/, ""); print; said = 1; next } /^$/ && !said { next } { exit }' \
      "$_options_script"
  fi
}

_options_fail() {
  echo "${_options_script##*/}: $1; see ${_options_script##*/} --help" >&2
  exit 2
}

# _options_name FLAG: sets _name to the script's variable for --FLAG; fails when there is none.
_options_name() {
  _name=${1#--}
  _name=${_name//-/_}
  case $_name in
    "" | *[!A-Za-z0-9_]* | [!a-z]* | _*) _options_fail "$2unknown option $1" ;;
  esac
  [ -n "${!_name+set}" ] || _options_fail "$2unknown option --${_name//_/-}"
}

# _options_set VALUE WHERE: gives it to the variable $_name, checked when that is a boolean.
_options_set() {
  case ${!_name} in
    true | false)
      case $1 in
        true | false) ;;
        *) _options_fail "$2--${_name//_/-}: expected true or false, got '$1'" ;;
      esac
      ;;
  esac
  printf -v "$_name" '%s' "$1"
}

_options_config() {
  local line number=0
  [ -r "$1" ] || _options_fail "cannot read the configuration file '$1'"
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%%#*}
    line=${line#"${line%%[![:space:]]*}"}
    line=${line%"${line##*[![:space:]]}"}
    [ -n "$line" ] || continue
    [[ $line == *=* ]] || _options_fail "$1:$number: expected name=value, got '$line'"
    _options_name "${line%%=*}" "$1:$number: "
    _options_set "${line#*=}" "$1:$number: "
  done <"$1"
}

# The configuration files first, so that the command line wins.
_arguments=("$@")
for ((_i = 0; _i < ${#_arguments[@]}; _i++)); do
  case ${_arguments[_i]} in
    --) break ;;
    --config) _options_config "${_arguments[_i + 1]-}" ;;
    --config=*) _options_config "${_arguments[_i]#--config=}" ;;
    --*) ;;
  esac
done

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      _options_help
      exit 0
      ;;
    --)
      shift
      break
      ;;
    --config)
      shift
      [ $# -gt 0 ] || _options_fail "--config: expected a file"
      shift
      ;;
    --config=*) shift ;;
    --*=*)
      _options_name "${1%%=*}" ""
      _options_set "${1#*=}" ""
      shift
      ;;
    --*)
      _options_name "$1" ""
      if [[ ${!_name} == @(true|false) ]] && [[ ${2-} != @(true|false) ]]; then
        _options_set true ""
        shift
      else
        [ $# -gt 1 ] || _options_fail "$1: expected a value"
        _options_set "$2" ""
        shift 2
      fi
      ;;
    *) break ;;
  esac
done
unset _options_script _name _arguments _i
unset -f _options_help _options_fail _options_name _options_set _options_config
