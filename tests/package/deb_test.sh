#!/usr/bin/env bash
# Installs the Debian package (`make deb`) into a clean root with apt, as a user would, and lets it tell a story there.
#   deb_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
source=$2
. "$source/tests/package/clean_root.sh"
shopt -s nullglob
packages=("$source"/build/package/leq_*.deb)
[ ${#packages[@]} -gt 0 ] || { echo "deb: NOT RUN: there is no package; make deb"; exit 77; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
clean_root deb "$release"
cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
[ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp "${packages[0]}" "$root/leq.deb"
in_root apt-get -qq -o APT::Install-Recommends=0 install /leq.deb > "$root/apt.log" 2>&1 ||
  { cat "$root/apt.log"; exit 1; }
story=$(story_in_root "") || { echo "deb: $story"; exit 1; }
in_root sh -c 'ldconfig -p | grep -q "libleq\.so\.1 "' || { echo "deb: libleq.so.1 is not found"; exit 1; }
echo "deb: $(basename "${packages[0]}") installed in a clean $release: $story"
