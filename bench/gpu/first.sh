#!/bin/sh
# The first ten minutes on a GPU, from the folder that pack.sh made; needs a driver, and of programs
# coreutils, grep, sed and awk.
# Steps in the order in which one spares the next, each with a time limit; at most 8 files.
#   FOLDER/first.sh RESULTS
#   SECONDS_LEFT=560 MODEL=llama-7b FOLDER/first.sh RESULTS
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"usage: $0 RESULTS (a folder)"}
mkdir -p "$out"
out=$(cd "$out" && pwd)
model=${MODEL:-llama-7b}
started=$(date +%s)
end=$((started + ${SECONDS_LEFT:-560}))
ceilings=$(mktemp)
trap 'rm -f "$ceilings"' EXIT
wrong=0

summary() { echo "$*" | tee -a "$out/summary.txt"; }

# step NAME SECONDS FILE COMMAND...: what it prints goes after what FILE has; 0 unless it failed.
# Programs say "NOT RUN" where there is no GPU and end well.
step() {
  name=$1 limit=$2 file=$out/$3
  shift 3
  left=$((end - $(date +%s)))
  [ "$left" -gt 5 ] || { summary "$name: not run, no time left"; return 1; }
  [ "$limit" -lt "$left" ] || limit=$left
  begun=$(date +%s)
  printf '\n## %s\n\n' "$name" >> "$file"
  timeout "$limit" "$@" > "$out/step.tmp" 2>&1
  status=$?
  cat "$out/step.tmp" >> "$file"
  took=$(($(date +%s) - begun))
  said=$(grep -m 1 -E 'NOT RUN|no device|no CUDA|0 tests from' "$out/step.tmp" || true)
  if [ -n "$said" ]; then
    summary "$name: not run: $said"
  elif [ $status -eq 0 ]; then
    summary "$name: done, $took s"
  elif [ $status -eq 124 ]; then
    summary "$name: cut off after $limit s"
  else
    summary "$name: FAILED ($status), $took s: $(tail -n 1 "$out/step.tmp")"
    wrong=1
  fi
  rm -f "$out/step.tmp"
  [ -z "$said" ] && [ $status -eq 0 ]
}

machine() {
  echo "commit $(cat "$here/commit.txt" 2> /dev/null || echo unknown)"
  date -u
  uname -a
  nproc | sed 's/$/ processors/'
  if command -v nvidia-smi > /dev/null; then nvidia-smi; else echo "NOT RUN: nvidia-smi is not on PATH"; fi
}

bench() { # NAME SECONDS OPTIONS...
  name=$1 limit=$2
  shift 2
  step "$name" "$limit" models.md "$here/leq-bench" -dev cuda -ctk int8 -ctv int8 -r 3 -o md "$@"
}
tests() { step "$1" "$2" tests.txt "$here/cuda_device_tests" --gtest_brief=1 --gtest_filter="$3"; }
table() { step "$1" "$2" "$3" "$here/$4" --ceilings "$ceilings"; }

: > "$out/summary.txt"
machine > "$out/machine.txt" 2>&1
summary "machine: $(grep -m 1 -E 'NOT RUN|Driver Version' "$out/machine.txt" | tr -s ' |-')"

# A wrong instruction makes all that follows worthless.
step "instructions" 120 instructions.txt "$here/ptx_conformance"
if [ $wrong -ne 0 ]; then
  summary "stopped: an instruction does not mean what the kernels take it for: instructions.txt"
  exit 1
fi
tests "tests of many tokens, by wgmma on 9.0" 90 'ManyTokens/*'
tests "tests of few tokens and of attention" 120 'IntMatmul*:*Gemv*:*Attention*:-*Extreme*:Tails/*:Prefill/*:ManyTokens/*'
step "ceilings" 30 ceilings.md "$here/gpu_ceilings"
awk -F'|' '$2 ~ /_/ { gsub(/ /, "", $2); print $2, $3 }' "$out/ceilings.md" > "$ceilings"
table "few tokens" 60 kernels.md gpu_gemv
table "attention" 60 kernels.md gpu_attention
for type in int8 int4-g128; do
  bench "$type, one token at 0 and 2K" 60 -m "synthetic:$model:$type" -p 0 -n 64 -d 0,2048
  bench "$type, the same kernel by kernel" 60 -m "synthetic:$model:$type" -p 0 -n 64 -d 2048 --no-graph
  bench "$type, prompt of 2,048" 60 -m "synthetic:$model:$type" -p 2048 -n 0 -b 2048 -ub 2048
done
bench "64 sequences at 2K" 60 -m "synthetic:$model:int8" -p 0 -n 32 -d 2016 -npl 64
bench "one token at 32K" 60 -m "synthetic:$model:int8" -p 0 -n 32 -d 32736
if command -v ncu > /dev/null; then
  step "ncu on five kernels" 90 ncu.txt ncu --clock-control none --launch-skip 60 --launch-count 20 \
    -k "regex:int_gemv|attention|norm_rows|quantize_rows|rope" --section SpeedOfLight --section LaunchStats \
    "$here/leq-bench" -dev cuda -ctk int8 -ctv int8 -m "synthetic:$model:int8" -p 0 -n 4 -d 2048 -r 1 --no-graph
else
  summary "ncu on five kernels: not run: ncu is not on PATH"
fi
table "many tokens" 60 kernels.md gpu_gemm
tests "all other tests" 300 '-*Extreme*'
set -- "$out"/*
summary "$(($(date +%s) - started)) s in all; $# files in $out"
exit $wrong
