#!/usr/bin/env bash
# Installs the wheel (`make portable`) by pip into a root of Debian 11, with Python 3.9 and an older glibc.
#   wheel_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
source=$2
. "$source/tests/package/clean_root.sh"
shopt -s nullglob
wheels=("$source"/dist/leq-*-cp39-cp39-*"$(uname -m)".whl)
[ ${#wheels[@]} = 1 ] || { echo "wheel: NOT RUN: there is none in dist for Python 3.9; PYTHONS=python3.9 make portable"; exit 77; }
clean_root wheel "${LEQ_OLD_DEBIAN:-bullseye}"
cp /etc/resolv.conf "$root/etc/" 2> /dev/null || true
[ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
in_root apt-get -qq -o APT::Install-Recommends=0 install python3-pip python3-numpy > "$root/apt.log" 2>&1 ||
  { tail -3 "$root/apt.log"; echo "wheel: NOT RUN: no pip for the root"; exit 77; }
cp "${wheels[0]}" "$root/"
begin=$EPOCHREALTIME
in_root pip3 -q install --no-index --no-deps "/$(basename "${wheels[0]}")" || { echo "wheel: pip refuses it"; exit 1; }
reply=$(first_reply leq "$(since "$begin")") || { echo "wheel: $reply"; exit 1; }
for tool in run server quantize perplexity bench inspect; do
  [[ $(in_root leq-$tool --version) = leq-$tool\ * || $(in_root leq-$tool --version) = "leq "* ]] || { echo "wheel: leq-$tool does not start"; exit 1; }
done
in_python=$(in_root env HOME="$home" python3 -c 'import leq, pathlib
model = leq.Model(next((pathlib.Path.home() / ".local/share/leq/models").glob("*.leq")))
print(model.generate("Once upon a time", max_tokens=32, temperature=0).text)') || { echo "wheel: import leq fails"; exit 1; }
# Not the reply above, which is a chat's.
story=$(in_root leq-run -m $story_file --raw -p "Once upon a time" -n 32 --temp 0 2> /dev/null)
[ "$story" = "Once upon a time$in_python" ] || { echo "wheel: Python tells $in_python, leq-run $story"; exit 1; }
echo "wheel: in a clean $(in_root cat /etc/debian_version) with $(in_root python3 --version): $reply"
