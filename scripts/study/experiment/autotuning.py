"""Horovod's autotuning: how many steps it takes with our settings, and what it found.

Horovod tries pairs of fusion threshold and cycle time by Bayesian optimisation, and keeps the pair with the most bytes
reduced per second (horovod/common/parameter_manager.cc). What else it could tune is fixed by `VARIABLES`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from study.core.errors import StudyError

USED = ("score", "tensor_fusion_threshold", "cycle_time_ms")
LOG = "autotune.csv"  # in the run's directory, as rank 0's Horovod writes it
# Horovod's own are 3, 10 and 20, which are 1,200 steps: longer than most runs on a laptop.
WARMUP_TRIALS, STEPS_PER_SAMPLE, SEARCHED = 1, 5, 10
TRIALS = SEARCHED + 1
SAMPLES_PER_TRIAL = 5  # of which Horovod takes the median
STEPS = (WARMUP_TRIALS + TRIALS) * (SAMPLES_PER_TRIAL * STEPS_PER_SAMPLE + 1)  # one more step ends a trial
VARIABLES = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": str(WARMUP_TRIALS),
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": str(STEPS_PER_SAMPLE),
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": str(SEARCHED),
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_TORUS_ALLREDUCE": "0",
}


def summarize_log(folder: Path) -> dict[str, Any] | None:
    """The number of trials in Horovod's log in a run's directory, and the best one; None for a run that was not tuned.

    trials: those that were measured. is_finished: whether Horovod went on with the best of them. fusion_threshold_mb
    (MiB), cycle_time_ms: of the best trial, or None without a trial.
    """
    path = folder / LOG
    if not path.exists():
        return None
    rows = _read_trials(path)
    trials = rows[:TRIALS]
    # Horovod's last row repeats the best trial.
    best = rows[TRIALS] if len(rows) > TRIALS else max(trials, key=lambda row: row["score"], default=None)
    return {
        "trials": len(trials),
        "is_finished": len(rows) > TRIALS,
        "fusion_threshold_mb": best["tensor_fusion_threshold"] if best else None,
        "cycle_time_ms": best["cycle_time_ms"] if best else None,
    }


def _read_trials(path: Path) -> list[dict[str, float]]:
    """The rows of Horovod's log that have a score. A last line that was cut off does not count.

    Raises:
        StudyError: another line lacks a number.
    """
    trials = []
    text = Path(path).read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    names, *rows = (line.split(",") for line in text.split("\n")[:-1] or [""])
    for number, row in enumerate([names, *rows], 1):
        cells = dict(zip(names, row, strict=False)) if number > 1 else dict.fromkeys(names, "0")
        try:
            if len(row) != len(names) or not cells.keys() >= set(USED):
                raise ValueError(row)
            values = {name: _parse_finite(cells[name]) for name in USED if cells["score"]}
        except ValueError:
            raise StudyError(
                f"{path}: line {number}: lacks a number among {', '.join(USED)}; delete {path.parent} to run again"
            ) from None
        if values and number > 1:
            trials.append(values)
    return trials


def _parse_finite(text: str) -> float:
    """The number in a cell; raises `ValueError` if it is not finite."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value
