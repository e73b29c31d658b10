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
in_root() { LC_ALL=C chroot "$root" "$@"; }

# Quantizes the project's model and tells a story with the tools on PATH in the root; prints it.
story_in_root() {
  cp -r "$source/examples/storyteller" "$root/storyteller"
  in_root "${1}leq-quantize" storyteller -o /story.leq --type int8 2> /dev/null
  local story
  story=$(in_root "${1}leq-run" -m /story.leq -p "Once upon a time" -n 32 --temp 0 2> /dev/null)
  [ ${#story} -gt 40 ] || { echo "no story was told: $story"; exit 1; }
  echo "$story"
}
