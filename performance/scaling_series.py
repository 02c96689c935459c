"""Benchmark of models of scaling: predict the larger rank counts of public series from the smaller ones.

Data: performance/public_series.csv, measured series of published repositories and pages, each with its source.
Splits: `main` fits all counts up to a quarter of the largest, `few` the three smallest, `two` the two smallest; all
beyond are predicted. Prints and writes one table: error of this project's model and of simple fits, how often its 90 %
intervals hold, and how wide they are (median of high / low). Limits and intervals of the model are chosen without the
source of the predicted series; no fit sees a series' name. A second table has the errors by kind of series, and the
mean difference of |log error| from the mean of two fits, with its 95 % interval over the series.

A file has the columns series, mode (weak, strong), unit, ranks, value, and may have source and gpus_per_node. A value
is a throughput (.../s of all ranks, .../s/GPU of one) or a time (s, min). A row that cannot be right is left out and
named. A throughput is the time of a sample of each rank, or of all together under strong scaling.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import minimize

from study.core import throughput_units
from study.core.csv_files import TEXT, read_csv
from study.core.errors import StudyError, exit_with_message
from study.prediction.scaling_model import FILE, fit_scaling, load_calibration, power_law, three_terms

SERIES = Path(__file__).resolve().parent / "public_series.csv"
OUTPUT = Path(__file__).resolve().parent / "scaling_series.csv"
SPLITS = {"main": 3, "few": 3, "two": 2}  # with the counts that each needs
MODES = ("weak", "strong")
NEEDED = ("series", "mode", "unit", "ranks", "value")
NUMBERS = ("ranks", "value", "gpus_per_node")
OWN, PEER = "this_model", "mean_of_two_fits"
LEAST = (
    0.0,
    0.005,
    0.01,
    0.015,
)  # growth per doubling that is tried; half of the series that scale perfectly lose less
STEEPEST = (1.5, 2.0, 3.0)
SHARES = (0.005, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.995)
SAMPLES = 4000  # of the bootstrap


@dataclass(frozen=True)
class Series:
    """A measured series. times: of the same work of a rank, or of all ranks together if ``fixed``, shape (counts,)."""

    name: str
    source: str
    per_node: float | None
    fixed: bool
    ranks: np.ndarray
    times: np.ndarray

    def is_fitted(self, split: str) -> np.ndarray:
        """Which counts a split fits."""
        return self.ranks <= self.ranks[-1] / 4 if split == "main" else np.arange(len(self.ranks)) < SPLITS[split]


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="?", default=SERIES, help="by default performance/public_series.csv")
    parser.add_argument("--calibrate", action="store_true", help=f"write {FILE.name} from all series, and end")
    parser.add_argument("--frozen", action="store_true", help="only with the frozen calibration; seconds")
    parser.add_argument("--output", type=Path, help="a CSV file; by default of the default file only")
    arguments = parser.parse_args()
    output = arguments.output or (OUTPUT if arguments.series == SERIES and not arguments.frozen else None)
    series, left_out = read(arguments.series)
    print("\n".join(left_out), end="\n" if left_out else "")
    if not any(_splits(series)):
        raise StudyError(f"{arguments.series}: no series has {min(SPLITS.values())} counts to fit and one to predict")
    if arguments.calibrate:
        write_calibration(calibrate(Pool(series)))
        return
    table, parts = make_tables(series, arguments.frozen)
    for frame in (table, parts):
        print(f"{frame.to_string(index=False, float_format='%.2f')}\n")
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(output, index=False, float_format="%.2f")
        parts.to_csv(output.with_name(f"{output.stem}_by_kind.csv"), index=False, float_format="%.2f")


def make_tables(series: list[Series], is_frozen: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors by split and model, and by kind of series; with the frozen calibration, or with those without a source."""
    frames = [predict(series).assign(calibration="frozen")]
    if not is_frozen:
        frames.insert(0, predict_without_source(series).assign(calibration="without the source"))
    names = [str(frame["calibration"].iloc[0]) for frame in frames]
    tables = [summarize(frame) for frame in frames]
    for name, table in zip(names, tables, strict=True):
        table.insert(0, "calibration", name)
    return pd.concat(tables, ignore_index=True), summarize_by_kind(frames[0])


