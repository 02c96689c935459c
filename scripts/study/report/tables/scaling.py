"""Our own table: time, speedup and cost of each number of ranks, to help choose one."""

import numpy as np
import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.study import growth_of_work
from study.instruments.phases import PARTS, PHASES
from study.records import pairing
from study.records.arms import SPEED as STEADY
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, POINT, notes, optional_columns, points, to_target

POWER = ["power_per_gpu_w", "power_per_gpu_training_w", "power_per_gpu_one_hz_w", "energy_per_gpu_j",
         "energy_per_gpu_one_hz_j", "energy_job_j", "energy_delay_product_js", "samples_per_j"]  # fmt: skip
FLOP = ["model_flop_per_sample", "achieved_gflop_per_s", "flop_utilisation"]
MEASURES = ["runtime_s", *(f"{phase}_s" for phase in (*PHASES, *PARTS)), "other_s", "time_per_epoch_s",
            "time_per_epoch_steady_s", "throughput_samples_per_s", STEADY, *FLOP, "accuracy", "test_accuracy",
            "growth_sign_accuracy", "validation_growth_sign_accuracy", "test_growth_sign_accuracy", "test_r2", "loss",
            "test_loss", "correlation", "peak_memory_mb", "shared_read_mb", *POWER]  # fmt: skip
GROWTH_SIGN = "test_growth_sign_accuracy"  # only P1B3 has it
SERIES = [name for name in POINT if name not in ("gpus", "epochs_per_rank", "batch_size_per_rank")]


@kinds.table(
    "scaling",
    title="Speedup and cost by GPU count",
    look_for="At which number of GPUs the efficiency falls below what the job is worth, and which phase takes the time "
    "there.",
    needs=kinds.NEEDS_TIMINGS,
    uses=kinds.runs(),
)
def scaling(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Time to solution, speedup and scaling efficiency of each series, relative to its smallest number of ranks."""
    table = points(runs.assign(achieved_gflop_per_s=runs["flop_per_s"].astype(float) / 1e9), MEASURES)
    table = table.sort_values([*SERIES, "gpus"], ignore_index=True)
    table = table.assign(load_share=table["load_s"] / table["runtime_s"])
    table = pd.concat([_efficiency(group, runs) for _, group in table.groupby(SERIES, sort=False)] or [table])
    shown = ["benchmark", "scaling", "loader", "batch_size", "batch_scaling", "gpus", "epochs_per_rank",
             "runtime_s", "startup_s", "load_s", "broadcast_s", "train_s", "other_s", "time_per_epoch_s",
             "time_per_epoch_steady_s", "throughput_samples_per_s", STEADY, *FLOP[1:], "speedup",
             "speedup_low", "speedup_high", "pairing", "efficiency", "accuracy", "test_accuracy", GROWTH_SIGN,
             "test_loss", *POWER, "repeats_ok", "repeats_failed", "failures", "may_fail", "oversubscribed"]  # fmt: skip
    optional = (*optional_columns(shown), STEADY, *FLOP, GROWTH_SIGN, *POWER, "speedup_low", "speedup_high", "pairing")
    if not (table["pairing"] == pairing.UNPAIRED).any():
        shown.remove("pairing")
    caption = (
        "Time to solution, and how it scales with the number of ranks. speedup: how many times faster the work is "
        "done than with the fewest ranks of the same series, for the whole run. Where more ranks do more work, the "
        "speedup counts that work: with weak scaling, N times the ranks do N times the work. With sharding by_rank "
        "the ranks divide one data set: then the work of weak scaling stays the same, and that of strong scaling "
        "falls to 1 / N. efficiency: speedup divided by how many times as many ranks there are; 1 is ideal. "
        "speedup_low, speedup_high: 95 % interval of the speedup. The speedup is a geometric mean over the blocks "
        "(repeats) that both rank counts have; it is unpaired where the two were not run interleaved. phases: "
        "startup_s to train_s, each of the slowest rank. other_s: runtime_s less the phases of rank 0. power, energy: "
        "from load to evaluate, so without start-up, "
        "where they are measured (docs/telemetry.md). one_hz: as if power were read once a second, as on Summit. "
        "achieved_gflop_per_s: throughput times the operations of a sample's forward and backward pass, of all "
        "ranks. flop_utilisation: achieved_gflop_per_s as a share of the machine's peak."
    )
    remarks = [*notes(table, "values"), *_without_flop(runs), *_of_programs(runs),
               *to_target(runs, "runtime and speedup")]  # fmt: skip
    return Table("scaling", caption, table, shown, optional, remarks, IDENTITY)


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
    does not count; see `study.records.pairing`.
    """
    base = series.iloc[0]
    ranks = series["gpus"] / base["gpus"]
    work = growth_of_work(base["scaling"], base["sharding"], ranks)
    paired = [pairing.between(runs, base["records"], records, "runtime_s") for records in series["records"]]
    ratio = pd.Series([each.ratio for each in paired], index=series.index, dtype=float)
    return series.assign(
        speedup=ratio * work,
        speedup_low=np.array([each.low for each in paired]) * work,
        speedup_high=np.array([each.high for each in paired]) * work,
        efficiency=ratio * work / ranks,
        pairing=[each.pairing if place else None for place, each in enumerate(paired)],
        blocks_unlike=[each.unlike for each in paired],
        blocks_alike=[pairing.blocks_alike({"speedup": each}) for each in paired],
    )
