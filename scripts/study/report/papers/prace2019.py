"""Tables 8, 9 and 13 of the PRACE guide beside this study's runs."""

from typing import Any

import pandas as pd

from study.data.images.formats import FORMATS
from study.experiment.parameters import is_observed
from study.records.tidy import compute_steady_throughput
from study.report.papers.workload import workload_difference
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.ensembles import is_of_members
from study.report.tables.point_comparisons import add_comparisons
from study.report.tables.published_values import add_published_columns, add_unmeasured_rows
from study.report.tables.summary import IDENTITY, points

SCALING, LOOPS = "prace2019_table8_9_resnet50_scaling.csv", "prace2019_table13_keras_vs_tensorflow.csv"
BATCH_SIZE = 64  # of a worker (Table 7)
DIFFERENCE = workload_difference("prace2019")
LOOP = "training_loop"
FRAMEWORKS = {"tensorflow": "TensorFlow", "pytorch": "PyTorch"}
FRAMEWORK_OF = {"keras": "keras", "custom": "tensorflow"}  # value of `LOOP` -> Table 13's word for it


def trains_on_images(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings of one network that ranks train with Horovod."""
    is_timed = is_observed(run, None) and not is_of_members(run)
    return is_timed and run["loader"] in FORMATS and run["strategy"] == "horovod"


@table_rows("prace2019_table8_9", uses=trains_on_images)
def table8_9(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Tables 8 and 9: images per second and speedup; input from files beside MXNet's, from memory beside PyTorch's."""
    runs = runs.assign(images_per_s=compute_steady_throughput(runs))
    table = add_comparisons(load_declarations()["prace2019_table8_9"], points(runs, ["images_per_s"]), runs)
    table["trained_with"] = table["framework"].map(lambda name: f"{FRAMEWORKS[name]} with Horovod")
    table["framework"] = table["loader"].map(lambda name: "pytorch_horovod" if name == "memory" else "mxnet")
    keys, measures = ["framework", "gpus"], ["images_per_s", "speedup"]
    table = add_published_columns(table, SCALING, keys, measures, _differences)
    table = add_unmeasured_rows(table, SCALING, keys, measures)
    table = table.sort_values(["framework", "gpus", "benchmark"], ignore_index=True)
    return Rows(_drop_ratios(table))


def _differences(row: pd.Series) -> str:
    theirs = {"mxnet": "MXNet", "pytorch_horovod": "PyTorch with Horovod"}[row["framework"]]
    framework = None if row["trained_with"] == theirs else f"{row['trained_with']} instead of {theirs}"
    batch = f"batch size a rank {row['batch_size_per_rank']} instead of {BATCH_SIZE}"
    others = [DIFFERENCE(row), batch if row["batch_size_per_rank"] != BATCH_SIZE else None]
    return ", ".join([*filter(None, [framework, *others]), "other hardware"])


@table_rows("prace2019_table13")
def table13(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table 13: seconds per epoch with each loop; only points that have both."""
    table = points(runs, ["time_per_epoch_steady_s"])
    same = [key for key in IDENTITY if key != LOOP]
    both = table.groupby(same, dropna=False)[LOOP].transform("nunique") > 1
    table = table[both].rename(columns={"time_per_epoch_steady_s": "time_per_epoch_s"})
    table["framework"] = table[LOOP].map(FRAMEWORK_OF)
    table["global_batch"] = table["gpus"] * table["batch_size_per_rank"]
    keys, measures = ["global_batch", "framework"], ["time_per_epoch_s"]
    table = add_published_columns(table, LOOPS, keys, measures, lambda row: "TensorFlow 2 on another machine")
    table = add_unmeasured_rows(table, LOOPS, keys, measures)
    return Rows(_drop_ratios(table))


def _drop_ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Without ratios to published values, since none is of the same framework, data and hardware."""
    ratios = [column for column in table if str(column).startswith("ratio_") and column != "ratio_reason"]
    return table.drop(columns=ratios)
