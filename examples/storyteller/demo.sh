#!/usr/bin/env bash
# The demo: quantizes the storyteller in this folder, lets it tell a story, and shows what
# quantization costs: size and perplexity on tales that it was not trained on.
#   examples/storyteller/demo.sh BUILD_FOLDER [TOOLS_FOLDER]
set -euo pipefail
model="$(cd "$(dirname "$0")" && pwd)"
tools="${2:-${1:?usage: demo.sh BUILD_FOLDER [TOOLS_FOLDER]}/tools}"
out="$1/demo"
mkdir -p "$out"

bold="" plain=""
[ ! -t 1 ] || bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s\n' "$bold$*$plain"; }

say "\$ leq-quantize examples/storyteller -o storyteller.leq"
"$tools/leq-quantize" "$model" -o "$out/storyteller.leq" 2>&1 | grep -v '^next'

say "\$ leq-run -m storyteller.leq --raw -p \"Once upon a time\" -n 160"
"$tools/leq-run" -m "$out/storyteller.leq" --raw -p "Once upon a time" -n 160 --seed 7

say "What quantization costs: size, and perplexity on held-out tales (lower is better)"
printf '%-10s %10s %9s %12s %9s\n' type size "of f32" perplexity "of f32"
f32_bytes="" f32_ppl=""
for type in f32 f16 q8 int8 int8-g128 int4-g128; do
  file="$out/storyteller-$type.leq"
  case $type in
    q8) file="$out/storyteller.leq" ;;  # the one above
    *) "$tools/leq-quantize" "$model" -o "$file" --type "$type" --no-gate 2>/dev/null ;;
  esac
  bytes=$(stat -c %s "$file")
  ppl=$("$tools/leq-perplexity" -m "$file" -f "$model/heldout.txt" --join none -o json 2>/dev/null |
    sed -n 's/.*"ppl": *\([0-9.]*\).*/\1/p')
  : "${f32_bytes:=$bytes}" "${f32_ppl:=$ppl}"
  awk -v t="$type" -v b="$bytes" -v B="$f32_bytes" -v p="$ppl" -v P="$f32_ppl" 'BEGIN {
    printf "%-10s %7.2f MB %8.1f%% %12.3f %+8.2f%%\n", t, b / 1e6, 100 * b / B, p, 100 * (p / P - 1) }'
done
say "Chat with it:  $tools/leq-run -m $out/storyteller.leq"
