#!/bin/bash
# Quality of every method on checkpoints, as a markdown table: bits per weight, bytes, perplexity, KL
# divergence from f32, same first choice, seconds, calibration tokens, peak memory.
#   bench/method_table.sh BUILD_DIR WORK_DIR TEXT CHECKPOINT...
# TEXT is the held-out text that is measured on: 16 windows of up to 512 tokens, taken as it is.
# SAMPLES and LENGTH set the calibration (128 windows of 512 tokens), CALIBRATION its text; ROWS, a
# pattern, chooses among the rows beside f32.
set -euo pipefail
build=$1 work=$2 text=$3
shift 3
mkdir -p "$work"
calibration=(--samples "${SAMPLES:-128}" --length "${LENGTH:-512}")
[ -n "${CALIBRATION:-}" ] && calibration+=(--calibration "$CALIBRATION")

# name of the row | flags of leq-quantize
rows=(
  "f32|--type f32"
  "absmax int8|--type int8"
  "absmax int8, act tensor|--type int8 --act tensor"
  "absmax int8, act online|--type int8 --act online"
  "zeropoint uint8|--method zeropoint"
  "zeroquant int8-g128|--method zeroquant"
  "recipe zeroquant-w48|--recipe zeroquant-w48"
  "smoothquant o3|--method smoothquant --smooth o3"
  "smoothquant 0.5|--method smoothquant --smooth 0.5"
  "smoothquant|--method smoothquant"
  "recipe q8|--recipe q8"
  "smoothquant + gptq+ int8|--method gptq+ --type int8 --smooth search"
  "absmax int4-g64|--type int4-g64"
  "rtn int4-g64|--method rtn --type int4-g64"
  "awq int4-g64|--method awq --type int4-g64"
  "gptq int4-g64|--method gptq --type int4-g64"
  "gptq+ int4-g64|--method gptq+ --type int4-g64"
  "recipe q4|--recipe q4"
  "gptq+ uint4-g64|--method gptq+ --type uint4-g64"
  "nf4|--method nf4"
  "rtn int3-g64|--method rtn --type int3-g64"
  "gptq int3-g64|--method gptq --type int3-g64"
  "gptq+ int3-g64|--method gptq+ --type int3-g64"
  "rtn int2-g64|--method rtn --type int2-g64"
  "gptq int2-g64|--method gptq --type int2-g64"
  "gptq+ int2-g64|--method gptq+ --type int2-g64"
  "billm|--method billm"
)

number() {  # of a key in a file of JSON
  sed -n "s/.*\"$2\": *\([-0-9.eE+]*\).*/\1/p" "$1" | head -1
}
measure=(-f "$text" --protocol hf --join none --chunks 16 -ctk f32 -ctv f32)
for checkpoint in "$@"; do
  name=$(basename "$checkpoint") base=$work/base.kl window=512
  context=$(number "$checkpoint/config.json" max_position_embeddings)
  [ -n "$context" ] || context=$(number "$checkpoint/config.json" n_positions)
  if [ "$context" -lt "$window" ]; then window=$context; fi
  echo "### $name"
  echo
  echo "| method | bits/weight | bytes | perplexity | KL, nats | same first choice | seconds | calibration tokens | peak MB |"
  echo "|---|---|---|---|---|---|---|---|---|"
  for row in "${rows[@]}"; do
    label=${row%%|*} file=$work/model.leq
    [[ $label = f32 || $label =~ ${ROWS:-.} ]] || continue
    read -r -a flags <<< "${row#*|}"
    if ! /usr/bin/time -f "%e %M" -o "$work/time" "$build/tools/leq-quantize" "$checkpoint" -o "$file" \
         "${flags[@]}" "${calibration[@]}" --no-gate 2> "$work/messages"; then
      echo "| $label | $(tail -1 "$work/messages" | cut -c1-160) | | | | | | | |"
      continue
    fi
    compare=(--kl-divergence-base "$base")
    [ "$label" = f32 ] || compare+=(--kl-divergence)
    "$build/tools/leq-perplexity" -m "$file" "${measure[@]}" --window "$window" "${compare[@]}" -o json \
      > "$work/result" 2> "$work/messages" || { tail -1 "$work/messages"; continue; }
    "$build/tools/leq-inspect" "$file" --json > "$work/inspected"
    samples=$(number "$work/inspected" samples) length=$(number "$work/inspected" length)
    tokens=$(( ${samples:-0} * ${length:-0} ))
    read -r seconds memory < "$work/time"
    kl=$(number "$work/result" kl_mean) kl_error=$(number "$work/result" kl_mean_stderr)
    same=$(number "$work/result" same_top1)
    LC_ALL=C awk -v label="$label" -v bpw="$(number "$work/result" bits_per_weight)" \
      -v bytes="$(stat -c %s "$file")" -v ppl="$(number "$work/result" ppl)" -v kl="${kl:-0}" \
      -v error="${kl_error:-0}" -v same="${same:-1}" -v seconds="$seconds" -v tokens="$tokens" \
      -v memory="$memory" 'BEGIN {
        printf "| %s | %.2f | %d | %.3f | %.5f ± %.5f | %.1f %% | %.1f | %d | %d |\n", label, bpw,
               bytes, ppl, kl, error, 100 * same, seconds, tokens, memory / 1024 }'
  done
  echo
done
