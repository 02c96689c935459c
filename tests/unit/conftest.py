"""The fixtures by which tests make the directories of runs, and tables of them."""

import os
from functools import partial

# Before anything imports TensorFlow, as in `study.backends.tensorflow`.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pandas as pd
import pytest
import run_files
from examples import expand

from study.records.tidy import runs_frame


@pytest.fixture
def make_run(tmp_path):
    """Make the directory of one run: ``make_run(run, status="ok", times=[1.0], ...)``; see `run_files.make_run`."""
    return partial(run_files.make_run, tmp_path)


@pytest.fixture
def make_recorded(tmp_path):
    """As ``make_run``; the run has its record."""
    return partial(run_files.make_recorded, tmp_path)


@pytest.fixture
def ensembles(make_recorded, tmp_path):
    """The tidy table of runs of ensembles: ``ensembles({"input_sharing": "all_shared", "training_s": [...]}, ...)``.

    Lists are values by block; keys and columns that are not given are those of a run of four members that trains.
    """
    (run,) = expand(scaling="weak", epochs=1, gpus=1)
    make_recorded(run)
    row = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0].to_dict()
    row |= {"ensemble": 4, "gpus": 4, "input_sharing": "duplicated", "measure": "train", "compute": "measured"}
    nothing = ("makespan_s", "samples_preprocessed", "shared_mb", "ranks_cpu_s", "input_stall_s", "data_memory_mb",
               "peak_samples_per_s", "compute_samples_per_s", "preprocessing_cpu_s", "communication_cpu_s")  # fmt: skip
    row |= dict.fromkeys(nothing)

    def build(*points):
        rows = []
        for point in points:
            for block in range(1, max((len(v) for v in point.values() if isinstance(v, list)), default=1) + 1):
                at = {name: value[block - 1] if isinstance(value, list) else value for name, value in point.items()}
                place = {"repeat": block, "block": block, "started_wall_ns": 1000 * block + len(rows) % 500}
                rows.append({**row, **place, "record": f"{len(rows)}/record.json", **at})
        return pd.DataFrame(rows)

    return build
