#!/bin/sh
# Builds the programs of first.sh and sanitize.sh on a machine with the CUDA toolkit, for a machine
# with nothing but a C library and a driver: one archive to carry there.
#   bench/gpu/pack.sh FOLDER              makes FOLDER/pack.tar.xz
#   LEQ_CUDA_ARCHITECTURES=90a-real LEQ_GPU_BUILD=build/pack JOBS=2 bench/gpu/pack.sh FOLDER
# There: xz -dc pack.tar.xz | tar xf - && ./first.sh RESULTS
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:?"usage: $0 FOLDER (for pack.tar.xz)"}
build=${LEQ_GPU_BUILD:-$root/build/pack}
programs="ptx_conformance cuda_device_tests sim_model_tests conformance_tests gpu_agree gpu_ceilings gpu_gemv
  gpu_attention gpu_gemm gpu_layer leq-bench_alone"
most_kib=${LEQ_PACK_MOST_KIB:-24576}
command -v nvcc > /dev/null || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "pack: nvcc not found; install the CUDA toolkit" >&2; exit 1; }

# Where a library has an archive, it is linked; the C library is the machine's own.
archives=""
archive() {
  file=$("${CC:-cc}" -print-file-name="$2")
  [ -f "$file" ] || { echo "pack: $2 not found: the programs will want it there" >&2; return 0; }
  archives="$archives -D$1=$file"
}
archive leq_xxhash_LIBRARY libxxhash.a
archive leq_pcre2_LIBRARY libpcre2-8.a
archive leq_utf8proc_LIBRARY libutf8proc.a
archive OPENSSL_CRYPTO_LIBRARY libcrypto.a

generator="Unix Makefiles"
command -v ninja > /dev/null && generator=Ninja
# -lineinfo: compute-sanitizer and ncu name lines. No --compress-mode: every program holds the same
# kernels, and xz removes the copies only where they are not compressed already.
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DLEQ_CUDA=ON \
  -DLEQ_CUDA_SIM=ON -DLEQ_EXAMPLES=OFF -DLEQ_CUBLASLT=OFF \
  -DLEQ_CUDA_ARCHITECTURES="${LEQ_CUDA_ARCHITECTURES:-90a-real}" -DCMAKE_CUDA_FLAGS=-lineinfo \
  -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" $archives
# shellcheck disable=SC2086
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target $programs

contents=$(mktemp -d)
trap 'rm -rf "$contents"' EXIT
for program in $programs; do
  program=${program%_alone}
  found=$(find "$build" -type f -name "$program" -perm -u+x | head -n 1)
  strip -s -o "$contents/$program" "$found"
  # Nothing but the C library may be missing on the machine to come.
  needs=$(objdump -p "$contents/$program" | awk '$1 == "NEEDED" { print $2 }' |
    grep -vE '^(libc|libm|libdl|librt|libpthread|libutil|ld-linux.*)\.so' || true)
  [ -z "$needs" ] || { echo "pack: $program needs $needs" >&2; exit 1; }
done
# Other builds of leq-bench, to be compared in one run: LEQ_PACK_MORE="FILE..."
# shellcheck disable=SC2086
[ -z "${LEQ_PACK_MORE:-}" ] || cp $LEQ_PACK_MORE "$contents"
for file in first.sh sanitize.sh kernels.awk torch_decode.py; do cp "$root/bench/gpu/$file" "$contents"; done
git -C "$root" describe --always --dirty --abbrev=12 > "$contents/commit.txt" 2> /dev/null ||
  echo unknown > "$contents/commit.txt"

mkdir -p "$folder"
# The dictionary reaches the same kernels in the program before.
(cd "$contents" && tar cf - ./*) | xz -T1 --lzma2=preset=6,dict=192MiB > "$folder/pack.tar.xz"
kib=$(du -sk "$folder/pack.tar.xz" | cut -f1)
(cd "$contents" && du -k ./* | sort -n)
echo "pack: $folder/pack.tar.xz has $kib KiB of at most $most_kib, for $(sed -n 's/^LEQ_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")"
[ "$kib" -le "$most_kib" ]
