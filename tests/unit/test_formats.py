"""Every format gives back the matrix that it was given; what it costs is in the loading measurement and its table."""

import json

import numpy as np
import pandas as pd
import pytest

from study.core import code_version
from study.core.errors import StudyError
from study.data import formats, loader_timing
from study.data.conversion import convert
from study.data.tabular import Form
from study.records import tidy
from study.report.figures import drawing, formats_drawing
from study.report.figures.description import load_description
from study.report.tables import TABLES

FORM = {"header": False, "codes": [{"column": 0, "values": [0, 1]}], "split": "train"}


@pytest.mark.parametrize("name", formats.FORMATS)
@pytest.mark.parametrize("shape", [(1, 1), (130, 3), (5, 300)])
def test_the_same_matrix_comes_back(tmp_path, name, shape):
    matrix = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    matrix[0, 0] = np.nan
    path = tmp_path / f"matrix.{name}"
    formats.FORMATS[name].write(matrix, path)
    found = formats.read_matrix(name, path)
    assert (found.dtype, found.shape) == (np.float32, shape)
    assert found.tobytes() == matrix.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "one file, whose size can be told"


@pytest.mark.slow
def test_lmdb_has_room_for_a_million_small_rows(tmp_path):
    """Each needs more for its key than for its value."""
    matrix = np.arange(1_000_000, dtype=np.float32)[:, None]
    formats.FORMATS["lmdb"].write(matrix, tmp_path / "m")
    assert formats.read_matrix("lmdb", tmp_path / "m").tobytes() == matrix.tobytes()


def test_what_could_not_be_stored_whole_is_not_loaded_later(tmp_path, monkeypatch):
    """A disk that gets full leaves a part of a file, which another repeat would find."""

    def failing(script, loader, source, path):
        path.write_bytes(b"a part")
        return {**loader_timing.FAILED, "message": "no room"}

    monkeypatch.setattr(loader_timing, "_run_in_new_process", failing)
    sample = loader_timing._time_load("lmdb", {"raw": "raw.csv", "npy": "m.npy"}, "warm", tmp_path)
    assert (sample["status"], sample["message"]) == ("failed", "no room")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", formats.FORMATS)
def test_what_is_no_file_of_the_format(tmp_path, name):
    (tmp_path / "m").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(StudyError, match=f"m: cannot be read as {name}"):
        formats.read_matrix(name, tmp_path / "m")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A loading measurement of a small file, collected; with a format whose file cannot be written."""
    folder = tmp_path_factory.mktemp("formats")
    (folder / "raw.csv").write_text("0,1.5,2\n1,-3,4\n" * 50)
    convert(folder / "raw.csv", folder / "m.npy", folder / "m.json", Form.from_spec(FORM))
    paths = {"raw": folder / "raw.csv", "npy": folder / "m.npy", "sidecar": folder / "m.json"}
    files = {"train": {**{name: str(path) for name, path in paths.items()}, "form": FORM}}
    labels = {"machine": "m", "benchmark": "nt3", "dataset": "d"}
    loader_timing.measure_loading(
        files, ["npy", "mapped", "hdf5", "lmdb"], ["warm"], 2, labels, folder / "loading.json"
    )
    return folder


@pytest.mark.slow
def test_a_matrix_is_stored_in_its_format_before_it_is_loaded(measured):
    samples = json.loads((measured / "loading.json").read_text())["samples"]
    assert {sample["status"] for sample in samples} == {"ok"}, samples
    assert len({sample["crc32"] for sample in samples}) == 1
    for sample in samples:
        is_stored = sample["loader"] != "mapped"
        assert (sample["store_s"] is not None, sample["stored_mb"] is not None) == (is_stored, is_stored)
        assert sample["imported_memory_mb"] <= sample["peak_memory_mb"]
    assert sorted(path.name for path in measured.iterdir()) == ["loading.json", "m.json", "m.npy", "raw.csv"]


@pytest.mark.slow
def test_the_table(measured):
    frame = tidy.loading_frame([measured / "loading.json"], code_version.digest_loading_code(), measured)
    table = TABLES["formats"].make(pd.DataFrame(), frame)
    assert table.frame["format"].tolist() == ["npy", "hdf5", "lmdb"]
    assert table.frame["matrix_mb"].tolist() == [pytest.approx(100 * 3 * 4 / 1e6)] * 3
    assert (table.frame[["store_s", "load_s", "stored_mb"]] > 0).all().all()
    assert table.frame["repeats_ok"].tolist() == [2, 2, 2]
    assert "hdf5" in table.markdown()


LOAD = {"machine": "m", "dataset": "d", "page_cache": "warm", "status": "ok", "message": None,
        "imported_memory_mb": 100.0, "code_is_current": True, "record": "loading.json", "repeat": 1, "crc32": 1,
        "cold_reason": None}  # fmt: skip


def loads():
    """Loads of two benchmarks' files in three formats, and by a loader that is none."""
    rows = []
    for benchmark, columns in (("nt3", 60484), ("p1b3", 4)):
        for file, count in (("train", 1000), ("test", 10)):
            for place, name in enumerate(["npy", "hdf5", "parquet", "read_csv"], start=1):
                sizes = {"benchmark": benchmark, "file": file, "rows": count, "columns": columns, "loader": name}
                costs = {"store_s": 0.1 * place, "stored_mb": 5.0, "load_s": 0.2 * place, "peak_memory_mb": 200.0}
                rows.append({**LOAD, **sizes, **costs})
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_the_figure_shows_each_benchmark_s_largest_file(tmp_path):
    data = formats_drawing.select(load_description("formats"), loads(), "tiny")
    ((_, frame),) = data.panels
    assert frame["format"].tolist() == ["npy", "hdf5", "parquet"] * 2
    assert set(frame["file"]) == {"train"}
    drawing.write_figure(formats_drawing.draw, data, tmp_path / "f.svg", tmp_path / "f.pdf")
    svg = (tmp_path / "f.svg").read_text()
    for words in ("Formats of the converted files", "study tiny", "nt3 train, 1,000 x 60,484", "p1b3 train, 1,000 x 4"):
        assert words in svg
    loader_timing, *_ = formats_drawing.draw(data).axes
    assert [line.get_xdata().tolist() for line in loader_timing.lines][1] == [
        pytest.approx(1000 * 4 * 4 / 1e6 / seconds) for seconds in (0.2, 0.4, 0.6)
    ]


