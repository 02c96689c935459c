#!/usr/bin/env bash
# Write dist/NAME-VERSION.tar.gz with the files of the last commit, as an archive such as Zenodo takes it, and its SHA-256.
# The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "dist: error: $*" >&2; exit 1; }

field() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" pyproject.toml | head -n 1; }

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; commit them, or put them aside"
name=$(field name)-$(field version)
mkdir -p dist
git archive --format tar --prefix "$name/" HEAD | gzip --no-name --best >"dist/$name.tar.gz"
(cd dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "dist: wrote dist/$name.tar.gz of commit $(git rev-parse --short HEAD), and its checksum beside it"
