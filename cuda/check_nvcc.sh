#!/bin/sh
# Compiles every CUDA source with nvcc and holds registers against cuda/budgets.txt: no kernel may
# spill, use more registers than its line there says, or be missing from it. No GPU is needed. The
# programs for machines with one (bench/gpu, tests/cuda/ptx) must compile too.
#   cuda/check_nvcc.sh             check
#   cuda/check_nvcc.sh --update    write what was found into budgets.txt
# LEQ_NVCC_ARCHITECTURES: other than "80 90a".
set -eu
cd "$(dirname "$0")/.."
if ! command -v nvcc > /dev/null; then
  echo "nvcc: NOT RUN (no CUDA toolkit on PATH)"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
architectures=""
for arch in ${LEQ_NVCC_ARCHITECTURES:-80 90a}; do
  architectures="$architectures -gencode=arch=compute_$arch,code=sm_$arch"
done
for source in cuda/*.cu cuda/device/*.cu; do
  # shellcheck disable=SC2086
  if ! nvcc -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc \
      $architectures -Xptxas -v -c "$source" -o "$work/object.o" 2> "$work/log"; then
    cat "$work/log"
    echo "nvcc: $source does not compile"
    exit 1
  fi
  c++filt < "$work/log" >> "$work/all"
done
for source in bench/gpu/device/*.cu tests/cuda/ptx/*.cu; do
  case $source in
    *library_gemm*) [ -f "$(dirname "$(command -v nvcc)")/../include/cublasLt.h" ] || continue ;;
  esac
  # shellcheck disable=SC2086
  nvcc -std=c++20 -fmad=false --expt-relaxed-constexpr -DLEQ_GPU=cuda -I. -Isrc $architectures \
    -c "$source" -o "$work/object.o" || { echo "nvcc: $source does not compile"; exit 1; }
done
# One line for each kernel and architecture: kernel, architecture, registers, bytes spilled.
sed -E 's/\(anonymous namespace\)::|leq::cuda::|_GLOBAL__N__[0-9a-z_]+:://g' "$work/all" | awk '
  /Compiling entry function/ {
    split($0, quoted, "\x27"); kernel = quoted[2]; architecture = quoted[4]
    if (kernel ~ /^void /) sub(/^void /, "", kernel)
    sub(/\([^()]*\)$/, "", kernel); gsub(/ /, "", kernel)
  }
  /spill stores/ { spilled = $5 + $9 }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); print kernel, architecture, substr($0, RSTART + 5, RLENGTH - 5), spilled
  }' | LC_ALL=C sort > "$work/found"
if [ "${1:-}" = --update ]; then
  { echo "# kernel, architecture, most registers (cuda/check_nvcc.sh --update); spills are refused"
    awk '{ print $1, $2, $3 }' "$work/found"; } > cuda/budgets.txt
fi
awk '
  FNR == NR { if ($0 !~ /^#/) budget[$1 " " $2] = $3; next }
  { key = $1 " " $2; seen[key] = 1 }
  $4 > 0 { print "nvcc: " key " spills " $4 " bytes"; bad = 1 }
  !(key in budget) { print "nvcc: " key " is not in cuda/budgets.txt (" $3 " registers)"; bad = 1 }
  key in budget && $3 > budget[key] { print "nvcc: " key " uses " $3 " registers, the budget is " budget[key]; bad = 1 }
  END {
    for (key in budget) if (!(key in seen)) { print "nvcc: " key " of cuda/budgets.txt was not compiled"; bad = 1 }
    exit bad
  }' cuda/budgets.txt "$work/found"
echo "nvcc: $(wc -l < "$work/found") kernels compiled, no spills, registers within budget"
