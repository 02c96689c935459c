"""Tables 8, 9 and 13 of the PRACE guide beside this study's runs."""

import math
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.data.images.formats import FORMATS
from study.experiment.parameters import is_observed
from study.experiment.study import Study
from study.records import pairing
from study.records.arms import steady_samples_per_s
from study.report.papers.beside import finished
from study.report.papers.workload import workload_difference
from study.report.tables.layout import Table
from study.report.tables.published_values import beside_published, with_unmeasured
from study.report.tables.summary import IDENTITY, like, points

SCALING, LOOPS = "prace2019_table8_9_resnet50_scaling.csv", "prace2019_table13_keras_vs_tensorflow.csv"
BATCH_SIZE = 64  # of a worker (Table 7)
DIFFERENCE = workload_difference("prace2019")
LOOP = "training_loop"
FRAMEWORKS = {"tensorflow": "TensorFlow", "pytorch": "PyTorch"}
FRAMEWORK_OF = {"keras": "keras", "custom": "tensorflow"}  # value of `LOOP` -> Table 13's word for it
SPEEDUP = ("speedup", "speedup_low", "speedup_high", "pairing")  # of table 8 and 9
TOLD = ["repeats_ok", "repeats_failed", "failures", "oversubscribed"]


def of_images(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings of training on images with Horovod."""
    return is_observed(run, None) and run["loader"] in FORMATS and run["strategy"] == "horovod"


@kinds.table(
    "prace2019_table8_9",
    title="Images per second by number of GPUs",
    look_for="How the throughput grows with the ranks, and what reading the images costs. The guide's two tables "
    "differ in framework, data and method at once; the runs here differ in the input, and in the "
    "framework if the study has two.",
    needs="runs on images with strategy horovod",
    uses=of_images,
    compares_runs=True,
)
def table8_9(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Tables 8 and 9: images per second and speedup; input from files beside MXNet's, from memory beside PyTorch's."""
    runs = runs.assign(images_per_s=steady_samples_per_s(runs))
    table = points(runs, ["images_per_s"])
    table = table.join(pd.DataFrame([_speedup(row, table, runs) for _, row in table.iterrows()], index=table.index))
    table["trained_with"] = table["framework"].map(lambda name: f"{FRAMEWORKS[name]} with Horovod")
    table["framework"] = table["loader"].map(lambda name: "pytorch_horovod" if name == "memory" else "mxnet")
    keys, measures = ["framework", "gpus"], ["images_per_s", "speedup"]
    table = beside_published(table, SCALING, keys, measures, _differences)
    table = with_unmeasured(table, SCALING, keys, measures)
    table = table.sort_values(["framework", "gpus", "benchmark"], ignore_index=True)
    shown = ["framework", "trained_with", "benchmark", "loader", "gpus", "batch_size_per_rank", "images_per_s",
             "speedup", "speedup_low", "speedup_high", "pairing", "published_images_per_s", "published_speedup",
             *TOLD]  # fmt: skip
    caption = (
        "Images per second of all ranks, without the first epoch. speedup: over one rank with the same batch size "
        "per rank, with its 95 % interval. published: prace2019, Table 8 (MXNet with a parameter server, ImageNet "
        "from RecordIO files) and Table 9 (PyTorch with Horovod, synthetic data), on GTX 1080 Ti, four per node. "
        "framework: which of these two the row is compared with. trained_with: what trained here."
    )
    return _finished("prace2019_table8_9", caption, table, shown)


def _speedup(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """The throughput over that of one rank, blocks paired; NaN without a run on one rank."""
    base = like(table[table["gpus"] == 1], row, ("gpus",))
    if row["gpus"] == 1 or base.empty or base.iloc[0]["batch_size_per_rank"] != row["batch_size_per_rank"]:
        return {**dict.fromkeys(SPEEDUP, math.nan), "pairing": None}
    found = pairing.between(runs, row["records"], base.iloc[0]["records"], "images_per_s")
    told = {"blocks_unlike": found.unlike, "blocks_alike": pairing.blocks_alike({"speedup": found})}
    return dict(zip(SPEEDUP, (*found.numbers, found.pairing), strict=True)) | told


def _differences(row: pd.Series) -> str:
    theirs = {"mxnet": "MXNet", "pytorch_horovod": "PyTorch with Horovod"}[row["framework"]]
    framework = None if row["trained_with"] == theirs else f"{row['trained_with']} instead of {theirs}"
    batch = f"batch size a rank {row['batch_size_per_rank']} instead of {BATCH_SIZE}"
    others = [DIFFERENCE(row), batch if row["batch_size_per_rank"] != BATCH_SIZE else None]
    return ", ".join([*filter(None, [framework, *others]), "other hardware"])


def has_own_loop(study: Study) -> bool:
    """Whether a study trains with a training loop of its own."""
    return any(run[LOOP] == "custom" for run in study.runs)


@kinds.table(
    "prace2019_table13",
    title="Keras's training loop and a custom one",
    look_for="How much of the guide's factor of 4.7 is left between the two loops on the same network and data. Table "
    "prace2019_claims has its interval.",
    needs="runs with training_loop custom",
    uses=kinds.runs(),
    is_there=has_own_loop,
    compares_runs=True,
)
def table13(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 13: seconds per epoch with each loop; only points that have both."""
    table = points(runs, ["time_per_epoch_steady_s"])
    same = [key for key in IDENTITY if key != LOOP]
    both = table.groupby(same, dropna=False)[LOOP].transform("nunique") > 1
    table = table[both].rename(columns={"time_per_epoch_steady_s": "time_per_epoch_s"})
    table["framework"] = table[LOOP].map(FRAMEWORK_OF)
    table["global_batch"] = table["gpus"] * table["batch_size_per_rank"]
    keys, measures = ["global_batch", "framework"], ["time_per_epoch_s"]
    table = beside_published(table, LOOPS, keys, measures, lambda row: "TensorFlow 2 on another machine")
    table = with_unmeasured(table, LOOPS, keys, measures)
    shown = ["benchmark", "framework", "gpus", "global_batch", "time_per_epoch_s", "published_time_per_epoch_s", *TOLD]
    caption = (
        "Median time of the epochs after the first. framework: keras is Keras's loop, tensorflow this project's loop "
        "around the same model and optimizer. published: prace2019, Table 13, ResNet-50 on 128 nodes, TensorFlow "
        "1.6. How the two programs differ is not stated."
    )
    return _finished("prace2019_table13", caption, table, shown)


def _finished(name: str, caption: str, table: pd.DataFrame, shown: list[str]) -> Table:
    """Without ratios to published values, since none is of the same framework, data and hardware."""
    ratios = [column for column in table if str(column).startswith("ratio_") and column != "ratio_reason"]
    return finished(name, caption, table.drop(columns=ratios), shown, also_optional=SPEEDUP)
