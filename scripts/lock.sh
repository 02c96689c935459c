#!/usr/bin/env bash
# Write the locked requirements in envs/ from what is asked for there. Needs the network.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { .venv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --python-version 3.11 "$@"; }

compile envs/requirements.in --output-file envs/requirements.lock

# PyTorch asks for a newer setuptools than Horovod's build takes; it uses it only to compile extensions.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo 'setuptools<70' >"$folder/overrides"
compile --no-annotate --constraint envs/requirements.lock --overrides "$folder/overrides" envs/pytorch.in --output-file "$folder/all"
# One requirement is a line with its hashes on the next ones. What requirements.lock has too is left out.
awk -v folder="$folder" '
  FILENAME == "envs/requirements.lock" { if (match($0, /^[a-z0-9-]+==/)) locked[substr($0, 1, RLENGTH)] = 1; next }
  match($0, /^[a-z0-9-]+==/) {
    name = substr($0, 1, RLENGTH)
    out = name in locked ? "/dev/null" : name ~ /^(nvidia|cuda|triton)/ ? folder "/cuda" : folder "/torch"
  }
  { print > out }' envs/requirements.lock "$folder/all"
cp "$folder/torch" envs/pytorch.lock
cp "$folder/cuda" envs/pytorch-cuda.lock
sed -n 's/^# cpu: \(.*\)$/\1/p' envs/pytorch.in >envs/pytorch-cpu.lock
