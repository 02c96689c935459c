"""The PRACE guide: its cells, what follows from them, and tables beside runs with known numbers."""

import math

import pandas as pd
import pytest
from examples import expand

from study import plan
from study.core.files import write_json
from study.experiment import expansion
from study.machines import machine
from study.records.record import make_record
from study.records.tidy import runs_frame
from study.report.papers.prace2019 import SCALING
from study.report.tables import TABLES
from study.report.tables.published_values import read_published

NOTHING = pd.DataFrame()
PRINTED_8 = {1: (182, None), 4: (705, 3.9), 8: (1402, 7.7), 16: (2680, 14.7), 32: (5120, 28.1), 64: (7080, 38.9)}
PRINTED_9 = {1: (208, None), 4: (768, 3.7), 8: (1497, 7.2), 16: (2942, 14.1), 32: (5796, 27.9)}


@pytest.fixture
def runs_of(make_run, tmp_path):
    """The tidy table of runs: ``runs_of({"loader": "memory", "time_per_step_s": [...]}, ...)``; lists are by block."""
    (run,) = expand(scaling="weak", epochs=2, gpus=1)
    folder = make_run(run)
    write_json(folder / "record.json", make_record(folder))
    row = runs_frame([run], {"nt3": "c0de"}, tmp_path / "local").iloc[0].to_dict()

    def build(*points):
        rows = []
        for point in points:
            for block, seconds in enumerate(point["time_per_step_s"], 1):
                place = {"repeat": block, "block": block, "started_wall_ns": 1000 * block + len(rows)}
                record = {"record": f"{len(rows)}/record.json"}
                rows.append({**row, **place, **record, **point, "time_per_step_s": seconds})
        return pd.DataFrame(rows)

    return build


def claim(runs, quantity):
    frame = TABLES["prace2019_claims"].make(runs, NOTHING).frame
    (row,) = frame[frame["quantity"] == quantity].itertuples()
    return row


def test_the_cells_of_tables_8_and_9_and_that_their_speedups_follow():
    table = read_published(SCALING).set_index(["framework", "gpus"])
    for framework, printed in (("mxnet", PRINTED_8), ("pytorch_horovod", PRINTED_9)):
        cells = table.loc[framework]
        assert {gpus: row.images_per_s for gpus, row in cells.iterrows()} == {n: each[0] for n, each in printed.items()}
        for gpus, (images, speedup) in printed.items():
            assert gpus == 1 or cells.loc[gpus].speedup == speedup == round(images / printed[1][0], 1)


@pytest.mark.parametrize(
    ("quantity", "expected", "digits"),
    [
        ("throughput: input from files / from memory", 0.968, 3),
        ("scaling efficiency on 32 GPUs", 0.879, 3),  # the text has 0.875
        ("throughput: PyTorch with Horovod / MXNet, both on synthetic data, 4 GPUs", 1.055, 3),
        ("throughput: own training loop / Keras's", 4.72, 2),
        ("scaling efficiency on 448 nodes", 0.89, 2),
        ("nodes of the command line", 256, 0),
        ("epochs of the command line, of 1.28 million images", 90, 0),
        ("fusion threshold", 128 * 2**20, 0),
        ("throughput: VGG-16 on 64 nodes / DenseNet-121 on one", 293, 0),
        ("time to 75 % top-1 accuracy", 2.6, 1),
        ("top-1 accuracy, baseline of ResNet-50", 75.3, 1),
        ("training images of ImageNet", 1.4e6, 0),
        ("time to train FutureGAN on one GPU", 14, 0),
        ("pathologies with a better AUROC than CheXNet, of 14: VGG-16", 4, 0),
        ("GPU memory, main GPU of eight", 15.5, 1),
        ("data that all nodes read", 1.0304, 4),
        ("images per s of a node, 128 nodes: an epoch of ImageNet", 556, 0),
        ("images per s of a node, 128 nodes: an epoch of ChestX-Ray14", 48, 0),
        ("images per s of a node: 90 epochs of ImageNet in 2.6 hours on 200 nodes", 62, 0),
        ("images per s of a node: 90 epochs of ImageNet in 2.6 hours on 256 nodes", 48, 0),
        ("epochs of part 2", 4.5, 1),
        ("peak of two Xeons / of a V100", 0.38, 2),
        ("peak of two Xeons / of a P100", 0.57, 2),
    ],
)
def test_derived_numbers_without_any_run(quantity, expected, digits):
    row = claim(NOTHING, quantity)
    assert round(row.published_value, digits) == expected
    assert math.isnan(row.value) and row.missing


def test_the_contradictions_by_arithmetic():
    assert round(28 / 32, 3) == 0.875 != round(5120 / 182 / 32, 3)
    assert round(400 / (65 / 60)) == 369
    assert round(400 / ((60 * 7638 / 8040 + 5) / 60)) == 387  # part 2 begins at iteration 7,638; 446 + 7,594 = 8,040
    assert 446 + 7594 == 8040
    assert [round(14_075 * 8192 / images) for images in (1.28e6, 1.4e6)] == [90, 82]
    assert [round(days, 1) for days in (14 / 5,)] == [2.8]  # of FutureGAN, Table 4
    assert math.log(728 / 705) / math.log(768 / 705) > 1 / 3


# From runs


