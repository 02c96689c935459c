#!/usr/bin/env bash
# Make the project's environment: .venv with the locked dependencies, and Horovod built against the locked
# TensorFlow. Does nothing where all is in place.
#
#   scripts/setup.sh                what a study needs
#   scripts/setup.sh test docs      and what tests, or the documentation site, need; once there, later set-ups keep it
#   WITH="pytorch test docs"        the same, and PyTorch with a Horovod for both; once there, later set-ups keep it
#   PYTHON=python3.12               the interpreter to use, 3.11 or 3.12; by default .venv's, else the first on PATH
#   HOROVOD_WITH_MPI=1              build with MPI although there is no mpicxx: CXX finds MPI itself, as Cray's CC does
#   HOROVOD_WITHOUT_MPI=1           build without MPI although mpicxx is there
#   HOROVOD_GPU_OPERATIONS=NCCL     and Horovod's other build settings are passed on
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv LOCK=envs/requirements.lock HOROVOD_LOCK=envs/horovod.lock PATCHES=scripts/patch_horovod.py
readonly PYTORCH_LOCK=envs/pytorch.lock PYTORCH_CPU_LOCK=envs/pytorch-cpu.lock CUDA_LOCK=envs/pytorch-cuda.lock
readonly PYTORCH_STAMP=$VENV/pytorch HOROVOD_STAMP=$VENV/horovod NOT_BUILT=$VENV/horovod-not-built
readonly LOG=$VENV/setup.log STAMP=$VENV/complete LIBRARY_STAMP=$VENV/library
readonly MADE_FOR=$VENV/made-for   # the folder and the Python: scripts of an environment work in its folder only
readonly LOCKED=$VENV/locked       # names of the packages that set-ups have installed
readonly LOCK_OF=$VENV/requirements.sha256 # of the lock that it has; study.workflow.start compares it
readonly SUPPORTED="3.11 3.12" # also in README.md and .github/workflows/ci.yml
readonly DISK_MB=5000 TEMPORARY_MB=3000 # pip unpacks the largest wheel, TensorFlow, in the folder for temporary files

fail() { echo "setup: error: $*" >&2; exit 1; }
say() { echo "setup: $*"; }
digest() { sha256sum | cut -d' ' -f1; }
in_venv() { "$VENV/bin/python" "$@"; }
version_of() { "$1" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
installed() { in_venv -c 'import sys, importlib.metadata as known; print(known.version(sys.argv[1]))' "$1"; }

stamp() { { pwd -P; cat "$LOCK" "$HOROVOD_LOCK" "$PATCHES" scripts/setup.sh; horovod_flags; } | digest; }

# Variables by which a shell puts packages elsewhere, or reads them from elsewhere.
forget_other_places() {
  unset PYTHONPATH PYTHONHOME PYTHONUSERBASE PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_DRY_RUN PIP_REPORT
  unset SETUPTOOLS_USE_DISTUTILS # Python 3.12 has no distutils of its own; Horovod uses that of setuptools
  export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PYTHONNOUSERSITE=1
  if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6) || true
    export HOME
  fi
}

# The environment runs, in this folder, and is of the Python that was asked for.
is_usable() {
  local version
  version=$(version_of "$VENV/bin/python") && [ "$(cat "$MADE_FOR" 2>/dev/null)" = "$(pwd -P) $version" ] &&
    [ -x "$VENV/bin/pip" ] && { [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$version" ]; }
}

# The one that was asked for, else the environment's, else the first on PATH that is supported; empty where none is.
find_python() {
  local base
  [ -z "${PYTHON:-}" ] || return 0
  base=$(in_venv -I -S -c 'import os, sys; print(os.path.realpath(sys._base_executable))' 2>/dev/null) || base=
  case $base in "$(pwd -P)/"*) base= ;; esac # without its pyvenv.cfg, an environment takes itself for its base
  for PYTHON in "$base" ${SUPPORTED//3./python3.} python3; do
    ! is_supported "$(version_of "$PYTHON")" || return 0
  done
  PYTHON=
}

is_supported() { [ -n "$1" ] && case " $SUPPORTED " in *" $1 "*) ;; *) false ;; esac; }

readonly GET_PYTHON="on Debian 12: apt install python3.11-venv python3.11-dev; on Ubuntu 24.04: apt install python3.12-venv \
python3.12-dev; elsewhere conda, pyenv or uv install 3.12 beside the system's; then name it: make setup PYTHON=/path/to/python3.12"

