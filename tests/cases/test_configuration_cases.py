"""Configuration files, command lines and surroundings of users, and what they must give."""

import argparse
import json
import os
import subprocess
import sys

import dask
import fork_server
import pytest
from snakemake.cli import parse_config

from study.core import configuration, environment, number_types, paths
from study.data.loaders import LOADERS
from study.data.tabular import Form

SETTINGS = """
import tf_keras
backend, layer = tf_keras.backend, tf_keras.layers.Conv1D(1, 1)
print(backend.image_data_format(), backend.floatx(), backend.epsilon(), layer.data_format, layer.dtype)
"""


@pytest.mark.case(
    "keras-json", source="perslev/U-Time #9", right="channels_last float32 1e-07, whatever the home holds"
)
def test_keras_settings_of_the_home_steer_no_run(tmp_path):
    settings = {"image_data_format": "channels_first", "floatx": "bfloat16", "epsilon": 1}  # of which Keras fails
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(settings))
    shell = {**os.environ, "HOME": str(tmp_path), "KERAS_HOME": str(tmp_path / ".keras"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    line = [sys.executable, "-c", SETTINGS]
    done = subprocess.run(
        line, env=environment.build_measuring_environment(shell), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["channels_last", "float32", "1e-07", "channels_last", "float32"]


@pytest.mark.case("dask-home", source="our own", right="a dask.yaml of the home has no effect")
@pytest.mark.parametrize("loader", ["dask", "dask_dataframe"])
def test_dask_settings_of_the_home_steer_no_loader(tmp_path, loader):
    (tmp_path / "x.csv").write_text("1,2\n")
    with dask.config.set(num_workers=1, scheduler="synchronous"):  # as read from the file when dask is imported
        found = LOADERS[loader].load(tmp_path / "x.csv", Form(header=False), [])
        left = dask.config.get("num_workers", None)
    assert (found.to_numpy().tolist(), left) == ([[1, 2]], None)


@pytest.mark.case(
    "module-through-link", source="common-workflow-language/cwltest #281", right="the same folder, so it runs"
)
def test_a_clone_that_is_reached_through_a_link(tmp_path):
    (tmp_path / "link").symlink_to(paths.ROOT)
    line = ["-s", tmp_path / "link" / "Snakefile", "--cores", "1", "--list-rules"]
    done = fork_server.run(line, paths.ROOT, os.environ, 120)
    assert done.returncode == 0


@pytest.mark.case("numeric-study-name", source="snakemake/snakemake #2431 and #3650", right="the study that was typed")
@pytest.mark.parametrize(("typed", "name"), [("2024_11", "2024_11"), ("'2024_11'", "2024_11"), ("007", "007")])
def test_a_study_whose_name_looks_like_a_number(typed, name):
    made = parse_config([f"study={typed}"])
    config = configuration.restore_typed_values({"study": "laptop", **made}, [], [f"study={typed}"], made)
    assert config["study"] == name


@pytest.mark.case("underscore-in-number", source="our own", right="refused: 1_0 is no plain number")
def test_a_number_of_nodes_with_an_underscore():
    with pytest.raises(argparse.ArgumentTypeError) as told:
        number_types.parse_count("1_0")
    assert str(told.value) == "'1_0' must be an integer, at least 1"
