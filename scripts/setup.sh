#!/usr/bin/env bash
# Make the project's environment: .venv with the locked dependencies, and Horovod built against the locked
# TensorFlow. Does nothing where all is in place.
#
#   WITH=pytorch                    PyTorch too, and Horovod for both; once it is there, later set-ups keep it
#   PYTHON=python3.11               the interpreter to use
#   HOROVOD_WITH_MPI=1              build with MPI although there is no mpicxx: CXX finds MPI itself, as Cray's CC does
#   HOROVOD_WITHOUT_MPI=1           build without MPI although mpicxx is there
#   HOROVOD_GPU_OPERATIONS=NCCL     and Horovod's other build settings are passed on
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv LOCK=envs/requirements.lock HOROVOD_LOCK=envs/horovod.lock
readonly PYTORCH_LOCK=envs/pytorch.lock PYTORCH_CPU_LOCK=envs/pytorch-cpu.lock CUDA_LOCK=envs/pytorch-cuda.lock
readonly PYTORCH_STAMP=.venv/pytorch HOROVOD_OF_BOTH=.venv/horovod-of-both
readonly LOG=$VENV/setup.log STAMP=$VENV/complete LIBRARY_STAMP=$VENV/library
readonly DISK_MB=5000
PYTHON=${PYTHON:-python3.11}

fail() { echo "setup: error: $*" >&2; exit 1; }
say() { echo "setup: $*"; }

stamp() { { pwd; cat "$LOCK" "$HOROVOD_LOCK" scripts/setup.sh; horovod_flags; } | sha256sum | cut -d' ' -f1; }

check_machine() {
  [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || fail "HOME is not set, and this user has none; set it to a folder that you may write to"
  local version free
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "this lock is for Linux on x86-64, this is $(uname -s) on $(uname -m); see docs/machines/README.md"
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    fail "'$PYTHON' was not found or does not run; install Python 3.11 or name it: make setup PYTHON=/path/to/python3.11"
  [ "$version" = 3.11 ] || fail "'$PYTHON' is Python $version, the locked dependencies are for 3.11; name one: make setup PYTHON=/path/to/python3.11"
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || fail "'$PYTHON' cannot make environments; on Debian: apt install python3.11-venv"
  command -v "${CXX:-c++}" >/dev/null || fail "there is no C++ compiler (${CXX:-c++}), which Horovod's build needs; on Debian: apt install g++"
  command -v make >/dev/null || fail "there is no make, which Horovod's build needs; on Debian: apt install make"
  [ "${HOROVOD_WITH_MPI:-0}${HOROVOD_WITHOUT_MPI:-0}" != 11 ] || fail "HOROVOD_WITH_MPI and HOROVOD_WITHOUT_MPI are both 1; give one of them"
  free=$(df -Pm . | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$DISK_MB" ] || fail "$free MB are free here, the environment needs $DISK_MB MB"
}

install_dependencies() {
  local count
  count=$(grep -c '^[a-z].*==' "$LOCK")
  say "installing $count locked packages (about a minute and 1 GB to download where nothing is cached)"
  "$PYTHON" -m venv "$VENV"
  logged show_downloads "$VENV/bin/pip" install --no-deps --require-hashes --progress-bar off -r "$LOCK"
}

# PyPI's wheel needs CUDA's libraries. The wheel for CPUs, where pip finds it, needs none. It is asked for by its version,
# since pip prefers a wheel of which an index states the hash, whatever its version.
install_pytorch() {
  say "installing PyTorch (200 MB to download where the wheel for CPUs is found, else 3 GB)"
  rm -f "$PYTORCH_STAMP" "$HOROVOD_OF_BOTH"
  "$VENV/bin/pip" install --quiet --no-deps --require-hashes -r "$PYTORCH_CPU_LOCK" 2>/dev/null || true
  logged show_downloads "$VENV/bin/pip" install --no-deps --require-hashes --progress-bar off -r "$PYTORCH_LOCK"
  case $("$VENV/bin/python" -c 'from importlib.metadata import version; print(version("torch"))') in
    *+cpu) ;;
    *) logged show_downloads "$VENV/bin/pip" install --no-deps --require-hashes --progress-bar off -r "$CUDA_LOCK" ;;
  esac
  say "checking that PyTorch loads"
  logged cat "$VENV/bin/python" -c 'import torch.nn.parallel'
  pytorch_stamp >"$PYTORCH_STAMP"
}

pytorch_stamp() { cat "$PYTORCH_LOCK" "$CUDA_LOCK" | sha256sum | cut -d' ' -f1; }

