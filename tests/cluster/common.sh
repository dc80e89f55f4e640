# Sourced by slurm.sh and gridengine.sh: packages and daemons whose process ids are in $dir/run/NAME.pid.

usage() {
  sed -n 's/^# \(Usage:.*\)/\1/p' "$0" >&2
  exit 2
}

# install_packages PROGRAM PACKAGE...: by apt, unless PROGRAM is there; no service starts by itself.
install_packages() {
  command -v "$1" >/dev/null && return
  [ "$(id -u)" -eq 0 ] || {
    echo "${0##*/}: $1 is not here, and installing it needs root" >&2
    return 1
  }
  ( # one at a time
    flock 9
    command -v "$1" >/dev/null || _install "${@:2}"
  ) 9>/run/lock/ngsgd-install >&2
}

# _install PACKAGE...: a machine that has a policy on starting services keeps it.
_install() {
  local policy=/usr/sbin/policy-rc.d saved="" status=0
  [ -e "$policy" ] && saved=$(mktemp) && cp -p "$policy" "$saved"
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } ||
    status=$?
  if [ -n "$saved" ]; then mv "$saved" "$policy"; else rm -f "$policy"; fi
  return "$status"
}

# daemon NAME COMMAND...: started unless it runs; the daemon writes $dir/run/NAME.pid itself.
daemon() {
  local name=$1
  shift
  alive "$name" && return
  rm -f "$dir/run/$name.pid"
  "$@" >>"$dir/log/$name.out" 2>&1 || {
    echo "${0##*/}: $name did not start:" >&2
    tail -5 "$dir/log/$name.out" >&2
    return 1
  }
  wait_until 20 "the start of $name" alive "$name"
}

alive() {
  [ -s "$dir/run/$1.pid" ] && kill -0 "$(cat "$dir/run/$1.pid")" 2>/dev/null
}

# end_process NAME: asked, then killed.
end_process() {
  alive "$1" || return 0
  local pid
  pid=$(cat "$dir/run/$1.pid")
  kill "$pid" 2>/dev/null || true
  wait_until 10 "the end of $1" gone "$pid" || kill -9 "$pid" 2>/dev/null || true
  rm -f "$dir/run/$1.pid"
}

gone() {
  ! kill -0 "$1" 2>/dev/null
}

# wait_until SECONDS WHAT CONDITION...
wait_until() {
  local limit=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$limit" ]; then
      echo "${0##*/}: $what did not come in time" >&2
      return 1
    fi
    sleep 0.1
  done
}