def test_input_from_files_beside_input_from_memory(runs_of):
    at = {"benchmark": "resnet50", "gpus": 4, "batch_size": 64}
    runs = runs_of(
        {**at, "loader": "memory", "time_per_step_s": [0.1, 0.2, 0.15]},
        {**at, "loader": "tfrecord", "time_per_step_s": [0.125, 0.25, 0.1875]},
    )
    row = claim(runs, "throughput: input from files / from memory")
    assert (row.value, row.pairing, row.repeats) == (pytest.approx(0.8), "paired", 3)
    assert row.low == pytest.approx(0.8) == row.high
    assert "training samples 100 instead of 1280000" in row.workload_difference


def test_tables_8_and_9_beside_runs(runs_of):
    at = {"benchmark": "resnet50", "batch_size": 64, "batch_size_per_rank": 64, "samples_per_rank": 640,
          "steps_per_epoch": 10}  # fmt: skip
    runs = runs_of(
        {**at, "gpus": 1, "loader": "tfrecord", "time_per_step_s": [0.4, 0.8, 0.4]},
        {**at, "gpus": 4, "loader": "tfrecord", "time_per_step_s": [0.5, 1.0, 0.5]},
        {**at, "gpus": 4, "loader": "memory", "time_per_step_s": [0.4]},
        {**at, "gpus": 4, "loader": "npy", "time_per_step_s": [0.1]},  # no images
        {**at, "gpus": 3, "ensemble": 3, "loader": "tfrecord", "time_per_step_s": [0.1]},  # three networks
        {**at, "gpus": 1, "members": "[{}]", "loader": "tfrecord", "time_per_step_s": [0.1]},
    )
    table = TABLES["prace2019_table8_9"].make(runs, NOTHING)
    rows = table.frame.set_index(["framework", "gpus"])
    assert len(rows) == len(PRINTED_8) + len(PRINTED_9), "every published row"
    row = rows.loc["mxnet", 4]
    assert (row.speedup, row.speedup_low, row.pairing) == (pytest.approx(3.2), pytest.approx(3.2), "paired")
    assert (row.published_images_per_s, row.published_speedup) == (705, 3.9)
    assert rows.loc["pytorch_horovod", 4].images_per_s == pytest.approx(640)
    assert math.isnan(rows.loc["pytorch_horovod", 4].speedup), "without a run on one rank"
    assert "TensorFlow with Horovod instead of MXNet" in row.ratio_reason
    assert not [name for name in rows if name.startswith("ratio_") and name != "ratio_reason"]


def test_table_13_beside_runs(runs_of):
    runs = runs_of(
        {"gpus": 2, "training_loop": "keras", "time_per_epoch_steady_s": 3.0, "time_per_step_s": [0.3, 0.3]},
        {"gpus": 2, "training_loop": "custom", "time_per_epoch_steady_s": 1.0, "time_per_step_s": [0.1, 0.1]},
        {"gpus": 4, "training_loop": "keras", "time_per_epoch_steady_s": 3.0, "time_per_step_s": [0.3]},  # not both
    )
    frame = TABLES["prace2019_table13"].make(runs, NOTHING).frame
    ours, theirs = frame[frame["gpus"].notna()], frame[frame["gpus"].isna()]
    assert ours.set_index("framework")["time_per_epoch_s"].to_dict() == {"keras": 3.0, "tensorflow": 1.0}
    assert theirs.set_index("framework")["published_time_per_epoch_s"].to_dict() == {"keras": 85, "tensorflow": 18}
    assert claim(runs, "throughput: own training loop / Keras's").value == pytest.approx(3)


def test_members_of_ensembles_are_in_no_claim_of_the_guide(runs_of):
    at = {"gpus": 2, "ensemble": 2}
    runs = runs_of({**at, "loader": "memory", "time_per_step_s": [0.1]}, {**at, "time_per_step_s": [0.2]})
    assert math.isnan(claim(runs, "throughput: input from files / from memory").value)


# The studies


@pytest.mark.parametrize(("name", "ranks", "nodes"), [("cpu", {2, 256, 896}, 448), ("gpu", {1, 4, 8, 16, 32, 64}, 16)])
def test_a_study_has_the_sizes_of_the_guide_and_fits_its_machine(name, ranks, nodes):
    study, on = expansion.load_study(f"prace2019_{name}"), machine.load(f"prace_{name}")
    assert {run.gpus for run in study.runs} == ranks and max(ranks) == nodes * on["ranks_per_node"]
    assert all("unsupported" in line for line in plan.list_refusals(study, on))
    plan.check_results(study)
    trained = {(run["learning_rate_decay"], run["decay_epochs"], run["reduction_epochs"])
               for run in study.runs if run["epochs"] == 90}  # fmt: skip
    by_guide = {"cpu": {("linear", 0, "none"), ("collapsed", 5, "none")}, "gpu": {("step", 0, "30-60-80")}}
    assert trained == by_guide[name]


def test_images_that_do_not_fit_into_a_node_are_refused_in_the_plan():
    """1,281,167 + 50,000 images of 256 x 256 x 3 bytes are 262 GB, of each of the four ranks of a node."""
    files = {"source": "synthetic_images", "train_samples": 1281167, "test_samples": 50000, "seed": 1}
    grid = {"benchmark": "resnet50", "scaling": "weak", "epochs": 1, "gpus": 8, "loader": ["memory", "tfrecord"]}
    content = {"description": "a test", "datasets": {"resnet50": files}, "runs": [grid], "tables": ["scaling"]}
    study = expansion.expand_study("test", content, "test.yaml")
    (line,) = [line for line in plan.list_refusals(study, machine.load("prace_gpu")) if "loader" in line]
    assert "loader (1 run): memory: 4 ranks of a node, each with 262 GB of pixels, need more than its 256 GB" in line
    assert line.endswith("use tfrecord, lmdb or jpeg_files")
