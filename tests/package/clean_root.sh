# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the tests of packages: clean_root NAME RELEASE [MIRROR] makes a Debian root of a release, in $root,
# with /proc; it is gone at the end. NAME says which test does not run without it.
clean_root() {
  local name=$1 release=$2 mirror=${3:-${LEQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}}
  command -v debootstrap > /dev/null || { echo "$name: NOT RUN: there is no debootstrap here"; exit 77; }
  [ "$(id -u)" = 0 ] || { echo "$name: NOT RUN: a clean root needs root"; exit 77; }
  root=$(mktemp -d)
  # Never what is mounted in it.
  trap 'umount "$root/proc" 2> /dev/null; mountpoint -q "$root/proc" || rm -rf "$root"' EXIT
  debootstrap --variant=minbase "$release" "$root" "$mirror" > "$root.log" 2>&1 ||
    { tail -3 "$root.log"; rm -f "$root.log"; echo "$name: NOT RUN: debootstrap found no $release at $mirror"; exit 77; }
  rm -f "$root.log"
  mountpoint -q "$root/proc" || mount -t proc proc "$root/proc" ||
    { echo "$name: NOT RUN: /proc cannot be mounted in the root"; exit 77; }
}
# The home of its only user, and the model that first_reply makes there.
home=/root
story_file=$home/.local/share/leq/models/tales--Story-5M--int8-g128.leq
in_root() { LC_ALL=C chroot "$root" "$@"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }

# first_reply LEQ INSTALLED: the storyteller downloaded from a server like the hub, quantized and asked by one command in
# the root; prints the reply and the times. LEQ is the program there, INSTALLED the seconds that its installation took.
first_reply() {
  python3 "$source/tests/package/serve_story.py" "$source/examples/storyteller" > "$root/hub" &
  local server=$! story begin
  while [ ! -s "$root/hub" ]; do sleep 0.1; done
  begin=$EPOCHREALTIME
  story=$(in_root env HOME="$home" no_proxy=127.0.0.1 HF_ENDPOINT="$(cat "$root/hub")" \
    "$1" run tales/Story-5M "Once upon a time" -n 32 --temp 0 2> "$root/errors") || story="FAILED $(cat "$root/errors")"
  kill $server
  [ ${#story} -gt 40 ] && [ "${story#FAILED}" = "$story" ] || { echo "no story was told: $story"; return 1; }
  echo "$story"
  printf '(installed in %.1f s, the first reply after %.1f s)\n' "$2" "$(since "$begin")"
}
