#!/bin/sh
# Builds the programs of first.sh on a machine with the CUDA toolkit for one without anything but a
# C library and a driver: one folder to carry there, at most 64 MiB.
#   bench/gpu/pack.sh FOLDER
#   LEQ_CUDA_ARCHITECTURES=90a-real LEQ_GPU_BUILD=build/pack JOBS=2 bench/gpu/pack.sh FOLDER
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:?"usage: $0 FOLDER (to carry)"}
build=${LEQ_GPU_BUILD:-$root/build/pack}
programs="ptx_conformance cuda_device_tests gpu_ceilings gpu_gemv gpu_attention gpu_gemm leq-bench"
most_kib=65536
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

# Kernels of all programs: a sixth of the bytes, where nvcc knows how (12.8).
compress=""
nvcc --help | grep -q -- --compress-mode && compress=--compress-mode=size

generator="Unix Makefiles"
command -v ninja > /dev/null && generator=Ninja
# shellcheck disable=SC2086
cmake -S "$root" -B "$build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DLEQ_CUDA=ON \
  -DLEQ_CUDA_SIM=ON -DLEQ_EXAMPLES=OFF -DLEQ_CUBLASLT=OFF \
  -DLEQ_CUDA_ARCHITECTURES="${LEQ_CUDA_ARCHITECTURES:-90a-real}" \
  -DCMAKE_CUDA_FLAGS="$compress" -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" $archives
# shellcheck disable=SC2086
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target $programs

mkdir -p "$folder"
for program in $programs; do
  found=$(find "$build" -type f -name "$program" -perm -u+x | head -n 1)
  strip -s -o "$folder/$program" "$found"
done
cp "$root/bench/gpu/first.sh" "$folder/first.sh"
git -C "$root" describe --always --dirty --abbrev=12 > "$folder/commit.txt" 2> /dev/null ||
  echo unknown > "$folder/commit.txt"

# Nothing but the C library may be missing on the machine to come.
for program in $programs; do
  needs=$(objdump -p "$folder/$program" | awk '$1 == "NEEDED" { print $2 }' |
    grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux.*)\.so' || true)
  [ -z "$needs" ] || { echo "pack: $program needs $needs" >&2; exit 1; }
done
kib=$(du -sk "$folder" | cut -f1)
du -k "$folder"/* | sort -n
echo "pack: $folder has $kib KiB of at most $most_kib, for $(sed -n 's/^LEQ_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")"
[ "$kib" -le "$most_kib" ]
