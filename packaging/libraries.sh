#!/usr/bin/env bash
# Static libraries for portable builds (portable.sh), with their headers and licences: Debian 12's, of which only
# libcurl is compiled here, because Debian's needs Kerberos and LDAP.
#   libraries.sh ARCHITECTURE FOLDER COMPILER    amd64 | arm64; makes FOLDER/{include,lib,licences}
set -euo pipefail
architecture=$1 folder=$2 compiler=$3
mirror=${LEQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}
keys=${LEQ_DEBIAN_KEYS:-/usr/share/keyrings/debian-archive-keyring.gpg}
packages="libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libncurses-dev libbsd-dev libmd-dev
  libtinfo6 nlohmann-json3-dev libcxxopts-dev libgcc-12-dev gcc-12-base"
work=$folder.work
rm -rf "$work" "$folder"
mkdir -p "$work"/{lists/partial,archives/partial,root} "$folder"/{include,lib,licences}

# An apt of its own: no change to this system, and other architectures without `dpkg --add-architecture`.
for suite in bookworm bookworm-updates; do
  printf 'deb [signed-by=%s] %s %s main\ndeb-src [signed-by=%s] %s %s main\n' "$keys" "$mirror" $suite "$keys" "$mirror" $suite
done > "$work/sources.list"
security=${mirror/%debian/debian-security}
printf 'deb [signed-by=%s] %s bookworm-security main\ndeb-src [signed-by=%s] %s bookworm-security main\n' \
  "$keys" "$security" "$keys" "$security" >> "$work/sources.list"
: > "$work/status"
own_apt() {
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root \
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
    -o Dir::State::Status="$work/status" -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" "$@"
}
own_apt update
cd "$work"
# shellcheck disable=SC2086
own_apt download $packages
own_apt source --download-only curl
for package in ./*.deb; do dpkg-deb -x "$package" root; done

cp -rL root/usr/include/. "$folder/include"
for triplet in root/usr/include/*-linux-gnu; do  # OpenSSL's configuration, whose folder no other compiler knows
  cp -r "$triplet"/. "$folder/include"
done
for name in ssl crypto pcre2-8 utf8proc xxhash edit tinfo bsd md; do
  cp root/usr/lib/*-linux-gnu/lib$name.a "$folder/lib"
done
cp root/usr/lib/gcc/*/12/libgcc.a "$folder/lib"

mkdir curl
tar -C curl --strip-components=1 -xf curl_*.orig.tar.[gx]z
tar -xf curl_*.debian.tar.[gx]z
while read -r patch; do
  case $patch in ""|"#"*) ;; *) patch -s -d curl -p1 < "debian/patches/$patch" ;; esac
done < debian/patches/series
machine=$(case $architecture in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac)
cmake -S curl -B curl.build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$compiler" -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR="$machine" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF -DBUILD_CURL_EXE=OFF \
  -DBUILD_TESTING=OFF -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_USE_LIBSSH2=OFF -DCURL_USE_LIBPSL=OFF -DUSE_LIBIDN2=OFF \
  -DCURL_ZLIB=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DUSE_NGHTTP2=OFF -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none \
  -DOPENSSL_INCLUDE_DIR="$folder/include" -DOPENSSL_SSL_LIBRARY="$folder/lib/libssl.a" \
  -DOPENSSL_CRYPTO_LIBRARY="$folder/lib/libcrypto.a" -DCMAKE_INSTALL_PREFIX="$folder" > curl.log ||
  { tail -20 curl.log; exit 1; }
cmake --build curl.build > curl.log || { tail -20 curl.log; exit 1; }
cmake --install curl.build > /dev/null

for name in libssl-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libtinfo6 libbsd-dev libmd-dev \
  nlohmann-json3-dev libcxxopts-dev libgcc-12-dev; do
  licence=root/usr/share/doc/$name/copyright
  # Some packages link it to that of another one.
  [ -f "$licence" ] || licence=root/usr/share/doc/$(readlink "root/usr/share/doc/$name" || true)/copyright
  [ -f "$licence" ] && cp -L "$licence" "$folder/licences/${name%-dev}" || echo "libraries: no licence of $name"
done
cp curl/COPYING "$folder/licences/libcurl"
rm -rf "$work"
