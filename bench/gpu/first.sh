#!/bin/bash
# Eight minutes on a GPU, from the archive that pack.sh made: which kernels are right, how fast they
# are, and why. Needs a driver, bash, coreutils, grep, sed and awk; ncu, compute-sanitizer and a
# python3 with PyTorch are used where they are there.
#   FOLDER/first.sh RESULTS
#   SECONDS_LEFT=480 STEPS=REGEX LEQ_SHARED=FOLDER FOLDER/first.sh RESULTS
# SECONDS_LEFT: for all; STEP_SECONDS: for one step at most; STEPS: only timings whose name matches;
# LEQ_SHARED: trained models that the tests of models read, without them fewer run.
# Correctness runs side by side, each program in a process of its own, so that a hang or an error
# that stays with its process costs that one alone; timings run one after the other. Nothing stops
# the rest. RESULTS/summary.txt has a line for each step; at most 8 files.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"usage: $0 RESULTS (a folder)"}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib
begin=$(date +%s)
end=$((begin + ${SECONDS_LEFT:-480}))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=$work/failures
: > "$failures"
timing=

say() { echo "[$(($(date +%s) - begin)) s] $*" | tee -a "$out/summary.txt"; }
left() { echo $((end - $(date +%s))); }
failed() {
  echo "$1" >> "$failures"
  say "$1: $2"
}

# step NAME SECONDS FILE COMMAND...: its output goes behind what FILE has, one line into the summary.
step() {
  local name=$1 limit=$2 file=$out/$3 log status begun
  shift 3
  [[ $timing && ! $name =~ ${STEPS:-.} ]] && return 0
  [ "$(left)" -gt 8 ] || { say "$name: not run, no time left"; return 1; }
  [ "$limit" -lt "$(left)" ] || limit=$(left)
  [ "$limit" -lt "${STEP_SECONDS:-600}" ] || limit=$STEP_SECONDS
  log=$(mktemp -p "$work")
  begun=$(date +%s)
  timeout -k 5 "$limit" "$@" > "$log" 2>&1
  status=$?
  { printf '\n## %s: status %s\n\n' "$name" "$status"; cat "$log"; } >> "$file"
  if grep -qE 'NOT RUN|no device: ' "$log"; then
    failed "$name" "not run: $(grep -m 1 -E 'NOT RUN|no device: ' "$log")"
    return 1
  fi
  case $status in
    0) say "$name: done, $(($(date +%s) - begun)) s" ;;
    124 | 137) failed "$name" "CUT OFF after $limit s: $(grep -E '\[ RUN' "$log" | tail -n 1)" ;;
    *) failed "$name" "FAILED ($status): $(grep -m 1 -E 'FAILED|WRONG|[Ee]rror' "$log")" ;;
  esac
  return $status
}

# suite NAME SECONDS PROGRAM FILTER: the tests that the filter selects, by themselves; none is a
# failure. The first test that fails, or that ran when time was up, runs again in three ways.
suite() {
  local name=$1 limit=$2 program=$here/$3 filter=$4 file=tests_$1.log count again
  count=$(timeout 60 "$program" --gtest_list_tests --gtest_filter="$filter" 2> /dev/null | grep -c '^  ')
  if [ "$count" -eq 0 ]; then
    failed "tests $name" "FAILED: the filter $filter selects no test"
    return 1
  fi
  step "tests $name ($count)" "$limit" "$file" "$program" --gtest_filter="$filter" && return 0
  again=$(grep -m 1 -oE '\[  FAILED  \] [^ ,]+' "$out/$file" | sed 's/.* //')
  [ -n "$again" ] || again=$(grep -E '\[ RUN' "$out/$file" | tail -n 1 | sed 's/.*\] //')
  [ -n "$again" ] || return 1
  LEQ_GPU_DEBUG=no-early step "$again without early starts" 20 "$file" "$program" --gtest_filter="$again"
  LEQ_GPU_DEBUG=sync step "$again launch by launch" 20 "$file" "$program" --gtest_filter="$again"
  command -v compute-sanitizer > /dev/null && step "$again under memcheck" 40 "$file" \
    compute-sanitizer --tool memcheck "$program" --gtest_filter="$again"
  return 1
}
bench() { # NAME SECONDS MODEL OPTIONS...
  local name=$1 limit=$2 model=$3
  shift 3
  step "$name" "$limit" models.md "$here/leq-bench" -dev cuda -ctk int8 -ctv int8 -o md \
    -m "synthetic:$model" "$@"
}
table() { step "$1" "$2" kernels.md "$here/$3" --ceilings "$work/ceilings"; }

: > "$out/summary.txt"
{
  echo "commit $(cat "$here/commit.txt" 2> /dev/null || echo unknown)"
  date -u
  uname -a
  nproc | sed 's/$/ processors/'
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi
    nvidia-smi -q -d CLOCK,POWER
  else
    echo "NOT RUN: nvidia-smi is not on PATH"
  fi
} > "$out/machine.txt" 2>&1
say "machine: $(grep -m 1 -E 'NOT RUN|Driver Version' "$out/machine.txt" | tr -s ' |-')"

