"""Scaling once after the conversion gives the bits of scaling in each run, and what is mapped stays one copy."""

import subprocess
import sys

import numpy as np
import pytest

from study.core.errors import StudyError
from study.core.files import write_sealed
from study.data import feature_scaling
from study.data.loaders import map_matrix, touch_pages
from study.experiment import conversions


@pytest.fixture
def matrices():
    random = np.random.default_rng(1)
    return [random.normal(5, 2, (rows, 7)).astype(np.float32) for rows in (150, 40)]


@pytest.mark.parametrize(
    "fit",
    [feature_scaling.fit_max_abs, feature_scaling.fit_min_max, lambda first, _: feature_scaling.fit_standard(first)],
)
def test_scaled_beforehand(tmp_path, matrices, fit):
    scaler = fit(*matrices)
    feature_scaling.save_scalers(
        {"train": scaler, "train.more": fit(*(matrix + 1 for matrix in matrices))}, tmp_path / "scalers.npz"
    )
    feature_scaling.write_scaled(
        matrices[0], feature_scaling.load_scaler(tmp_path / "scalers.npz", "train"), tmp_path / "train.npy"
    )
    scaler.apply(matrices[0])
    assert np.load(tmp_path / "train.npy").tobytes() == matrices[0].tobytes()


def test_a_file_that_was_scaled_from_other_converted_files_is_refused(tmp_path, monkeypatch):
    read = {"files": 1, "bytes": 9, "digest": "a", "sample": None, "token": None}
    table = {"shape": [2, 3], "codes": [], "columns": [3, "a"], "has_plain_numbers": True, "read": read}
    sidecars, scaled = {"train": str(tmp_path / "train.json")}, str(tmp_path / "scaled.json")
    write_sealed(sidecars["train"], {**table, "sha256": "first", "source": {"bytes": 9, "sha256": "b"}})
    assert not conversions.has_other_scaling(scaled, sidecars), "there is none"
    write_sealed(scaled, conversions.describe_scaling(sidecars))
    conversions.check_scaled_file(scaled, sidecars)
    with monkeypatch.context() as patch, pytest.raises(StudyError, match="scaled.json: its file was scaled from other"):
        patch.setattr(feature_scaling, "SCALING_VERSION", 99)
        conversions.check_scaled_file(scaled, sidecars)
    write_sealed(sidecars["train"], {**table, "sha256": "second", "source": {"bytes": 9, "sha256": "b"}})
    assert conversions.has_other_scaling(scaled, sidecars)


def test_a_wide_matrix_is_scaled_as_its_columns_alone(matrices):
    """So that P1B3's columns may be drawn after the scaling."""
    matrix = matrices[0]
    matrix[3, 2] = np.nan
    drawn = matrix[:, [1, 2, 5]].copy()
    feature_scaling.fit_standard(drawn).apply(drawn)
    feature_scaling.fit_standard(matrix).apply(matrix)
    assert matrix[:, [1, 2, 5]].tobytes() == drawn.tobytes()


def test_what_is_written_to_a_mapped_matrix_stays_with_the_process(tmp_path, matrices):
    np.save(tmp_path / "m.npy", matrices[0])
    mapped = map_matrix(tmp_path / "m.npy")
    mapped[:] = 0
    assert np.array_equal(np.load(tmp_path / "m.npy"), matrices[0])


def test_touching_reads_a_value_of_each_page(tmp_path):
    np.save(tmp_path / "m.npy", np.ones((8, 1024), dtype=np.float32))
    assert touch_pages(map_matrix(tmp_path / "m.npy")) == 8


@pytest.mark.slow
def test_batches_of_a_mapped_file_do_not_copy_it(tmp_path):
    """Memory that is not the file's own grows by batches, neither by the file nor by what TensorFlow makes of it."""
    np.save(tmp_path / "m.npy", np.ones((2000, 30_000), dtype=np.float32))
    program = f"""
import re, sys
import numpy as np
from study.data.loaders import map_matrix
from study.backends.tensorflow.input import make_batches
from study.data.order import EpochOrder
from study.data.samples import Arrays
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1000
small = np.zeros((40, 8), dtype=np.float32)
list(make_batches(Arrays(small, small), 20, EpochOrder(1, 0)))
before = anonymous()
x = map_matrix({str(tmp_path / "m.npy")!r})
samples = Arrays(x, x).rows(np.random.default_rng(1).permutation(len(x)))
seen = sum(len(found) for found, _ in make_batches(samples.rows(slice(100, None)), 20, EpochOrder(1, 0)))
print(seen, anonymous() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seen, grown_mb = done.stdout.split()
    assert int(seen) == 1900
    assert float(grown_mb) < 60, "of 240 MB"
