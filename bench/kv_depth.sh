#!/bin/bash
# Generation at depths of the KV cache, for each of its types: models of 7 and 14 billion weights in 8
# bits, cut to the layers that fit, so that the cache is as large beside the weights as in the whole
# model. A cell is t/s (share of what memory could give). About 6 minutes on an idle machine.
#   bench/kv_depth.sh BUILD_DIR [MODEL...]
# RUNS (3), TOKENS (8), THREADS (all cores), DEPTHS, CACHES ("keys/values ..."), LEQ_ISA.
set -eu
bench=$1/tools/leq-bench
shift
runs=${RUNS:-3} tokens=${TOKENS:-8} threads=${THREADS:-$(nproc)} depths=${DEPTHS:-0,2048,8192,32768}
caches=${CACHES:-f32/f32 f16/f16 int8/int8 int4/int4 simq8/simq8 int8/simq4 simq4/simq4 simq2/simq2}
models=${*:-synthetic:mistral-7b:int8:layers=6 synthetic:qwen3-14b:int8:layers=4}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $threads threads, median of $runs"
echo
echo "| model | keys / values |$(tr , '\n' <<< "$depths" | sed 's/.*/ & |/' | tr -d '\n')"
echo "|---|---|$(tr , '\n' <<< "$depths" | sed 's/.*/---:|/' | tr -d '\n')"
for model in $models; do
  for cache in $caches; do
    "$bench" -m "$model" -t "$threads" -p 0 -n "$tokens" -r "$runs" -d "$depths" -o csv \
      -ctk "${cache%/*}" -ctv "${cache#*/}" 2> /dev/null |
      awk -F, -v name="$model" -v cache="${cache%/*} / ${cache#*/}" '
        NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; printf "| %s | %s |", name, cache; next }
        { printf " %.1f (%.0f %%) |", $at["tps"], 100 * $at["share"] }
        END { print "" }'
  done
done
