#!/usr/bin/env bash
# Run a command, unless it has been run already with the same words on the same inputs: how the jobs of a step resume.
#
# Usage: unless_done.sh MARKER OUTPUT INPUT... -- COMMAND...
# e.g.: unless_done.sh exp/log/1.done mfcc/1.scp data/train/split4/1/wav.scp -- \
#         make-mfcc data/train/split4/1/wav.scp ark,scp:mfcc/1.ark,mfcc/1.scp
#
# The command is skipped when OUTPUT is there and MARKER holds the checksum of the command and of the INPUT files;
# MARKER is written after the command has succeeded. OUTPUT should be what the command writes last.

if [ $# -lt 4 ] || [[ " $* " != *" -- "* ]]; then
  echo "Usage: ${0##*/} MARKER OUTPUT INPUT... -- COMMAND..." >&2
  exit 2
fi
marker=$1 output=$2
shift 2
inputs=()
while [ "$1" != -- ]; do
  inputs+=("$1")
  shift
done
shift

for input in "${inputs[@]}"; do
  [ -r "$input" ] || {
    echo "${0##*/}: cannot read $input" >&2
    exit 1
  }
done
sum=$({ printf '%s\n' "$@" && cat -- "${inputs[@]}" </dev/null; } | sha256sum)
if [ -e "$output" ] && [ -r "$marker" ] && [ "$(<"$marker")" = "$sum" ]; then
  echo "$output is done already"
  exit 0
fi

rm -f -- "$marker"
"$@" || exit
printf '%s\n' "$sum" >"$marker.tmp" && mv -- "$marker.tmp" "$marker"
