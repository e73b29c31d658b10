#!/bin/bash
# This machine's row for the table in docs/benchmarks.md: prompts of 512 tokens, generation, and 16
# sequences of 1.1 B (about 3 minutes on an idle machine). A cell is t/s (share of the limit).
#   bench/machine_row.sh BUILD_DIR
# RUNS (5), THREADS (all cores), LEQ_ISA; MACHINE, a better name than the system's.
set -eu
bench=$1/tools/leq-bench
runs=${RUNS:-5} threads=${THREADS:-$(nproc)} model=synthetic:tinyllama-1.1b
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
machine=${MACHINE:-${processor:-$(uname -m)}}

# cell TYPE ARGUMENTS...: "t/s (share %)" of the one test that the arguments ask for
cell() {
  local type=$1
  shift
  "$bench" -m "$model:$type" -t "$threads" -r "$runs" -o csv "$@" |
    awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
             { tps = $at["tps"]; printf "%.*f (%.0f %%)", (tps < 100), tps, 100 * $NF }'  # the share is last
}

level=$("$bench" -m "$model:int8:layers=1" -t "$threads" -r 1 -p 1 -n 0 | grep -o 'cpu [a-z0-9]*' | head -n 1)
row="| $machine, $threads threads | ${level#cpu } |"
for type in int8 int4-g128; do
  row="$row $(cell $type -p 512 -n 0) | $(cell $type -p 0 -n 64) | $(cell $type -p 0 -n 16 -npl 16) |"
done
echo "| machine | level | int8: pp512 | tg64 | tg16x16 | int4-g128: pp512 | tg64 | tg16x16 |"
echo "|---|---|---:|---:|---:|---:|---:|---:|"
echo "$row"
