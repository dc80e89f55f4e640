#!/usr/bin/env bash
# The smallest launcher there can be, for tests that are not about launching: one job after the other, options ignored.
first= last=
while :; do
  case $1 in
    JOB=*:*) first=${1#JOB=} last=${first#*:} first=${first%:*} ;;
    *) break ;;
  esac
  shift
done
status=0
for job in $(seq "${first:-1}" "${last:-1}"); do
  line=
  for word in "$@"; do
    [ -z "$first" ] || word=${word//JOB/$job}
    case $word in '|' | '||' | '&&') line+=" $word" ;; *) line+=$(printf ' %q' "$word") ;; esac
  done
  log=${1//JOB/$job}
  if ! bash -o pipefail -c "${line#* $(printf %q "$log")}" >"$log" 2>&1; then
    status=1
    echo "quick.sh: job $job failed, log is in $log" >&2
  fi
done
exit $status