# 1. Right or not. (Ranks on one GPU wait for each other's kernels: PeerRanks needs several.)
step "instructions" 60 agree_instructions.txt "$here/ptx_conformance" &
suite wgmma 75 cuda_device_tests 'ManyTokens/*:*Wgmma*' &
suite few_tokens 75 cuda_device_tests '*IntMatmulTest*:*FewTokens*:*MatmulCodes*:-ManyTokens/*' &
suite tiles 75 cuda_device_tests '*/TileTest*:*FloatGemm*:*FloatMatmul*:*OddRows*' &
suite attention 75 cuda_device_tests '*Attention*:-*Packed*' &
suite packed 75 cuda_device_tests '*Packed*:*Kv*' &
suite rows 75 cuda_device_tests \
  '*Norm*:Embed*:Gather*:*Quantize*:*Rope*:Online*:Upload*:*UploaderTest*:*Sample*:Terms*' &
suite layers 75 cuda_device_tests '*Expert*:*Route*:*Delta*:GateOutputs*:*Super*' &
for section in joined experts delta linears; do
  step "$section against each other at full size" 100 "agree_$section.txt" "$here/gpu_agree" --only $section &
done
suite conformance 90 conformance_tests '*/cuda_*' &
suite models 100 sim_model_tests '*/*cuda_*:-*Ranks*' &
wait

cat "$out"/agree_*.txt > "$out/agree.txt"
cat "$out"/tests_*.log > "$out/tests.txt"
rm -f "$out"/agree_*.txt "$out"/tests_*.log

# 2. How fast, kernels that changed last first.
timing=1
step "ceilings" 30 ceilings.md "$here/gpu_ceilings"
awk -F'|' '$2 ~ /_/ { gsub(/ /, "", $2); print $2, $3 }' "$out/ceilings.md" > "$work/ceilings" 2> /dev/null
# Of the largest models a quarter of the layers: filling 30 GB of weights takes minutes.
deep="-r 3 -n 64 -d 0,2048 -b 2048 -ub 2048"
# shellcheck disable=SC2086
{
  bench "qwen3-30b-a3b" 40 qwen3-30b-a3b:int8:layers=12 $deep -p 512,2048
  bench "qwen3-30b-a3b, 32 sequences" 40 qwen3-30b-a3b:int8:layers=12 -r 3 -p 0 -n 32 -d 480 -npl 32
  bench "qwen3.6-35b-a3b" 40 qwen3.6-35b-a3b:int8:layers=12 $deep -p 512,2048
  bench "qwen3.5-9b" 40 qwen3.5-9b:int8 $deep -p 2048
  bench "llama-7b, k types" 40 llama-7b:q4_k $deep -p 512,2048
  bench "llama-7b, int8" 40 llama-7b:int8 $deep -p 2048
  LEQ_GPU_DEBUG=no-join bench "llama-7b, int8, launches not joined" 40 llama-7b:int8 $deep -p 0
  bench "llama-7b, int4" 40 llama-7b:int4-g128 $deep -p 2048
  bench "llama-7b, 64 sequences" 60 llama-7b:int8 -r 3 -p 0 -n 32 -d 2016 -npl 64
}
# Other builds of leq-bench in this folder, to compare two of them in one run.
for other in "$here"/leq-bench-*; do
  [ -x "$other" ] || continue
  # shellcheck disable=SC2086
  step "llama-7b, int8, ${other##*/}" 40 models.md "$other" -dev cuda -ctk int8 -ctv int8 -o md \
    -m synthetic:llama-7b:int8 $deep -p 2048
done
# 3. Single kernels at several sizes, and PyTorch as a yardstick.
table "few tokens" 45 gpu_gemv
table "attention" 45 gpu_attention
table "reading of a layer" 15 gpu_layer
table "many tokens" 60 gpu_gemm
if python3 -c "import torch" 2> /dev/null; then
  step "PyTorch" 100 kernels.md python3 "$here/torch_decode.py"
else
  say "PyTorch: not run, python3 has no torch"
fi

# 4. Why: microseconds of each kernel of a step, launched one by one (without the upload of weights).
profile() { # NAME MODEL OPTIONS...
  local name=$1 model=$2 raw=$work/raw.csv
  shift 2
  step "kernels of $name" 40 profile.log ncu --clock-control none --cache-control none --csv --page raw \
    --kernel-name-base function --metrics gpu__time_duration.sum,dram__bytes_read.sum \
    -k 'regex:^[^u]' --launch-count 600 --log-file "$raw" \
    "$here/leq-bench" -dev cuda -ctk int8 -ctv int8 -r 1 --no-graph -m "synthetic:$model" "$@"
  [ -s "$raw" ] || return
  { printf '\n## %s, %s %s\n\n' "$name" "$model" "$*"; awk -f "$here/kernels.awk" "$raw"; } >> "$out/profile.md"
}
if command -v ncu > /dev/null; then
  for model in qwen3-30b-a3b:int8 qwen3.6-35b-a3b:int8 llama-7b:int8 llama-7b:int4-g128 llama-7b:q4_k; do
    profile "a token" "$model:layers=4" -p 0 -n 4 -d 0
    profile "a prompt" "$model:layers=4" -p 512 -n 0 -d 0
  done
else
  say "ncu: not run, not on PATH"
fi
rm -f "$out/profile.log"
count=$(find "$out" -type f | wc -l)
say "$(wc -l < "$failures") steps failed, $count files, $(left) s left"
[ ! -s "$failures" ]
