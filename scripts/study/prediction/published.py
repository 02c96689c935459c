"""Predictions of a paper's larger rank counts from its smaller ones: how far the model can be trusted."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
import pandas as pd

from study.core import configuration, validation
from study.core.csv_files import FINITE, read_csv
from study.core.paths import CONFIG
from study.prediction.model import Interval, Model, compared, fit_model, joules, predict, spent
from study.prediction.regression import Posterior
from study.prediction.settings import rounded_up
from study.workloads import operations

ENERGIES = {"energy_per_gpu_j": "energy_per_rank_j", "power_w": "power_per_rank_w", "runtime_s": "runtime_s"}
GIVEN = "energy_per_gpu_given_runtime_j"


def papers() -> list[str]:
    """The papers with published points for a prediction."""
    return sorted(path.parent.name for path in CONFIG.glob("papers/*/prediction.yaml"))


@functools.cache
def _declared(paper: str) -> dict[str, Any]:
    return validation.load_valid_yaml(CONFIG / "papers" / paper / "prediction.yaml", "published_prediction")


def predictions(paper: str) -> pd.DataFrame:
    """One row per published point and quantity.

    Columns: benchmark, scaling, batch_size, loader, ranks, quantity, fitted (whether the fit has seen the point),
    predicted_low, predicted_median, predicted_high (90 % interval), published, error (relative) and within_interval.
    """
    declared = _declared(paper)
    points = _points(paper, declared)
    fitted = points["ranks"] <= declared["fit_up_to"]
    model = fit_model(points[fitted])
    frames = [
        _compared(predict(model, points).interval("mean_epoch_s"), points, points["mean_epoch_s"], "time_per_epoch_s")
    ]
    if "energy" in declared:
        frames += [_energies(paper, declared, points, loader) for loader in declared["energy"]["loaders"]]
    found = pd.concat(frames, ignore_index=True)
    found.insert(0, "benchmark", declared["benchmark"])
    found["fitted"] = found["ranks"] <= declared["fit_up_to"]
    return found


def _points(paper: str, declared: dict[str, Any]) -> pd.DataFrame:
    frames = []
    for table in declared["tables"]:
        values = read_csv(
            CONFIG / "papers" / paper / table["file"], _numbers(table["ranks"], table["time_per_epoch_s"])
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
    return _with_settings(pd.concat(frames, ignore_index=True), declared)


def gradient_mb(benchmark: str) -> float:
    """The size of a step's gradients in float32, 10^6 bytes, of a benchmark at its published number of features."""
    spec = configuration.load_named("benchmarks", benchmark)
    return 4 * operations.count_parameters(benchmark, spec["model"], spec["workload"]["features"]) / 1e6


def _numbers(*columns: str) -> dict[str, str]:
    """The kinds of columns of numbers."""
    return dict.fromkeys(columns, FINITE)


def _with_settings(points: pd.DataFrame, declared: dict[str, Any]) -> pd.DataFrame:
    ranks = points["ranks"]
    nodes = rounded_up(ranks, declared["ranks_per_node"])
    return points.assign(
        nodes=nodes,
        ranks_per_node=rounded_up(ranks, nodes),
        epochs_per_rank=np.where(points["scaling"] == "strong", points["epochs"] / ranks, points["epochs"]),
        steps=rounded_up(declared["train_samples"], points["batch_size"]),
        samples=declared["train_samples"],
        gradient_mb=gradient_mb(declared["benchmark"]),
        link_mbit_per_s=0,
    )


def _energies(paper: str, declared: dict[str, Any], points: pd.DataFrame, loader: str) -> pd.DataFrame:
    """Runtime, energy and power of one loader. The powers while computing and waiting are fitted to all loaders."""
    known = {name: _with_energy(paper, declared, points, name) for name in declared["energy"]["loaders"]}
    others = [rows.assign(mean_epoch_s=np.nan, load_s=np.nan) for name, rows in known.items() if name != loader]
    mine = known[loader]
    rest = points[~points.index.isin(mine["point"])]
    fitted = pd.concat([rest, mine, *others], ignore_index=True)
    model = fit_model(fitted[fitted["ranks"] <= declared["fit_up_to"]])
    found = predict(model, mine)
    frames = [_compared(found.interval(of), mine, mine[of], name) for name, of in ENERGIES.items()]
    given = _energy_given_runtime(model, mine)
    frames.append(_compared((given, given, given), mine, mine["energy_per_rank_j"], GIVEN))
    return pd.concat(frames, ignore_index=True)


def _with_energy(paper: str, declared: dict[str, Any], points: pd.DataFrame, loader: str) -> pd.DataFrame:
    """The points of one loader with energy, power, and all of the runtime that is not epochs as ``load_s``.

    The runtime is the published energy / power.
    """
    energy = declared["energy"]
    columns = energy["loaders"][loader]
    numbers = _numbers("gpus", columns["energy_per_gpu_j"], columns["power_w"])
    values = read_csv(CONFIG / "papers" / paper / energy["file"], numbers)
    joules, watts = values[columns["energy_per_gpu_j"]], values[columns["power_w"]]
    measured = pd.DataFrame({"ranks": values["gpus"], "energy_per_rank_j": joules, "power_per_rank_w": watts})
    same = points["scaling"].eq(energy["scaling"]) & points["batch_size"].eq(energy["batch_size"])
    known = points[same].rename_axis("point").reset_index().merge(measured, on="ranks")
    runtime = known["energy_per_rank_j"] / known["power_per_rank_w"]
    load = runtime - known["epochs_per_rank"] * known["mean_epoch_s"]
    return known.assign(loader=loader, runtime_s=runtime, load_s=load)


def _energy_given_runtime(model: Model, known: pd.DataFrame) -> np.ndarray:
    """The energy's model alone: joules per rank if the runtime is the measured one."""
    energy = cast(Posterior, model.energy)
    computing, waiting = spent(model, known, known["runtime_s"].to_numpy(float)[:, None])
    return joules(energy.terms, energy.coefficients.mean(axis=0), computing.mean(axis=1), waiting.mean(axis=1))


def _compared(predicted: Interval, points: pd.DataFrame, published: pd.Series, quantity: str) -> pd.DataFrame:
    labels = ("scaling", "batch_size", "loader", "learning_rate_scaling", "ranks")
    found = compared(predicted, published.to_numpy())
    frame = pd.DataFrame({**{name: points[name].to_numpy() for name in labels}, "quantity": quantity, **found})
    frame.insert(list(frame).index("error"), "published", published.to_numpy())
    return frame
