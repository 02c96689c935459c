"""Configuration files, command lines and surroundings of users, and what they must give."""

import json
import os
import subprocess
import sys

import dask
import pytest

from study.core import environment
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
def test_dask_settings_of_the_home_steer_no_loader(tmp_path, ours):
    (tmp_path / "x.csv").write_text("1,2\n")
    with dask.config.set(num_workers=1, scheduler="synchronous"):  # as read from the file when dask is imported
        found = LOADERS["dask"].load(tmp_path / "x.csv", Form(header=False), [])
        left = dask.config.get("num_workers", None)
    ours(f"num_workers {left}")
    assert (found.to_numpy().tolist(), left) == ([[1, 2]], None)


@pytest.mark.case("preloaded-allocator", source="our own", right="LD_PRELOAD is kept, and the record shows it")
def test_a_preloaded_library_is_recorded(ours):
    found = environment.steering(environment.measuring({"LD_PRELOAD": "libjemalloc.so"}))
    ours(f"LD_PRELOAD {found['LD_PRELOAD']}")
    assert found["LD_PRELOAD"] == "libjemalloc.so"
