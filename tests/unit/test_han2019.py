"""The Han paper: what follows from its printed numbers, its claims from runs with known numbers, and its figures."""

import math

import pandas as pd
import pytest
from examples import define, expand

from study import plan
from study.core.files import write_json
from study.experiment import expansion, inputs
from study.machines import launchers, machine, storage
from study.records.record import make_record
from study.records.tidy import runs_frame
from study.report import sources
from study.report.figures import drawing, selection
from study.report.figures.description import load_description
from study.report.papers import slim_networks
from study.report.papers.declaration import load_paper
from study.report.tables import TABLES
from study.report.tables.published_values import read_published

MODELS = "han2019_table1_models.csv"

NOTHING = pd.DataFrame()
SERVER = {"strategy": "parameter_server", "servers": 1, "batch_size": 128}


def claims_of(runs=NOTHING):
    return TABLES["han2019_claims"].make(runs, NOTHING).frame


def number(formula, benchmark):
    return load_paper("han2019").published.number(formula, benchmark=benchmark)


def claim(runs, quantity, benchmark=None):
    table = claims_of(runs)
    rows = table[table["quantity"] == quantity]
    (row,) = (rows[rows["benchmark"] == benchmark] if benchmark else rows[rows["benchmark"].isna()]).itertuples()
    return row


@pytest.fixture
def runs_of(make_run, tmp_path):
    """The tidy table of runs: ``runs_of({"benchmark": "lenet", "gpus": 32, "steady_samples_per_s": [...]}, ...)``.

    Lists are values by block. Their records are copies of one run's, of another network, so no run needs images.
    """
    (run,) = expand(scaling="weak", epochs=1, gpus=1)
    folder = make_run(run)
    write_json(folder / "record.json", make_record(folder))
    row = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0].to_dict()
    row |= {"strategy": "horovod", "servers": 0, "batch_size": 128, "loader": "tfrecord", "sharding": "by_rank"}

    def build(*points):
        rows = []
        for point in points:
            repeats = max(len(value) for value in point.values() if isinstance(value, list))
            for block in range(1, repeats + 1):
                at = {name: value[block - 1] if isinstance(value, list) else value for name, value in point.items()}
                place = {"repeat": block, "block": block, "started_wall_ns": 1000 * block + len(rows) % 500}
                rows.append({**row, **place, "record": f"{len(rows)}/record.json", **at})
        return pd.DataFrame(rows)

    return build


# The paper's numbers


@pytest.mark.parametrize(
    ("quantity", "benchmark", "expected", "digits"),
    [
        ("throughput: 32 workers / 1", "lenet", 13.11, 2),
        ("throughput: 2 workers / 1, if the lowest improvement is theirs", "resnet50", 1.94, 2),
        ("scaling efficiency on 32 workers", "lenet", 0.41, 2),
        ("scaling efficiency on 4 GPUs", "resnet101", 0.815, 3),
        ("NVLink of GPU and CPU: share of the peak", None, 79.4, 1),
        ("GPU 0 to GPU 2 less than to GPU 1", None, 38.9, 1),
        ("range of the read test, NVMe", None, 0.3, 1),
        ("parameters of the network that was trained", "lenet", 4290984, 0),
        ("time of a checkpoint, ResNet-101 / LeNet", None, 14, 0),
        ("parameters, ResNet-101 / LeNet as trained", None, 10.4, 1),
        ("throughput: batch size 256 over 128, third network", None, 3.4, 1),
        ("throughput: LMDB / separate image files", None, 17, 0),
        ("data read for one GPU, climate network", None, 189, 0),
        ("data read for the 6 GPUs of a Summit node", None, 1.134, 3),  # the text has 1.14
    ],
)
def test_derived_numbers_without_any_run(quantity, benchmark, expected, digits):
    row = claim(NOTHING, quantity, benchmark)
    assert round(row.published_value, digits) == pytest.approx(expected)
    assert math.isnan(row.value) and row.missing


