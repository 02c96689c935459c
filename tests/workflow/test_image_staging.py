"""Images copied to two nodes, which are two names of this host, by real ranks: which files, how often, what is read."""

import functools
import json
from pathlib import Path

import pytest

from study.backends.tensorflow import image_codec
from study.data.images import conversion
from study.data.images.conversion import Options
from study.experiment import expansion, inputs
from study.launch import launch
from study.machines import launchers, machine
from study.records import record
from study.workloads.synthetic import generate_file

DATASET = {"source": "synthetic_images", "train_samples": 60, "test_samples": 20, "image_size": 12, "resize": 14,
           "stored_width": 80, "stored_height": 60, "record_kb": 6, "classes": 10, "seed": 1}  # fmt: skip
POINT = {"benchmark": "lenet", "scaling": "weak", "epochs": 2, "gpus": 3, "batch_size": 10, "sharding": "by_rank"}
OF_COPIES = ["tfrecord", *(pytest.param(name, marks=pytest.mark.long) for name in ("lmdb", "jpeg_files"))]
SLACK_MB = 0.1  # sidecars, and what the threads of Horovod read meanwhile
WAYS = {
    "shared": {"loader": "tfrecord"},
    "tfrecord": {"loader": "tfrecord", "staging": "local_copy"},
    "lmdb": {"loader": "lmdb", "storage": "nvme"},
    "jpeg_files": {"loader": "jpeg_files", "storage": "nvme"},
}


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Train on a node of two ranks and one of one rank: ``train(loader=..., ...)`` returns the run's folder."""
    root = tmp_path_factory.mktemp("staging")
    for name in ("node", "nvme"):
        (root / name).mkdir()

    def launched(nvme=root / "nvme", **changes):
        study = {"description": "", "datasets": {"lenet": DATASET}, "runs": [{**POINT, **changes}], "tables": []}
        (run,) = expansion.expand_study("staging", study, "staging").runs
        on = machine.load("local") | {"ranks_per_node": 2, "node_storage": str(root / "node")}
        on |= {"storage_on_nodes": {"nvme": str(nvme)}, "environment": {"HOROVOD_FUSION_THRESHOLD": "0"}}
        make_files(run.dataset, root / "data", run["loader"])
        folder = root / f"run-{len(list(root.glob('run-*')))}"
        with pytest.MonkeyPatch.context() as patch:
            line = launchers.Horovodrun.line
            hosts = "localhost:2,127.0.0.1:1"
            patch.setattr(launchers.Horovodrun, "line", lambda self, *given: [*line(self, *given)[:-1], hosts])
            launch.launch(inputs.define_run(run, on, str(root / "data")), folder, time_limit_s=300)
        return folder

    return launched


def make_files(dataset, data, loader):
    """The images of each file in the loader's format."""
    for file in dataset.spec["files"]:
        raw, converted = Path(dataset.locate_raw(data, file)), Path(dataset.locate_images(data, file, loader))
        if not raw.exists():
            generate_file(raw, dataset.benchmark, dataset.spec, dataset.definition, file, codec=image_codec)
        if not converted.exists():
            told = inputs.build_image_options(dataset, file)
            source, sidecar = inputs.describe_image_source(dataset, str(data), file), f"{converted}.json"
            conversion.convert(
                source, loader, converted, sidecar, Options(**told["options"]), image_codec, told["samples"]
            )


@pytest.fixture(scope="module")
def folder_of(train):
    """The folder of the run that gets its files in one of `WAYS`, trained once."""
    return functools.cache(lambda name: train(**WAYS[name]))


def ranks_of(folder):
    return json.loads((folder / "metrics.json").read_text())["ranks"]


def size_mb(folder, loader):
    """Of the images of both files in one format, by the sizes of the files there."""
    found = list((folder.parent / "data").glob(f"converted/lenet/*/*.{loader}"))
    assert len(found) == 2
    return sum(path.stat().st_size for each in found for path in each.rglob("*") if path.is_file()) / 1e6


@pytest.mark.parametrize("name", OF_COPIES)
def test_one_rank_per_node_copies_whole_files_once(folder_of, name):
    size = size_mb(folder_of(name), WAYS[name]["loader"])
    ranks = ranks_of(folder_of(name))
    assert [rank["staged_mb"] for rank in ranks] == [pytest.approx(size), 0, pytest.approx(size)]
    for rank, copied in zip(ranks, (size, 0, size), strict=True):
        assert rank["shared_read_mb"] == pytest.approx(copied, abs=SLACK_MB), "nothing but copying reads shared files"


def test_training_reads_the_copies_as_it_reads_the_shared_files(folder_of):
    shared, copied = ranks_of(folder_of("shared")), ranks_of(folder_of("tfrecord"))
    for one, other in zip(shared, copied, strict=True):
        assert other["node_read_mb"] == pytest.approx(one["shared_read_mb"], abs=SLACK_MB)
        assert other["node_read_mb"] > 5 * SLACK_MB
        assert "staged_mb" not in one


@pytest.mark.parametrize("name", OF_COPIES)
def test_the_same_is_trained_whichever_way(folder_of, name):
    found = [json.loads((folder_of(each) / "metrics.json").read_text()) for each in ("shared", name)]
    checksums = {rank["final_weights_crc32"] for metrics in found for rank in metrics["ranks"]}
    assert len(checksums) == 1
    assert found[0]["test"] == found[1]["test"]


def test_the_record_has_bytes_and_seconds_of_staging(folder_of):
    made = record.make_record(folder_of("tfrecord"))
    assert made["reading"]["staged"] == pytest.approx(2 * size_mb(folder_of("tfrecord"), "tfrecord"))
    assert 0 < made["phases"]["stage"]["slowest_s"] <= made["phases"]["load"]["slowest_s"]
    usual = record.make_record(folder_of("shared"))
    assert "stage" not in usual["phases"]
    assert {name for name, size in usual["reading"].items() if size is not None} <= {"shared", "storage"}
    assert usual["reading"]["shared"] > 0


@pytest.mark.parametrize("name", OF_COPIES)
def test_nothing_is_left_on_the_nodes(folder_of, name):
    root = folder_of(name).parent
    assert [*(root / "node").iterdir(), *(root / "nvme").iterdir()] == []


@pytest.mark.long
def test_a_storage_of_the_node_s_that_cannot_be_written_to(train):
    """The kernel's own read-only file system."""
    failure = json.loads((train(nvme="/proc/sys", **WAYS["lmdb"]) / "outcome.json").read_text())["failure"]
    assert (failure["kind"], failure["phase"]) == ("error", "stage")
    assert "cannot be copied to /proc/sys (storage_on_nodes.nvme in the machine's file): " in failure["message"]