def test_a_figure_without_a_format():
    with pytest.raises(StudyError, match="formats: no format was loaded"):
        formats_drawing.select(load_description("formats"), loads().query("loader == 'read_csv'"), "tiny")


def test_images_have_a_table_of_their_own():
    """Two repeats of two formats; a table of matrices in the same study keeps its own rows."""
    same = {**LOAD, "benchmark": "lenet", "file": "train", "rows": 100, "columns": 768, "size_mb": 2.0}
    images = [
        {
            **same,
            "loader": name,
            "repeat": repeat,
            "load_s": read,
            "decode_s": decode + repeat,
            "decoder_s": None if name == "lmdb" else 2.0 * repeat,
            "peak_memory_mb": 200.0,
        }
        for name, read, decode in (("tfrecord", 0.5, 3.0), ("lmdb", 0.25, 2.0))
        for repeat in (1, 2)
    ]
    both = pd.concat([loads().assign(size_mb=1.0), pd.DataFrame(images)], ignore_index=True)
    found = TABLES["image_formats"].make(pd.DataFrame(), both).frame
    assert found["format"].tolist() == ["tfrecord", "lmdb"]
    assert found["read_images_per_s"].tolist() == [200, 400]
    assert found["decode_s"].tolist() == [4.5, 3.5]
    assert found["time_per_image_s"].tolist() == [0.045, 0.035]
    assert found["decoder_per_image_s"][0] == 0.03 and np.isnan(found["decoder_per_image_s"][1])
    # Student's t with one degree of freedom: 12.706 x standard deviation / square root of 2.
    assert found["decode_ci95_s"].tolist() == pytest.approx([12.706 * 0.5] * 2, rel=1e-4)
    assert set(TABLES["formats"].make(pd.DataFrame(), both).frame["benchmark"]) == {"nt3", "p1b3"}


def test_images_that_were_not_loaded_are_in_the_table_of_images():
    """Of one file a format fails and one repeat of another; of the other file nothing was loaded."""
    failed = {"status": "failed", "message": "no room", "load_s": None, "decode_s": None}
    images = {
        **LOAD,
        "benchmark": "lenet",
        "rows": 100,
        "columns": 768,
        "size_mb": 2.0,
        "load_s": 0.5,
        "decode_s": 2.0,
        "decoder_s": 1.0,
    }
    rows = [
        {**images, "file": "train", "loader": "tfrecord"},
        {**images, "file": "train", "loader": "tfrecord", "repeat": 2, **failed, "load_s": 99.0},
        {**images, "file": "train", "loader": "lmdb", **failed},
        {**images, "file": "test", "loader": "tfrecord", **failed},
    ]
    both = pd.concat([loads().assign(size_mb=1.0), pd.DataFrame(rows)], ignore_index=True)
    table = TABLES["image_formats"].make(pd.DataFrame(), both)
    found = table.frame.set_index(["file", "format"])
    assert list(found.index) == [("train", "tfrecord"), ("train", "lmdb"), ("test", "tfrecord")]
    assert found["repeats_ok"].tolist() == [1, 0, 0] and found["repeats_failed"].tolist() == [1, 1, 1]
    assert found["failures"].tolist() == ["no room"] * 3 and "3 failed repeats are not in the means" in table.notes
    assert found["read_s"].iloc[0] == 0.5 and found["read_s"].iloc[1:].isna().all()
    assert set(TABLES["formats"].make(pd.DataFrame(), both).frame["benchmark"]) == {"nt3", "p1b3"}
