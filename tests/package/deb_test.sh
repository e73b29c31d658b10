#!/usr/bin/env bash
# Installs the Debian package (`make deb`) into a clean root with apt, as a user would, and lets it tell a story there.
#   deb_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
source=$2
shopt -s nullglob
packages=("$source"/build/package/leq_*.deb)
[ ${#packages[@]} -gt 0 ] || { echo "deb: NOT RUN: there is no package; make deb"; exit 77; }
command -v debootstrap > /dev/null || { echo "deb: NOT RUN: there is no debootstrap here"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "deb: NOT RUN: a clean root needs root"; exit 77; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=${LEQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}
root=$(mktemp -d)
# Never what is mounted in it.
trap 'umount "$root/proc" 2> /dev/null; mountpoint -q "$root/proc" || rm -rf "$root"' EXIT
debootstrap --variant=minbase "$release" "$root" "$mirror" > "$root.log" 2>&1 ||
  { tail -3 "$root.log"; rm -f "$root.log"; echo "deb: NOT RUN: debootstrap found no $release at $mirror"; exit 77; }
rm -f "$root.log"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc" ||
  { echo "deb: NOT RUN: /proc cannot be mounted in the root"; exit 77; }
cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
[ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp "${packages[0]}" "$root/leq.deb"
cp -r "$source/examples/storyteller" "$root/storyteller"
in_root() { LC_ALL=C chroot "$root" "$@"; }
in_root apt-get -qq -o APT::Install-Recommends=0 install /leq.deb > "$root/apt.log" 2>&1 ||
  { cat "$root/apt.log"; exit 1; }
in_root leq-quantize storyteller -o /story.leq --type int8 2> /dev/null
story=$(in_root leq-run -m /story.leq -p "Once upon a time" -n 32 --temp 0 2> /dev/null)
[ ${#story} -gt 40 ] || { echo "deb: no story was told: $story"; exit 1; }
in_root sh -c 'ldconfig -p | grep -q "libleq\.so\.1 "' || { echo "deb: libleq.so.1 is not found"; exit 1; }
echo "deb: $(basename "${packages[0]}") installed in a clean $release: $story"
