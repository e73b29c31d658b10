#!/usr/bin/env bash
# Everything that is published, in dist, with SHA256SUMS: source, sdist, wheels, tarballs, Debian packages, the formula.
#   release.sh              on Debian or Ubuntu with what `make packages` installs
#   RELEASE_URL=https://... where the files will be: the formula names it
#   ARCHITECTURES="x86_64"  of wheels and tarballs; default: x86_64 aarch64
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(leq VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
url=${RELEASE_URL:-https://example.org/leq/v$version}
[ -z "$(git status --porcelain)" ] || { echo "release: uncommitted changes" >&2; exit 1; }
rm -rf dist
mkdir dist

# This machine's architecture first: its programs print the manual pages of the other.
for architecture in ${ARCHITECTURES:-x86_64 aarch64}; do
  packaging/portable.sh "$architecture"
done
make deb
build/portable/venv/bin/pip install -q build
build/portable/venv/bin/python -m build -q --sdist -o dist .
source=leq-$version-source.tar.gz
git archive --format=tar.gz --prefix="leq-$version/" -o "dist/$source" HEAD
sum=$(sha256sum "dist/$source")
sed "s|@HOME@|$url|; s|@SOURCE@|$url/$source|; s|@SHA256@|${sum%% *}|" packaging/homebrew.rb.in > dist/leq.rb
cd dist
sha256sum -- * > SHA256SUMS
cat SHA256SUMS
