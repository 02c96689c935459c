"""Real ranks on two nodes, which are two names of this host: each way of the files to them, and what it reads."""

import functools
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from study.core.files import write_sealed
from study.data import feature_scaling
from study.data.conversion import convert
from study.data.loaders import map_matrix
from study.data.tabular import Form
from study.experiment import conversions, expansion, inputs
from study.instruments import phases
from study.launch import launch
from study.machines import launchers, machine
from study.records import record
from study.workloads.synthetic import generate_file

DATASET = {"source": "synthetic", "train_samples": 60, "test_samples": 20, "features": 2000, "seed": 1}
POINT = {"benchmark": "nt3", "scaling": "weak", "epochs": 1, "gpus": 4, "batch_size": 10, "loader": "read_csv"}
SLACK_MB = 0.1  # sidecars, and what the threads of Horovod read meanwhile


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Train on two nodes of two ranks: ``train(staging=..., ...)`` returns the run's folder."""
    root = tmp_path_factory.mktemp("staging")
    (root / "node").mkdir()

    def launched(node_storage=root / "node", file=None, stall_limit_s=300, **changes):
        hosts = f"localhost:2,127.0.0.1:{changes.get('gpus', 4) - 2}"
        study = {"description": "", "datasets": {"nt3": DATASET}, "runs": [{**POINT, **changes}], "tables": []}
        (run,) = expansion.expand_study("staging", study, "staging").runs
        on = machine.load("local")
        # Tensors one by one: which of them are summed at once, and so in which order four ranks' are, is up to chance.
        environment = {"HOROVOD_FUSION_THRESHOLD": "0"}
        on |= {"ranks_per_node": 2, "node_storage": str(node_storage), "environment": environment}
        make_files(run.dataset, root)
        folder = root / f"run-{len(list(root.glob('run-*')))}"
        with pytest.MonkeyPatch.context() as patch:
            line = launchers.Horovodrun.line
            patch.setattr(launchers.Horovodrun, "line", lambda self, *given: [*line(self, *given)[:-1], hosts])
            defined = inputs.define_run(run, on, str(root / "data"))
            if file:
                defined.data["train"]["path"] = str(file)
            launch.launch(defined, folder, time_limit_s=300, stall_limit_s=stall_limit_s)
        return folder

    return launched


def make_files(dataset, root):
    """All forms of the files that a loader asks for."""
    data = root / "data"
    if data.exists():
        return
    matrices, sidecars = {}, {}
    for file, form in dataset.spec["files"].items():
        raw, matrix = (Path(path) for path in (dataset.locate_raw(data, file), dataset.locate_converted(data, file)))
        generate_file(raw, dataset.benchmark, dataset.spec, dataset.definition, file)
        sidecars[file] = inputs.locate_sidecar(str(matrix))
        convert(raw, matrix, sidecars[file], Form.from_spec(form))
        matrices[file] = map_matrix(matrix)
    scaler = feature_scaling.fit_max_abs(*(matrix[:, 1:] for matrix in matrices.values()))
    for file, matrix in matrices.items():
        numbers, codes = dataset.locate_scaled(data, file)
        feature_scaling.write_scaled(matrix[:, 1:], scaler, numbers)
        feature_scaling.save_codes(matrix[:, :1], codes)
        write_sealed(inputs.locate_sidecar(numbers), conversions.describe_scaling(sidecars))


def read_by_rank(folder):
    """What each rank read of the shared files, as a number of times their size, and what is wrong in MB."""
    run = yaml.safe_load((folder / "run.yaml").read_text())
    paths = [paths[kind] for paths in run["data"].values() for kind in paths if kind not in ("sidecar", "scaled")]
    size_mb = sum(Path(path).stat().st_size for path in paths) / 1e6
    ranks = json.loads((folder / "metrics.json").read_text())["ranks"]
    times = [round(rank["shared_read_mb"] / size_mb) for rank in ranks]
    wrong = [abs(rank["shared_read_mb"] - n * size_mb) for rank, n in zip(ranks, times, strict=True)]
    assert max(wrong) < min(SLACK_MB, size_mb / 4), (wrong, size_mb)
    return times


WAYS = {
    ("none", "read_csv"): [1, 1, 1, 1],
    ("none", "mapped"): [1, 1, 1, 1],
    ("local_copy", "mapped"): [1, 0, 1, 0],
}


EACH_TIME = (("none", "read_csv"), ("local_copy", "mapped"))
OF_WAYS = [pytest.param(way, id="-".join(way), marks=() if way in EACH_TIME else pytest.mark.long) for way in WAYS]