check_machine() {
  [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || fail "HOME is not set, and this user has none; set it to a folder that you may write to"
  local free
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "this lock is for Linux on x86-64, this is $(uname -s) on $(uname -m); see docs/machines/README.md"
  check_python
  command -v "${CXX:-c++}" >/dev/null || fail "there is no C++ compiler (${CXX:-c++}), which Horovod's build needs; on Debian: apt install g++"
  command -v make >/dev/null || fail "there is no make, which Horovod's build needs; on Debian: apt install make"
  [ "${HOROVOD_WITH_MPI:-0}${HOROVOD_WITHOUT_MPI:-0}" != 11 ] || fail "HOROVOD_WITH_MPI and HOROVOD_WITHOUT_MPI are both 1; give one of them"
  free=$(free_mb .)
  [ "$free" -ge "$DISK_MB" ] || fail "$free MB are free here, the environment needs $DISK_MB MB"
}

check_python() {
  local version
  version=$(version_of "${PYTHON:-python3}") || version=
  [ -n "$PYTHON" ] || fail "no Python ${SUPPORTED// / or } was found on PATH${version:+, only $version}; $GET_PYTHON"
  [ -n "$version" ] || fail "'$PYTHON' was not found or does not run; $GET_PYTHON"
  is_supported "$version" || fail "'$PYTHON' is Python $version, the locked dependencies are for ${SUPPORTED// / and }; $GET_PYTHON"
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$PYTHON' cannot make environments; on Debian and Ubuntu: apt install python$version-venv"
}

free_mb() { df -Pm "$1" | awk 'NR == 2 { print $4 }'; }

# Make .venv, or make it anew where its Python, or the clone's folder, is not what it was.
make_environment() {
  local said
  if ! is_usable; then
    [ ! -e "$VENV/pyvenv.cfg" ] || say "making $VENV anew: it is of another folder, another Python or another set-up, or damaged"
    said=$("$PYTHON" -m venv --clear "$VENV" 2>&1) || fail "'$PYTHON' could not make $VENV: $(tail -n 1 <<<"$said")"
  fi
  for group in $GROUPS_WANTED; do echo wanted >"$VENV/with-$group"; done
  [ -z "$PYTORCH_WANTED" ] || [ -e "$PYTORCH_STAMP" ] || echo wanted >"$PYTORCH_STAMP"
  echo "$(pwd -P) $(version_of "$VENV/bin/python")" >"$MADE_FOR"
}

count_of() { grep -c '^[a-zA-Z0-9].*==' "$1"; }

install_dependencies() {
  say "installing $(count_of "$LOCK") locked packages (about a minute and 900 MB to download where nothing is cached)"
  install_locked "$LOCK"
  digest <"$LOCK" >"$LOCK_OF"
}

# install_locked LOCK: the packages in it and no other, with exactly these contents.
install_locked() {
  choose_temporary_folder
  logged show_downloads in_venv -m pip install --no-deps --require-hashes --progress-bar off -r "$1"
}

# pip's folder for temporary files is the environment's own where the usual one is small, or may not be written to.
choose_temporary_folder() {
  local usual=${TMPDIR:-/tmp}
  if ! [ -w "$usual" ] || [ "$(free_mb "$usual")" -lt "$TEMPORARY_MB" ]; then
    say "temporary files go to $VENV/tmp: $usual has less than $TEMPORARY_MB MB free, or may not be written to"
    export TMPDIR=$PWD/$VENV/tmp
    mkdir -p "$TMPDIR"
  fi
}

# Packages that an earlier set-up installed, and that no lock has any more. Packages of yours stay.
remove_former() {
  local former
  sed -n 's/^\([a-zA-Z0-9._-]*\)==.*/\1/p' envs/*.lock | LC_ALL=C sort -u >"$LOCKED.new"
  former=$([ ! -e "$LOCKED" ] || LC_ALL=C comm -23 "$LOCKED" "$LOCKED.new")
  if [ -n "$former" ]; then
    say "removing packages that no lock has any more:" $former
    logged cat in_venv -m pip uninstall --quiet --yes $former
  fi
  mv "$LOCKED.new" "$LOCKED"
}

# What tests, or the documentation, need besides.
add_groups() {
  local group
  for group in $GROUPS_WANTED; do
    if [ "$(cat "$VENV/with-$group" 2>/dev/null)" != "$(digest <"envs/$group.lock")" ]; then
      say "installing what the group $group needs besides ($(count_of "envs/$group.lock") packages)"
      echo wanted >"$VENV/with-$group"
      install_locked "envs/$group.lock"
      digest <"envs/$group.lock" >"$VENV/with-$group"
    fi
  done
}

# PyPI's wheel needs CUDA's libraries. The wheel for CPUs, where pip finds it, needs none. It is asked for by its version,
# since pip prefers a wheel of which an index states the hash, whatever its version.
install_pytorch() {
  say "installing PyTorch (200 MB to download where the wheel for CPUs is found, else 3 GB)"
  echo wanted >"$PYTORCH_STAMP"
  in_venv -m pip install --quiet --no-deps --require-hashes -r "$PYTORCH_CPU_LOCK" 2>/dev/null || true
  install_locked "$PYTORCH_LOCK"
  case $(installed torch) in
    *+cpu) ;;
    *) install_locked "$CUDA_LOCK" ;;
  esac
  say "checking that PyTorch loads"
  logged cat in_venv -c 'import torch.nn.parallel'
  pytorch_stamp >"$PYTORCH_STAMP"
}

pytorch_stamp() { cat "$PYTORCH_LOCK" "$CUDA_LOCK" | digest; }

add_pytorch() {
  [ -z "$PYTORCH_WANTED" ] || [ "$(cat "$PYTORCH_STAMP" 2>/dev/null)" = "$(pytorch_stamp)" ] || install_pytorch
}

horovod_flags() {
  local flags=gloo
  if [ "${HOROVOD_WITHOUT_MPI:-0}" != 1 ] && { [ "${HOROVOD_WITH_MPI:-0}" = 1 ] || command -v mpicxx >/dev/null; }; then
    flags+=-mpi
  fi
  [ -z "${HOROVOD_GPU_OPERATIONS:-}" ] || flags+=-${HOROVOD_GPU_OPERATIONS,,}
  echo "$flags"
}

# pip keeps a wheel built from source without regard to the TensorFlow it was built against, nor to our changes, so the
# wheel is kept in a folder that says so.
horovod_cache() {
  local horovod tensorflow python changes
  horovod=$(sed -n 's/^horovod==\([^ ]*\).*/\1/p' "$HOROVOD_LOCK")
  tensorflow=$(sed -n 's/^tensorflow==\([^ ]*\).*/\1/p' "$LOCK")
  python=cp$(version_of "$VENV/bin/python" | tr -d .)
  changes=$(in_venv -I "$PATCHES")
  echo "${XDG_CACHE_HOME:-$HOME/.cache}/candle-scaling/horovod-$horovod-$changes-tensorflow-$tensorflow-$python-$(uname -m)-$(horovod_flags)"
}

# The library in scripts/study, so that every Python of the environment imports it, with its compiled parser of tables.
install_library() {
  logged cat in_venv -m pip install --quiet --no-deps --no-build-isolation --editable .
  rm -rf build
  in_venv -c 'from study.core import isolation; isolation.install()'
  library_stamp >"$LIBRARY_STAMP"
}

# A clone may also hold the one of another Python.
parser_is_compiled() {
  local version
  version=$(version_of "$VENV/bin/python")
  compgen -G "scripts/study/data/_numbers.cpython-${version/./}-*.so" >/dev/null
}

parser_is_there() { parser_is_compiled && in_venv -c 'import study.data._numbers' 2>/dev/null; }

# At each set-up: a package of the system may have been installed since the last one.
compile_parser_again() {
  local header
  header=$(in_venv -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
  if [ -e "$header" ]; then
    install_library
    parser_is_there || say "warning: the parser of text tables does not compile, see $LOG; loader parallel is slower"
  else
    say "warning: the parser of text tables is not compiled, and loader parallel is slower: there is no $header;" \
      "on Debian and Ubuntu: apt install python$(version_of "$VENV/bin/python")-dev, then make setup"
  fi
}

library_stamp() { cat pyproject.toml setup.py scripts/study/core/isolation.py scripts/study/data/_numbers.cpp | digest; }

add_library() {
  if [ "$(cat "$LIBRARY_STAMP" 2>/dev/null)" != "$(library_stamp)" ]; then
    install_library
    parser_is_there || compile_parser_again
  else
    parser_is_compiled || compile_parser_again
  fi
}

# One Horovod for both frameworks where PyTorch is there. Without it, PyTorch has DistributedDataParallel. A build for both
# that failed is tried again where PyTorch is asked for, or what it would be built from has changed.
add_horovod() {
  local cache both
  cache=$(horovod_cache)
  if [ -n "$PYTORCH_WANTED" ]; then
    both=$cache-pytorch-$(installed torch)
    if [ -n "$PYTORCH_ASKED" ] || [ "$(cat "$NOT_BUILT" 2>/dev/null)" != "$both" ]; then
      ! has_horovod "$both" || return 0
      ! (trap 'exit 130' INT TERM; install_horovod "$both" pytorch) || { rm -f "$NOT_BUILT"; return 0; }
      echo "$both" >"$NOT_BUILT"
      say "warning: Horovod was not built for PyTorch, for the reason above; strategy: ddp works, strategy: horovod needs it"
    fi
  fi
  has_horovod "$cache" || install_horovod "$cache"
}

has_horovod() { [ "$(cat "$HOROVOD_STAMP" 2>/dev/null)" = "$1" ]; }

# install_horovod CACHE [pytorch]: the wheel in CACHE, which is built if it is not there. Each step ends the set-up, or the
# subshell that it runs in, if it fails.
install_horovod() {
  local cache=$1 framework=${2:-}
  if ! compgen -G "$cache/horovod-*.whl" >/dev/null; then
    say "building Horovod, $(horovod_flags)${framework:+, also for $framework} (two to four minutes on two cores); kept in $cache"
    mkdir -p "$(dirname "$cache")" || fail "built packages cannot be kept there; set XDG_CACHE_HOME to a folder that you may write to"
    build_horovod "$cache" "$framework" || exit 1
  fi
  say "installing Horovod from $cache"
  rm -f "$HOROVOD_STAMP"
  logged cat in_venv -m pip install --quiet --no-deps --force-reinstall "$cache"/horovod-*.whl
  say "checking that Horovod and its frameworks load"
  [ -z "$framework" ] || logged cat in_venv -c 'import horovod.torch.mpi_ops' >/dev/null
  TF_USE_LEGACY_KERAS=1 TF_CPP_MIN_LOG_LEVEL=3 logged cat in_venv -c 'import horovod.tensorflow.keras' >/dev/null
  echo "$cache" >"$HOROVOD_STAMP"
}

# nproc knows no quota of a control group; the library, which is installed by now, does.
allowed_cores() { in_venv -c 'from study.core import cores; print(cores.count_threads())' 2>/dev/null || nproc; }

# build_horovod CACHE [pytorch]: from its sources with our changes. ccache, where it is on PATH, is found by Horovod.
build_horovod() (
  cache=$1 framework=${2:-}
  build=$(mktemp -d "$(dirname "$cache")/build.XXXXXX") || exit 1 # Horovod's build takes a + as in $cache for a pattern
  trap 'rm -rf "$build"' EXIT
  trap 'exit 130' INT TERM # a subshell has no traps of its parent's, which tells of it
  logged cat in_venv -m pip download --quiet --no-build-isolation --no-deps --no-binary horovod --require-hashes \
    -r "$HOROVOD_LOCK" --dest "$build"
  tar -xzf "$build"/horovod-*.tar.gz -C "$build" || fail "Horovod's sources cannot be unpacked"
  rm "$build"/horovod-*.tar.gz
  source=$(compgen -G "$build/horovod-*")
  in_venv -I "$PATCHES" "$source" || fail "Horovod's sources are not those that were expected, see above"
  case $(horovod_flags) in *mpi*) export HOROVOD_WITH_MPI=1 ;; *) export HOROVOD_WITHOUT_MPI=1 ;; esac
  if [ "$framework" = pytorch ]; then export HOROVOD_WITH_PYTORCH=1; else export HOROVOD_WITHOUT_PYTORCH=1; fi
  PATH="$PWD/$VENV/bin:$PATH" MAKEFLAGS="-j$(allowed_cores)" HOROVOD_WITH_GLOO=1 HOROVOD_WITH_TENSORFLOW=1 \
    HOROVOD_WITHOUT_MXNET=1 \
    logged show_percentages in_venv -m pip wheel --verbose --no-build-isolation --no-deps --no-cache-dir \
    --wheel-dir "$build" "$source"
  in_venv -m zipfile -l "$build"/horovod-*.whl >"$build/names"
  for library in tensorflow ${framework:+torch}; do
    grep -q "horovod/$library/mpi_lib" "$build/names" || fail "the built wheel lacks the library for $library"
  done
  rm -rf "$source" "$build/names" "$cache"
  mv "$build" "$cache"
)

