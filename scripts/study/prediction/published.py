"""Predictions of a paper's larger rank counts from its smaller ones: how far the model can be trusted."""

from __future__ import annotations

from pathlib import Path
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
LABELS = ["scaling", "batch_size", "loader", "learning_rate_scaling", "ranks"]


def list_papers() -> list[str]:
    """The papers with published points for a prediction."""
    return sorted(path.parent.name for path in CONFIG.glob("papers/*/prediction.yaml"))


def predict_paper(paper: str) -> pd.DataFrame:
    """One row per published point and quantity.

    Columns: benchmark, scaling, batch_size, loader, ranks, quantity, fitted (whether the fit has seen the point),
    predicted_low, predicted_median, predicted_high (90 % interval), published, error (relative) and within_interval.
    """
    folder = CONFIG / "papers" / paper
    declared = validation.load_valid_yaml(folder / "prediction.yaml", "published_prediction")
    frames = []
    for table in declared["tables"]:
        columns = {table["ranks"]: "ranks", table["time_per_epoch_s"]: "mean_epoch_s"}
        values = read_csv(folder / table["file"], dict.fromkeys(columns, FINITE)).rename(columns=columns)
        given = {name: table[name] for name in ("scaling", "epochs", "batch_size") if name in table}
        frames.append(values.assign(**{**given, **values.filter(["batch_size"])}))
    points = pd.concat(frames, ignore_index=True).reindex(columns=[*LABELS, "epochs", "mean_epoch_s"])
    points = points.assign(
        nodes=divide_rounding_up(points["ranks"], declared["ranks_per_node"]),
        epochs_per_rank=points["epochs"] / np.where(points["scaling"] == "strong", points["ranks"], 1),
        samples=declared["train_samples"],
    )
    fitted = points[points["ranks"] <= declared["fit_up_to"]]
    frames = [_predict_quantities(fit_runtime_model(fitted), points, {"time_per_epoch_s": "mean_epoch_s"})]
    if "energy" in declared:
        energy = declared["energy"]
        by_loader = {
            loader: _add_energy(points, folder / energy["file"], energy, loader) for loader in energy["loaders"]
        }
        frames += [_predict_energies(points, by_loader, loader, declared["fit_up_to"]) for loader in by_loader]
    comparison = pd.concat(frames, ignore_index=True)
    comparison.insert(0, "benchmark", declared["benchmark"])
    comparison["fitted"] = comparison["ranks"] <= declared["fit_up_to"]
    return comparison


def _add_energy(points: pd.DataFrame, file: Path, energy: dict[str, Any], loader: str) -> pd.DataFrame:
    """The points of one loader with energy, power, and all of the runtime that is not epochs as ``load_s``.

    The runtime is the published energy / power.
    """
    columns = {"gpus": "ranks", "energy_per_gpu_j": "energy_per_rank_j", "power_per_gpu_w": "power_per_rank_w"}
    values = read_csv(file, dict.fromkeys(columns, FINITE))
    measured = values.loc[values["loader"] == loader, [*columns]].rename(columns=columns)
    is_same = points["scaling"].eq(energy["scaling"]) & points["batch_size"].eq(energy["batch_size"])
    matched = points[is_same].rename_axis("point").reset_index().merge(measured, on="ranks")
    runtime = matched["energy_per_rank_j"] / matched["power_per_rank_w"]
    load = runtime - matched["epochs_per_rank"] * matched["mean_epoch_s"]
    return matched.assign(loader=loader, runtime_s=runtime, load_s=load)


def _predict_energies(
    points: pd.DataFrame, by_loader: dict[str, pd.DataFrame], loader: str, fit_up_to: int
) -> pd.DataFrame:
    """Runtime, energy and power of one loader. The powers while computing and waiting are fitted to all loaders."""
    own = by_loader[loader]
    others = [rows.assign(mean_epoch_s=np.nan, load_s=np.nan) for name, rows in by_loader.items() if name != loader]
    fitted = pd.concat([points.drop(index=own["point"]), own, *others], ignore_index=True)
    model = fit_runtime_model(fitted[fitted["ranks"] <= fit_up_to])
    frames = [_predict_quantities(model, own, ENERGIES)]
    if model.power is not None:
        energies = model.power.to_joules(model.compute_seconds(own), own["runtime_s"].to_numpy(float))
        frames.append(_compare((energies, energies, energies), own, own["energy_per_rank_j"], GIVEN))
    return pd.concat(frames, ignore_index=True)


def _predict_quantities(model: RuntimeModel, points: pd.DataFrame, quantities: dict[str, str]) -> pd.DataFrame:
    """Predictions beside the published values. quantities: {name in the table: ours}."""
    series = points.groupby(["scaling", "batch_size"], sort=False)
    predictions = [(rows, predict(model, rows)) for _, rows in series]
    frames = []
    for name, ours in quantities.items():
        frames += [_compare(each.interval(ours), rows, rows[ours], name) for rows, each in predictions]
    return pd.concat(frames, ignore_index=True)


def _compare(predicted: Interval, points: pd.DataFrame, published: pd.Series, quantity: str) -> pd.DataFrame:
    comparison = compare_with_measured(predicted, published.to_numpy())
    frame = points[LABELS].reset_index(drop=True).assign(quantity=quantity, **comparison)
    frame.insert(list(frame).index("error"), "published", published.to_numpy())
    return frame
