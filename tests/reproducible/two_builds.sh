#!/usr/bin/env bash
# Builds the tools of `make demo` in two copies of the source whose folders, locale and time zone differ: the programs
# must be equal byte for byte.
#   two_builds.sh SOURCE_FOLDER JOBS [TARGET...]
set -euo pipefail
source=$1 jobs=$2
targets=("${@:3}")
[ ${#targets[@]} -gt 0 ] || targets=(leq-quantize_alone leq-run_alone leq-perplexity_alone)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1

# build FOLDER: prints a checksum of each program.
build() {
  mkdir -p "$1"
  (cd "$source" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp -P --parents -t "$1" 2> /dev/null) || true
  (cd "$1" && cmake --preset release && cmake --build build/release -j "$jobs" --target "${targets[@]}") > "$1.log" 2>&1 ||
    { tail -50 "$1.log" >&2; return 1; }
  (cd "$1/build/release/tools/alone" && sha256sum leq-*)
}
first=$(build "$work/a")
second=$(LC_ALL=C.UTF-8 TZ=Asia/Tokyo build "$work/another folder/of the source")
echo "$first"
[ "$first" = "$second" ] || { echo "two builds of the same source differ: $second"; exit 1; }
