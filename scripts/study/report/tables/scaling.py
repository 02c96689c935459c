"""Our own table: what each rank count costs and brings, for who must choose one."""

import pandas as pd

from study.instruments.phases import PARTS, PHASES
from study.report.tables.layout import Table
from study.report.tables.summary import POINT, VARIED, notes, optional_columns, points, timed

POWER = ["power_per_gpu_w", "power_per_gpu_training_w", "power_per_gpu_one_hz_w", "energy_per_gpu_j",
         "energy_per_gpu_one_hz_j", "energy_job_j", "energy_delay_product_js", "samples_per_j"]  # fmt: skip
MEASURES = ["runtime_s", *(f"{phase}_s" for phase in (*PHASES, *PARTS)), "other_s", "time_per_epoch_s",
            "time_per_epoch_steady_s", "throughput_samples_per_s", "accuracy", "test_accuracy", "loss", "test_loss",
            "correlation", "peak_memory_mb", "shared_read_mb", *POWER]  # fmt: skip
SERIES = [name for name in POINT if name not in ("gpus", "epochs_per_rank", "batch_size_per_rank")]


def scaling(runs, loading):
    """Time to solution, speedup and scaling efficiency of each series, against its fewest ranks."""
    table = points(timed(runs), MEASURES)
    table = table.sort_values([*SERIES, "gpus"], ignore_index=True)
    table["load_share"] = table["load_s"] / table["runtime_s"]
    table = pd.concat([_efficiency(group) for _, group in table.groupby(SERIES, sort=False)] or [table])
    shown = ["benchmark", "scaling", "loader", *VARIED, "batch_size", "batch_scaling", "gpus", "epochs_per_rank",
             "runtime_s", "startup_s", "load_s", "broadcast_s", "train_s", "other_s", "time_per_epoch_s",
             "time_per_epoch_steady_s", "speedup", "efficiency", "accuracy", "test_accuracy", "test_loss", *POWER,
             "repeats_ok", "repeats_failed", "failures", "may_fail", "oversubscribed"]  # fmt: skip
    optional = (*optional_columns(shown), *POWER)
    caption = (
        "time to solution and scaling; speedup and efficiency are of the whole run against the fewest ranks of the "
        "same series (strong, batch: T1 / TN and T1 / (N TN); weak: efficiency T1 / TN); phases are the slowest "
        "rank's; power and energy (docs/telemetry.md) where they are measured; one_hz: as if power were read once a "
        "second, as the paper did."
    )
    return Table("scaling", caption, table, shown, optional, notes(table, "values"))


def _efficiency(series):
    """Add speedup and efficiency of the whole run; empty where the series' smallest point has no time."""
    base = series.iloc[0]
    ratio = base["runtime_s"] / series["runtime_s"]
    ranks = series["gpus"] / base["gpus"]
    weak = base["scaling"] == "weak"
    return series.assign(speedup=ratio * ranks if weak else ratio, efficiency=ratio if weak else ratio / ranks)