@pytest.fixture(scope="module")
def folder_of(train):
    """The folder of the run that gets its files in one of `WAYS`, trained once."""
    return functools.cache(lambda way: train(staging=way[0], loader=way[1]))


@pytest.mark.parametrize("way", OF_WAYS)
def test_the_same_is_trained_whichever_way(folder_of, way):
    metrics, first = (json.loads((folder_of(each) / "metrics.json").read_text()) for each in (way, EACH_TIME[0]))
    assert len({rank["final_weights_crc32"] for rank in [*metrics["ranks"], *first["ranks"]]}) == 1
    assert metrics["test"] == first["test"]


@pytest.mark.parametrize("way", OF_WAYS)
def test_what_each_rank_reads_of_the_shared_files(folder_of, way):
    assert read_by_rank(folder_of(way)) == WAYS[way]


def test_the_record_has_what_was_read_and_how_long_staging_took(folder_of):
    each_reads, copied = (record.make_record(folder_of(way)) for way in EACH_TIME)
    assert each_reads["reading"]["shared"] == pytest.approx(4 * sum(each_reads["data_mb"].values()), abs=4 * SLACK_MB)
    assert copied["derived"]["nodes"] == 2
    assert 0 < copied["phases"]["stage"]["slowest_s"] <= copied["phases"]["load"]["slowest_s"]
    assert "stage" not in each_reads["phases"]


def test_nothing_is_left_on_the_nodes(folder_of):
    assert list((folder_of(("local_copy", "mapped")).parent / "node").iterdir()) == []


def test_the_phases_of_staging_lie_in_load(folder_of):
    spans = {}
    for edge in phases.read_edges(folder_of(("local_copy", "mapped")) / "phases.jsonl"):
        spans.setdefault((edge["rank"], edge["phase"]), []).append(edge["monotonic_ns"])
    for rank in range(4):
        assert (
            min(spans[rank, "load"])
            <= min(spans[rank, "stage"])
            < max(spans[rank, "stage"])
            <= max(spans[rank, "load"])
        )


STUDY = """
description: a test
datasets:
  p1b2: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: p1b2, scaling: weak, epochs: 2, gpus: 2, batch_size: 10, loader: read_csv, repeats: 1,
     staging: [none, local_copy]}
  - {benchmark: p1b2, scaling: weak, epochs: 2, gpus: 2, batch_size: 10, loader: npy, input_pipeline: keras_arrays}
tables: [staging, scaling]
figures: [staging]
"""


@pytest.mark.long
def test_a_study_compares_them(fresh):
    fresh.add_study("staged", STUDY)
    fresh.snakemake(study="staged")
    runs = pd.read_csv(fresh.made / "runs.csv")
    assert runs.status.tolist() == ["ok"] * 3, runs.failure_message.tolist()
    assert runs.ranks_agree.all()
    staged = runs[runs.input_pipeline == "tf_data"]
    assert staged.test_loss.nunique() == 1
    table = pd.read_csv(fresh.made / "tables" / "staging.csv").set_index(["loader", "staging"])
    read = table.shared_read_mb["read_csv"]
    kinds = ("raw/**/*.csv", "converted/**/*.json")
    sizes = [sum(path.stat().st_size for path in (fresh.root / "data").glob(kind)) / 1e6 for kind in kinds]
    assert read["local_copy"] == pytest.approx(sizes[0], abs=2e-4), "one rank reads the files, and nothing else"
    # Each rank reads the files, looks twice into the notes on their conversion, and at the first bytes of each.
    assert read["none"] == pytest.approx(2 * (sizes[0] + 2 * sizes[1]), abs=4e-4)
    assert table.stage_s["read_csv"].notna().to_dict() == {way: way != "none" for way in read.index}
    assert "<svg" in (fresh.made / "figures" / "staging.svg").read_text()
    feature_scaling = (fresh.made / "tables" / "scaling.md").read_text()
    assert "local_copy" in feature_scaling
    assert "keras_arrays" in feature_scaling


def test_a_machine_without_node_storage_is_refused_in_the_plan(fresh):
    fresh.add_study("staged", STUDY)
    fresh.change("config/machines/local.yaml", "node_storage: /tmp\n", "")
    done = fresh.snakemake(study="staged", check=False)
    assert done.returncode != 0
    assert "config/machines/local.yaml: node_storage is missing" in done.stderr
    assert not (fresh.root / "data").exists()
