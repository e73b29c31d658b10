#!/bin/sh
# What each wrapper of an instruction hands to the assembler, against cuda/check/wrappers.txt, on 8.0
# and 9.0a. No GPU is needed.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v nvcc > /dev/null; then
  echo "ptx: NOT RUN (no CUDA toolkit on PATH)"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
for arch in 80 90a; do
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc \
    -gencode="arch=compute_$arch,code=compute_$arch" --ptx cuda/check/wrappers.cu -o "$work/$arch.ptx"
  awk -v arch=$arch -f cuda/check/wrappers.awk cuda/check/wrappers.txt "$work/$arch.ptx" || wrong=1
done
[ $wrong -eq 0 ] || exit 1
echo "ptx: $(grep -vc '^#' cuda/check/wrappers.txt) wrappers are the instructions that wrappers.txt says"
