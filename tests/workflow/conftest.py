"""The tiny study, run once for real: Snakemake, Horovod, TensorFlow."""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from project import BIN, ROOT, TINY, WAIT_S, Project, copy_of_project, copy_tree, has_mpi

from study.launch import variables


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
    copy_tree(finished.root, target)
    return Project(target)


@pytest.fixture
def fresh(tmp_path):
    """A copy of the project in which nothing has run."""
    return copy_of_project(tmp_path / "project")


@pytest.fixture
def mpi():
    """For a test that needs it."""
    if not has_mpi():
        pytest.skip("Horovod is built without MPI")


@pytest.fixture(scope="session")
def ranks():
    """Run a script of this folder on real Horovod ranks: ``ranks(2, "script.py", ...)`` gives the finished process."""

    def run(number, script, *arguments, variables=None):
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
        own = {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT / "scripts")}
        environment = {**os.environ, **(variables or {}), **own}
        return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=WAIT_S)

    return run


@dataclass
class RankRun:
    """What ranks_weights.py left of a run."""

    folder: Path
    weights: list[np.ndarray]
    metrics: dict
    history: pd.DataFrame


@pytest.fixture(scope="module")
def trained(ranks, tmp_path_factory):
    """Train a point once per module, with its variables: ``trained(point, *options of ranks_weights.py)``.

    and_then: other points for the same processes, as to import TensorFlow takes longer than to train. Their variables,
    and numbers of ranks, must be those of the first point.
    """
    runs, data = {}, tmp_path_factory.mktemp("data")

    def train(point, *options, and_then=()):
        together = [expand(**each)[0] for each in (point, *and_then)]
        first = together[0]
        if first.directory not in runs:
            folders, of_runs = [tmp_path_factory.mktemp("run") for _ in together], []
            for planned, folder in zip(together, folders, strict=True):
                run = define(planned, data_dir=str(data))
                run.write(folder / "run.yaml")
                make_data(planned, data)
                of_runs.append((planned.gpus, variables.define_run_variables(run, folders[0], WAIT_S)))
            assert all(each == of_runs[0] for each in of_runs), "one set of processes cannot train them all"
            done = ranks(first.gpus, "ranks_weights.py", *folders, *options, variables=of_runs[0][1])
            assert done.returncode == 0, done.stdout + done.stderr
            runs.update({each.directory: left_in(folder) for each, folder in zip(together, folders, strict=True)})
        return runs[first.directory]

    return train


def left_in(folder):
    """The `RankRun` of a folder."""
    with np.load(folder / "weights.npz") as weights:
        arrays = [weights[name] for name in weights.files]
    metrics = json.loads((folder / "metrics.json").read_text())
    return RankRun(folder, arrays, metrics, pd.read_csv(folder / "history.csv"))
