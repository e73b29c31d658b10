# What the scripts beside this share; they source it. First argument of each: a folder for results.
# LEQ_GPU_BUILD: where to build (default build/gpu of the project).
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:?"usage: $0 FOLDER (for the results)"}
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=${LEQ_GPU_BUILD:-$root/build/gpu}
ceilings=$out/ceilings.txt
command -v nvcc > /dev/null || PATH=$PATH:/usr/local/cuda/bin

say() { echo "$(date +%H:%M:%S) $*" >&2; }

# Machine code for the GPU that is here: 90a-real, 89-real ...
architecture() {
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d '. ')
  case $capability in
    "") echo "${LEQ_CUDA_ARCHITECTURES:-90a-real}" ;;
    90) echo 90a-real ;;
    *) echo "$capability-real" ;;
  esac
}

# Why a configuration failed: the library to install, else CMake's own words.
missing() {
  grep -m 1 'not found: apt' "$build/configure_$1.log" 2> /dev/null ||
    grep -m 1 -A 3 'CMake Error' "$build/configure_$1.log" 2> /dev/null | tail -n 2 | tr -d '\n'
}

# try_configure NAME SOURCE OPTIONS...
try_configure() {
  name=$1 source=$2
  shift 2
  mkdir -p "$build"
  generator="Unix Makefiles"
  command -v ninja > /dev/null && generator=Ninja
  cmake -S "$source" -B "$build/$name" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
    -DLEQ_CUDA_ARCHITECTURES="$(architecture)" "$@" > "$build/configure_$name.log" 2>&1 && return 0
  say "not configured: $name: $(missing "$name")"
  rm -rf "${build:?}/$name"
  return 1
}

# The first of these that this machine has the libraries for, in $built: the whole project; the
# project without GoogleTest; these programs alone, which need nothing but the CUDA toolkit.
configure() {
  for name in project tools programs; do
    [ -f "$build/$name/CMakeCache.txt" ] && built=$build/$name && kind=$name && return 0
  done
  command -v nvcc > /dev/null || { say "nvcc not found: install the CUDA toolkit"; exit 1; }
  command -v cmake > /dev/null || { say "cmake not found"; exit 1; }
  kind=project
  try_configure project "$root" -DLEQ_CUDA=ON -DLEQ_CUDA_SIM=ON -DLEQ_EXAMPLES=OFF ||
    { kind=tools; try_configure tools "$root" -DLEQ_CUDA=ON -DLEQ_CUDA_SIM=ON -DLEQ_EXAMPLES=OFF \
      -DLEQ_TESTS=OFF; } ||
    { kind=programs; try_configure programs "$root/bench/gpu"; } || exit 1
  built=$build/$kind
}

# make_targets TARGETS...: what is there already costs nothing.
make_targets() {
  configure
  cmake --build "$built" -j "$(nproc)" --target "$@" > "$out/build.log" 2>&1 && return 0
  tail -n 30 "$out/build.log" >&2
  say "the build of $* failed: $out/build.log"
  return 1
}

program() { find -H "$built" -xtype f -name "$1" -perm -u+x | head -n 1; }

# table TARGET FILE.md: builds and runs one program; its table is shown and kept.
table() {
  make_targets "$1" || exit 1
  options=""
  [ -f "$ceilings" ] && options="--ceilings $ceilings"
  # shellcheck disable=SC2086
  timeout 540 "$(program "$1")" $options > "$out/$2" 2> "$out/errors.txt" ||
    { cat "$out/errors.txt" >&2; say "$1 ended early; $out/$2 has what there is"; }
  cat "$out/$2"
}
