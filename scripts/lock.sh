#!/usr/bin/env bash
# Write the locked requirements in envs/ from what is asked for there. Needs the network.
#
# requirements.lock is what a study needs. The other locks have what their group needs besides, in the same versions.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# compile WHAT.in LOCK [OPTION...]: LOCK with the versions that it has where they still fit, for Python 3.11 and 3.12.
# --universal is for all platforms and later Pythons too: their requirements are left out, and conditions that both meet.
compile() {
  local asked=$1 lock=$2
  shift 2
  .venv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
    --universal --python-version 3.11 "$@" "$asked" --output-file "$lock"
  awk '
    /^[a-zA-Z0-9]/ {
      out = / (sys_platform == .win32|os_name == .nt|python_full_version >= .3.13)/ || /and os_name == .nt/
      if (!/ ; python_full_version (<|>=) .3.12. / ) sub(/ ;.*/, " \\")
    }
    !out' "$lock" >"$folder/tidy"
  cp "$folder/tidy" "$lock"
}

# without LOCK ...: the requirements on standard input, each a line with its hashes on the next ones, that no LOCK has.
without() {
  awk '
    match($0, /^[a-zA-Z0-9._-]+==/) { name = substr($0, 1, RLENGTH) }
    FILENAME != "-" { locked[name] = 1; next }
    !(name in locked)' "$@" -
}

compile envs/requirements.in envs/requirements.lock

for group in test docs; do
  cat envs/requirements.lock envs/"$group".lock >"$folder/all" 2>/dev/null || true # versions stay where they can
  compile envs/"$group".in "$folder/all" --constraint envs/requirements.lock
  without envs/requirements.lock <"$folder/all" >"$folder/$group"
  cp "$folder/$group" envs/"$group".lock
done

# PyTorch asks for a newer setuptools than Horovod's build takes; it uses it only to compile extensions.
echo 'setuptools<70' >"$folder/overrides"
cat envs/requirements.lock envs/pytorch.lock envs/pytorch-cuda.lock >"$folder/all"
compile envs/pytorch.in "$folder/all" --constraint envs/requirements.lock --overrides "$folder/overrides"
without envs/requirements.lock <"$folder/all" >"$folder/pytorch"
awk -v folder="$folder" '
  match($0, /^[a-z0-9-]+==/) { out = $0 ~ /^(nvidia|cuda|triton)/ ? folder "/cuda" : folder "/torch" }
  { print > out }' "$folder/pytorch"
cp "$folder/torch" envs/pytorch.lock
cp "$folder/cuda" envs/pytorch-cuda.lock
sed -n 's/^# cpu: \(.*\)$/\1/p' envs/pytorch.in >envs/pytorch-cpu.lock