def read(path: Path) -> tuple[list[Series], list[str]]:
    """The series of a file, each with ascending counts, and a line for each row that was left out."""
    frame = read_csv(path, dict.fromkeys(NEEDED, TEXT), lambda _: TEXT, "correct the file")
    for name in NUMBERS:
        frame[name] = pd.to_numeric(frame[name], errors="coerce") if name in frame else np.nan
    frame["mode"] = frame["mode"].str.strip().str.lower()
    told = frame["unit"].fillna("").map(_factor)
    is_known = frame["mode"].isin(MODES) & told.notna()
    knows = frame.groupby("series")["gpus_per_node"].transform("max").between(1, np.inf, inclusive="left")
    kinds = frame[["mode", "unit"]].where(is_known)
    firsts = kinds.groupby(frame["series"]).transform("first")  # of each series
    reasons = {
        "it has no name": frame["series"].isna(),
        "mode must be weak or strong": ~frame["mode"].isin(MODES),
        "value must be above 0": ~((frame["value"] > 0) & np.isfinite(frame["value"])),
        "ranks must be a whole number above 0": ~((frame["ranks"] >= 1) & (frame["ranks"] % 1 == 0)),
        "the unit is not known": told.isna(),
        "the unit is of a node, and gpus_per_node is not known": frame["unit"].fillna("").map(_is_of_a_node) & ~knows,
        "mode or unit is another than in the series' first row": (kinds != firsts).any(axis=1),
    }
    odd = pd.Series("", frame.index)
    for reason, is_odd in reasons.items():
        odd = odd.where((odd != "") | ~is_odd, reason)
    left_out = [f"left out: row {place + 1}, series {frame['series'][place]}: {odd[place]}"
                for place in np.flatnonzero(odd != "")]  # fmt: skip
    good = frame[odd == ""]
    return [_series(str(name), rows) for name, rows in good.groupby("series", sort=False)], left_out


def _factor(unit: str) -> float | None:
    """Seconds of a unit of time or of a throughput's; None if it is neither."""
    try:
        return throughput_units.parse_time_unit(unit) or throughput_units.parse_throughput(unit).seconds
    except ValueError:
        return None


def _is_of_a_node(unit: str) -> bool:
    """Whether a unit is that of the throughput of one node, which tells that of all only with the number of nodes."""
    return throughput_units.is_throughput(unit) and throughput_units.parse_throughput(unit).per == "node"


def _series(name: str, rows: pd.DataFrame) -> Series:
    """One series; values of the same count are averaged."""
    first, unit = rows.iloc[0], str(rows["unit"].iloc[0])
    most = rows["gpus_per_node"].max()
    per_node = float(most) if 1 <= most < np.inf else None
    means = rows.groupby("ranks", sort=True)["value"].mean()
    ranks, value = means.index.to_numpy(float), means.to_numpy(float)
    fixed = first["mode"] == "strong"
    source = str(first.get("source", "")).partition(":")[0]
    if (seconds := throughput_units.parse_time_unit(unit)) is not None:
        return Series(name, source, per_node, fixed, ranks, value * seconds)
    kind = throughput_units.parse_throughput(unit)
    of_all = kind.of_all_ranks(value, ranks, np.ceil(ranks / (per_node or 1)))
    work = 1.0 if fixed or kind.time_of else ranks
    return Series(name, source, per_node, fixed, ranks, work / of_all)


def _splits(series: list[Series]) -> Iterator[tuple[str, Series, np.ndarray]]:
    """(split, series, which counts are fitted) wherever enough are fitted and one is left to predict."""
    for split, least in SPLITS.items():
        for each in series:
            fitted = each.is_fitted(split)
            if fitted.sum() >= least and not fitted.all():
                yield split, each, fitted


def predict(series: list[Series], calibration: dict[str, Any] | None = None) -> pd.DataFrame:
    """One row per split and predicted count: ratio of the prediction of each model to the time, and the interval."""
    rows = []
    for split, each, fitted in _splits(series):
        counts, times = each.ranks[~fitted], each.times[~fitted]
        ranks, measured = each.ranks[fitted], each.times[fitted]
        model = fit_scaling(ranks, measured, each.fixed, calibration=calibration)
        low, median, high = model.predict_interval(counts)
        columns = {OWN: median, PEER: mean_of_two_fits(ranks, measured, counts, each.fixed), "low": low, "high": high}
        columns |= {name: fit(ranks, measured, counts, each.fixed) for name, fit in FITS.items()}
        frame = pd.DataFrame({name: values / times for name, values in columns.items()})
        labels = {"split": split, "series": each.name, "source": each.source, "fixed": each.fixed, "ranks": counts}
        rows.append(frame.assign(**labels, fitted=len(ranks), beyond=counts / ranks[-1]))
    return pd.concat(rows, ignore_index=True)