add_pytorch() {
  if { [ "${WITH:-}" = pytorch ] || [ -e "$PYTORCH_STAMP" ]; } && [ "$(cat "$PYTORCH_STAMP" 2>/dev/null)" != "$(pytorch_stamp)" ]; then
    install_pytorch
  fi
  [ ! -e "$PYTORCH_STAMP" ] || add_horovod_of_both
}

# One Horovod for both frameworks. It is built where PyTorch is asked for; later set-ups take it from the cache. Without
# it, PyTorch has DistributedDataParallel.
add_horovod_of_both() {
  local cache
  cache=$(horovod_cache)-pytorch-$("$VENV/bin/python" -c 'from importlib.metadata import version; print(version("torch"))')
  [ "$(cat "$HOROVOD_OF_BOTH" 2>/dev/null)" != "$cache" ] || return 0
  if ! compgen -G "$cache/horovod-*.whl" >/dev/null; then
    [ "${WITH:-}" = pytorch ] || return 0
    say "building Horovod for TensorFlow and PyTorch (about five minutes on two cores); kept in $cache"
    mkdir -p "$(dirname "$cache")"
    BUILD=$(mktemp -d "$(dirname "$cache")/build.XXXXXX") # Horovod's build takes a + in a path for a pattern
    if ! (build_horovod_of_both "$cache"); then
      say "warning: Horovod was not built for PyTorch, for the reason above; strategy: ddp works, strategy: horovod needs it"
      return 0
    fi
  fi
  say "installing Horovod from $cache"
  logged cat "$VENV/bin/pip" install --quiet --no-deps --force-reinstall "$cache"/horovod-*.whl
  logged cat "$VENV/bin/python" -c 'import horovod.torch.mpi_ops, horovod.tensorflow.mpi_ops' >/dev/null
  echo "$cache" >"$HOROVOD_OF_BOTH"
}

# Horovod 0.28.1 compiles its part for PyTorch as C++14, and PyTorch's headers need C++17; so does its part for
# TensorFlow, which is C++17 already and has a Gloo that is compiled so: both use that one.
build_horovod_of_both() {
  local cache=$1 source settings
  logged cat "$VENV/bin/pip" download --quiet --no-build-isolation --no-deps --no-binary horovod --require-hashes \
    -r "$HOROVOD_LOCK" --dest "$BUILD"
  tar -xzf "$BUILD"/horovod-*.tar.gz -C "$BUILD" || fail "Horovod's sources cannot be unpacked"
  rm "$BUILD"/horovod-*.tar.gz
  source=$(compgen -G "$BUILD/horovod-*")
  settings=$source/horovod/torch/CMakeLists.txt
  sed -i -e 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' \
    -e 's/(APPEND PYTORCH_LINKER_LIBS gloo)/(APPEND PYTORCH_LINKER_LIBS compatible17_gloo)/' "$settings"
  [ "$(grep -c 'CXX_STANDARD 17\|LIBS compatible17_gloo' "$settings")" = 2 ] ||
    fail "horovod/torch/CMakeLists.txt has not the two lines that C++17 needs changed"
  HOROVOD_WITH_PYTORCH=1 compile_horovod "$source"
  "$VENV/bin/python" - "$BUILD"/horovod-*.whl <<'EOF' || fail "the built wheel lacks a framework's library"
import sys, zipfile
names = zipfile.ZipFile(sys.argv[1]).namelist()
sys.exit(not all(any(name.startswith(f"horovod/{each}/mpi_lib") for name in names) for each in ("tensorflow", "torch")))
EOF
  rm -rf "$source" "$cache"
  mv "$BUILD" "$cache"
}

horovod_flags() {
  local flags=gloo
  if [ "${HOROVOD_WITHOUT_MPI:-0}" != 1 ] && { [ "${HOROVOD_WITH_MPI:-0}" = 1 ] || command -v mpicxx >/dev/null; }; then
    flags+=-mpi
  fi
  [ -z "${HOROVOD_GPU_OPERATIONS:-}" ] || flags+=-${HOROVOD_GPU_OPERATIONS,,}
  echo "$flags"
}

# pip keeps a wheel built from source without regard to the TensorFlow it was built against, so the wheel is kept
# in a folder that says so.
horovod_cache() {
  local horovod tensorflow
  horovod=$(sed -n 's/^horovod==\([^ ]*\).*/\1/p' "$HOROVOD_LOCK")
  tensorflow=$(sed -n 's/^tensorflow==\([^ ]*\).*/\1/p' "$LOCK")
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/candle-scaling/horovod-$horovod-tensorflow-$tensorflow-cp311-$(uname -m)-$(horovod_flags)"
}

