"""Synthetic files look like the real ones: form, bytes a value, and what can be learnt from them."""

import copy
import hashlib

import numpy as np
import pytest

from study import workloads
from study.core import configuration
from study.core.errors import StudyError
from study.data.conversion import convert
from study.data.csv_writer import format_rows
from study.data.tabular import Form
from study.workloads.synthetic import generate_file

SPEC = configuration.load_named("benchmarks", "nt3")


def shape(train=64, test=16, features=600, seed=7):
    return {"train_samples": train, "test_samples": test, "features": features, "seed": seed}


def written(path, definition, split="train"):
    generate_file(path, "nt3", SPEC, definition, split)
    return path


def matrix(path, name="nt3", file="train"):
    """What the conversion makes of a file; it also checks every value."""
    form = Form.from_spec(configuration.load_named("benchmarks", name)["files"][file])
    convert(path, path.with_suffix(".npy"), path.with_suffix(".json"), form)
    return np.load(path.with_suffix(".npy"))


@pytest.mark.parametrize(
    ("decimals", "zero", "text"),
    [
        (6, b"0.0", b"1,0.0,1.500000,9.999999\n0,0.000001,0.0,13.250000\n"),
        (3, b"0", b"1,0,1.500,9.999\n0,0,0,13.250\n"),
        (0, b"0", b"1,0,1,9\n0,0,0,13\n"),
    ],
)
def test_values_are_written_as_numbers_that_read_back(decimals, zero, text):
    values = np.array([[0.0, 1.5, 9.999999], [1e-6, 0.0, 13.25]])
    assert format_rows([b"1", b"0"], values, decimals, zero) == text


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    digests = [
        hashlib.sha256(written(tmp_path / name, shape(seed=seed), split).read_bytes()).hexdigest()
        for name, seed, split in (("a", 7, "train"), ("b", 7, "train"), ("c", 8, "train"), ("d", 7, "test"))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("name", "features", "bytes_per_value"),
    # Table 1's sizes are MiB, rounded up (P1B2's 169,631,113 bytes are its 162). NT3 has 1,120 rows, the others 3,000.
    [("nt3", 6000, 597 * 2**20 / (1120 * 60484)), ("p1b1", 6000, 771 * 2**20 / (3000 * 60485)),
     ("p1b2", 6000, 169_631_113 / (3000 * 28206))],
)  # fmt: skip
def test_bytes_a_value_are_the_real_files(tmp_path, name, features, bytes_per_value):
    spec = configuration.load_named("benchmarks", name)
    generate_file(tmp_path / "t.csv", name, spec, shape(train=200, features=features), "train")
    text = (tmp_path / "t.csv").read_bytes()
    body = text[text.index(b"\n") + 1 :] if spec["files"]["train"]["header"] else text
    assert len(body) / (200 * features) == pytest.approx(bytes_per_value, rel=0.005)


@pytest.mark.parametrize(("name", "dropped"), [("nt3", [1, 2, 3]), ("p1b1", ["g0"]), ("p1b2", ["g1", "g5"])])
def test_columns_that_a_benchmark_drops_come_on_top_of_the_features(tmp_path, name, dropped):
    spec = copy.deepcopy(configuration.load_named("benchmarks", name))
    form = spec["files"]["train"]
    form["drop"] = [*form.get("drop", []), *dropped]
    generate_file(tmp_path / "t.csv", name, spec, shape(features=60), "train")
    rows, columns = workloads.load_workload(name, spec).expected_shape("train", shape(features=60))
    convert(tmp_path / "t.csv", tmp_path / "t.npy", tmp_path / "t.json", Form.from_spec(form), rows, columns)
    assert np.load(tmp_path / "t.npy").shape == (64, 1 + 60)


def test_train_and_test_share_what_tells_the_classes_apart(tmp_path):
    train = matrix(written(tmp_path / "train.csv", shape()))
    test = matrix(written(tmp_path / "test.csv", shape(), "test"))
    centres = [train[train[:, 0] == label, 1:].mean(axis=0) for label in (0, 1)]
    distances = [np.linalg.norm(test[:, 1:] - centre, axis=1) for centre in centres]
    assert np.array_equal(np.argmin(distances, axis=0), test[:, 0])


@pytest.mark.slow
def test_p1b3_s_files_are_narrow_and_wide_as_the_real_ones(tmp_path):
    """25,722 genes to 3,809 descriptors; about seven short lines in the response for each that the filters leave."""
    spec = configuration.load_named("benchmarks", "p1b3")
    paths = {}
    for file, form in spec["files"].items():
        paths[file] = tmp_path / form["name"]
        generate_file(paths[file], "p1b3", spec, shape(train=2000, test=100, features=29531), file)
    matrices = {file: matrix(path, "p1b3", file) for file, path in paths.items()}
    assert matrices["expression"].shape == (60, 1 + 25722)
    assert matrices["descriptors"].shape[1] == 1 + 3809
    assert matrices["response"].shape[1] == 4
    lines = len(matrices["response"])
    assert lines / 2100 == pytest.approx(7.1 * (0.5 + 0.5 / 0.7), rel=0.01)
    assert 30 < paths["response"].stat().st_size / lines < 40
    assert np.isnan(matrices["descriptors"]).mean() == pytest.approx(0.01, abs=0.002)


def test_an_error_leaves_no_file(tmp_path, monkeypatch):
    def failing(*_):
        yield b"0,1\n"
        raise StudyError("stop")

    monkeypatch.setattr(workloads.load_workload("nt3", SPEC).__class__, "synthetic_blocks", failing)
    with pytest.raises(StudyError):
        written(tmp_path / "t.csv", shape())
    assert list(tmp_path.iterdir()) == []
