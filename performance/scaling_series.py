"""Test the model of scaling series on measured public series: errors and intervals beside those of simple fits.

Fits the small counts of each series and predicts the larger ones. Split `main` fits all counts up to a quarter of the
largest, `few` the three smallest. Prints and writes two tables: the errors with the frozen priors and with priors that
were chosen without the predicted source, and what each mechanism gains. No fit sees a series' name.

The file has the columns series, mode (weak, strong), unit, ranks, value, and may have source and gpus_per_node. A value
is a throughput (.../s of all ranks, .../s/GPU of one) or a time (s, min). A row that cannot be right is left out and
named. A throughput is the time of a sample of each rank, or of all together under strong scaling.
"""

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from study.core.errors import StudyError, exit_with_message
from study.core.foreign_csv import read_foreign_csv
from study.prediction import units
from study.prediction.series_model import COLUMNS, LEAST_COUNTS, SHAPES, TRENDS, declared, fit_series
from study.prediction.simple_fits import FITS

SERIES = Path(__file__).resolve().parent / "public_series.csv"
OUTPUT = Path(__file__).resolve().parent / "scaling_series.csv"
SPLITS = ("main", "few")
MODES = ("weak", "strong")
REMEDY = "correct the file"
NEEDED = ("series", "mode", "unit", "ranks", "value")
NUMBERS = ("ranks", "value", "gpus_per_node")
NEUTRAL = 0.02  # the start of every size when priors are chosen: none is known
PULL = 0.01  # towards the start, per squared change of a logarithm
ITERATIONS = 25
SIZES = (1e-4, 10.0)  # that are tried: few series, or some without noise, would be fitted by any


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
        return self.ranks <= self.ranks[-1] / 4 if split == "main" else np.arange(len(self.ranks)) < LEAST_COUNTS


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="?", default=SERIES, help="by default performance/public_series.csv")
    parser.add_argument(
        "--leave-out",
        action=argparse.BooleanOptionalAction,
        help="also choose the priors without each source; a minute; by default for the default file",
    )
    parser.add_argument("--output", type=Path, help="a CSV file; by default of the default file only")
    arguments = parser.parse_args()
    is_default = arguments.series == SERIES
    output = arguments.output or (OUTPUT if is_default else None)
    series, left_out = read(arguments.series)
    print("\n".join(left_out), end="\n" if left_out else "")
    if not any(_splits(series)):
        raise StudyError(f"{arguments.series}: no series has {LEAST_COUNTS} counts to fit and one beyond to predict")
    frames = [predictions(series).assign(priors="frozen")]
    if is_default if arguments.leave_out is None else arguments.leave_out:
        frames.append(pd.concat(_left_out(series)).assign(priors="chosen without the source"))
    table = pd.concat([summary(rows).assign(priors=name) for name, rows in _by_priors(frames)], ignore_index=True)
    table = table[["priors", *(name for name in table if name != "priors")]]
    print(table.to_string(index=False, float_format="%.2f"))
    gained = gains(series)
    print(f"\n{gained.to_string(index=False, float_format='%.3f')}")
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(output, index=False, float_format="%.2f")
        gained.to_csv(output.with_name(f"{output.stem}_mechanisms.csv"), index=False, float_format="%.3f")
    print("\nExtra-P 4.2.5 is not among the peers: it needs NumPy 1, and this project has NumPy 2")


def _by_priors(frames: list[pd.DataFrame]) -> Iterator[tuple[str, pd.DataFrame]]:
    return ((str(frame["priors"].iloc[0]), frame) for frame in frames)


def read(path: Path) -> tuple[list[Series], list[str]]:
    """The series of a file, each with ascending counts, and a line for each row that was left out."""
    table = read_foreign_csv(path, REMEDY)
    frame = table.frame.copy()
    for name in NEEDED:
        if name not in frame:
            has = f"the file has {', '.join(frame)}"
            raise StudyError(f"{path}: line {table.header}: there is no column {name!r}; {has}; {REMEDY}")
    for name in NUMBERS:
        frame[name] = table.convert_column(name) if name in frame else np.nan
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
        return units.time_in_seconds(unit) or units.throughput(unit).seconds
    except ValueError:
        return None


def _is_of_a_node(unit: str) -> bool:
    """Whether a unit is that of the throughput of one node, which tells that of all only with the number of nodes."""
    return units.is_throughput(unit) and units.throughput(unit).per == "node"


def _series(name: str, rows: pd.DataFrame) -> Series:
    """One series; values of the same count are averaged."""
    first, unit = rows.iloc[0], str(rows["unit"].iloc[0])
    most = rows["gpus_per_node"].max()
    per_node = float(most) if 1 <= most < np.inf else None
    means = rows.groupby("ranks", sort=True)["value"].mean()
    ranks, value = means.index.to_numpy(float), means.to_numpy(float)
    fixed = first["mode"] == "strong"
    source = str(first.get("source", "")).partition(":")[0]
    if (seconds := units.time_in_seconds(unit)) is not None:
        return Series(name, source, per_node, fixed, ranks, value * seconds)
    kind = units.throughput(unit)
    of_all = kind.of_all_ranks(value, ranks, np.ceil(ranks / (per_node or 1)))
    work = 1.0 if fixed or kind.time_of else ranks
    return Series(name, source, per_node, fixed, ranks, work / of_all)


