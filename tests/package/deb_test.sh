#!/usr/bin/env bash
# Installs the Debian package (`make deb`) into a clean root with apt, as a user would, and lets it tell a story there.
#   deb_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
source=$2
. "$source/tests/package/clean_root.sh"
shopt -s nullglob
packages=("$source"/dist/leq{,-dev}_*.deb)
[ ${#packages[@]} = 2 ] || { echo "deb: NOT RUN: there are no packages; make deb"; exit 77; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
clean_root deb "$release"
cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
[ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp "${packages[@]}" "$root/"
in_root apt-get -qq -o APT::Install-Recommends=0 install "${packages[@]/*\//./}" > "$root/apt.log" 2>&1 ||
  { cat "$root/apt.log"; exit 1; }
reply=$(first_reply leq) || { echo "deb: $reply"; exit 1; }
model=$story_file
story=$(in_root leq-run -m $model --raw -p "Once upon a time" -n 32 --temp 0 2> /dev/null)
for file in usr/share/man/man1/leq-run.1 usr/lib/systemd/system/leq-server.service etc/leq/server.conf usr/share/doc/leq/copyright; do
  [ -f "$root/$file" ] || { echo "deb: no $file"; exit 1; }
done
in_root sh -c 'ldconfig -p | grep -q "libleq\.so\.1 "' || { echo "deb: libleq.so.1 is not found"; exit 1; }
# A program in C, compiled with what leq-dev put there, and run in the root, which has no compiler.
cc -std=c99 "$source/examples/hello.c" -I "$root/usr/include" -L "$root/usr/lib" -lleq -Wl,--allow-shlib-undefined \
  -o "$root/hello"
in_c=$(in_root /hello $model "Once upon a time") || { echo "deb: hello.c: $in_c"; exit 1; }
case "$in_c" in "$story"*) ;; *) echo "deb: hello.c tells $in_c"; exit 1 ;; esac
echo "deb: $(basename "${packages[0]}") installed in a clean $release: $reply"