LENET = (5 * 5 * 3 * 32 + 32) + (5 * 5 * 32 * 64 + 64) + (7 * 7 * 64 * 1024 + 1024) + (1024 * 1000 + 1000)
# 224 pixels: 54 after the first convolution, 26, 12 and 5 after the poolings.
ALEXNET = (
    (11 * 11 * 3 * 64 + 64)
    + (5 * 5 * 64 * 192 + 192)
    + (3 * 3 * 192 * 384 + 384)
    + (3 * 3 * 384 * 384 + 384)
    + (3 * 3 * 384 * 256 + 256)
    + (5 * 5 * 256 * 4096 + 4096)
    + (4096 * 4096 + 4096)
    + (4096 * 1000 + 1000)
)


def resnet50_by_hand():
    """Convolutions without bias; for each of their filters a scale and a shift; the last layer with biases."""
    weights, filters = 7 * 7 * 3 * 64, 64
    for channels, width, blocks in ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3)):
        first = channels * width + 9 * width**2 + 4 * width**2 + 4 * channels * width
        other = 4 * width**2 + 9 * width**2 + 4 * width**2
        weights += first + (blocks - 1) * other
        filters += 6 * width * blocks + 4 * width
    return weights + 2 * filters + 2048 * 1000 + 1000


def test_the_trained_networks_by_hand():
    assert (LENET, ALEXNET, resnet50_by_hand()) == (4_290_984, 50_303_912, 25_557_032)
    for name, by_hand in (("lenet", LENET), ("alexnet", ALEXNET), ("resnet50", resnet50_by_hand())):
        assert slim_networks.parameters(name).trained == by_hand, name


def test_table_3_has_one_volume_between_gpus_per_gradient():
    """Table III's GB in units of 4 bytes per parameter and 1.2 million images / 128 = 9,375 steps."""
    for name, by_hand, between, to_cpu in (("lenet", LENET, 326, 1520), ("alexnet", ALEXNET, 3832, 20355),
                                           ("resnet50", resnet50_by_hand(), 1948, 13136)):  # fmt: skip
        unit = 4 * by_hand * 9375 / 1e9
        assert between / unit == pytest.approx(2.03, abs=0.005), name
        assert number("gpu_to_gpu_per_gradient", name) == pytest.approx(between / unit), name
        assert claim(NOTHING, "NVLink per step / gradients: GPU to CPU", name).published_value == pytest.approx(
            to_cpu / unit
        )
    per_gradient = [number("gpu_to_cpu_per_gradient", name) for name in read_published(MODELS)["benchmark"][:3]]
    assert [round(each, 1) for each in per_gradient] == [9.4, 10.8, 13.7]


def test_table_1_s_parameters_do_not_fit_table_3():
    printed = "gpu_to_gpu_mb_per_step / printed_gradient_mb"
    assert number(printed, "lenet") == pytest.approx(145, abs=0.5)
    assert number(printed, "alexnet") == pytest.approx(1.675, abs=0.001)


def test_the_sums_of_table_3_hold():
    table = read_published("han2019_table3_nvlink_gb.csv")
    assert (table["gpu_to_cpu_gb"] + table["gpu_to_gpu_gb"]).tolist() == table["total_gb"].tolist()


# From runs


@pytest.mark.slow
def test_workers_from_runs_by_the_same_formula(runs_of):
    runs = runs_of(
        {"benchmark": "lenet", **SERVER, "gpus": 1, "steady_samples_per_s": [10.0, 20.0, 40.0]},
        {"benchmark": "lenet", **SERVER, "gpus": 32, "steady_samples_per_s": [131.1, 262.2, 524.4]},
    )
    row = claim(runs, "throughput: 32 workers over 1", "lenet")
    assert (row.value, row.published_value) == (pytest.approx(1211), 1211)
    assert (row.low, row.high) == (pytest.approx(1211), pytest.approx(1211)), "equal in each block"
    assert (row.pairing, row.repeats, row.missing) == ("paired", 3, None)
    assert claim(runs, "scaling efficiency on 32 workers", "lenet").value == pytest.approx(0.4097, abs=1e-4)
    assert "training images 100 instead of 1200000" in row.workload_difference
    assert "worker: a rank instead of a node of four GPUs" in row.workload_difference
    assert claim(runs, "throughput: 32 workers over 1", "resnet50").missing.startswith(
        "runs of resnet50 with (gpus 32)"
    )


