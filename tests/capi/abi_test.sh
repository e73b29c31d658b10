#!/usr/bin/env bash
# Compares the ABI of libleq.so, its symbols and what a C program sees of leq.h's structs and constants, with
# the stored abi_N.txt. A line that is new, and the size of a struct that grew at its end, may be stored (--write);
# any other that changes or goes needs another LEQ_ABI_VERSION.
#   abi_test.sh BUILD_FOLDER SOURCE_FOLDER [--write]
set -euo pipefail
build=$1
source=$2
here=$source/tests/capi
header=$source/src/capi/leq.h
compiler=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

grep -v '^#' "$header" | "$compiler" -fpreprocessed -E -P -x c - > "$work/header"
awk -f "$here/abi_lines.awk" "$work/header" > "$work/abi.c"
"$compiler" -std=c99 -Wall -Wextra -Wpedantic -Werror -I "$source/src/capi" "$work/abi.c" -o "$work/abi"
nm -D --defined-only "$build/libleq.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print "symbol " $3 }' |
  LC_ALL=C sort > "$work/symbols"
{ cat "$work/symbols"; "$work/abi"; } > "$work/found"

version=$(sed -n 's/#define LEQ_ABI_VERSION //p' "$header")
stored=$here/abi_$version.txt
[ "${3:-}" != --write ] || cp "$work/found" "$stored"
diff "$stored" "$work/found" ||
  { echo "abi: the ABI is not that of $stored"; exit 1; }

# What the header declares is what the library has.
grep -o 'leq_[a-z_]*(' "$work/header" | tr -d '(' | LC_ALL=C sort -u | sed 's/^/symbol /' > "$work/declared"
diff "$work/declared" "$work/symbols" || { echo "abi: declared, or defined, alone"; exit 1; }
readelf -d "$build/libleq.so" | grep -q "SONAME.*\[libleq\.so\.$version\]" ||
  { echo "abi: the name in the library is not libleq.so.$version"; exit 1; }
echo "abi $version: $(wc -l < "$work/symbols") symbols, $(grep -c '^struct' "$work/found") structs"
