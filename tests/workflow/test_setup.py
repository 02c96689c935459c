"""What the set-up lacks is one clear line before anything is installed."""

import shutil
import stat
import subprocess
import sys

import pytest
from project import ROOT

NEEDED = ["bash", "uname", "cat", "sha256sum", "cut", "df", "awk", "sed", "dirname", "rm"]


@pytest.fixture
def setup(tmp_path):
    """Run scripts/setup.sh in a copy, with only some programs on PATH: ``setup(without=..., python=...)``."""
    root = tmp_path / "clone"
    for name in ("scripts/setup.sh", "envs/requirements.lock", "envs/horovod.lock", "profiles/local/config.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in [*NEEDED, "c++", "make"]:
        (programs / name).symlink_to(shutil.which(name))

    def run(without=(), fakes=None, **variables):
        for name in without:
            (programs / name).unlink()
        for name, text in (fakes or {}).items():
            (programs / name).unlink(missing_ok=True)
            (programs / name).write_text(f"#!/bin/bash\n{text}\n")
            (programs / name).chmod(0o755 | stat.S_IXUSR)
        environment = {
            "PATH": str(programs),
            "HOME": str(tmp_path),
            "PYTHON": f"{sys.base_prefix}/bin/python3.11",
            **variables,
        }
        done = subprocess.run([root / "scripts" / "setup.sh"], capture_output=True, text=True, env=environment)
        return root, done

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"without": ["c++"]}, "there is no C++ compiler"),
        ({"without": ["make"]}, "there is no make"),
        ({"HOROVOD_WITH_MPI": "1", "HOROVOD_WITHOUT_MPI": "1"}, "are both 1; give one of them"),
        ({"PYTHON": "python9"}, "'python9' was not found"),
        ({"fakes": {"python3": "echo 3.9"}, "PYTHON": "python3"}, "'python3' is Python 3.9, the locked"),
        ({"fakes": {"df": "echo head; echo a b c 100 e f"}}, "100 MB are free here, the environment needs"),
        ({"fakes": {"uname": "echo $1 | sed 's/-s/Linux/; s/-m/aarch64/'"}}, "this is Linux on aarch64"),
    ],
)
def test_what_is_missing_is_one_line(setup, arguments, words):
    root, done = setup(**arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (root / ".venv").exists()
