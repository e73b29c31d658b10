#!/bin/bash
# Every row of bench/results/cpu-*.md, in one go on an idle machine (about half an hour, 10 GB of
# memory, 6 GB of disk): speed of leq beside the limits of the same run, and peers between the rows.
#   bench/cpu_table.sh BUILD_DIR WORK_DIR [PART...]    PART: prompt context generate file depth batch
# PEERS, a folder, adds llama.cpp: PEERS/llama-bench, PEERS/llama-batched-bench, PEERS/ik-llama-bench
# (ik_llama.cpp), each if it is there, and the GGUF files SHAPE-Q8_0.gguf and SHAPE-Q4_0.gguf.
# RUNS (5), THREADS (2); QUIET, a command to run each row with.
set -u
bench=$1/tools/leq-bench work=$2
shift 2
parts=" ${*:-prompt context generate file depth batch busy} "
runs=${RUNS:-5} threads=${THREADS:-2} peers=${PEERS:-/nonexistent}
mkdir -p "$work"

part() {  # NAME TITLE
  case $parts in *" $1 "*) printf '\n## %s\n\n' "$2" ;; *) return 1 ;; esac
}
# The rows of a table that a program prints: its tests, without heads.
row() {  # NAME COMMAND...
  name=$1
  shift
  ${QUIET:-} "$@" -r "$runs" 2> "$work/messages" | grep -E '^\|.*(pp|tg)[0-9]' | sed "s/^/| $name /" ||
    echo "| $name | $(tail -n 1 "$work/messages")"
}
leq() { row leq "$bench" -t "$threads" "$@"; }
vectors() { LEQ_ISA=avx512vnni row "leq, vectors" "$bench" -t "$threads" "$@"; }
peer() {  # FILE FLAGS...
  file=$peers/$1
  shift
  for program in llama-bench ik-llama-bench; do
    [ -x "$peers/$program" ] && [ -f "$file" ] || continue
    repack=()  # ik_llama.cpp's fastest setting
    [ $program = llama-bench ] || repack=(-rtr 1)
    row $program "$peers/$program" -m "$file" -t "$threads" -fa 1 "${repack[@]}" "$@"
  done
}
small=synthetic:llama-110m middle=synthetic:tinyllama-1.1b large=synthetic:llama-7b

if part prompt "Prompts of 512 tokens"; then
  for model in $small:int8 $middle:int8 $middle:int4-g128 $large:int8 $large:int4-g128; do
    leq -m $model -p 512 -n 0
    grep -qw amx_int8 /proc/cpuinfo && vectors -m $model -p 512 -n 0
  done
  leq -m $middle:int3-g128 -m $middle:int2-g128 -p 512 -n 0
  for file in llama-110m-Q8_0 tinyllama-1.1b-Q8_0 tinyllama-1.1b-Q4_0; do
    peer $file.gguf -p 512 -n 0
  done
fi
if part context "Prompts of 512 tokens after others"; then
  leq -m $middle:int8 -p 512 -n 0 -d 2048,8192,32256 -ctk f16,int8 -ctv f16,int8
fi
if part generate "Generation"; then
  leq -m $middle:int8 -p 0 -n 64
  peer tinyllama-1.1b-Q8_0.gguf -p 0 -n 64
  leq -m $middle:int4-g128 -p 0 -n 64
  peer tinyllama-1.1b-Q4_0.gguf -p 0 -n 64
  for model in $middle:int3-g128 $middle:int2-g128; do leq -m $model -p 0 -n 64; done
  for model in $large:int8 $large:int4-g128; do leq -m $model -p 0 -n 16; done
fi
if part file "Files: generation and loading"; then
  for model in tinyllama-1.1b:int8 tinyllama-1.1b:int4-g128 llama-7b:int4-g128; do
    file=$work/${model/:/-}.leq
    "$bench" -m synthetic:$model --write "$file" > /dev/null
    for loading in --mmap --no-mmap; do leq -m "$file" $loading -p 0 -n 32; done
  done
  for loading in --mmap --no-mmap; do ${QUIET:-} "$bench" -m "$file" --load $loading -r "$runs"; done
fi
if part depth "Generation at depth"; then
  for types in "f16 f16" "f16 int8" "int8 f16" "int8 int8"; do
    read -r keys values <<< "$types"
    leq -m $small:int8 -p 0 -n 32 -d 4096 -ctk "$keys" -ctv "$values"
  done
  for type in f16 q8_0; do
    row llama-bench "$peers/llama-bench" -m "$peers/llama-110m-Q8_0.gguf" -t "$threads" -fa 1 \
      -p 0 -n 32 -d 4096 -ctk $type -ctv $type
  done
  for shape in mistral-7b qwen3-14b; do
    for depth in 8192 32768; do
      leq -m synthetic:$shape:int8:layers=8 -p 0 -n 16 -d $depth -ctk int8 -ctv int8
    done
  done
fi
if part batch "Several sequences at once"; then
  for sequences in 1 4 16; do leq -m $middle:int8 -p 0 -n 32 -npl $sequences; done
  grep -qw amx_int8 /proc/cpuinfo && vectors -m $middle:int8 -p 0 -n 32 -npl 16
  if [ -x "$peers/llama-batched-bench" ]; then
    ${QUIET:-} "$peers/llama-batched-bench" -m "$peers/tinyllama-1.1b-Q8_0.gguf" -t "$threads" \
      -npp 64 -ntg 32 -npl 1,4,16 -c 2048 -fa 1 2> /dev/null | grep '^|'
  fi
fi
if part busy "A core taken by another process"; then
  threads=1 leq -m $middle:int8 -p 0 -n 16
  taskset -c 1 sh -c 'while :; do :; done' &
  busy=$!
  leq -m $middle:int8 -p 0 -n 16
  threads=1 leq -m $middle:int8 -p 0 -n 16
  kill $busy
fi
