#!/usr/bin/env bash
# Write dist/NAME-VERSION.tar.gz with the files of the last commit, as an archive such as Zenodo takes it, and its SHA-256;
# and NAME-VERSION.notes.md, the release notes: what CHANGELOG.md says of this version. The same commit gives the same bytes.
# With a tag as argument, such as v1.2, it writes nothing unless that tag is the last commit's and its version's.
set -euo pipefail
cd "$(dirname "$0")/.."
export GIT_CEILING_DIRECTORIES=${PWD%/*} # never a repository of a folder above

fail() { echo "dist: error: $*" >&2; exit 1; }

field() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" pyproject.toml | head -n 1; }

changes=$(git status --porcelain) || fail "git does not read this clone, for the reason above"
[ -z "$changes" ] || fail "there are changes that are not committed; commit them, or put them aside"
version=$(field version)
name=$(field name)-$version
heading=$(grep -m 1 -F "## $version - " CHANGELOG.md) || fail "CHANGELOG.md has no section '## $version - DATE'"
if [ $# -gt 0 ]; then
  [ "$1" = "v$version" ] || fail "the tag is $1, and pyproject.toml says version $version: expected v$version"
  [ "$(git rev-parse -q --verify "refs/tags/$1^{commit}")" = "$(git rev-parse HEAD)" ] ||
    fail "the tag $1 is not of the last commit; check it out, or make it with: git tag $1"
  [ "${heading##* - }" != unreleased ] || fail "CHANGELOG.md says that $version is unreleased: write its date there"
fi
mkdir -p dist
git archive --format tar --prefix "$name/" HEAD | gzip --no-name --best >"dist/$name.tar.gz"
(cd dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
awk -v heading="$heading" '$0 == heading {inside = 1; next} /^## / {inside = 0} inside' CHANGELOG.md |
  sed '/./,$!d' >"dist/$name.notes.md"
echo "dist: wrote dist/$name.tar.gz of commit $(git rev-parse --short HEAD); its checksum and the release notes beside it"
