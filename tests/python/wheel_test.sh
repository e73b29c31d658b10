#!/usr/bin/env bash
# The wheel of `make wheel` in an empty virtual environment: the manual as it stands, and all tests.
#   wheel_test.sh BUILD_FOLDER SOURCE_FOLDER PYTHON
set -euo pipefail
source=$2
python=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv" 2> /dev/null || { echo "python: NOT RUN: $python has no venv"; exit 77; }
pip=("$work/venv/bin/pip" -q --disable-pip-version-check install)
"${pip[@]}" numpy 2> /dev/null || { echo "python: NOT RUN: numpy cannot be fetched"; exit 77; }
"${pip[@]}" --no-index --no-deps --only-binary leq --find-links "$source/dist" leq 2> "$work/log" ||
  { grep -q "No matching distribution" "$work/log" && { echo "python: NOT RUN: $(tail -1 "$work/log")"; exit 77; }; cat "$work/log"; exit 1; }
module=$(find "$work/venv" -name '_leq*.so')
symbols=$(nm -D --defined-only "$module" | awk '{print $3}' | tr '\n' ' ')
[ "$symbols" = "PyInit__leq " ] || { echo "python: the extension shows $symbols"; exit 1; }
cd "$work"
"$work/venv/bin/leq-compare" --version | grep -q "^leq-compare "
{ "$work/venv/bin/leq-compare" "$source/examples/storyteller" -f /dev/null -o out 2>&1 || true; } | grep -q "pip install .*scipy"
"$work/venv/bin/leq-export" --version | grep -q "^leq-export "
# Without its packages it says what to install.
touch x.leq
{ "$work/venv/bin/leq-export" x.leq -o out 2>&1 || true; } | grep -q "pip install .*onnx"
for test in page_test test_leq tools_test async_test; do
  LEQ_SOURCE=$source LEQ_TOOLS=$1/tools PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" "$source/tests/python/$test.py"
done
