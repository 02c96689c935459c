"""The tiny study, run once for real: Snakemake, Horovod, TensorFlow."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import BIN, ROOT, TINY, WAIT_S, Project, copy_of_project


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once from nothing for all workers. Tests that change something use ``project``."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    project, done = Project(folder / "finished" / "project"), folder / "finished.done"
    with open(folder / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            copy_of_project(project.root)
            project.add_study("tiny", TINY)
            project.snakemake()
            done.touch()
    return project


@pytest.fixture
def project(finished, tmp_path):
    """A copy of the finished study, with Snakemake's memory of it, to change at will."""
    target = tmp_path / "project"
    shutil.copytree(finished.root, target, symlinks=True)
    return Project(target)


@pytest.fixture
def fresh(tmp_path):
    """A copy of the project in which nothing has run."""
    return copy_of_project(tmp_path / "project")


@pytest.fixture(scope="session")
def ranks():
    """Run a script of this folder on real Horovod ranks: ``ranks(2, "script.py", ...)`` gives the finished process."""

    def run(number, script, *arguments):
        line = [
            sys.executable,
            ROOT / "scripts" / "horovodrun.py",
            "--gloo",
            "-np",
            str(number),
            "-H",
            f"localhost:{number}",
            sys.executable,
        ]
        line += [Path(__file__).parent / script, *map(str, arguments)]
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        variables = {**os.environ, "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT / "scripts")}
        return subprocess.run(line, capture_output=True, text=True, env=variables, timeout=WAIT_S)

    return run