def _splits(series: list[Series]) -> Iterator[tuple[str, Series, np.ndarray]]:
    """(split, series, which counts are fitted) wherever enough are fitted and one is left to predict."""
    for split in SPLITS:
        for each in series:
            seen = each.is_fitted(split)
            if seen.sum() >= LEAST_COUNTS and not seen.all():
                yield split, each, seen


def predictions(series: list[Series], priors: dict | None = None) -> pd.DataFrame:
    """One row per split and predicted count: ratio of the prediction of each model to the time, and the interval."""
    rows = []
    for split, each, seen in _splits(series):
        counts, times = each.ranks[~seen], each.times[~seen]
        fitted = (each.ranks[seen], each.times[seen])
        low, median, high = fit_series(*fitted, each.fixed, each.per_node, priors=priors).interval(counts)
        columns = {name: fit(*fitted, counts, each.fixed) / times for name, fit in FITS.items()}
        columns |= {"this_model": median / times, "low": low / times, "high": high / times, "ranks": counts}
        rows.append(pd.DataFrame(columns).assign(split=split, series=each.name, source=each.source))
    return pd.concat(rows, ignore_index=True)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """One row per split and model: errors in percent; of this model also how often its intervals hold, and width."""
    rows = []
    for split, part in found.groupby("split", sort=False):
        for name in ("this_model", *FITS):
            error = 100 * (part[name] - 1)
            row = {"split": split, "model": name, "points": len(part), "rms_percent": np.sqrt((error**2).mean())}
            rows.append({**row, "median_percent": error.abs().median()})
        inside = (part["low"] <= 1) & (part["high"] >= 1)
        own = {"inside_percent": 100 * inside.mean(), "slower_than_interval": int((part["high"] < 1).sum())}
        rows[-len(FITS) - 1] |= own | {"median_width": (part["high"] / part["low"]).median()}
    return pd.DataFrame(rows)


def gains(series: list[Series]) -> pd.DataFrame:
    """One row per mechanism: the errors without it, and the likelihood that a predicted point loses, in percent."""
    rows = []
    whole = _surprise(series, declared())
    for name in ("none", *TRENDS, *SHAPES, "simple_fits"):
        priors = without(name)
        row = {"left_out": name, "likelihood_lost_percent": 100 * (1 - np.exp(whole - _surprise(series, priors)))}
        for part in summary(predictions(series, priors)).query("model == 'this_model'").to_dict("records"):
            row |= {f"{part['split']}_{key}": part[key] for key in ("rms_percent", "median_percent", "inside_percent")}
        rows.append(row)
    return pd.DataFrame(rows)


def without(name: str) -> dict:
    """The declared priors without one mechanism."""
    priors = copy.deepcopy(declared())
    if name in TRENDS:
        priors["trends"][name] = {"mean": 0.0, "deviation": 0.0}
    elif name in SHAPES:
        priors["shapes"]["probability"][name] = {"fixed": 1e-9, "per_rank": 1e-9}
    elif name == "simple_fits":
        priors["simple_fits"] = 1e9
    return priors


def _surprise(series: list[Series], priors: dict) -> float:
    """Mean negative log density of the predicted points, of each source with the root of its number of series."""
    number = pd.Series([each.source for each in series]).value_counts()
    total = weights = 0.0
    for _, each, seen in _splits(series):
        mixture = fit_series(each.ranks[seen], each.times[seen], each.fixed, each.per_node,
                             priors=priors).mixture(each.ranks[~seen])  # fmt: skip
        logs = np.log(each.times[~seen] * (each.ranks[~seen] if each.fixed else 1))
        variance = np.einsum("mcc->mc", mixture.covariances)
        density = mixture.weights @ (np.exp(-0.5 * (logs - mixture.means) ** 2 / variance) / np.sqrt(variance))
        weight = number[each.source] ** -0.5
        total, weights = total - weight * np.log(density + 1e-30).mean(), weights + weight
    return total / weights


def _left_out(series: list[Series]) -> Iterator[pd.DataFrame]:
    """Predictions of each source by priors that were chosen on the others."""
    sources = sorted({each.source for _, each, _ in _splits(series)})
    if len(sources) < 2:
        raise StudyError("--leave-out: what can be predicted is of one source (column source); two are expected")
    for source in sources:
        priors = chosen([each for each in series if each.source != source])
        yield predictions([each for each in series if each.source == source], priors)


def chosen(series: list[Series]) -> dict:
    """Priors with the sizes under which the predicted points of these series are likeliest."""
    names = [*((name, "deviation") for name in TRENDS), *((name, "mean") for name in COLUMNS), ("noise", "")]

    def priors(logs: np.ndarray) -> dict:
        found = copy.deepcopy(declared())
        for (name, key), value in zip(names, np.clip(np.exp(logs), *SIZES).tolist(), strict=True):
            if key:
                found["trends"][name][key] = value
            else:
                found[name] = value
        return found

    start = np.full(len(names), np.log(NEUTRAL))

    def cost(logs: np.ndarray) -> float:
        return _surprise(series, priors(logs)) + PULL * ((logs - start) ** 2).sum()

    options = {"maxiter": ITERATIONS, "maxfun": ITERATIONS * len(names)}
    return priors(minimize(cost, start, method="L-BFGS-B", options=options).x)


if __name__ == "__main__":
    exit_with_message(main)