def mean_of_two_fits(ranks: np.ndarray, times: np.ndarray, counts: np.ndarray, is_fixed: bool) -> np.ndarray:
    """Geometric mean of power law and a + b/N + c log N, without anything else."""
    fits = (fit(ranks, times, counts, is_fixed) for fit in (power_law, three_terms))
    return np.exp(np.mean([np.log(values) for values in fits], axis=0))


def perfect_scaling(ranks: np.ndarray, times: np.ndarray, counts: np.ndarray, is_fixed: bool) -> np.ndarray:
    """The time at the largest fitted count, divided by the growth of the ranks where they share it."""
    return times[-1] * ranks[-1] / counts if is_fixed else np.full(len(counts), times[-1])


FITS: dict[str, Callable[..., np.ndarray]] = {
    "power_law": power_law, "three_terms": three_terms, "perfect_scaling": perfect_scaling,
}  # fmt: skip


def predict_without_source(series: list[Series]) -> pd.DataFrame:
    """Predictions of each source's series, with limits and intervals from those of all others."""
    pool = Pool(series)
    sources = sorted({each.source for _, each, _ in _splits(series)})
    if len(sources) < 2:
        raise StudyError("what can be predicted is of one source (column source); two are expected, or --frozen")
    return pd.concat(
        [predict([each for each in series if each.source == source], calibrate(pool, source)) for source in sources],
        ignore_index=True,
    )


class Pool:
    """Errors on all series from which the model is calibrated: the first counts predict the later ones.

    Each series has as many rows as it has beginnings of two counts and more, and one per inner count that all others
    predict. A series weighs as much as another of its source, and a source as the root of its number of series.
    """

    def __init__(self, series: list[Series]) -> None:
        limits = list(itertools.product(LEAST, STEEPEST))
        self.errors: dict[tuple[float, float], list[float]] = {pair: [] for pair in limits}
        rows, features = [], []
        for each in series:
            for fitted, asked in _beginnings(len(each.ranks)):
                counts = each.ranks[asked]
                for least, steepest in limits:
                    growth = load_calibration()["growth"] | {"least": least, "steepest": steepest}
                    calibration = load_calibration() | {"growth": growth}
                    model = fit_scaling(each.ranks[fitted], each.times[fitted], each.fixed, calibration=calibration)
                    self.errors[least, steepest] += np.log(each.times[asked] / model.predict_median(counts)).tolist()
                features.append(pd.DataFrame(model.compute_features(counts)))
                rows += [(each.name, each.source, bool(fitted[-1]))] * len(counts)
        self.rows = pd.DataFrame(rows, columns=["series", "source", "is_inner"])
        self.features = pd.concat(features, ignore_index=True)
        number = self.rows.groupby(["series", "is_inner"])["source"].transform("size")
        of_source = self.rows.groupby("source")["series"].transform("nunique")
        self.weights = 1 / number.to_numpy() / np.sqrt(of_source.to_numpy())


