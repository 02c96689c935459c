"""How well a workload's own measurements are predicted when they are held out, beside two naive fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from study.prediction.runtime_model import Prediction
from study.prediction.settings import SERIES

NAIVE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"naive_linear": lambda n: n, "naive_log": np.log2}


def check_held_out(held_out: Iterable[Prediction]) -> pd.DataFrame:
    """One row per observation that was held out with all others of its rank count.

    Columns: ranks, ratio to the largest count in the fit, measured and predicted runtime (s; low and high of the 90 %
    interval), relative errors of the prediction and of the naive fits, and whether the interval holds.

    held_out: see `study.prediction.runtime_model.predict_held_out`.
    """
    rows = []
    for each in held_out:
        hidden, remaining = each.settings.iloc[0], each.measured
        measured = hidden["runtime_s"]
        low, median, high = (values[0] for values in each.interval("runtime_s"))
        naive = {f"{name}_error": _fit_naive(remaining, hidden, f) / measured - 1 for name, f in NAIVE.items()}
        rows.append(
            {
                **hidden[[*SERIES, "ranks", "records"]],
                "ratio_to_largest": hidden["ranks"] / remaining["ranks"].max(),
                "measured_runtime_s": measured,
                "predicted_runtime_s": median,
                "predicted_low_s": low,
                "predicted_high_s": high,
                "error": median / measured - 1,
                "within_interval": bool(low <= measured <= high),
                **naive,
            }
        )
    return pd.DataFrame(rows)


def _fit_naive(remaining: pd.DataFrame, hidden: pd.Series, shape: Callable[[np.ndarray], np.ndarray]) -> float:
    """Runtime by fits of a + b f(N) to time per epoch, loading and the rest; relative least squares.

    Fitted to the same series where it has two counts left, else to all.
    """
    alike = remaining[(remaining[SERIES] == hidden[SERIES]).all(axis=1)]
    fitted = alike if alike["ranks"].nunique() > 1 else remaining
    counts = shape(np.append(fitted["ranks"].to_numpy(float), hidden["ranks"]))
    terms = np.stack([np.ones(len(counts)), counts], axis=1)
    runtime = 0.0
    for name, times in (("mean_epoch_s", hidden["epochs_per_rank"]), ("load_s", 1), ("other_s", 1)):
        relative = terms[:-1] / fitted[name].to_numpy(float)[:, None]
        runtime += times * float(terms[-1] @ np.linalg.lstsq(relative, np.ones(len(fitted)), rcond=None)[0])
    return runtime
