#!/usr/bin/env bash
# A share of AddressSanitizer and UBSan for every run of the tests: what reads files and text, what
# quantizes, caches and backends. CPU kernels are those of BUILD_FOLDER, without sanitizers; `make
# asan` sees everything.
#   share.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1/sanitized
source=$2
programs=(quantize_tests cache_tests tokenizer_tests conformance_tests format_tests tensor_tests
  base_tests)

mkdir -p "$build"
cd "$source"
cmake --preset asan -B "$build" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g -DNDEBUG" \
  "-DLEQ_KERNELS_OF=$1" -DLEQ_CUDA_SIM=OFF -DLEQ_EXAMPLES=OFF > "$build/log" || { cat "$build/log"; exit 1; }
cmake --build "$build" -j 2 --target "${programs[@]}"
printf '%s\n' "${programs[@]}" | xargs -P 2 -I PROGRAM env "$build/tests/PROGRAM" --gtest_brief=1
