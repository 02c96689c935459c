"""Synthetic NT3 files look like the real ones and can be told apart by class."""

import hashlib

import numpy as np
import pytest

from study import benchmarks, configuration
from study.datasets.conversion import Expected, convert
from study.datasets.csv_writer import format_block
from study.datasets.synthetic import generate
from study.errors import StudyError
from study.loaders import read_csv

SPEC = configuration.load_named("benchmarks", "nt3")


def shape(train=64, test=16, features=600, seed=7):
    return {"train_samples": train, "test_samples": test, "features": features, "seed": seed}


def written(path, definition, split="train"):
    generate(path, "nt3", SPEC, definition, split)
    return path


def test_values_are_written_as_numbers_that_read_back():
    values = np.array([[0.0, 1.5, 9.999999], [1e-6, 0.0, 3.25]])
    assert format_block([1, 0], values) == b"1,0.0,1.500000,9.999999\n0,0.000001,0.0,3.250000\n"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    digests = [
        hashlib.sha256(written(tmp_path / name, shape(seed=seed), split).read_bytes()).hexdigest()
        for name, seed, split in (("a", 7, "train"), ("b", 7, "train"), ("c", 8, "train"), ("d", 7, "test"))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_file_has_the_real_ones_form(tmp_path):
    """No header, the label in column 0, 8.8 bytes a value (the real NT3 training file), classes balanced."""
    path = written(tmp_path / "t.csv", shape(train=101, features=6000))
    bytes_per_value = path.stat().st_size / (101 * 6001)
    assert bytes_per_value == pytest.approx(8.8, abs=0.05)
    matrix = read_csv(path)
    assert matrix.shape == (101, 6001)
    assert sorted(np.bincount(matrix[:, 0].astype(int))) == [50, 51]
    convert(path, tmp_path / "m.npy", tmp_path / "m.json", Expected(0, 2, 101, 6001))


def test_train_and_test_share_what_tells_the_classes_apart(tmp_path):
    train = read_csv(written(tmp_path / "train.csv", shape()))
    test = read_csv(written(tmp_path / "test.csv", shape(), "test"))
    centres = [train[train[:, 0] == label, 1:].mean(axis=0) for label in (0, 1)]
    distances = [np.linalg.norm(test[:, 1:] - centre, axis=1) for centre in centres]
    assert np.array_equal(np.argmin(distances, axis=0), test[:, 0])


def test_an_error_leaves_no_file(tmp_path, monkeypatch):
    def failing(*_):
        yield b"0,1\n"
        raise StudyError("stop")

    monkeypatch.setattr(benchmarks.get("nt3", SPEC).__class__, "synthetic_blocks", failing)
    with pytest.raises(StudyError):
        written(tmp_path / "t.csv", shape())
    assert list(tmp_path.iterdir()) == []