# The library in scripts/study, so that every Python of the environment imports it, with its compiled parser of tables.
install_library() {
  logged cat "$VENV/bin/pip" install --quiet --no-deps --no-build-isolation --editable .
  rm -rf build
  "$VENV/bin/python" -c 'import study.data._numbers' 2>/dev/null ||
    say "warning: the parser of text tables was not compiled (a C++17 compiler is needed); loader parallel is slower"
  "$VENV/bin/python" -c 'from study.core import isolation; isolation.install()'
  library_stamp >"$LIBRARY_STAMP"
}

# With the parser itself: one that was removed is built again, one that could not be built is not tried again.
library_stamp() {
  { cat pyproject.toml setup.py scripts/study/core/isolation.py scripts/study/data/_numbers.cpp; compgen -G 'scripts/study/data/_numbers.*.so' || true; } |
    sha256sum | cut -d' ' -f1
}

install_horovod() {
  local cache
  cache=$(horovod_cache)
  if ! compgen -G "$cache/horovod-*.whl" >/dev/null; then
    say "building Horovod, $(horovod_flags) (about three minutes on two cores); kept in $cache"
    mkdir -p "$(dirname "$cache")"
    build_horovod "$cache"
  fi
  say "installing Horovod from $cache"
  rm -f "$HOROVOD_OF_BOTH"
  logged cat "$VENV/bin/pip" install --quiet --no-deps --force-reinstall "$cache"/horovod-*.whl
}

# nproc knows no quota of a control group; the library, which is installed by now, does.
allowed_cores() { "$VENV/bin/python" -c 'from study.core import cores; print(cores.threads())' 2>/dev/null || nproc; }

build_horovod() {
  local cache=$1
  BUILD=$(mktemp -d "$cache.XXXXXX") # removed at the end, unless it took its place
  HOROVOD_WITHOUT_PYTORCH=1 compile_horovod --no-binary horovod --require-hashes -r "$HOROVOD_LOCK"
  rm -rf "$cache"
  mv "$BUILD" "$cache"
}

# compile_horovod WHAT...: a wheel in $BUILD, of what pip is told to build.
compile_horovod() {
  case $(horovod_flags) in *mpi*) export HOROVOD_WITH_MPI=1 ;; *) export HOROVOD_WITHOUT_MPI=1 ;; esac
  PATH="$PWD/$VENV/bin:$PATH" MAKEFLAGS="-j$(allowed_cores)" HOROVOD_WITH_GLOO=1 HOROVOD_WITH_TENSORFLOW=1 \
    HOROVOD_WITHOUT_MXNET=1 \
    logged show_percentages "$VENV/bin/pip" wheel --verbose --no-build-isolation --no-deps --no-cache-dir \
    --wheel-dir "$BUILD" "$@"
}

# logged FILTER COMMAND...: all output to the log, what FILTER lets through to the screen, the log's end on failure.
logged() {
  local filter=$1
  shift
  if ! "$@" 2>&1 | tee -a "$LOG" | "$filter"; then
    tail -n 20 "$LOG" >&2
    fail "'${*:1:3} ...' failed; its last lines are above, all of them in $LOG"
  fi
}

show_downloads() { awk '/^ *Downloading .*MB\)|^Installing/ { sub(/^ */, ""); print "  " substr($0, 1, 100); fflush() }'; }

show_percentages() {
  awk 'match($0, /\[ *[0-9]+%\]/) { p = substr($0, RSTART + 1, RLENGTH - 3) + 0
         if (p >= shown + 10) { shown = p; print "  " p " %"; fflush() } }'
}

BUILD=
trap 'rm -rf "$BUILD"' EXIT
case ${WITH:-} in "" | pytorch) ;; *) fail "WITH=$WITH is not known; leave it out, or use WITH=pytorch" ;; esac
if [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(stamp)" ]; then
  [ "$(cat "$LIBRARY_STAMP" 2>/dev/null)" = "$(library_stamp)" ] || install_library
  add_pytorch
  exit 0
fi
check_machine
mkdir -p "$VENV"
rm -f "$STAMP"
install_dependencies
install_library
install_horovod
say "checking that Horovod and TensorFlow load"
TF_USE_LEGACY_KERAS=1 logged cat "$VENV/bin/python" -c "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import horovod.tensorflow.keras" >/dev/null
stamp >"$STAMP"
add_pytorch
say "done: the environment is $VENV"
