#!/usr/bin/env bash
# Installs into an empty folder, builds examples/ against it with find_package(leq) as another project
# would, static and shared, and in C by pkg-config too; all tell the same story as the build's own leq-run.
#   install_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" > /dev/null
mkdir "$work/consumer"
cp "$source/tests/install/CMakeLists.txt" "$source/examples/hello.cpp" "$source/examples/hello.c" \
  "$source/examples/quantize_a_model.cpp" "$work/consumer"
cmake -S "$work/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" > "$work/log" ||
  { cat "$work/log"; exit 1; }
cmake --build "$work/build"

"$work/build/quantize" "$source/examples/storyteller" "$work/model.leq" int8 > /dev/null
static=$("$work/build/hello" "$work/model.leq" "Once upon a time")
shared=$("$work/build/hello_shared" "$work/model.leq" "Once upon a time")
tool=$("$work/prefix/bin/leq-run" -m "$work/model.leq" --raw -p "Once upon a time" -n 64 --temp 0 2> /dev/null)
echo "$static"
[ "${#static}" -gt 60 ] || { echo "install: no story was told"; exit 1; }
[ "$static" = "$shared" ] || { echo "install: shared: $shared"; exit 1; }
[ "$static" = "$tool" ] || { echo "install: leq-run: $tool"; exit 1; }
for page in man/man1/leq.1 man/man1/leq-run.1 bash-completion/completions/leq-quantize \
  zsh/site-functions/_leq-bench fish/vendor_completions.d/leq-inspect.fish; do
  [ -s "$work/prefix/share/$page" ] || { echo "install: no share/$page"; exit 1; }
done
readelf -d "$work/build/hello_shared" | grep 'NEEDED.*libleq-cpp\.so' > /dev/null ||
  { echo "install: hello_shared is not linked with libleq-cpp.so"; exit 1; }

# The C API, by find_package and by pkg-config.
in_c=$("$work/build/hello_c" "$work/model.leq" "Once upon a time")
[ "$in_c" = "$tool" ] || { echo "install: hello_c: $in_c"; exit 1; }
lib=$(dirname "$(find "$work/prefix" -name libleq.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig
cc -std=c99 "$source/examples/hello.c" $(pkg-config --cflags --libs leq) -o "$work/by_pkg_config"
in_c=$(LD_LIBRARY_PATH=$lib "$work/by_pkg_config" "$work/model.leq" "Once upon a time")
[ "$in_c" = "$tool" ] || { echo "install: by pkg-config: $in_c"; exit 1; }
