"""The set-up: what it lacks is one clear line before anything is installed, and what is damaged it repairs.

Environments are real ones, made by `venv`. A stand-in for pip writes down what it is told to install, and installs
nothing: the real one takes minutes and the network, see .ci/run.
"""

import shutil
import signal
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest
from project import ROOT

NAME = f"python3.{sys.version_info.minor}"
OTHER = {"python3.11": "python3.12", "python3.12": "python3.11"}[NAME]
BASE = f"{sys.base_prefix}/bin/{NAME}"
PROGRAMS = (
    *("awk", "bash", "cat", "chmod", "comm", "cp", "cut", "df", "dirname", "flock", "getent", "grep", "id", "mkdir"),
    *("mktemp", "mv", "rm", "sed", "sha256sum", "sort", "tail", "tee", "touch", "tr", "uname", "wc"),
)
FILES = (
    "scripts/setup.sh",
    "scripts/patch_horovod.py",
    "scripts/study/core/isolation.py",
    "scripts/study/data/_numbers.cpp",
    "envs/requirements.lock",
    "envs/horovod.lock",
    "envs/test.lock",
    "envs/docs.lock",
    "pyproject.toml",
    "setup.py",
)

# A Python whose environments have the stand-in for pip. What it calls is the real one.
PYTHON = f"""#!/bin/bash
case "$*" in
  "-m venv "*)
    for folder; do :; done
    [ "$TEST_CTRL_C" != venv ] || {{{{ trap : INT; echo Traceback >&2; kill -INT 0; exit 1; }}}}
    {BASE} "$@" --without-pip && cp {{pip}} "$folder"/lib/{NAME}/site-packages/pip.py && : >"$folder/bin/pip" &&
      chmod +x "$folder/bin/pip" ;;
  *) exec {BASE} "$@" ;;
esac
"""
# It makes our library importable, with a compiled parser where the test has a Python.h, and Horovod from a wheel. All
# else is a line in the log, with those settings of pip that would put packages elsewhere.
PIP = f"""
import os, signal, sys, time
from pathlib import Path

def main():
    packages = Path(__file__).parent
    if "--editable" in sys.argv:
        (packages / "study.pth").write_text("{ROOT}/scripts")
        header = os.environ.get("TEST_HEADER")
        (packages / "stand_in.pth").write_text("import stand_in_for_headers")  # Debian has a sitecustomize of its own
        (packages / "stand_in_for_headers.py").write_text(
            "import sysconfig; real = sysconfig.get_path\\n"
            f"sysconfig.get_path = lambda name, *more: {{header!r}} if name == 'include' else real(name, *more)\\n")
        if header:
            Path("scripts/study/data/_numbers.cpython-%d%d-stand-in.so" % sys.version_info[:2]).touch()
    if any(each.endswith(".whl") for each in sys.argv):
        (packages / "horovod/tensorflow").mkdir(parents=True, exist_ok=True)
        (packages / "horovod/tensorflow/keras.py").touch()
    elsewhere = [each for each in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH") if each in os.environ]
    with open(os.environ["TEST_LOG"], "a") as log:
        print(*sys.argv[1:], *elsewhere, "user" if os.environ.get("PIP_USER") != "0" else "", file=log)

if "TEST_SAYS" in os.environ:
    sys.exit(os.environ["TEST_SAYS"])
if os.environ.get("TEST_CTRL_C") in sys.argv:  # as a terminal does, to all in the foreground; pip calls it an error
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.killpg(0, signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit("ERROR: Operation cancelled by user")
main()
"""


@pytest.fixture
def setup(tmp_path):
    """Run scripts/setup.sh in a copy, with few programs on PATH: ``setup("test", without=..., PYTHON=...)``."""
    root = tmp_path / "clone"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(shutil.which(name))
    for name in ("c++", "make"):
        (programs / name).symlink_to("/bin/true")
    (tmp_path / "pip.py").write_text(PIP)
    fake(programs / NAME, PYTHON.format(pip=tmp_path / "pip.py"))
    log = tmp_path / "pip.log"

    def run(*arguments, root=root, without=(), fakes=None, **variables):
        """The outcome; installed: the stand-in for pip's lines of this call."""
        for name in without:
            (programs / name).unlink()
        for name, text in (fakes or {}).items():
            fake(programs / name, f"#!/bin/bash\n{text}\n")
        environment = {
            "PATH": str(programs),
            "HOME": str(tmp_path),
            "PYTHON": NAME,
            "TEST_LOG": str(log),
            "TEST_HEADER": str(tmp_path),
        }
        log.write_text("")
        line = [root / "scripts" / "setup.sh", *arguments]
        done = subprocess.run(
            line, capture_output=True, text=True, env={**environment, **variables}, timeout=300, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run behind an &
        )  # fmt: skip
        return SimpleNamespace(
            root=root, code=done.returncode, out=done.stdout, err=done.stderr, installed=log.read_text().splitlines()
        )

    (tmp_path / "Python.h").touch()
    return run


