"""A loading measurement: its order, warm and cold files, and failures that are samples."""

import json
import os

import numpy as np
import pytest

from study.core.errors import StudyError
from study.data import loader_timing, loaders, page_cache
from study.data.conversion import convert
from study.data.tabular import Form

parse = loaders._parse_block
FORM = {"header": False, "codes": [{"column": 0, "values": [0, 1]}], "split": "train"}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "raw.csv").write_text("0,1.5,2\n1,-3,4\n" * 50)
    convert(tmp_path / "raw.csv", tmp_path / "m.npy", tmp_path / "m.json", Form.from_spec(FORM))
    paths = {"raw": tmp_path / "raw.csv", "npy": tmp_path / "m.npy", "sidecar": tmp_path / "m.json"}
    return {"train": {**{name: str(path) for name, path in paths.items()}, "form": FORM}}


@pytest.fixture
def told(monkeypatch):
    """What was asked of the page cache, in order."""
    calls = []
    for name in ("warm_file", "drop_file"):
        monkeypatch.setattr(
            page_cache, name, lambda path, name=name: calls.append((name.partition("_")[0], os.path.basename(path)))
        )
    return calls


def measured(files, tmp_path, loaders, caches, repeats=1):
    labels = {"machine": "m", "benchmark": "nt3", "dataset": "d"}
    loader_timing.measure_loading(files, loaders, caches, repeats, labels, tmp_path / "loading.json")
    return json.loads((tmp_path / "loading.json").read_text())


@pytest.mark.slow
def test_loaders_alternate_and_each_load_finds_the_cache_it_should(files, tmp_path, told):
    result = measured(files, tmp_path, ["read_csv", "npy"], ["warm", "cold"])
    assert [(s["page_cache"], s["loader"]) for s in result["samples"]] == [
        ("warm", "read_csv"), ("warm", "npy"), ("cold", "read_csv"), ("cold", "npy")]  # fmt: skip
    assert told == [("drop", "raw.csv"),  # can it be done here at all?
                    ("warm", "raw.csv"), ("warm", "m.npy"),
                    ("drop", "raw.csv"), ("drop", "m.npy")]  # fmt: skip
    assert {sample["crc32"] for sample in result["samples"]} == {result["samples"][0]["crc32"]}


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_dask_reads_a_block_per_core(tmp_path, monkeypatch, cores):
    """Whatever the size of the file: a block too few left one of two cores idle."""
    (tmp_path / "t.csv").write_text("case,a,b\n" + "".join(f"c{row},{row},{row / 7:.5f}\n" for row in range(500)))
    form, parsed = Form(header=True, drop=("case",)), []
    monkeypatch.setattr(loaders, "SMALLEST_BLOCK", 100)
    monkeypatch.setattr(loaders.cores, "count_threads", lambda: cores)
    monkeypatch.setattr(loaders, "_parse_block", lambda *block: parsed.append(block) or parse(*block))
    found = loaders.load_by_dask(tmp_path / "t.csv", form, [])
    assert len(parsed) == cores
    assert found.equals(loaders.load_by_read_csv(tmp_path / "t.csv", form, []))


def test_dask_s_own_call_reads_rows_longer_than_its_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(loaders, "DASK_SAMPLE_BYTES", 20)
    values = np.random.default_rng(1).integers(0, 10**9, (3, 30)) / 1e4
    names = ",".join(f"g{index}" for index in range(30))
    (tmp_path / "t.csv").write_text(names + "\n" + "".join(",".join(map(str, row)) + "\n" for row in values))
    convert(tmp_path / "t.csv", tmp_path / "m.npy", tmp_path / "m.json", Form(header=True))
    found = loaders.load_matrix("dask_dataframe", tmp_path / "t.csv", tmp_path / "m.json", {"header": True})
    assert found.tobytes() == values.astype(np.float32).tobytes()


def test_a_load_that_a_full_disk_ended_is_no_sample(tmp_path):
    script = tmp_path / "load.py"
    script.write_text("open('/dev/full', 'w').write('x' * 9999)")
    with pytest.raises(StudyError, match=r"^OSError: \[Errno 28\] No space left on device; that is no result, so"):
        loader_timing._run_in_new_process(script)


@pytest.mark.slow
def test_a_load_that_fails_is_a_sample(files, tmp_path):
    (tmp_path / "m.npy").write_bytes(b"nothing")
    (sample,) = measured(files, tmp_path, ["npy"], ["warm"])["samples"]
    assert sample["status"] == "failed"
    assert sample["message"].startswith("exit code 1: ")
