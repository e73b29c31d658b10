#!/bin/sh
# Whole models with random weights by leq-bench: generation at 2K, 8K and 32K positions with 1, 8
# and 64 sequences, and prompts, each beside its share of the ceilings of 2_ceilings.sh.
#   bench/gpu/6_models.sh FOLDER
#   MODELS="llama-7b gpt2-124m" TYPES="int8" SECONDS_LEFT=560 DEVICE=cuda bench/gpu/6_models.sh FOLDER
. "$(dirname "$0")/common.sh"
configure
if [ "$kind" = programs ]; then
  say "leq-bench needs the project's libraries: $(missing tools)"
  exit 1
fi
make_targets leq-bench || exit 1
bench=$(program leq-bench)
none=$("$bench" --list-devices | sed -n 's/^cuda  no device: //p')
case ${DEVICE:-cuda} in
  cuda*) [ -z "$none" ] || { echo "gpu: NOT RUN ($none)" | tee "$out/models.md"; exit 0; } ;;
esac
end=$(($(date +%s) + ${SECONDS_LEFT:-560}))
report=$out/models.md
errors=$out/models_errors.txt
: > "$errors"

ceiling() { awk -v name="$1" '$1 == name { print $2 }' "$ceilings" 2> /dev/null; }
read_gbps=$(ceiling read_gbps)
loop=wgmma
mma_tops=$(ceiling wgmma_s8_tops)
[ -n "$mma_tops" ] || { loop=mma; mma_tops=$(ceiling mma_s8_tops); }

# Rows of leq-bench's csv as table rows: t/s and the share of reading (generation) or of the tensor
# cores' loop (prompts). Columns are found by name.
rows() {
  awk -F, -v read="${read_gbps:-0}" -v tops="${mma_tops:-0}" -v loop="$loop" -v context="$1" '
    NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    {
      split($column["model"], name, ":")
      prompt = $column["test"] ~ /^pp/
      share = "n/a"
      if (prompt && tops > 0) share = sprintf("%.1f %% of %s", 100 * $column["gops"] / (1000 * tops), loop)
      if (!prompt && read > 0) share = sprintf("%.1f %% of read", 100 * $column["gbps"] / read)
      printf "| %s | %s | %s | %s | %s | %.1f | %s |\n", name[2], $column["scheme"], context, \
        $column["test"], $column["sequences"], $column["tps"], share
    }'
}

# measure MODEL TYPE CONTEXT OPTIONS...: rows of the table; 1 where the test cannot be.
measure() {
  model=$1 type=$2 context=$3
  shift 3
  left=$((end - $(date +%s)))
  [ "$left" -gt 5 ] || { echo "no time left" > "$out/row.txt"; return 1; }
  timeout "$((left < 200 ? left : 200))" "$bench" -m "synthetic:$model:$type" \
    -dev "${DEVICE:-cuda}" -ctk int8 -ctv int8 -r 3 -o csv "$@" > "$out/row.csv" 2> "$out/row.txt" ||
    return 1
  rows "$context" < "$out/row.csv" | tee -a "$report"
}

# no_number MODEL TYPE CONTEXT TEST SEQUENCES
no_number() {
  echo "$1 $2 $3 $4 x $5: $(tail -n 1 "$out/row.txt")" >> "$errors"
  echo "| $1 | $2 | $3 | $4 | $5 | n/a | n/a |" | tee -a "$report"
}

# As many sequences as fit, all in one run: loading costs more than measuring.
generation() {
  for sequences in 1,8,64 1,8 1; do
    measure "$1" "$2" "$3" -p 0 -n 32 -d "$(($3 - 32))" -npl "$sequences" && break
    no_number "$1" "$2" "$3" tg32 "${sequences##*,}"
  done
}

{
  echo "| model | type | context | test | sequences | t/s | share |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
} | tee "$report"
for model in ${MODELS:-llama-7b mistral-7b qwen3-14b llama-13b gpt2-124m}; do
  contexts="2048 8192 32768"
  [ "$model" = gpt2-124m ] && contexts="960 8192 32768"  # it has 1,024 positions
  for type in ${TYPES:-int8 int4-g128}; do
    prompt=2048
    [ "$model" = gpt2-124m ] && prompt=512
    measure "$model" "$type" $prompt -p $prompt -n 0 -b $prompt -ub $prompt ||
      no_number "$model" "$type" $prompt pp$prompt 1
    for context in $contexts; do generation "$model" "$type" "$context"; done
  done
done
echo "cells without a number: $errors" >&2
