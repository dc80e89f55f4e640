#!/usr/bin/env bash
# Fetches the game's data file, queen.1c, from the Debian package flight-of-the-amazon-queen: freely distributable, not
# part of this project. Needs no root, and does not install the package. What is there already is only verified.
#
# Usage: get_corpus.sh [--deb FILE] <dir>
# e.g.: get_corpus.sh corpus
#
# --deb FILE, or QUEEN_DEB=FILE in the environment: a copy of the package (34.9 MB) instead of a download.
set -euo pipefail

package=flight-of-the-amazon-queen
version=1.0.0-9
deb_sha256=40c08fd258d6fe95c46c1eaf5e9137f84ba330657995a281bd887c94a560a0f1
data_sha256=cc91960d133fcd4173eda4bac304e80d2bbdbaa085640287ab9e0507bd603f67
data_path=usr/share/scummvm/$package/queen.1c

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }
say() { echo "get_corpus.sh: $*" >&2; }
die() { say "$@"; exit 1; }
has_sum() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

deb=${QUEEN_DEB:-}
while [ $# -gt 0 ]; do
  case $1 in
    --deb) [ $# -ge 2 ] || { usage >&2; exit 2; }; deb=$2; shift 2 ;;
    --deb=*) deb=${1#--deb=}; shift ;;
    --help | -h) usage; exit 0 ;;
    -*) say "unknown option $1"; usage >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -eq 1 ] || { usage >&2; exit 2; }
dir=$1
mkdir -p "$dir"

if [ -f "$dir/queen.1c" ]; then
  has_sum "$dir/queen.1c" "$data_sha256" && { say "$dir/queen.1c is there, its checksum is right"; exit 0; }
  say "$dir/queen.1c has a wrong checksum: fetching it again"
fi
command -v dpkg-deb >/dev/null || die "needs dpkg-deb, to unpack the Debian package $package $version." \
  "Without it, unpack the package elsewhere and put its $data_path into $dir."

rm -rf "$dir"/.fetch.* # left by a run that was killed
work=$(mktemp -d "$dir/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Downloads the package into $work, in the version wanted or, failing that, another: the data file's checksum decides.
download() {
  command -v apt-get >/dev/null || die "needs apt-get to download $package; or give a copy of the package with --deb FILE"
  if ! apt-cache show "$package" >/dev/null 2>&1; then
    [ "$(id -u)" -eq 0 ] || die "apt does not know the package $package: its lists are missing." \
      "Run once as root: apt-get update. Or give a copy of the package with --deb FILE."
    say "apt does not know $package: apt-get update"
    apt-get update >"$work/update.log" 2>&1 || { tail -n 5 "$work/update.log" >&2; die "apt-get update failed"; }
    apt-cache show "$package" >/dev/null 2>&1 || die "no package $package in the sources of apt (Debian main has it)." \
      "Give a copy of the package with --deb FILE."
  fi
  say "downloading $package (34.9 MB)"
  (cd "$work" && { apt-get download "$package=$version" || apt-get download "$package"; }) >"$work/download.log" 2>&1 || {
    tail -n 5 "$work/download.log" >&2
    die "apt-get download $package failed. Try again, or give a copy of the package with --deb FILE."
  }
  deb=$(find "$work" -name "$package*.deb" | head -n 1)
}

[ -n "$deb" ] || download
[ -f "$deb" ] || die "no such file: $deb"
has_sum "$deb" "$deb_sha256" || say "$deb is not $package $version by its checksum; that of queen.1c decides"
dpkg-deb -x "$deb" "$work/x" || die "$deb: dpkg-deb cannot unpack it: damaged?"
[ -f "$work/x/$data_path" ] || die "$deb holds no $data_path: not the package $package"
has_sum "$work/x/$data_path" "$data_sha256" || die "$data_path of $deb: wrong checksum," \
  "expected sha256 $data_sha256: another version, or damaged"
mv -f "$work/x/usr/share/doc/$package/copyright" "$dir/copyright"
mv -f "$work/x/$data_path" "$dir/queen.1c"
say "$dir/queen.1c: done"
