"""The performance model of one workload: fitted to observations, it predicts times and energy at other rank counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from study.prediction import mechanisms
from study.prediction.regression import DRAWS, Posterior, Terms, fit

Interval = tuple[np.ndarray, np.ndarray, np.ndarray]  # low, median, high
SEED = 2019
SMALL = 0.01  # of the runtime: errors of smaller parts are relative to this share
LEAST_OVERHEAD = 0.08  # of the compute time: what mechanisms may be missing that no measurement shows yet


@dataclass(frozen=True)
class Model:
    """A fitted model. parts: quantity to posterior; energy: None without energies; measured: the observations."""

    parts: dict[str, Posterior]
    energy: Posterior | None
    measured: pd.DataFrame
    growth: float

    @property
    def largest(self) -> float:
        """The largest measured rank count."""
        return float(self.measured["ranks"].max())


@dataclass(frozen=True)
class Prediction:
    """Draws of each quantity at some settings, each of shape (settings, draws); the same draw in all is one world.

    draws: of a single run. means: of the mean of many runs. Quantities: mean_epoch_s, load_s, other_s, runtime_s and,
    with energies, energy_per_rank_j, energy_job_j, power_per_rank_w.
    """

    settings: pd.DataFrame
    draws: dict[str, np.ndarray] = field(repr=False)
    means: dict[str, np.ndarray] = field(repr=False)

    def interval(self, quantity: str) -> Interval:
        """Low, median and high of a quantity, each of shape (settings,)."""
        return interval(self.draws[quantity])


def interval(draws: np.ndarray) -> Interval:
    """Median and ends of the 90 % interval of draws along the last axis."""
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=-1)
    return low, median, high


def compared(predicted: Interval, measured: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a table: the prediction, its relative error, and whether the interval holds."""
    low, median, high = predicted
    return {
        "predicted_low": low,
        "predicted_median": median,
        "predicted_high": high,
        "error": median / measured - 1,
        "within_interval": (low <= measured) & (measured <= high),
    }


def fit_model(observations: pd.DataFrame, growth: float | None = None) -> Model:
    """Fit the mechanisms of config/prediction/mechanisms.yaml to observations (`study.prediction.settings`).

    growth: relative error per doubling beyond the measured ranks; by default that of the configuration.
    """
    rng = np.random.default_rng(SEED)
    parts = {"epoch": _fit_epoch(_with(observations, "mean_epoch_s"), rng)}
    for name in ("load", "other"):
        known = _with(observations, f"{name}_s")
        if len(known):
            parts[name] = _fit_part(name, known, known[f"{name}_s"], SMALL * known["runtime_s"], rng)
    growth = mechanisms.declared()["growth"] if growth is None else growth
    model = Model(parts, None, observations, growth)
    known = _with(observations, "energy_per_rank_j")
    if len(known) < 2:
        return model
    computing, waiting = spent(model, known, known["runtime_s"].to_numpy(float)[:, None])
    shares = known.assign(computing_s=computing.mean(axis=1), waiting_s=waiting.mean(axis=1))
    energy = _fit_part("energy", shares, known["energy_per_rank_j"], 0 * known["energy_per_rank_j"], rng)
    return Model(parts, energy, observations, growth)


def _with(observations: pd.DataFrame, column: str) -> pd.DataFrame:
    """The observations with a value of ``column``."""
    return observations[observations[column].notna()] if column in observations else observations.iloc[:0]


def _fit_part(
    name: str, settings: pd.DataFrame, values: pd.Series, least: pd.Series, rng: np.random.Generator
) -> Posterior:
    terms = mechanisms.terms(name, settings, float(values.mean()))
    x = mechanisms.columns(terms.names, settings)
    return fit(x, values.to_numpy(float), np.maximum(values, least).to_numpy(float), terms, rng)


def _fit_epoch(observations: pd.DataFrame, rng: np.random.Generator) -> Posterior:
    """One fit of later epochs and of first epochs' excess where both are known, of the mean of all epochs elsewhere."""
    terms = mechanisms.terms("epoch", observations, float(observations["mean_epoch_s"].mean()))
    first = np.isin(terms.names, mechanisms.FIRST_EPOCH)
    apart = observations["epoch_s"].notna() if "epoch_s" in observations else pd.Series(False, observations.index)
    known, mixed = observations[apart], observations[~apart]
    mean_x = mechanisms.columns(terms.names, mixed)
    later_x = np.where(first, 0, mechanisms.columns(terms.names, known))
    first_x = np.where(first, mechanisms.columns(terms.names, known.assign(epochs_per_rank=1)), 0)
    first_y = (known["epochs_per_rank"] * (known["mean_epoch_s"] - known["epoch_s"])) if len(known) else known.index
    y = np.concatenate([mixed["mean_epoch_s"], known.get("epoch_s", []), first_y]).astype(float)
    later = np.asarray(known.get("epoch_s", []), dtype=float)
    scale = np.concatenate([mixed["mean_epoch_s"], later, later + np.abs(np.asarray(first_y, dtype=float))])
    return fit(np.concatenate([mean_x, later_x, first_x]), y, scale, terms, rng)