# logged FILTER COMMAND...: all output to the log, what FILTER lets through to the screen, on failure the remedy where it
# is known, else the log's end.
logged() {
  local filter=$1 from remedy
  shift
  touch "$LOG"
  from=$(($(wc -l <"$LOG") + 1))
  if ! "$@" 2>&1 | tee -a "$LOG" | "$filter"; then
    remedy=$(tail -n "+$from" "$LOG" | why)
    [ -z "$remedy" ] || fail "$remedy; all lines are in $LOG"
    tail -n 20 "$LOG" >&2
    fail "'${*:2:3} ...' failed; its last lines are above, all of them in $LOG"
  fi
}

# The remedy for what pip says, or nothing.
why() {
  awk '
    /No space left on device|Disk quota exceeded/ { full = 1 }
    /ProxyError|Cannot connect to proxy|Tunnel connection failed/ { proxy = 1 }
    /NewConnectionError|Failed to establish a new connection|name resolution|ConnectTimeout|Read timed out|Network is unreachable|from versions: none/ { network = 1 }
    /DO NOT MATCH THE HASHES/ { hashes = 1 }
    END {
      if (full) print "a disk is full, here, in the home or in TMPDIR; free some space, then run make setup again"
      else if (proxy) print "the proxy does not answer; correct or unset https_proxy (also HTTPS_PROXY, all_proxy, and proxy in the configuration of pip), then run make setup again"
      else if (hashes) print "a downloaded file is not the locked one, damaged or of an index that changes files; run PIP_NO_CACHE_DIR=1 make setup, or use another index"
      else if (network) print "packages cannot be downloaded; check the network, or set an index that is reached from here (pip config set global.index-url URL), then run make setup again"
    }'
}