def _beginnings(number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(which of some counts are fitted, which are predicted)."""
    places = np.arange(number)
    for first in range(2, number):
        yield places < first, places >= first
    if number > 3:
        for inner in range(1, number - 1):
            yield places != inner, places == inner


def calibrate(pool: Pool, without: str | None = None) -> dict[str, Any]:
    """Calibration from a pool, of all sources but one: limits with the least mean |error|, scale and quantiles."""
    kept = (pool.rows["source"] != without).to_numpy()
    weights = pool.weights[kept]
    means = {pair: float(np.average(np.abs(np.array(values)[kept]), weights=weights))
             for pair, values in pool.errors.items()}  # fmt: skip
    least, steepest = min(means, key=lambda pair: means[pair])
    errors, features = np.array(pool.errors[least, steepest])[kept], pool.features[kept]
    scale = fit_scale(features.to_numpy(), errors, weights)
    scores = errors / (features.to_numpy() @ scale)
    order = np.argsort(scores)
    below = np.cumsum(weights[order]) / weights.sum()
    quantiles = np.interp(SHARES, below, scores[order])
    quantiles[SHARES.index(0.5)] = 0.0  # the median is that of the fits
    quantiles = np.where(np.array(SHARES) < 0.5, np.minimum(quantiles, 0), np.maximum(quantiles, 0))
    return load_calibration() | {
        "growth": load_calibration()["growth"] | {"least": least, "steepest": steepest},
        "scale": dict(zip(features, scale.tolist(), strict=True)),
        "quantiles": {"shares": list(SHARES), "scores": quantiles.tolist()},
    }


def fit_scale(features: np.ndarray, errors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Coefficients of at least 0 of the scale of Laplace-distributed errors, by their likelihood, (features,)."""

    def cost(logs: np.ndarray) -> tuple[float, np.ndarray]:
        coefficients = np.exp(logs)
        scale = features @ coefficients
        surprise = np.log(scale) + np.abs(errors) / scale
        slope = weights * (1 / scale - np.abs(errors) / scale**2)
        return float(weights @ surprise), slope @ features * coefficients

    start = np.full(features.shape[1], np.log(0.05))
    return np.exp(minimize(cost, start, jac=True, method="L-BFGS-B", bounds=[(-12, 1)] * len(start)).x)


def write_calibration(calibration: dict[str, Any]) -> None:
    """Replace the numbers in config/prediction/calibration.yaml; its comments at the head stay."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    head = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    rounded = {
        **calibration,
        "scale": {name: round(value, 4) for name, value in calibration["scale"].items()},
        "quantiles": {name: [round(value, 3) for value in values] for name, values in calibration["quantiles"].items()},
    }
    text = yaml.safe_dump(rounded, sort_keys=False, default_flow_style=None, width=120)
    FILE.write_text("\n".join([*head, text]), encoding="utf-8")


def summarize(predicted: pd.DataFrame) -> pd.DataFrame:
    """One row per split and model: errors in percent; of this model also how often its intervals hold, and width."""
    rows = []
    for split, part in predicted.groupby("split", sort=False):
        for name in (OWN, PEER, *FITS):
            row = {"split": split, "model": name, **_errors(part, name)}
            rows.append(row | (_intervals(part) if name == OWN else {}))
    return pd.DataFrame(rows)


def _errors(part: pd.DataFrame, name: str) -> dict[str, float]:
    error = 100 * (part[name] - 1)
    return {
        "series": part["series"].nunique(),
        "points": len(part),
        "rms_percent": np.sqrt((error**2).mean()),
        "median_percent": error.abs().median(),
    }


def _intervals(part: pd.DataFrame) -> dict[str, float]:
    inside = (part["low"] <= 1) & (part["high"] >= 1)
    return {
        "inside_percent": 100 * inside.mean(),
        "slower_than_interval": int((part["high"] < 1).sum()),
        "median_width": (part["high"] / part["low"]).median(),
    }


def summarize_by_kind(predicted: pd.DataFrame) -> pd.DataFrame:
    """One row per split and kind of series or distance: errors of this model and of the mean of two fits."""
    rows = []
    for split, part in predicted.groupby("split", sort=False):
        kinds = {
            "all": part.index == part.index,
            "fixed work": part["fixed"],
            "fixed work of a rank": ~part["fixed"],
            "up to 2 x the largest fitted count": part["beyond"] <= 2,
            "beyond 2 x, up to 8 x": (part["beyond"] > 2) & (part["beyond"] <= 8),
            "beyond 8 x": part["beyond"] > 8,
        }
        for kind, is_in in kinds.items():
            if (chosen := part[is_in]).empty:
                continue
            peer = {f"peer_{name}": value for name, value in _errors(chosen, PEER).items() if name.endswith("percent")}
            rows.append({"split": split, "kind": kind, **_errors(chosen, OWN), **peer, **_intervals(chosen),
                         **_compare(chosen)})  # fmt: skip
    return pd.DataFrame(rows)


def _compare(part: pd.DataFrame) -> dict[str, float]:
    """Mean difference of |log error| from the mean of two fits, in percent, with its 95 % interval over the series."""
    difference = 100 * (np.log(part[OWN]).abs() - np.log(part[PEER]).abs())
    means = difference.groupby(part["series"]).mean().to_numpy()
    rng = np.random.default_rng(0)
    sampled = means[rng.integers(len(means), size=(SAMPLES, len(means)))].mean(axis=1)
    low, high = np.quantile(sampled, [0.025, 0.975])
    return {"difference_percent": means.mean(), "difference_low": low, "difference_high": high}


if __name__ == "__main__":
    exit_with_message(main)
