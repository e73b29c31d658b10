#!/usr/bin/env bash
# Unpacks the tarball (`make portable`) in a root of Debian 11, whose glibc is older, and lets it tell a story there.
#   tarball_test.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
source=$2
. "$source/tests/package/clean_root.sh"
tarball=$source/dist/leq-$(uname -m).tar.xz
[ -f "$tarball" ] || { echo "tarball: NOT RUN: there is none in dist; make portable"; exit 77; }
clean_root tarball "${LEQ_OLD_DEBIAN:-bullseye}"
begin=$EPOCHREALTIME
tar -C "$root" -xJf "$tarball"
for file in share/man/man1/leq-run.1 share/doc/leq/licences/libcurl share/doc/leq/copyright; do
  [ -f "$root/leq/$file" ] || { echo "tarball: no $file"; exit 1; }
done
reply=$(first_reply /leq/bin/leq "$(since "$begin")") || { echo "tarball: $reply"; exit 1; }
# A compiler's runtime that does not know the processor would leave the portable kernels alone.
! grep -qw avx2 /proc/cpuinfo || in_root env LEQ_ISA=avx2 /leq/bin/leq-run -m "$story_file" \
  -p "Once" -n 4 > /dev/null 2>&1 || { echo "tarball: no AVX2 kernels"; exit 1; }
# One with an exp and memcpy of its own would be slower, and its sums would have other last digits.
# Without -q, which ends readelf early, and pipefail reports that.
for name in exp memcpy; do
  readelf -W --dyn-syms "$root/leq/bin/leq" | grep " $name@GLIBC" > /dev/null || { echo "tarball: $name is not glibc's"; exit 1; }
done
for tool in "$root"/leq/bin/leq-*; do
  in_root "/leq/bin/$(basename "$tool")" --version > /dev/null || { echo "tarball: $tool does not start"; exit 1; }
done
echo "tarball: in a clean $(in_root cat /etc/debian_version) with $(in_root ldd --version | head -1): $reply"