def fake(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755 | stat.S_IXUSR)


def keep_built_horovod(setup, home):
    """A wheel in the cache, so that none is built: the set-up names the folder where it wants one."""
    done = setup(XDG_CACHE_HOME="/proc/1/no-folder")
    (named,) = (line for line in done.out.splitlines() if "kept in" in line)
    wheel = home / ".cache" / named.split("no-folder/")[1] / "horovod-0.28.1-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    return done


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"without": ["c++"]}, "there is no C++ compiler"),
        ({"without": ["make"]}, "there is no make"),
        ({"HOROVOD_WITH_MPI": "1", "HOROVOD_WITHOUT_MPI": "1"}, "are both 1; give one of them"),
        ({"PYTHON": "python9"}, "'python9' was not found"),
        ({"without": [NAME]}, f"'{NAME}' was not found or does not run; on Debian 12: apt install python3.11"),
        (
            {"without": [NAME], "PYTHON": "", "fakes": {"python3": "echo 3.13"}},
            "no Python 3.11 or 3.12 was found on PATH, only 3.13; on Debian 12: apt install python3.11",
        ),
        ({"without": [NAME], "PYTHON": ""}, "no Python 3.11 or 3.12 was found on PATH; on Debian 12: apt install"),
        ({"fakes": {"python3": "echo 3.9"}, "PYTHON": "python3"}, "'python3' is Python 3.9, the locked"),
        ({"fakes": {"df": "echo head; echo a b c 100 e f"}}, "100 MB are free here, the environment needs"),
        ({"fakes": {"uname": "echo $1 | sed 's/-s/Linux/; s/-m/aarch64/'"}}, "this is Linux on aarch64"),
        ({"WITH": "jax"}, "WITH=jax is not known; leave it out, or use pytorch, test, docs"),
        ({"HOME": "", "fakes": {"getent": "exit 2"}}, "HOME is not set, and this user has none"),
    ],
)
def test_what_is_missing_is_one_line(setup, arguments, words):
    done = setup(**arguments)
    assert done.code == 1
    assert done.err.startswith("setup: error: ")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert not (done.root / ".venv").exists()


def test_an_environment_is_made_once_and_made_anew_where_it_was_moved_or_damaged(setup, tmp_path):
    refused = keep_built_horovod(setup, tmp_path)
    assert refused.code == 1 and "set XDG_CACHE_HOME to a folder that you may write to" in refused.err
    made = setup("test")
    assert made.code == 0 and "done: the environment is .venv" in made.out, made.err
    assert [line for line in made.installed if "test.lock" in line], made.installed
    again = setup()
    assert (again.code, again.out, again.installed) == (0, "", []), "nothing is to be done"

    moved = made.root.rename(tmp_path / "moved folder")
    python = moved / ".venv" / "bin" / "python"
    for gone in (False, True):
        if gone:
            python.unlink()
            python.symlink_to(f"/no/{NAME}")
        done = setup(root=moved)
        assert done.code == 0 and "making .venv anew" in done.out, done.err
        locks = [line.split("/")[-1].strip() for line in done.installed if ".lock" in line]
        assert locks == ["requirements.lock", "test.lock"], "what was there besides is there again"
        assert setup(root=moved).out == ""


def test_of_two_pythons_the_one_that_is_there_is_taken(setup, tmp_path):
    (tmp_path / "bin" / NAME).rename(tmp_path / "bin" / OTHER)
    done = setup(PYTHON="", XDG_CACHE_HOME="/proc/1/no-folder")
    assert "set XDG_CACHE_HOME" in done.err and done.installed, "all but Horovod, which is kept there"


def test_settings_that_put_packages_elsewhere_do_not_reach_pip_and_former_packages_leave(setup, tmp_path):
    keep_built_horovod(setup, tmp_path)
    elsewhere = {
        "PIP_USER": "1",
        "PIP_TARGET": str(tmp_path / "target"),
        "PYTHONPATH": str(tmp_path),
        "PIP_PREFIX": "/x",
    }
    lock = tmp_path / "clone" / "envs" / "requirements.lock"
    locked = lock.read_text()
    lock.write_text(locked + "former-package==1.0 \\\n    --hash=sha256:0\n")
    of_user = {"fakes": {"getent": f"echo me:x:0:0::{tmp_path}:/bin/sh"}, "HOME": ""}
    done = setup(**elsewhere, **of_user)
    assert done.code == 0 and done.installed, done.err
    assert [line for line in done.installed if line.endswith(("PATH", "TARGET", "PREFIX", "user"))] == []
    lock.write_text(locked)
    assert "uninstall --quiet --yes former-package" in " ".join(setup(**elsewhere).installed)


@pytest.mark.parametrize("step", ["venv", "install", "download"])
def test_ctrl_c_is_no_error(setup, step):
    """While the environment is made, while packages are installed, and while Horovod is built."""
    done = setup(TEST_CTRL_C=step)
    assert (done.code, done.err) == (130, "setup: interrupted; make setup goes on from here\n"), done.out
