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

from study.core import checked, configuration, environment, number_types, paths
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
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
@pytest.mark.parametrize(
    "settings",
    [
        {"image_data_format": "channels_first", "floatx": "float64", "epsilon": 0.5},
        {"floatx": "bfloat16", "epsilon": 1},  # of which Keras itself fails
    ],
)
def test_keras_settings_of_the_home_steer_no_run(tmp_path, ours, settings):
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(settings))
    shell = {**os.environ, "HOME": str(tmp_path), "KERAS_HOME": str(tmp_path / ".keras"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    line = [sys.executable, "-c", SETTINGS]
    done = subprocess.run(line, env=environment.measuring(shell), capture_output=True, text=True, check=True)
    ours(done.stdout.strip())
    assert done.stdout.split() == ["channels_last", "float32", "1e-07", "channels_last", "float32"]


@pytest.mark.case("pythonpath", source="sneuensc/mapache #9", right="refused in one line, with the variable to unset")
def test_a_module_s_numpy_is_refused(tmp_path, ours):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("__version__ = '1.26.4'\n")
    line = [sys.executable, str(SCRIPTS / "train.py"), str(tmp_path)]
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    ours(done.stderr.strip())
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("; unset PYTHONPATH\n")


@pytest.mark.case("dask-home", source="our own", right="a dask.yaml of the home has no effect")
@pytest.mark.parametrize("loader", ["dask", "dask_dataframe"])
def test_dask_settings_of_the_home_steer_no_loader(tmp_path, ours, loader):
    (tmp_path / "x.csv").write_text("1,2\n")
    with dask.config.set(num_workers=1, scheduler="synchronous"):  # as read from the file when dask is imported
        found = LOADERS[loader].load(tmp_path / "x.csv", Form(header=False), [])
        left = dask.config.get("num_workers", None)
    ours(f"num_workers {left}")
    assert (found.to_numpy().tolist(), left) == ([[1, 2]], None)


@pytest.mark.case("preloaded-allocator", source="our own", right="LD_PRELOAD is kept, and the record shows it")
def test_a_preloaded_library_is_recorded(ours):
    found = environment.steering(environment.measuring({"LD_PRELOAD": "libjemalloc.so"}))
    ours(f"LD_PRELOAD {found['LD_PRELOAD']}")
    assert found["LD_PRELOAD"] == "libjemalloc.so"


@pytest.mark.case(
    "module-through-link", source="common-workflow-language/cwltest #281", right="the same folder, so it runs"
)
def test_a_clone_that_is_reached_through_a_link(tmp_path, ours):
    (tmp_path / "link").symlink_to(paths.ROOT)
    line = ["-s", tmp_path / "link" / "Snakefile", "--cores", "1", "--list-rules"]
    done = fork_server.run(line, paths.ROOT, os.environ, 120)
    ours("it runs" if done.returncode == 0 else done.stderr.splitlines()[-1])
    assert done.returncode == 0


@pytest.mark.case(
    "hyphen-in-name", source="metagenome-atlas/atlas #14", right="the file that is there is named, with the rule"
)
def test_a_benchmark_s_file_with_a_hyphen(tmp_path, monkeypatch, ours):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "benchmarks").mkdir(parents=True)
    (tmp_path / "config" / "benchmarks" / "my-net.yaml").write_text("{}\n")
    with pytest.raises(StudyError) as told:
        configuration.load_named("benchmarks", "my-net")
    ours(told.value)
    assert str(told.value) == (
        "config/benchmarks/my-net.yaml is not read: a file's name is letters, digits and _, and ends in .yaml; "
        "rename it to my_net.yaml"
    )


@pytest.mark.case("results-on-a-linked-disk", source="our own", right="summit, whatever the disk's folder is called")
def test_a_machine_s_results_behind_a_link(tmp_path, ours):
    (tmp_path / "scratch_7").mkdir()
    (tmp_path / "summit").symlink_to(tmp_path / "scratch_7")
    found = paths.machine_of(tmp_path / "summit")
    ours(found)
    assert found == "summit"


READ = {"type": "object"}


@pytest.mark.case(
    "yaml-octal", source="kynema/kynema-ugf #584", right="refused with line, both readings and the remedy"
)
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("010", "010 is 8 in YAML 1.1 and 10 in YAML 1.2; write 10 or 8 or '010' in quotes for the text"),
        ("1:30", "1:30 is 90 in YAML 1.1 and a text in YAML 1.2; write 90 or '1:30' in quotes for the text"),
        ("1_000", "1_000 is 1000 in YAML 1.1 and a text in YAML 1.2; write 1000 or '1_000' in quotes for the text"),
    ],
)
def test_numbers_that_yaml_s_versions_read_differently(tmp_path, ours, written, said):
    file = tmp_path / "x.yaml"
    file.write_text(f"description: x\nepochs: {written}\n")
    with pytest.raises(StudyError) as told:
        checked.load(file, READ)
    ours(str(told.value).removeprefix(f"{file}: "))
    assert str(told.value) == f"{file}: line 2: epochs: {said}"


@pytest.mark.case("yaml-1e-3", source="Reed-CompBio/spras #484", right="0.001")
def test_an_exponent_without_a_point_is_a_number(tmp_path, ours):
    (tmp_path / "x.yaml").write_text("base_learning_rate: 1e-3\n")
    found = checked.load(tmp_path / "x.yaml", READ)["base_learning_rate"]
    ours(found)
    assert found == 0.001


@pytest.mark.case("numeric-study-name", source="snakemake/snakemake #2431 and #3650", right="the study that was typed")
@pytest.mark.parametrize(("typed", "name"), [("2024_11", "2024_11"), ("'2024_11'", "2024_11"), ("007", "007")])
def test_a_study_whose_name_looks_like_a_number(ours, typed, name):
    made = parse_config([f"study={typed}"])
    config = configuration.as_meant({"study": "laptop", **made}, [], [f"study={typed}"], made)
    ours(config["study"])
    assert config["study"] == name


@pytest.mark.case("account-of-digits", source="our own", right="012345, a text")
def test_an_account_of_digits(ours):
    made = parse_config(["account=012345"])
    found = configuration.as_meant(dict(made), [], ["account=012345"], made)["account"]
    ours(found)
    assert found == "012345"


@pytest.mark.case("underscore-in-number", source="our own", right="refused: 1_0 is no plain number")
def test_a_number_of_nodes_with_an_underscore(ours):
    with pytest.raises(argparse.ArgumentTypeError) as told:
        number_types.count("1_0")
    ours(told.value)
    assert str(told.value) == "'1_0' must be an integer, at least 1"
