"""Quantities of experiments: from the points of one experiment to the range of a claim's number over rank counts.

All points of a `Case` are one experiment: they differ in the number of ranks and the loader only, so no value mixes
datasets, input pipelines or learning rates. A quantity that compares machines has the points of both. ``form``:

- value: the measure
- loss_pct, change_pct, speedup: 100 x (1 - one / other), 100 x (one / other - 1), other / one; of two loaders, paired
  within blocks, or ratio, one / other, of two machines, which are never interleaved
- growth, growth_pct: the measure on the claim's number of ranks / that on ``fewest`` ranks (by default the fewest that
  were run), and 100 x that less 1
- speedup_of_loads: other / one of loading the training file alone, from loading measurements
- failed_pct: 100 x repeats that failed / all, of one kind of ``failure`` or of any; repeats that were lost with a host
  or a batch job are not counted

Other quantities are functions that a paper's module registers in `QUANTITIES`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from study.compare import estimates, failed_runs
from study.core.registry import Registry
from study.records.names import runs_of
from study.report.papers.declaration import Claim
from study.report.papers.formulas import of_ratio
from study.report.tables.layout import ci95_name


@dataclass(frozen=True)
class Case:
    """A claim and the runs for it.

    Args:
        claim: as declared.
        points: rows of one experiment, one per number of ranks and loader, see `summary.points`.
        runs: the tidy table of runs behind them.
    """

    claim: Claim
    points: pd.DataFrame
    runs: pd.DataFrame

    def of(self, measure: str, loader: str | None = None) -> pd.DataFrame:
        """The points with a value of ``measure``, by number of ranks; of one loader, or of the claim's."""
        loader = loader or self.claim.at.get("loader")
        wanted = self.points[measure].notna() & (self.points["loader"].eq(loader) if loader else True)
        return self.points[wanted].sort_values("gpus")

    def asked(self, measure: str, loader: str | None = None) -> pd.DataFrame:
        """Of these, the points on the claim's number of ranks, if it names one."""
        known = self.of(measure, loader)
        return known[known["gpus"] == self.claim.at["gpus"]] if "gpus" in self.claim.at else known


@dataclass(frozen=True)
class Found:
    """The value of a quantity.

    Args:
        low, high: smallest and largest value over the numbers of ranks; NaN if it cannot be computed.
        interval_low, interval_high: the ends of the 95 % intervals of these values; NaN with one repeat or unpaired.
        points: those that were used.
        blocks: the fewest repeats behind one value, if that is not the points' number of repeats.
        pairing: whether two arms were run interleaved, for ratios.
        alike: that an interval counts its blocks as fewer.
        load_share_pct: the largest share of loading in the base runs, %.
        missing: why there is no value; None for the usual reason, that runs are missing.
    """

    low: float = math.nan
    high: float = math.nan
    interval_low: float = math.nan
    interval_high: float = math.nan
    points: pd.DataFrame | None = None
    blocks: int | None = None
    pairing: str | None = None
    load_share_pct: float = math.nan
    missing: str | None = None
    alike: str | None = None


@dataclass(frozen=True)
class Quantity:
    """How a quantity is computed.

    Args:
        compute: from a `Case` to the value.
        loaders: those whose runs it compares; empty for one loader at a time.
        machines: likewise.
        measures: the columns of runs that it needs as means over repeats.
        of_files: whether it is of loading measurements, so of no run.
        column: from a claim to the column that is compared; None if there is not one.
    """

    compute: Callable[[Case], Found]
    loaders: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    of_files: bool = False
    column: Callable[[Claim], str | None] = lambda claim: None


QUANTITIES: Registry[Quantity] = Registry("quantity of a claim")


def quantity(
    name: str, loaders: tuple[str, ...] = (), measures: tuple[str, ...] = ()
) -> Callable[[Callable[[Case], Found]], Callable[[Case], Found]]:
    """Register the decorated function as the `Quantity` of claims with this ``quantity``."""

    def register(compute: Callable[[Case], Found]) -> Callable[[Case], Found]:
        QUANTITIES.add(name, Quantity(compute, loaders, measures=measures))
        return compute

    return register


def declared_quantity(declared: Mapping[str, Any]) -> Quantity:
    """The `Quantity` of an entry of ``quantities`` in a paper's ``claims.yaml``."""
    form, measure = declared["form"], declared.get("measure", "")
    measures = tuple(measure.values()) if isinstance(measure, Mapping) else (measure,) if measure else ()
    one, other = declared.get("one", {}), declared.get("other", {})
    sides = {name: (one[name], other[name]) for name in one}

    def column_of(claim: Claim) -> str:
        return str(measure[claim.machine]) if isinstance(measure, Mapping) else str(measure)

    def compute(case: Case) -> Found:
        column = column_of(case.claim)
        if form == "failed_pct":
            return _share_of_failures(case, declared.get("failure"))
        if form == "value":
            return _value(case, column)
        if form in ("growth", "growth_pct"):
            return _growth(case, column, declared.get("fewest"), form)
        if "machine" in sides:
            return _of_two_machines(case, column, *sides["machine"])
        found = _of_two_loaders(case, column, *sides["loader"], form)
        return _with_share(found, sides["loader"][1], declared["share"]) if "share" in declared else found

    of_files = form == "speedup_of_loads"
    return Quantity(compute, sides.get("loader", ())[::-1], sides.get("machine", ()), measures, of_files, column_of)


