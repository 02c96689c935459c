#!/usr/bin/env bash
# Check the locked dependencies against the known security advisories. Needs the network.
#
# pip-audit runs in an environment of its own, which is removed: it is none of the study's dependencies. It asks about
# each package by name and version, and installs none of them.
#
#   PYTHON=python3.12               the interpreter to use, by default python3
#   scripts/advisories.sh FILE ...  other locked requirements than those in envs/
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "advisories: error: $*" >&2; exit 2; }

[ $# -gt 0 ] || set -- envs/requirements.lock envs/horovod.lock envs/test.lock envs/docs.lock envs/pytorch.lock \
  envs/pytorch-cuda.lock
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv" >"$folder/log" 2>&1 ||
  fail "${PYTHON:-python3} cannot make an environment: $(tail -n 1 "$folder/log")"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pip-audit >"$folder/log" 2>&1 ||
  fail "pip-audit cannot be installed, which needs the network: $(tail -n 1 "$folder/log")"
code=0
"$folder/venv/bin/pip-audit" --disable-pip --strict --progress-spinner off --format markdown --output "$folder/found" \
  "${@/#/--requirement=}" >"$folder/log" 2>&1 || code=$?
# It ends with 1 if it found something, and also if it could not ask about each package (--strict).
[ -e "$folder/found" ] || [ "$code" = 0 ] ||
  fail "the advisories cannot be asked for, which needs the network, and PyPI itself, no mirror of its files:" \
    "$(tail -n 1 "$folder/log" | cut -c1-300)"
[ ! -s "$folder/found" ] || cat "$folder/found"
[ "$code" = 0 ] || exit 1
echo "advisories: none is known of the packages in $*"
