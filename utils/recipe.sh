# Stages of a recipe: run in order, skipped when done, redone from any one on. To be sourced by egs/*/run.sh:
#
#   stage=0            # before parse_options.sh, so that --stage N is an option
#   stage_dir=exp/.stages
#   . parse_options.sh
#   . recipe.sh
#   stage 1 "Features" mfcc data/train/feats.scp -- steps/make_mfcc.sh --nj 4 data/train
#   stage 2 "Monophones" exp/mono -- steps/train_mono.sh data/train data/lang exp/mono
#
# `stage N "title" OUTPUT... -- COMMAND...`: N from 1, going up. A stage that succeeded leaves a marker in $stage_dir
# and is skipped from then on while its outputs are there. With --stage N the stages from N on are redone: their
# markers and outputs are removed first. When a stage has to be redone because an output of it has gone, so are all
# after it. COMMAND is a program or a function (it runs in a subshell under `set -e`, so its variables do not come
# back); what it prints goes to the terminal and into $stage_dir/log/N.log. When it fails, the recipe ends with its
# status and says which stage and log; steps resume, so the same command goes on from there.

: "${stage:=0}" "${stage_dir:=exp/.stages}"
[[ $stage =~ ^[0-9]+$ ]] || {
  echo "${0##*/}: --stage: expected a number, got '$stage'" >&2
  exit 2
}
mkdir -p "$stage_dir/log" || exit 1
_recipe_start=$SECONDS
_recipe_last=0

# One recipe at a time in a directory. The descriptor is inherited by what the recipe starts, so a recipe that was
# killed holds the lock until its running jobs have ended too, and the next one does not work beside them.
exec {_recipe_lock}>"$stage_dir/lock"
flock -n "$_recipe_lock" || {
  echo "${0##*/}: an earlier run in $stage_dir, or a job of it, is still at work; waiting for it to end" >&2
  flock "$_recipe_lock"
}

_recipe_time() {
  printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
}

_recipe_bar() {
  printf '=== %s ===\n' "$*" >&2
}

# _recipe_remove PATH...: outputs of a stage that is to be redone.
_recipe_remove() {
  local path
  for path in "$@"; do
    case $(realpath -m -- "$path") in
      / | "$(realpath -m -- "$HOME")") ;;
      *)
        [[ "$PWD/" != "$(realpath -m -- "$path")/"* ]] && rm -rf -- "$path" && continue
        ;;
    esac
    echo "${0##*/}: refusing to remove '$path', declared as the output of a stage" >&2
    exit 2
  done
}

# _recipe_forget N: removes markers and outputs of the finished stages from N on.
_recipe_forget() {
  local marker number
  for marker in "$stage_dir"/*.done; do
    [ -e "$marker" ] || continue
    number=${marker##*/}
    number=${number%.done}
    [ "$number" -ge "$1" ] || continue
    local outputs
    mapfile -t outputs < <(sed -n 's/^output //p' "$marker")
    rm -f -- "$marker" # first: an interruption leaves a stage not done, never a marker without outputs
    _recipe_remove "${outputs[@]}"
  done
}

stage() {
  local number=$1 title=$2 outputs=() output marker log started status command errexit
  shift 2
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    outputs+=("$1")
    shift
  done
  if ! [[ $number =~ ^[0-9]+$ ]] || [ "$number" -le "$_recipe_last" ] || [ $# -lt 2 ]; then
    echo "${0##*/}: expected: stage N \"title\" OUTPUT... -- COMMAND..., N going up; got stage $number \"$title\"" >&2
    exit 2
  fi
  shift
  _recipe_last=$number
  marker=$stage_dir/$number.done
  log=$stage_dir/log/$number.log
  command=$(printf '%q ' "$@")
  if [ -f "$marker" ]; then
    for output in "${outputs[@]}"; do
      [ ! -e "$output" ] || continue
      echo "${0##*/}: $output of stage $number is gone: redoing from there" >&2
      _recipe_forget "$number"
      break
    done
  elif [ "$stage" -gt 0 ] && [ "$number" -ge "$stage" ]; then
    _recipe_remove "${outputs[@]}" # left by a run that was interrupted: --stage asks for a fresh one
  fi
  if [ -f "$marker" ]; then
    _recipe_bar "Stage $number: $title: done before, skipped"
    [ "$(sed -n 's/^command //p' "$marker")" = "$command" ] ||
      echo "${0##*/}: stage $number was done with other arguments; --stage $number redoes it" >&2
    return 0
  fi
  if [ "$number" -lt "$stage" ]; then
    echo "${0##*/}: --stage $stage: stage $number ($title) has not been done yet: doing it first" >&2
  fi
  _recipe_bar "Stage $number: $title (at $(_recipe_time $((SECONDS - _recipe_start))))"
  started=$SECONDS
  errexit=+e
  [[ $- == *e* ]] && errexit=-e
  set +e
  (
    set -e
    "$@"
  ) 2>&1 | tee -i -- "$log" >&2 # Ctrl-C: the command has a last word to say
  status=${PIPESTATUS[0]}
  set "$errexit"
  if [ "$status" -ne 0 ]; then
    echo "${0##*/}: stage $number ($title) failed with status $status after" \
      "$(_recipe_time $((SECONDS - started))); its log: $log; the same command goes on from there" >&2
    exit "$status"
  fi
  for output in "${outputs[@]}"; do
    [ -e "$output" ] && continue
    echo "${0##*/}: stage $number ($title) succeeded, but $output is not there; its log: $log" >&2
    exit 1
  done
  {
    printf 'title %s\ncommand %s\nelapsed_s %d\n' "$title" "$command" $((SECONDS - started))
    printf 'output %s\n' "${outputs[@]}"
  } >"$marker.tmp"
  mv -- "$marker.tmp" "$marker"
  _recipe_bar "Stage $number done in $(_recipe_time $((SECONDS - started)))"
}

[ "$stage" -eq 0 ] || _recipe_forget "$stage"