def _of_two_loaders(case: Case, measure: str, optimized_loader: str, base_loader: str, form: str) -> Found:
    """``form`` of the ratio optimised / base at each number of ranks that has both loaders, paired within blocks.

    Repeats that only one loader has are left out.
    """
    base, optimized = (case.asked(measure, loader).set_index("gpus") for loader in (base_loader, optimized_loader))
    ratios = {
        gpus: estimates.compare_rows(
            case.runs, optimized.loc[gpus, "records"], base.loc[gpus, "records"], measure, judged=True
        ).convert(functools.partial(of_ratio, form))
        for gpus in base.index.intersection(optimized.index)
    }
    ratios = {gpus: ratio for gpus, ratio in ratios.items() if ratio.blocks}
    if not ratios:
        return Found()
    values = [ratio.value for ratio in ratios.values()]
    ends = [end for ratio in ratios.values() for end in (ratio.low, ratio.high)]
    used = pd.concat([base.loc[list(ratios)], optimized.loc[list(ratios)]]).reset_index()
    together = all(ratio.pairing == estimates.PAIRED for ratio in ratios.values())
    return Found(
        *_range(values),
        *_range(ends),
        used,
        min(ratio.blocks for ratio in ratios.values()),
        estimates.PAIRED if together else estimates.UNPAIRED,
        alike="; ".join(dict.fromkeys(ratio.alike for ratio in ratios.values() if ratio.alike)) or None,
    )


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Smallest and largest value; NaN if there is none or one of them is not known."""
    known = list(values)
    return (min(known), max(known)) if known and not any(map(math.isnan, known)) else (math.nan, math.nan)


def _with_share(found: Found, base_loader: str, column: str) -> Found:
    """With the largest share of a column in the measured time of the base runs."""
    if found.points is None:
        return found
    base = found.points[found.points["loader"] == base_loader]
    return dataclasses.replace(found, load_share_pct=float((100 * base[column] / base["runtime_s"]).max()))


def _of_two_machines(case: Case, measure: str, one: str, other: str) -> Found:
    """The measure on one machine / that on the other, at each number of ranks that both have.

    Runs of two machines are never interleaved, so there is no interval.
    """
    known = case.of(measure)
    first, second = (known[known["machine"] == name].set_index("gpus") for name in (one, other))
    common = first.index.intersection(second.index)
    used = pd.concat([first.loc[common], second.loc[common]]).reset_index()
    if used.empty:
        return Found()
    return Found(*_range(first.loc[common, measure] / second.loc[common, measure]), points=used,
                 pairing=estimates.UNPAIRED)  # fmt: skip


def _value(case: Case, measure: str) -> Found:
    known = case.asked(measure)
    if known.empty:
        return Found()
    half = known[ci95_name(measure)]
    ends = _range([*(known[measure] - half), *(known[measure] + half)])
    return Found(*_range(known[measure]), *ends, known)


def listed(known: pd.DataFrame) -> str:
    """The rank counts of points in a message."""
    return ", ".join(map(str, known["gpus"]))


def stays_from(known: pd.DataFrame, excess: pd.Series) -> float:
    """The smallest number of ranks from which on ``excess`` is positive, at it and all larger ones; NaN if none.

    known: points in ascending order of ``gpus``.
    """
    below = known.loc[~(excess > 0), "gpus"]
    above = known["gpus"] if below.empty else known.loc[known["gpus"] > below.max(), "gpus"]
    return float(above.min()) if len(above) else math.nan


def threshold(known: pd.DataFrame, excess: pd.Series, half: pd.Series, otherwise: str) -> Found:
    """Where an excess becomes positive for good: by its means, and by the ends of its 95 % intervals (half-width).

    otherwise: what to say if it does not.
    """
    at = stays_from(known, excess)
    possible, certain = (math.nan if half.isna().any() else stays_from(known, excess + sign * half) for sign in (1, -1))
    return Found(at, at, possible, certain, known, missing=otherwise if math.isnan(at) else None)


def _growth(case: Case, measure: str, fewest: int | None, form: str) -> Found:
    """``form`` of the ratio of a measure on the claim's number of ranks to that on the fewest, paired within blocks."""
    known = case.of(measure)
    fewest = fewest or (known["gpus"].min() if len(known) else 1)
    ends = [known[known["gpus"] == gpus] for gpus in (case.claim.at["gpus"], fewest)]
    if any(end.empty for end in ends) or case.claim.at["gpus"] == fewest:
        return Found()
    many, one = (end.iloc[0] for end in ends)
    found = estimates.compare_rows(case.runs, many["records"], one["records"], measure)
    found = found.convert(functools.partial(of_ratio, form))
    return Found(found.value, *found.numbers, pd.concat(ends), found.blocks, found.pairing, alike=found.alike)


def _share_of_failures(case: Case, kind: str | None) -> Found:
    """100 x failed / all repeats of a point, %; of failures of one kind, or of any."""
    chosen = case.points[case.points["loader"] == case.claim.at.get("loader")]
    chosen = chosen[chosen["gpus"] == case.claim.at["gpus"]] if "gpus" in case.claim.at else chosen
    if chosen.empty:
        return Found()
    shares, numbers = list[float](), list[int]()
    for records in chosen["records"]:
        repeats = runs_of(case.runs, records)
        repeats = repeats[repeats["status"].eq("ok") | failed_runs.mark_failures_of_arm(repeats)]
        numbers.append(len(repeats))
        if repeats.empty:
            continue
        failed = repeats["failure_kind"].eq(kind) if kind else repeats["status"].ne("ok")
        shares.append(100 * float(failed.mean()))
    return Found(*_range(shares), points=chosen, blocks=min(numbers)) if shares else Found()
