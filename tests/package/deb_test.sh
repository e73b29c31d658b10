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
install() { in_root apt-get -qq install "$@" >> "$root/apt.log" 2>&1 || { cat "$root/apt.log"; exit 1; }; }
begin=$EPOCHREALTIME
install "./${packages[0]##*/}"
took=$(since "$begin")
install --no-install-recommends "./${packages[1]##*/}"
reply=$(first_reply leq "$took") || { echo "deb: $reply"; exit 1; }
model=$story_file
story=$(in_root leq-run -m $model --raw -p "Once upon a time" -n 32 --temp 0 2> /dev/null)
for file in usr/share/man/man1/leq-run.1 usr/lib/systemd/system/leq-server.service etc/leq/server.conf usr/share/doc/leq/copyright; do
  [ -f "$root/$file" ] || { echo "deb: no $file"; exit 1; }
done
in_root sh -c 'ldconfig -p | grep -q "libleq\.so\.1 "' || { echo "deb: libleq.so.1 is not found"; exit 1; }
# A program in C, compiled with what leq-dev put there, and run in the root, which has no compiler.
lib=$(dirname "$(find "$root/usr/lib" -name libleq.so)")
cc -std=c99 "$source/examples/hello.c" -I "$root/usr/include" -L "$lib" -lleq -Wl,--allow-shlib-undefined \
  -o "$root/hello"
in_c=$(in_root /hello $model "Once upon a time") || { echo "deb: hello.c: $in_c"; exit 1; }
case "$in_c" in "$story"*) ;; *) echo "deb: hello.c tells $in_c"; exit 1 ;; esac
in_root apt-get -qq purge leq leq-dev >> "$root/apt.log" 2>&1 || { tail -3 "$root/apt.log"; exit 1; }
left=$(in_root find / -xdev -name '*leq*' ! -path '/leq*.deb' ! -path "$home/*")
[ -z "$left" ] || { echo "deb: left after its removal: $left"; exit 1; }
echo "deb: $(basename "${packages[0]}") installed in and removed from a clean $release: $reply"