@pytest.mark.slow
def test_several_networks_have_a_range_and_no_interval(runs_of):
    gains = {"lenet": 1.01, "alexnet": 1.037, "resnet50": 1.034}
    runs = runs_of(
        *(
            {"benchmark": name, "gpus": 1, "batch_size": size, "steady_samples_per_s": [rate, rate]}
            for name, gain in gains.items()
            for size, rate in ((128, 100.0), (256, 100 * gain))
        )
    )
    row = claim(runs, "throughput: batch size 256 over 128, mean")
    assert (row.value, row.published_value) == (pytest.approx(2.7), 2.7)
    assert (row.lowest, row.highest, row.series) == (pytest.approx(1.0), pytest.approx(3.7), 3)
    assert math.isnan(row.low)


def test_spread_over_repeats(runs_of):
    runs = runs_of({"benchmark": "lenet", "gpus": 1, "storage": "nvme", "train_s": [100.0, 103.1, 101.0]})
    row = claim(runs, "longest less shortest training time, NVMe")
    assert row.value == pytest.approx(3.1)
    once = runs[runs["block"] == 1]
    assert claim(once, "longest less shortest training time, NVMe").missing.endswith("in two repeats")


def test_networks_are_compared_although_their_files_differ(runs_of):
    rates = {"resnet50": 100.0, "resnet101": 93.0}
    runs = runs_of(
        *(
            {"benchmark": name, "dataset": name, "gpus": 1, "steady_samples_per_s": [rate]}
            for name, rate in rates.items()
        )
    )
    row = claim(runs, "ResNet-101 slower than ResNet-50")
    assert (row.value, row.published_value) == (pytest.approx(7), 7)


def test_checkpoints_are_of_runs_that_write_them_and_nothing_else_is(runs_of):
    with_, without = {"checkpoint_epochs": 1, "checkpoint_write_s": [0.5]}, {"checkpoint_epochs": 0}
    rates = {"gpu_utilisation_pct": [2.0]}, {"gpu_utilisation_pct": [80.0]}
    one, other = (
        {"benchmark": "lenet", "gpus": 1, **how, **rate} for how, rate in zip((without, with_), rates, strict=True)
    )
    runs = runs_of(one, other)
    assert claim(runs, "GPU utilisation", "lenet").value == 2.0
    assert claim(runs, "time of a checkpoint", "lenet").value == 0.5


def test_table1_beside_the_printed_parameters(runs_of):
    table = TABLES["han2019_table1"].make(runs_of({"benchmark": "resnet50", "parameters": [25_610_152]}), NOTHING)
    rows = table.frame.set_index("benchmark")
    assert rows.loc["resnet50", "ratio_parameters"] == pytest.approx(25_610_152 / 25_000_000)
    assert len(rows) == 4 and rows["published_parameters"].notna().all()
    assert rows["trained_parameters"].to_dict() == {
        "lenet": 4_290_984, "alexnet": 50_303_912, "resnet50": 25_610_152, "resnet101": 44_654_504}  # fmt: skip
    assert "LeNet of 1998" in table.markdown()


def test_table3_has_no_ratio_of_unlike_links(runs_of):
    sent = {"gradient_mb": [17.2], "tcp_sent_mb_per_step": [34.4], "tcp_received_mb_per_step": [34.4]}
    frame = TABLES["han2019_table3"].make(runs_of({"benchmark": "lenet", "gpus": 4, **sent}), NOTHING).frame
    row = frame.set_index("benchmark").loc["lenet"]
    assert row.sent_per_gradient == pytest.approx(2)
    assert (row.published_total_gb, row.published_gpu_to_cpu_per_gradient) == (1846, pytest.approx(9.45, abs=0.01))
    assert not [name for name in frame if name.startswith("ratio_") and name != "ratio_reason"]
    assert len(frame) == 3, "every published row"


# Figures


def drawn(name, runs):
    return selection.select_points(load_description(name), runs, "test")


