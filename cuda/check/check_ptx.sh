#!/bin/sh
# What each wrapper of an instruction hands to the assembler, against cuda/check/wrappers.txt, on 8.0
# and 9.0a; and that list against the toolkit's own headers (libcu++). No GPU is needed.
#   cuda/check/check_ptx.sh
#   CUTLASS=FOLDER cuda/check/check_ptx.sh    against CUTLASS too, of which FOLDER is a copy
set -eu
cd "$(dirname "$0")/../.."
if ! command -v nvcc > /dev/null; then
  echo "ptx: NOT RUN (no CUDA toolkit on PATH)"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CXX:-c++}" -std=c++20 -O1 cuda/check/wrapper_texts.cpp -o "$work/wrapper_texts"
expected=cuda/check/wrappers.txt
wrong=0
for arch in 80 90a; do
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc \
    -gencode="arch=compute_$arch,code=compute_$arch" --ptx cuda/check/wrappers.cu -o "$work/$arch.ptx"
  "$work/wrapper_texts" $expected $arch "$work/$arch.ptx" || wrong=1
done
libcu=$(dirname "$(readlink -f "$(command -v nvcc)")")/../include/cccl/cuda/__ptx/instructions
if [ -d "$libcu" ]; then
  "$work/wrapper_texts" $expected reference l "$libcu"/*.h "$libcu"/generated/*.h || wrong=1
else
  echo "ptx: not compared with libcu++ (this toolkit has no $libcu)"
fi
if [ -n "${CUTLASS:-}" ]; then
  find "$CUTLASS/include" -name "*.h*" -exec cat {} + > "$work/cutlass.h"
  "$work/wrapper_texts" $expected reference c "$work/cutlass.h" ||
    wrong=1
fi
[ $wrong -eq 0 ] || exit 1
echo "ptx: $(grep -vc '^#' $expected) wrappers are the instructions that wrappers.txt says"
