"""How well a workload's own measurements are predicted when they are held out, beside two naive fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from study.prediction.runtime_model import RuntimeModel, fit_runtime_model, predict
from study.prediction.settings import LEAST_POINTS, SERIES

NAIVE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"naive_linear": lambda n: n, "naive_log": np.log2}
PARTS = ("mean_epoch_s", "load_s", "other_s")


def check_held_out(observations: pd.DataFrame) -> pd.DataFrame:
    """One row per held-out observation and way of holding out.

    ``held_out``: ``largest`` (all points of the largest rank count at once) or ``each`` (leave one count out). Columns:
    ranks, ratio to the largest count in the fit, measured and predicted runtime (s; low and high of the 90 % interval),
    relative errors of the prediction and of the naive fits, and whether the interval holds.
    """
    counts = sorted(observations["ranks"].unique())
    rows = [row for how, out in _list_held_out(counts) for row in _hold_out(observations, how, out)]
    return pd.DataFrame(rows)


def _list_held_out(counts: list[float]) -> Iterator[tuple[str, float]]:
    if len(counts) > LEAST_POINTS:
        yield "largest", counts[-1]
        for count in counts:
            yield "each", count


def _hold_out(observations: pd.DataFrame, how: str, out: float) -> Iterator[dict[str, object]]:
    is_out = observations["ranks"] == out
    model = fit_runtime_model(observations[~is_out])
    for _, hidden in observations[is_out].groupby(SERIES, sort=True):
        if model.has_series(hidden):
            yield from _compare_with_fits(model, hidden, how, out)


def _compare_with_fits(model: RuntimeModel, hidden: pd.DataFrame, how: str, out: float) -> Iterator[dict[str, object]]:
    """Rows of one series. model: of the observations without this rank count."""
    remaining = model.measured
    low, median, high = predict(model, hidden).interval("runtime_s")
    naive = {name: fit_naive_runtime(remaining, hidden, shape) for name, shape in NAIVE.items()}
    for place, (_, row) in enumerate(hidden.iterrows()):
        measured = row["runtime_s"]
        yield {
            **row[[name for name in row.index if name in ("scaling", "epochs", "batch_size", "link_mbit_per_s")]],
            "held_out": how,
            "ranks": out,
            "ratio_to_largest": out / remaining["ranks"].max(),
            "measured_runtime_s": measured,
            "predicted_runtime_s": median[place],
            "predicted_low_s": low[place],
            "predicted_high_s": high[place],
            "error": median[place] / measured - 1,
            "within_interval": bool(low[place] <= measured <= high[place]),
            **{f"{name}_error": values[place] / measured - 1 for name, values in naive.items()},
            "records": row["records"],
        }


def fit_naive_runtime(
    remaining: pd.DataFrame, hidden: pd.DataFrame, shape: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Runtime by fits of a + b f(N) to time per epoch, loading and the rest; relative least squares.

    Fitted to the same series where it has two counts left, else to all.
    """
    runtimes = []
    for place in range(len(hidden)):
        one = hidden.iloc[[place]]
        alike = remaining[(remaining[SERIES] == one[SERIES].iloc[0]).all(axis=1)]
        fitted = alike if alike["ranks"].nunique() > 1 else remaining
        values = {name: fit_naive(fitted, fitted[name], one, shape)[0] for name in PARTS}
        runtimes.append(one["epochs_per_rank"].iloc[0] * values["mean_epoch_s"] + values["load_s"] + values["other_s"])
    return np.array(runtimes)


def fit_naive(
    fitted: pd.DataFrame, measured: pd.Series, hidden: pd.DataFrame, shape: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """A + b f(N) at the hidden settings, fitted to ``measured`` by relative least squares.

    Fitted to the same series where it has two counts left, else to all.
    """
    columns = [np.stack([np.ones(len(x)), shape(x["ranks"].to_numpy(float))], axis=1) for x in (fitted, hidden)]
    y = measured.to_numpy(float)
    solution, *_ = np.linalg.lstsq(columns[0] / y[:, None], np.ones(len(y)), rcond=None)
    return columns[1] @ solution
