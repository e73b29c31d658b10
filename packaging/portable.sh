#!/usr/bin/env bash
# Wheels and the tarball for any Linux with glibc 2.28 (of 2018) or newer, into dist: compiled by zig's clang for that
# glibc and linked with libraries.sh's archives. Needs cmake, ninja, apt and python3 with pip and venv; ccache makes it faster.
#   portable.sh [ARCHITECTURE]    x86_64 | aarch64; without: this machine's
#   PYTHONS="python3.9 ..."       oldest first; one wheel for each version before 3.12, and one (abi3) for all from 3.12 on
set -euo pipefail
cd "$(dirname "$0")/.."
architecture=${1:-$(uname -m)}
debian=$(case $architecture in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) echo "portable: $architecture?" >&2; exit 1 ;; esac)
target=$architecture-linux-gnu.2.28
folder=$PWD/build/portable/$architecture
build=$folder/build
read -ra pythons <<< "${PYTHONS:-$(for v in 9 10 11 12 13 14; do "python3.$v" -c "" 2> /dev/null && echo "python3.$v"; done || true)}"

venv=$PWD/build/portable/venv
if [ ! -f "$venv/complete" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q 'ziglang==0.17.*' auditwheel 'cmake>=3.26' nanobind wheel
  touch "$venv/complete"
fi
PATH=$venv/bin:$PATH
zig=$("$venv/bin/python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / "zig")')

# Compilers that take g++'s names of instruction sets and its levels of optimization (zig makes -O2 of all), without
# the debug information and frame pointers that zig adds, and without the build's path (two clones make the same
# program); and ar.
mkdir -p "$folder/bin"
for language in cc c++; do
  cat > "$folder/bin/$language" <<COMPILER
#!/bin/sh
level=
for word; do
  shift
  case \$word in
    -O[123]) level="-Xclang \$word" ;;
    -march=x86-64-v*) word=-mcpu=x86_64_v\${word##*v} ;;
    -march=armv8.2-a+*) word=-mcpu=generic+v8_2a+\${word#*+} ;;
  esac
  set -- "\$@" "\$word"
done
exec $zig $language -target $target -ffile-prefix-map=$folder=. -fno-sanitize=undefined -g0 -fomit-frame-pointer "\$@" \$level
COMPILER
done
for tool in ar ranlib; do
  printf '#!/bin/sh\nexec %s %s "$@"\n' "$zig" $tool > "$folder/bin/$tool"
done
chmod +x "$folder"/bin/*
[ -f "$folder/libraries/licences/libcurl" ] || packaging/libraries.sh "$debian" "$folder/libraries" "$folder/bin/cc"

cat > "$folder/toolchain.cmake" <<TOOLCHAIN
set(CMAKE_C_COMPILER $folder/bin/cc)
set(CMAKE_CXX_COMPILER $folder/bin/c++)
set(CMAKE_AR $folder/bin/ar)
set(CMAKE_RANLIB $folder/bin/ranlib)
set(CMAKE_FIND_ROOT_PATH $folder/libraries)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
# Before zig's runtime, which has an exp, memcpy and so on of its own: slower ones, with other last digits than libm's.
set(CMAKE_C_STANDARD_LIBRARIES $folder/libraries/lib/libgcc.a)
set(CMAKE_CXX_STANDARD_LIBRARIES $folder/libraries/lib/libgcc.a)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
set(CMAKE_STRIP true)  # done by the linker
set(LEQ_STATIC ON CACHE BOOL "" FORCE)
TOOLCHAIN
if [ "$architecture" != "$(uname -m)" ]; then
  printf 'set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR %s)\n' "$architecture" >> "$folder/toolchain.cmake"
  export _PYTHON_HOST_PLATFORM=linux-$architecture
fi
# Not from this build: manual pages, which a cross build cannot make, and licences of what is linked.
share=$build/share
mkdir -p "$share/doc/leq"
[ "$architecture" = "$(uname -m)" ] || cp -r "build/portable/$(uname -m)/build/share/." "$share"
cp -r "$folder/libraries/licences" "$share/doc/leq"
cp "$(dirname "$zig")/lib/libcxx/LICENSE.TXT" "$share/doc/leq/licences/libcxx"
cp "$venv"/lib/python*/site-packages/nanobind-*/licenses/LICENSE "$share/doc/leq/licences/nanobind"
export CMAKE_TOOLCHAIN_FILE=$folder/toolchain.cmake CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
export CCACHE_COMPILERCHECK=content  # the compilers above are written anew each time

mkdir -p dist "$folder/wheels"
rm -f "$folder"/wheels/*
made_abi3=
# The build's Python packages at one path for all Pythons, the oldest of which chooses them: a new path would make
# scikit-build-core compile everything again.
packages=$folder/packages
[ -d "$packages/nanobind" ] || "${pythons[0]}" -m pip install -q --target "$packages" 'scikit-build-core>=0.11' 'nanobind>=2.4'
export PYTHONPATH=$packages
for python in "${pythons[@]}"; do
  abi=$("$python" -c 'import sys; print("cpython-%d%d" % sys.version_info[:2] if sys.version_info < (3, 12) else "abi3")')
  [ "$abi" != abi3 ] || { [ -z "$made_abi3" ] || continue; made_abi3=yes; }
  [ "$architecture" = "$(uname -m)" ] || export SETUPTOOLS_EXT_SUFFIX=.$abi-$architecture-linux-gnu.so
  "$python" -m pip wheel -q --no-deps --no-build-isolation -w "$folder/wheels" --config-settings=build-dir="$build" \
    --config-settings=cmake.args="-UNB_*" .
done
unset PYTHONPATH
for wheel in "$folder"/wheels/*.whl; do
  # `auditwheel repair` would only change the tag, as nothing is copied in, and knows no architecture but this machine's.
  verdict=$(auditwheel show "$wheel" 2>&1)
  echo "$verdict"
  [[ ${verdict//$'\n'/ } = *"platform tag: \"manylinux_2_28_$architecture\""* ]] || exit 1
  wheel tags --remove --platform-tag "manylinux_2_28_$architecture" "$wheel" > /dev/null
done
cp "$folder"/wheels/*.whl dist

rm -rf "$folder/leq"
cmake --install "$build" --component Unspecified --strip --prefix "$folder/leq" > /dev/null
cp -r "$share" "$folder/leq"  # a cross build installs none of it
tar -C "$folder" -cJf "dist/leq-$architecture.tar.xz" leq
ls -l dist