def test_networks_on_the_horizontal_axis(runs_of):
    share = {"lenet": 2.0, "resnet101": 70.0}
    runs = runs_of(
        *({"benchmark": name, "dataset": name, "gpu_utilisation_pct": [each] * 2} for name, each in share.items())
    )
    (panel,) = drawn("han2019_figure5", runs).panels
    assert panel.names == ("LeNet", "AlexNet", "ResNet-50", "ResNet-101")
    (line,) = panel.lines
    assert (line.x.tolist(), line.mean.tolist()) == ([0, 3], [2.0, 70.0])
    (points,) = panel.published
    assert (points.label, points.x.tolist(), points.values.tolist()) == ("paper, Summitdev", [0, 3], [2.3, 69.9])
    (axes,) = drawing.draw(drawn("han2019_figure5", runs)).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(panel.names)
    assert axes.get_xlabel() == "network"


# The machine and its storage


def test_a_storage_on_each_node_is_filled_by_the_run_and_not_by_snakemake(monkeypatch):
    """It need not exist where Snakemake runs, and its variables are the node's."""
    monkeypatch.delenv("LOCAL", raising=False)
    on = machine.load("local") | {"storage_on_nodes": {"nvme": "$LOCAL/ssd"}}
    usual, nvme = expand(storage=["none", "nvme"])
    assert inputs.list_run_inputs(nvme, on, "data") == inputs.list_run_inputs(usual, on, "data")
    defined = inputs.define_run(nvme, on, "data")
    assert defined.machine["node_storage"] == "$LOCAL/ssd"
    assert defined.data == inputs.define_run(usual, on, "data").data
    assert define(usual).fingerprint == inputs.define_run(usual, on, "data").fingerprint, (
        "a storage changes no other run"
    )
    assert (
        defined.fingerprint != inputs.define_run(nvme, on | {"storage_on_nodes": {"nvme": "/ssd"}}, "data").fingerprint
    )
    assert storage.list_refusals(["nvme"], on) == []


# The studies


def test_summitdev_runs_all_that_the_paper_ran(monkeypatch, tmp_path):
    """On 54 nodes of four GPUs; chief and servers have nodes of their own, beside those of the workers."""
    for variable in ("LUSTRE_FOLDER", "NVME_FOLDER"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(launchers, "is_installed", lambda _: True)
    study, summitdev = expansion.load_study("han2019"), machine.load("summitdev")
    assert plan.list_refusals(study, summitdev) == []
    # Each image has 115 kB; four networks have the generated files, TFRecord and LMDB, and both again on Lustre.
    assert sum(inputs.estimate_file_bytes(study, summitdev, "data").values()) == 1_250_000 * 115_000 * 4 * 5
    assert "disk: at most 2,875 GB in 40 files" in plan.summarize(study, summitdev)
    nodes = {
        (run.gpus, run["servers"]): launchers.count_nodes(run.count_processes(summitdev), summitdev)
        for run in study.runs
    }
    assert (nodes[1, 0], nodes[1, 1], nodes[16, 1], nodes[16, 16], nodes[32, 1]) == (1, 2, 5, 9, 9)
    (largest,) = (run for run in study.runs if run.gpus == 32 and run["benchmark"] == "lenet" and run.repeat == 1)
    definition = inputs.define_run(largest, summitdev, "data")
    assert definition.derived.nodes == 9


def test_disk_of_tables_and_of_pixels():
    """A value of a table has at most 9 bytes as CSV and 4 as npy; a pixel in memory has one per channel."""
    on = machine.load("local")
    files = inputs.estimate_file_bytes(expansion.load_study("smoke"), on, "data")
    assert {size for path, size in files.items() if "raw/nt3" in path} == {100 * 61 * 9, 20 * 61 * 9}
    assert {size for path, size in files.items() if "converted/nt3" in path} == {100 * 61 * 4, 20 * 61 * 4}
    files = inputs.estimate_file_bytes(expansion.load_study("schedules"), on, "data")
    assert {size for path, size in files.items() if path.endswith("memory")} == {
        128 * 36**2 * 3, 32 * 36**2 * 3}  # fmt: skip


def test_each_figure_has_runs():
    for name in ("han2019", "han2019_laptop"):
        study = expansion.load_study(name)
        for figure in study.figures:
            assert sources.select_figure_sources(study, figure).runs, (name, figure)
