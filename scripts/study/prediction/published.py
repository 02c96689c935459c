"""Predictions of a paper's larger rank counts from its smaller ones: how far the model can be trusted."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

from study.core import validation
from study.core.csv_files import FINITE, read_csv
from study.core.paths import CONFIG
from study.prediction.runtime_model import Interval, RuntimeModel, compare_with_measured, fit_runtime_model, predict
from study.prediction.settings import divide_rounding_up

ENERGIES = {"energy_per_gpu_j": "energy_per_rank_j", "power_w": "power_per_rank_w", "runtime_s": "runtime_s"}
GIVEN = "energy_per_gpu_given_runtime_j"


def list_papers() -> list[str]:
    """The papers with published points for a prediction."""
    return sorted(path.parent.name for path in CONFIG.glob("papers/*/prediction.yaml"))


@functools.cache
def _load_declaration(paper: str) -> dict[str, Any]:
    return validation.load_valid_yaml(CONFIG / "papers" / paper / "prediction.yaml", "published_prediction")


def predict_paper(paper: str) -> pd.DataFrame:
    """One row per published point and quantity.

    Columns: benchmark, scaling, batch_size, loader, ranks, quantity, fitted (whether the fit has seen the point),
    predicted_low, predicted_median, predicted_high (90 % interval), published, error (relative) and within_interval.
    """
    declared = _load_declaration(paper)
    points = _read_points(paper, declared)
    fitted = points["ranks"] <= declared["fit_up_to"]
    frames = [_predict_quantities(fit_runtime_model(points[fitted]), points, {"time_per_epoch_s": "mean_epoch_s"})]
    if "energy" in declared:
        frames += [_predict_energies(paper, declared, points, loader) for loader in declared["energy"]["loaders"]]
    comparison = pd.concat(frames, ignore_index=True)
    comparison.insert(0, "benchmark", declared["benchmark"])
    comparison["fitted"] = comparison["ranks"] <= declared["fit_up_to"]
    return comparison


def _read_points(paper: str, declared: dict[str, Any]) -> pd.DataFrame:
    frames = []
    for table in declared["tables"]:
        values = read_csv(
            CONFIG / "papers" / paper / table["file"], _declare_numbers(table["ranks"], table["time_per_epoch_s"])
        )
        batch = values["batch_size"] if "batch_size" in values else table["batch_size"]
        frames.append(
            pd.DataFrame(
                {
                    "scaling": table["scaling"],
                    "loader": values.get("loader"),
                    "learning_rate_scaling": values.get("learning_rate_scaling"),
                    "batch_size": batch,
                    "ranks": values[table["ranks"]],
                    "epochs": table["epochs"],
                    "mean_epoch_s": values[table["time_per_epoch_s"]],
                }
            )
        )
    return _add_settings(pd.concat(frames, ignore_index=True), declared)


def _declare_numbers(*columns: str) -> dict[str, str]:
    """The kinds of columns of numbers."""
    return dict.fromkeys(columns, FINITE)


def _add_settings(points: pd.DataFrame, declared: dict[str, Any]) -> pd.DataFrame:
    ranks = points["ranks"]
    return points.assign(
        nodes=divide_rounding_up(ranks, declared["ranks_per_node"]),
        epochs_per_rank=np.where(points["scaling"] == "strong", points["epochs"] / ranks, points["epochs"]),
        samples=declared["train_samples"],
    )


def _predict_energies(paper: str, declared: dict[str, Any], points: pd.DataFrame, loader: str) -> pd.DataFrame:
    """Runtime, energy and power of one loader. The powers while computing and waiting are fitted to all loaders."""
    by_loader = {name: _add_energy(paper, declared, points, name) for name in declared["energy"]["loaders"]}
    others = [rows.assign(mean_epoch_s=np.nan, load_s=np.nan) for name, rows in by_loader.items() if name != loader]
    mine = by_loader[loader]
    rest = points[~points.index.isin(mine["point"])]
    fitted = pd.concat([rest, mine, *others], ignore_index=True)
    model = fit_runtime_model(fitted[fitted["ranks"] <= declared["fit_up_to"]])
    frames = [_predict_quantities(model, mine, ENERGIES)]
    if model.power is not None:
        energies = model.power.to_joules(model.compute_seconds(mine), mine["runtime_s"].to_numpy(float))
        frames.append(_compare((energies, energies, energies), mine, mine["energy_per_rank_j"], GIVEN))
    return pd.concat(frames, ignore_index=True)


def _predict_quantities(model: RuntimeModel, points: pd.DataFrame, quantities: dict[str, str]) -> pd.DataFrame:
    """Predictions beside the published values. quantities: {name in the table: ours}."""
    series = [points[points["scaling"].eq(scaling) & points["batch_size"].eq(batch)]
              for scaling, batch in points[["scaling", "batch_size"]].drop_duplicates().to_numpy()]  # fmt: skip
    predictions = [(rows, predict(model, rows)) for rows in series]
    return pd.concat(
        [
            _compare(prediction.interval(ours), rows, rows[ours], name)
            for name, ours in quantities.items()
            for rows, prediction in predictions
        ],
        ignore_index=True,
    )


def _add_energy(paper: str, declared: dict[str, Any], points: pd.DataFrame, loader: str) -> pd.DataFrame:
    """The points of one loader with energy, power, and all of the runtime that is not epochs as ``load_s``.

    The runtime is the published energy / power.
    """
    energy = declared["energy"]
    columns = energy["loaders"][loader]
    numbers = _declare_numbers("gpus", columns["energy_per_gpu_j"], columns["power_w"])
    values = read_csv(CONFIG / "papers" / paper / energy["file"], numbers)
    joules, watts = values[columns["energy_per_gpu_j"]], values[columns["power_w"]]
    measured = pd.DataFrame({"ranks": values["gpus"], "energy_per_rank_j": joules, "power_per_rank_w": watts})
    same = points["scaling"].eq(energy["scaling"]) & points["batch_size"].eq(energy["batch_size"])
    matched = points[same].rename_axis("point").reset_index().merge(measured, on="ranks")
    runtime = matched["energy_per_rank_j"] / matched["power_per_rank_w"]
    load = runtime - matched["epochs_per_rank"] * matched["mean_epoch_s"]
    return matched.assign(loader=loader, runtime_s=runtime, load_s=load)


def _compare(predicted: Interval, points: pd.DataFrame, published: pd.Series, quantity: str) -> pd.DataFrame:
    labels = ("scaling", "batch_size", "loader", "learning_rate_scaling", "ranks")
    comparison = compare_with_measured(predicted, published.to_numpy())
    frame = pd.DataFrame({**{name: points[name].to_numpy() for name in labels}, "quantity": quantity, **comparison})
    frame.insert(list(frame).index("error"), "published", published.to_numpy())
    return frame
