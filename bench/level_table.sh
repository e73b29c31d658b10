#!/bin/bash
# Every level that this processor offers, in one table: prompts, 16 sequences and generation of 1.1 B in
# 8 and 4 bits, each beside its limit (about 4 minutes on an idle machine).
#   bench/level_table.sh BUILD_DIR [LEVEL...]
# RUNS (3), THREADS (all cores); QUIET, a command to run each row with.
set -u
bench=$1/tools/leq-bench
shift
runs=${RUNS:-3} threads=${THREADS:-$(nproc)} model=synthetic:tinyllama-1.1b
# An unknown level is answered with the list of those that there are.
offered=$(LEQ_ISA=? "$bench" -m $model:int8 -p 1 -n 0 2>&1 | sed -n 's/.*offers //p' | tr -d ,)
echo "| $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $threads threads |"
for level in ${*:-$offered}; do
  case $level in portable*) continue ;; esac
  for type in int8 int4-g128; do
    for test in "-p 512 -n 0" "-p 0 -n 16 -npl 16" "-p 0 -n 32"; do
      # shellcheck disable=SC2086
      LEQ_ISA=$level ${QUIET:-} "$bench" -m $model:$type -t "$threads" -r "$runs" $test 2> /dev/null |
        grep -E '^\|.*(pp|tg)[0-9]'
    done
  done
done
