"""Simulated worlds: times from known mechanisms, to test whether the prediction's intervals hold.

Everything here is simulated. A world has the mechanisms of the configuration with coefficients drawn from their priors,
or also one that the configuration lacks (`ALIEN`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from study.prediction import mechanisms

MEASURED = (1, 2, 4, 6, 12, 24, 48, 96)  # ranks of which the smaller ones are measured
RATIOS = (2, 4, 8)  # of the predicted to the largest measured count
NOISES = (0.005, 0.01, 0.02, 0.04)  # relative, of one measurement
REPEATS = 3


@dataclass(frozen=True)
class World:
    """Simulated measurements.

    observations: means of `REPEATS` runs. targets: one run each at larger counts. between: one run each at counts among
    the measured ones.
    """

    observations: pd.DataFrame
    targets: pd.DataFrame
    between: pd.DataFrame
    noise: float
    active: tuple[str, ...]
    alien: str | None


def _power_law(settings: pd.DataFrame, size: float) -> pd.Series:
    return size * settings["ranks"] ** 0.4


def _congestion(settings: pd.DataFrame, size: float) -> pd.Series:
    """Costs that only begin when a job spans several switches of 32 ranks."""
    return size * np.log2(np.maximum(settings["ranks"] / 32, 1))


def _superlinear(settings: pd.DataFrame, size: float) -> pd.Series:
    return size * settings["ranks"] * np.log2(settings["ranks"] + 1) / 32


def _saturation(settings: pd.DataFrame, size: float) -> pd.Series:
    """A cost that all of a switch's ranks share, up to its limit."""
    return size * np.minimum(settings["ranks"], 48) ** 0.5


ALIEN: dict[str, Callable[[pd.DataFrame, float], pd.Series]] = {
    "power law N^0.4": _power_law,
    "congestion from 32 ranks": _congestion,
    "N log N": _superlinear,
    "saturation at 48 ranks": _saturation,
}


def world(seed: int, alien: str | None = None) -> World:
    """One simulated world. alien: a key of `ALIEN`, or None for known mechanisms only."""
    rng = np.random.default_rng(seed)
    noise = float(rng.choice(NOISES))
    settings = _settings(rng)
    coefficients = _coefficients(rng, settings)
    truth = _truth(settings, coefficients, rng, alien)
    measured = settings["kind"] == "measured"
    scatter = noise / np.sqrt(np.where(measured, REPEATS, 1))
    seen = truth["mean_epoch_s"] * np.exp(scatter * rng.standard_normal(len(settings)))
    load = truth["load_s"] * np.exp(scatter * rng.standard_normal(len(settings)))
    other = truth["other_s"] * np.exp(scatter * rng.standard_normal(len(settings)))
    frame = settings.assign(mean_epoch_s=seen, load_s=load, other_s=other)
    frame["runtime_s"] = frame["epochs_per_rank"] * seen + load + other
    active = tuple(name for part in coefficients.values() for name, size in part.items() if size)
    parts = {kind: rows.drop(columns="kind") for kind, rows in frame.groupby("kind")}
    return World(parts["measured"], parts["target"], parts["between"], noise, active, alien)


def _settings(rng: np.random.Generator) -> pd.DataFrame:
    """Five to eight measured counts under strong or weak scaling, counts between them, and larger ones."""
    measured = list(MEASURED[: int(rng.integers(5, len(MEASURED) + 1))])
    counts = {**dict.fromkeys(measured, "measured"), **{measured[-1] * ratio: "target" for ratio in RATIOS}}
    counts |= {3 * count // 4: "between" for count in measured if 3 * count // 4 not in counts and count >= 4}
    samples, per_node = int(rng.integers(200, 5000)), int(rng.choice([1, 4, 6]))
    steps, gradient = int(rng.integers(10, 400)), float(10 ** rng.uniform(0, 2.8))
    weak_epochs = int(rng.choice([1, 4, 16]))
    is_strong = bool(rng.integers(2))
    total = 8 * measured[-1]
    rows = [
        {
            "kind": kind,
            "ranks": ranks,
            "nodes": -(-ranks // per_node),
            "ranks_per_node": min(ranks, per_node),
            "epochs_per_rank": total / ranks if is_strong else weak_epochs,
            "steps": steps,
            "samples": samples,
            "gradient_mb": gradient,
            "link_mbit_per_s": 0,
        }
        for ranks, kind in sorted(counts.items())
    ]
    return pd.DataFrame(rows)


def _coefficients(rng: np.random.Generator, settings: pd.DataFrame) -> dict[str, dict[str, float]]:
    """{quantity: {mechanism: coefficient, 0 if it is not active}}, drawn from the priors at a mean of ``sizes``."""
    sizes = {"epoch": 10 ** rng.uniform(0, 2), "load": 10 ** rng.uniform(0, 2), "other": 10 ** rng.uniform(0.5, 1.5)}
    chosen: dict[str, dict[str, float]] = {}
    settings = settings.drop(columns="kind")
    for quantity, mean in sizes.items():
        terms = mechanisms.terms(quantity, settings, mean)
        chosen[quantity] = {}
        for name, low, high, always in zip(terms.names, terms.low, terms.high, terms.always, strict=True):
            is_active = always or rng.random() < terms.probability
            scale = np.exp(rng.uniform(np.log(low), np.log(high)))
            chosen[quantity][name] = float(is_active * scale * (rng.uniform(0.3, 1) if always else abs(rng.normal())))
    return chosen


def _truth(
    settings: pd.DataFrame, coefficients: dict[str, dict[str, float]], rng: np.random.Generator, alien: str | None
) -> dict[str, pd.Series]:
    values = {}
    for quantity, part in coefficients.items():
        x = mechanisms.columns(tuple(part), settings)
        values[quantity] = pd.Series(x @ np.array(list(part.values())), settings.index)
    if alien:
        compute = values["epoch"].iloc[0]
        shape = ALIEN[alien](settings, 1.0)
        at_largest = shape[settings["kind"] == "measured"].iloc[-1]
        share = rng.uniform(0.02, 0.2)  # of the smallest count's epoch, at the largest measured count
        values["epoch"] = values["epoch"] + compute * share * shape / max(at_largest, 0.25 * shape.iloc[-1])
    return {"mean_epoch_s": values["epoch"], "load_s": values["load"], "other_s": values["other"]}