def spent(model: Model, settings: pd.DataFrame, runtime: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a run in which a rank computes, and the others, each (settings, draws).

    runtime: shape (settings, draws) or (settings, 1).
    """
    posterior = model.parts["epoch"]
    x = mechanisms.columns(posterior.terms.names, settings)
    per_epoch = posterior.at(np.where(np.isin(posterior.terms.names, mechanisms.COMPUTE), x, 0))
    computing = settings["epochs_per_rank"].to_numpy(float)[:, None] * per_epoch
    return np.minimum(computing, runtime), np.maximum(runtime - computing, 0)


def predict(model: Model, settings: pd.DataFrame, of_means: bool = False) -> Prediction:
    """Predict a run, and the mean of many, at each setting.

    of_means: whether the draws are of means of as many repeats as were measured, instead of a single run.
    """
    rng = np.random.default_rng(SEED + 1)
    parts = {name: _part(model, name, settings, rng) for name in model.parts}
    means = _quantities(model, settings, parts)
    least = SMALL * means["runtime_s"]
    further = {name: 0.0 if of_means else _of_repeats(model, name) for name in (*parts, "energy")}
    scattered = {
        name: _scattered(value, model.parts[name], further[name], 0 * least if name == "epoch" else least, rng)
        for name, value in parts.items()
    }
    draws = _quantities(model, settings, scattered)
    if model.energy:
        factor = _scattered(np.ones_like(least), model.energy, further["energy"], 0 * least, rng)
        draws |= {name: draws[name] * factor for name in ("energy_per_rank_j", "energy_job_j", "power_per_rank_w")}
    return Prediction(settings, draws, means)


def _part(model: Model, name: str, settings: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draws of the mean of one part of the runtime, with the discrepancy, (settings, draws)."""
    posterior = model.parts[name]
    x = mechanisms.columns(posterior.terms.names, settings)
    fixed = posterior.at(np.where(posterior.terms.always, x, 0))
    overhead = posterior.at(np.where(posterior.terms.always, 0, x))
    missing = (overhead + LEAST_OVERHEAD * fixed) * np.expm1(model.growth * _walk(model, settings, rng))
    return np.maximum(fixed + overhead + missing, SMALL * fixed)


def _scattered(
    mean: np.ndarray, posterior: Posterior, further: float, least: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Single measurements around ``mean``, (settings, draws). Errors are relative to at least ``least``.

    further: the relative deviation of single measurements that is not in the fitted means of repeats.
    """
    noise = np.hypot(posterior.errors, further) * rng.standard_normal(mean.shape)
    return np.maximum(mean + noise * np.maximum(mean, least), SMALL * mean)


def _of_repeats(model: Model, part: str) -> float:
    """The relative deviation of single measurements around the means of repeats that the fit has seen; 0 without any.

    A mean of n repeats has 1 / n of a measurement's variance, so the rest of it is missing in the fit.
    """
    name = {"epoch": "mean_epoch_s", "energy": "energy_per_rank_j"}.get(part, f"{part}_s")
    if f"{name}_spread" not in model.measured:
        return 0.0
    known = _with(model.measured, name)
    repeats = known[f"{name}_repeats"]
    freedom = float((repeats - 1).sum())
    if freedom < 1:
        return 0.0
    # Errors of small parts are relative to a share of the runtime, as in the fit.
    small = known[name] / np.maximum(known[name], 0 if part in ("epoch", "energy") else SMALL * known["runtime_s"])
    variance = float((known[f"{name}_spread"] * small**2).sum()) / freedom
    return math.sqrt(variance * (1 - float((1 / repeats).mean())))


def _quantities(model: Model, settings: pd.DataFrame, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All quantities from the parts, without the energies' own scatter."""
    epochs = settings["epochs_per_rank"].to_numpy(float)[:, None]
    rest = {f"{name}_s": value for name, value in parts.items() if name != "epoch"}
    runtime = epochs * parts["epoch"] + sum(rest.values())  # without the parts that no run has measured
    found = {"mean_epoch_s": parts["epoch"], **rest, "runtime_s": runtime}
    return found | (_energies(model, model.energy, settings, runtime) if model.energy else {})


def _energies(model: Model, energy: Posterior, settings: pd.DataFrame, runtime: np.ndarray) -> dict[str, np.ndarray]:
    computing, waiting = spent(model, settings, runtime)
    per_rank = joules(energy.terms, energy.coefficients.T, computing, waiting)
    ranks = settings["ranks"].to_numpy(float)[:, None]
    return {"energy_per_rank_j": per_rank, "energy_job_j": ranks * per_rank, "power_per_rank_w": per_rank / runtime}


def joules(terms: Terms, powers: np.ndarray, computing: np.ndarray, waiting: np.ndarray) -> np.ndarray:
    """Energy of a rank: its power while computing and otherwise, in the order of the energy's terms, x the seconds."""
    power = dict(zip(terms.names, powers, strict=True))
    return computing * power["computing"] + waiting * power["waiting"]


def _walk(model: Model, settings: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """How far the mechanisms may be off, (settings, draws): 0 within the measured ranks, a random walk beyond.

    Its variance is d (d + 1) / 2 after d doublings beyond the largest measured count: half of it a trend, half
    independent steps. The settings of one count share it, and larger counts go on from smaller ones.
    """
    doublings = np.log2(np.maximum(settings["ranks"].to_numpy(float) / model.largest, 1))
    distinct, place = np.unique(doublings, return_inverse=True)
    steps = np.diff(np.concatenate([[0.0], distinct]))
    trend = distinct[:, None] * rng.standard_normal((1, DRAWS))
    independent = np.cumsum(np.sqrt(steps)[:, None] * rng.standard_normal((len(distinct), DRAWS)), axis=0)
    return ((trend + independent) / np.sqrt(2))[place]
