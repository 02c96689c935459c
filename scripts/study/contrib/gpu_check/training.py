"""Whether training on the GPUs worked and its results are plausible: the runs of NT3 in study ``gpu_check``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from study.contrib.gpu_check.meters import judge_power
from study.contrib.gpu_check.verdicts import Verdicts
from study.core.files import read_json


def judge_training(
    verdicts: Verdicts, row: Mapping[str, Any], folder: Path, uuids: Sequence[str | None], limits_w: Mapping[str, float]
) -> None:
    """The checks of one run. row: of runs.csv. uuids: the GPUs that CUDA shows. limits_w: power limits by UUID."""
    name = f"NT3 in {row['precision']} on {row['gpus']} GPUs"
    losses = pd.read_csv(folder / "history.csv")["loss"]
    numbers = f"loss {losses.iloc[0]:.4g} to {losses.iloc[-1]:.4g}, {row['time_per_epoch_steady_s']:.3g} s per epoch"
    problem = None if losses.iloc[-1] < losses.iloc[0] else "the loss did not fall"
    verdicts.judge(f"{name}: it learns", problem, numbers, "the loss falls")
    used = [rank["gpu"] for rank in read_json(folder / "metrics.json")["ranks"]]
    problem = None if used == list(uuids[: len(used)]) else f"the ranks used {used}, CUDA shows {list(uuids)}"
    verdicts.judge(f"{name}: ranks are on the first GPUs that CUDA shows", problem, len(used))
    busy_pct, power_w = row["gpu_utilisation_pct"], row["power_per_gpu_training_w"]
    if pd.isna(busy_pct):
        verdicts.leave_unchecked(f"{name}: the GPUs are used", "no reading of the utilisation while training")
    else:
        problem = None if busy_pct > 0 else "their utilisation was 0"
        verdicts.judge(f"{name}: the GPUs are used", problem, f"{busy_pct:.3g} %")
    check = f"{name}: power per GPU while training"
    if not pd.isna(power_w) and limits_w:
        judge_power(verdicts, check, power_w, max(limits_w.values()))
    elif pd.isna(row["doubtful_energy"]):
        verdicts.leave_unchecked(check, row["power_reason"] if pd.isna(power_w) else "no power limit can be read")
    else:
        verdicts.judge(check, str(row["power_reason"]))
