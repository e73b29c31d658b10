#!/usr/bin/env bash
# The C example under valgrind: no invalid access, and every block freed.
#   valgrind_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1
source=$2
command -v valgrind > /dev/null || { echo "valgrind: NOT RUN: there is no valgrind here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/tools/leq-quantize" "$source/examples/storyteller" -o "$work/model.leq" --type int8 2> /dev/null

# AVX-512 is more than valgrind knows.
run() {
  LEQ_ISA=avx2 valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect,possible \
    --errors-for-leak-kinds=definite,indirect,possible "$build/examples/hello_c" "$@" 2> "$work/log"
}
story=$(run "$work/model.leq" "Once upon a time") || { cat "$work/log"; exit 1; }
[ "$story" = "$("$build/tools/leq-run" -m "$work/model.leq" --raw -p "Once upon a time" -n 64 --temp 0 2> /dev/null)" ] ||
  { echo "valgrind: leq-run tells another story"; exit 1; }

# A file that is cut off, and one that is none: an error, and nothing is left.
head -c 100000 "$work/model.leq" > "$work/cut.leq"
for file in "$work/cut.leq" "$source/README.md" /nowhere; do
  status=0
  run "$file" x > /dev/null || status=$?
  [ "$status" = 1 ] || { echo "valgrind: $file: status $status"; cat "$work/log"; exit 1; }
done
echo "valgrind: clean"
