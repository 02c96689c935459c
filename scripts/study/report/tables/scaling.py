"""Our own table: time, speedup and cost of each number of ranks, to help choose one."""

import numpy as np
import pandas as pd

from study.compare import estimates
from study.experiment.study import growth_of_work
from study.instruments.phases import PARTS, PHASES
from study.records.tidy import STEADY
from study.report.tables.declared import Rows, load_declarations, table_rows
from study.report.tables.summary import POINT, points, to_target

POWER = ["power_per_gpu_w", "power_per_gpu_training_w", "power_per_gpu_one_hz_w", "energy_per_gpu_j",
         "energy_per_gpu_one_hz_j", "energy_job_j", "energy_delay_product_js", "samples_per_j"]  # fmt: skip
FLOP = ["model_flop_per_sample", "achieved_gflop_per_s", "flop_utilisation"]
MEASURES = ["runtime_s", *(f"{phase}_s" for phase in (*PHASES, *PARTS)), "other_s", "time_per_epoch_s",
            "time_per_epoch_steady_s", "throughput_samples_per_s", STEADY, *FLOP, "accuracy", "test_accuracy",
            "growth_sign_accuracy", "validation_growth_sign_accuracy", "test_growth_sign_accuracy", "test_r2", "loss",
            "test_loss", "correlation", "peak_memory_mb", "shared_read_mb", *POWER]  # fmt: skip
SERIES = [name for name in POINT if name not in ("gpus", "epochs_per_rank", "batch_size_per_rank")]


@table_rows("scaling")
def scaling(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Time to solution, speedup and scaling efficiency of each series, relative to its smallest number of ranks."""
    table = points(runs.assign(achieved_gflop_per_s=runs["flop_per_s"].astype(float) / 1e9), MEASURES)
    table = table.sort_values([*SERIES, "gpus"], ignore_index=True)
    table = table.assign(load_share=table["load_s"] / table["runtime_s"])
    table = pd.concat([_efficiency(group, runs) for _, group in table.groupby(SERIES, sort=False)] or [table])
    shown = load_declarations()["scaling"]["columns"]
    if not (table["pairing"] == estimates.UNPAIRED).any():
        shown = [name for name in shown if name != "pairing"]
    remarks = [*_without_flop(runs), *_of_programs(runs), *to_target(runs, "runtime and speedup")]
    return Rows(table, remarks, columns=shown)


def _without_flop(runs: pd.DataFrame) -> list[str]:
    """Why successful runs have no FLOP utilisation, as a remark."""
    reasons = runs.loc[runs["status"] == "ok", "flop_reason"].dropna().unique()
    return [f"no FLOP utilisation: {'; '.join(reasons)}"] if len(reasons) else []


def _of_programs(runs: pd.DataFrame) -> list[str]:
    """Why results of commands are empty or doubtful, as a remark."""
    reasons = runs["program_reason"].dropna().unique() if "program_reason" in runs else ()
    return [f"programs: {'; '.join(reasons)}"] if len(reasons) else []


def _efficiency(series: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add speedup and efficiency of the whole run; empty where no block has both points' times.

    The speedup is the geometric mean of the ratios within blocks, so that a repeat that only one of the two points has
    does not count; see `study.compare.estimates`.
    """
    base = series.iloc[0]
    ranks = series["gpus"] / base["gpus"]
    work = growth_of_work(base["scaling"], base["sharding"], ranks)
    paired = [estimates.compare_rows(runs, base["records"], records, "runtime_s") for records in series["records"]]
    ratio = pd.Series([each.value for each in paired], index=series.index, dtype=float)
    return series.assign(
        speedup=ratio * work,
        speedup_low=np.array([each.low for each in paired]) * work,
        speedup_high=np.array([each.high for each in paired]) * work,
        efficiency=ratio * work / ranks,
        pairing=[each.pairing if place else None for place, each in enumerate(paired)],
        blocks_unlike=[each.unlike for each in paired],
        blocks_alike=[estimates.describe_fewer_blocks({"speedup": each}) for each in paired],
    )
