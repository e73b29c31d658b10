#!/usr/bin/env bash
# A test of the Python package with the module of this build.
#   run.sh BUILD_FOLDER SOURCE_FOLDER PYTHON test_leq.py|tools_test.py|export_test.py|...
set -euo pipefail
build=$1
source=$2
python=$3
shopt -s nullglob
modules=("$build"/python/_leq*.so)
[ ${#modules[@]} = 1 ] ||
  { echo "python: NOT RUN: the extension was not built (it needs python3-dev and nanobind: make venv)"; exit 77; }
"$python" -c 'import numpy' 2> /dev/null || { echo "python: NOT RUN: this Python has no numpy"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/python/leq" "$work/leq"
cp "${modules[0]}" "$work/leq/"
cd "$work"
status=0
PYTHONPATH=$work PYTHONDONTWRITEBYTECODE=1 LEQ_SOURCE=$source LEQ_TOOLS=$build/tools \
  "$python" "$source/tests/python/$4" || status=$?
exit $status