show_downloads() { awk '/^ *Downloading .*MB\)|^Installing/ { sub(/^ */, ""); print "  " substr($0, 1, 100); fflush() }'; }

show_percentages() {
  awk 'match($0, /\[ *[0-9]+%\]/) { p = substr($0, RSTART + 1, RLENGTH - 3) + 0
         if (p >= shown + 10) { shown = p; print "  " p " %"; fflush() } }'
}

interrupted() {
  trap - INT TERM
  echo "setup: interrupted; make setup goes on from here" >&2
  exit 130
}

# read_wanted WHAT...: set GROUPS_WANTED, of those asked for and those there, PYTORCH_ASKED and PYTORCH_WANTED.
read_wanted() {
  local each
  PYTORCH_ASKED='' PYTORCH_WANTED='' GROUPS_WANTED=''
  for each in "$@"; do
    case $each in
      pytorch) PYTORCH_ASKED=1 ;;
      test | docs) ;;
      *) fail "WITH=$each is not known; leave it out, or use pytorch, test, docs, or several of them" ;;
    esac
  done
  [ -z "$PYTORCH_ASKED" ] && [ ! -e "$PYTORCH_STAMP" ] || PYTORCH_WANTED=1
  for each in test docs; do
    case " $* " in *" $each "*) ;; *) [ -e "$VENV/with-$each" ] || continue ;; esac
    GROUPS_WANTED+=" $each"
  done
}

# Two set-ups of one clone would undo each other's work. Where the file system has no locks, nothing is held.
hold_clone() {
  local code=0
  exec 9<"$PATCHES"
  flock --nonblock 9 2>/dev/null || code=$?
  if [ "$code" = 1 ]; then
    say "another set-up of this clone is running; waiting for it, for at most an hour"
    flock --timeout 3600 9 || fail "the other set-up of this clone still runs after an hour; end it, then run make setup again"
  fi
}

trap interrupted INT TERM
trap 'rm -rf "$VENV/tmp"' EXIT
read_wanted "$@" ${WITH:-}
forget_other_places
hold_clone
if ! { [ -f "$STAMP" ] && [ "$(cat "$STAMP")" = "$(stamp)" ] && is_usable; }; then
  find_python
  check_machine
  make_environment
  rm -f "$STAMP" "$LIBRARY_STAMP" "$HOROVOD_STAMP"
  install_dependencies
  remove_former
  IS_NEW=1
fi
add_library
add_groups
add_pytorch
add_horovod
if [ -n "${IS_NEW:-}" ]; then
  stamp >"$STAMP"
  say "done: the environment is $VENV"
fi
