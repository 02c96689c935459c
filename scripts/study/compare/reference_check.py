"""Compare the latest measurements of a study with the accepted values of its performance references.

The rule is in docs/performance-references.md: Welch's interval of the ratio of geometric means, against the limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import failed_runs, first_verdicts, likeness, references
from study.compare.references import CALIBRATIONS, FALSE_ALARM, LEAST_REPEATS, Accepted
from study.core import checked, code_version, fields, paths
from study.core.errors import StudyError
from study.core.statistics import LogSample, log_sample, ratio_interval
from study.core.wording import alike_blocks, counted
from study.experiment import identity, inputs
from study.experiment.parameters import is_observed
from study.experiment.study import Reference, Study
from study.machines import machine
from study.records import overlap, power, targets, tidy
from study.records.names import join_records

REGRESSION, PASS, UNCERTAIN = "regression", "pass", "uncertain"
FAILURES = "failures"  # as bad as a regression
FAILING = (REGRESSION, FAILURES)
VERDICTS = (REGRESSION, PASS, UNCERTAIN)
ADDED_LATER = "repeats that were added after the first check are left out"
NO_RUNS, NO_REFERENCE, NOT_ENOUGH = "no runs", "no reference", "not enough repeats"
NO_VALUE, NOT_POSITIVE = "no value", "no positive value"
OWN = "the reference's own runs"
LEFT_OUT = "the reference's own runs are left out"
MIXED = "runs of several versions of the code"
UNLIKE_PACKAGES = "runs with several versions of the libraries"
UNLIKE, AT_ONCE = "runs that are not alike", "runs that shared a host"
UNLIKE_POWER = "measured and modelled power"
NOT_CALIBRATED, OTHER_UNIT = "runs without calibration", "reference in another unit"
OTHER_CALIBRATION = "calibration changed"
OTHER_HARDWARE = "other hardware"
LOAD_QUANTITIES = ("load_s", "store_s", "peak_memory_mb")
LEAST_SHARE = 0.5  # of the finished repeats: fewer that have a value are a choice
QUANTITIES: dict[str, tuple[str, ...]] = {"runs": tidy.MEASURED, "loads": LOAD_QUANTITIES}
OF_TRAINING = {each.name for each in fields.section("training").fields}
LOAD_KEYS = ("benchmark", "dataset", "file", "loader", "page_cache")


@dataclass(frozen=True)
class Series:
    """The repeats of one quantity at one point.

    Args:
        quantity, point, unit: what was measured.
        values: one per repeat that succeeded.
        failed: how the other repeats failed, which missed the target of the quantity among them.
        failed_runs: a digest of each of these runs, in the same order; none of loads.
        besides: how many more repeats succeeded, whose values are left out, of those among which ``failed`` were.
        lost: how many repeats were lost with a host or a batch job, which is no failure of theirs.
        may_fail: whether the study expects failures of this point.
        low, high: the limits of the relative change; None for no limit.
        problem: why the values cannot be compared, or None.
        reason: why the records have no value, as far as they say.
        calibration: the version of the calibration that the values are divided by.
        code: the versions of the code that was measured; current: whether it is the present one.
        hardware: of the runs' hosts; None of loads, and where it is not known.
        records: where the values are from.
        runs: a digest of each value's run, in the same order; none of loads, which are measured again as a whole.
    """

    quantity: str
    point: str
    unit: str
    values: list[float]
    low: float | None
    high: float | None
    problem: str | None = None
    reason: str | None = None
    calibration: str | None = None
    code: str | None = None
    current: bool = True
    hardware: str | None = None
    records: str = ""
    runs: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    failed_runs: tuple[str, ...] = ()
    besides: int = 0
    lost: int = 0
    may_fail: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What it is a series of."""
        return self.quantity, self.point

    @property
    def fingerprint(self) -> str:
        """Equal for equal values."""
        return identity.fingerprint({"values": self.values})

    @property
    def attempts(self) -> int:
        """How many repeats there are of which `failed` failed."""
        return len(self.failed) + len(self.values) + self.besides

    def since(self, own: Accepted | None) -> Series:
        """The series without the runs that were accepted, as far as there are others.

        A number of failures that was written by hand is of unknown runs: then the share of failures is that of all
        runs. It is above the accepted one if that of the later runs is.
        """
        if own is None or self.problem or not self.runs or not self.values:
            return self
        known, known_failed = set(own.runs or ()), set(own.failed_runs or ())
        later = [value for value, run in zip(self.values, self.runs, strict=True) if run not in known]
        if not later:
            return dataclasses.replace(self, problem=OWN)  # unless others have failed since: see `_why_not`
        failed = [how for how, run in zip(self.failed, self.failed_runs, strict=True) if run not in known_failed]
        dropped = len(self.values) - len(later)
        if not dropped and len(failed) == len(self.failed):
            return self
        problem = NOT_ENOUGH if len(later) < LEAST_REPEATS else None
        besides = self.besides + (dropped if own.failed and own.failed_runs is None else 0)
        return dataclasses.replace(
            self, values=later, failed=tuple(failed), besides=besides, problem=problem, reason=LEFT_OUT
        )


def first_seen(found: list[Series], earlier: first_verdicts.FirstVerdicts) -> list[Series]:
    """The series, of which those that had a verdict before have no repeats that were added since."""
    return [_first_seen(series, earlier.get(" ".join(series.key))) for series in found]


def _first_seen(series: Series, first: list[str] | None) -> Series:
    if series.problem or not first_verdicts.is_standing(first, list(series.runs)):
        return series
    kept = [place for place, run in enumerate(series.runs) if run in set(first or ())]
    values, runs = [series.values[place] for place in kept], tuple(series.runs[place] for place in kept)
    besides = len(series.values) - len(values)  # those that failed among the later ones count as before
    return dataclasses.replace(series, values=values, runs=runs, besides=besides, reason=ADDED_LATER)


def seen(found: list[Series], rows: pd.DataFrame, earlier: first_verdicts.FirstVerdicts) -> dict[str, list[str]]:
    """The runs of the first verdicts after this check. rows: of `compare`."""
    judged = {(row["quantity"], row["point"]) for _, row in rows.iterrows() if row["verdict"] in VERDICTS}
    return {**earlier, **{" ".join(each.key): list(each.runs) for each in found if each.key in judged and each.runs}}


def points(study: Study, of: str) -> dict[str, dict[str, Any]]:
    """The points whose times count, by name, with the keys by which a reference selects them. of: runs or loads."""
    if of == "runs":
        timed = [run for run in study.runs if is_observed(run, None)]
        return {run.point: {**run.parameters, "dataset": run.dataset.key} for run in timed}
    found = {}
    for each in study.loading:
        for file in inputs.loading_files(each, ""):
            for loader in each.loaders:
                for cache in each.page_caches:
                    keys = (each.dataset.benchmark, each.dataset.key, file, loader, cache)
                    name = _load_point(each.dataset.benchmark, each.dataset.id, *keys[2:])
                    found[name] = dict(zip(LOAD_KEYS, keys, strict=True))
    return found


def selected(reference: Reference, study: Study) -> list[str]:
    """The names of the points that a reference selects."""
    return [
        name
        for name, keys in points(study, reference.of).items()
        if all(keys.get(key) == value for key, value in reference.point.items())
    ]


def require_known(what: str, known: Iterable[str], place: str) -> None:
    """Raise `StudyError`, with the nearest name, if ``what`` is not one of ``known``. place: where it stands."""
    known = list(known)
    if what not in known:
        raise StudyError(f"{place}: {what!r} is not one of {', '.join(known)}{checked.nearest(what, known)}")


def verify(accepted: dict[tuple[str, str], Accepted], study: Study, path: Path) -> None:
    """Raise `StudyError` for an accepted value that cannot be compared with anything that the study measures.

    accepted: the content of the file ``path``, in its order.
    """
    there = {of: points(study, of) for of in QUANTITIES}
    declared = {(reference.quantity, point) for reference in study.references for point in selected(reference, study)}
    for index, own in enumerate(accepted.values()):
        place = f"{checked.shown(path)}: references[{index}]"
        of = next((each for each, names in there.items() if own.point in names), None)
        require_known(own.quantity, QUANTITIES[of] if of else dict.fromkeys(sum(QUANTITIES.values(), ())), place)
        if of is None:
            nearest = checked.nearest(own.point, [name for names in there.values() for name in names])
            raise StudyError(
                f"{place}.point: {own.point!r} is no point of study {study.name} that gives timings: correct it, or "
                f"remove the entry{nearest}"
            )
        relative = references.calibrated_unit(own.quantity) if of == "runs" else None
        units = list(filter(None, (references.unit(own.quantity, False), relative)))
        if own.unit not in units:
            raise StudyError(f"{place}.unit: unknown unit {own.unit!r} of {own.quantity}; write {' or '.join(units)}")
        if own.key not in declared and not references.has_limits(own):
            raise StudyError(
                f"{place}: {own.quantity} of {own.point} is no reference of study {study.name}: give it low or high, "
                "or remove it"
            )


def measured(study: Study, results: Path, accepted: dict[tuple[str, str], Accepted]) -> list[Series]:
    """The series of all references of a study, then those that only the file of accepted values has.

    results: ``results/<machine>``. Only records that exist are read; no run is started. accepted: checked by `verify`.
    """
    wanted = {reference.quantity for reference in study.references} | {quantity for quantity, _ in accepted}
    frames = {"runs": _runs(study, results, wanted), "loads": _loads(study, results)}
    found: dict[tuple[str, str], Series] = {}
    for reference in study.references:
        for point in selected(reference, study):
            if (reference.quantity, point) not in found:
                series = _series(reference, point, frames[reference.of])
                own = accepted.get(series.key)
                if own and references.has_limits(own):
                    series = dataclasses.replace(series, low=own.low, high=own.high)
                found[series.key] = series
    for key, own in accepted.items():
        if key not in found:
            found[key] = _undeclared(own, study, frames)
    return list(found.values())


def _undeclared(own: Accepted, study: Study, frames: dict[str, pd.DataFrame]) -> Series:
    """The series of an accepted value that the study does not declare."""
    of = next(each for each in frames if own.point in points(study, each))
    is_calibrated = own.unit in (CALIBRATIONS, references.calibrated_unit(own.quantity))
    return _series(Reference(own.quantity, of, {}, is_calibrated, own.low, own.high), own.point, frames[of])


def _runs(study: Study, results: Path, wanted: set[str]) -> pd.DataFrame:
    """The runs with a record. wanted: quantities; telemetry is read only for those that need it."""
    there, _ = tidy.recorded(study.runs, results)
    code = tidy.current_code(study.runs, machine.load(paths.machine_of(results)))
    reads_targets = bool(wanted & set(targets.MEASURES))
    frame = tidy.runs_frame(there, code, results, reads_targets=reads_targets)
    return frame.assign(point=[run.point for run in there], code=frame["training_code"]) if there else frame


def _loads(study: Study, results: Path) -> pd.DataFrame:
    files = [paths.loading(results, each.directory) for each in study.loading]
    frame = tidy.loading_frame([file for file in files if Path(file).exists()], code_version.loading_code(), results)
    names = [_load_point(*key) for key in zip(*(frame[key] for key in LOAD_KEYS), strict=True)]
    return frame.assign(point=names, code=None)


def _load_point(benchmark: str, dataset: str, file: str, loader: str, page_cache: str) -> str:
    return f"{benchmark}/{dataset}/{file} {loader} {page_cache}"


def _series(reference: Reference, point: str, frame: pd.DataFrame) -> Series:
    """The values of a point, and its failures; the values of resumed runs are missing."""
    quantity, calibrated = reference.quantity, reference.calibrated
    empty = Series(
        quantity, point, references.unit(quantity, calibrated), [], reference.low, reference.high, problem=NO_RUNS
    )
    if frame.empty:
        return empty
    of_point = frame[frame["point"] == point]
    hows = [failed_runs.describe_failure(row, [quantity]) for row in of_point.to_dict("records")]
    own = [failed_runs.is_failure_of_arm(row) for row in of_point.to_dict("records")]
    is_failed = [how is not None and is_own for how, is_own in zip(hows, own, strict=True)]
    expected = of_point["may_fail"].any() if "may_fail" in of_point else False
    empty = dataclasses.replace(
        empty,
        failed=tuple(
            _shortly(str(how), row)
            for how, row, counts in zip(hows, of_point.to_dict("records"), is_failed, strict=True)
            if counts
        ),
        lost=len(own) - sum(own),
        failed_runs=_digests(of_point[is_failed]),
        may_fail=bool(expected),
        records=join_records(of_point["record"]),
    )
    finished = of_point[of_point["status"] == "ok"]
    if finished.empty:
        return empty
    finished = of_point[[how is None for how in hows]] if None in hows else finished
    numbers = finished[quantity].astype(float)
    good = finished[numbers > 0]
    if good.empty:
        if numbers.notna().any():
            return dataclasses.replace(empty, problem=NOT_POSITIVE)
        return dataclasses.replace(empty, problem=NO_VALUE, reason=_reason(quantity, finished))
    values, versions = good[quantity].astype(float), None
    if calibrated:
        versions = good["calibration_version"].unique().tolist()
        values = references.relative_to(good["calibration_s"].astype(float), values, quantity)
    problem, reason = _problem(good, quantity, versions), None
    if problem is None and len(good) < LEAST_SHARE * len(finished):
        problem = NOT_ENOUGH
        reason = f"{len(finished) - len(good)} of {counted(len(finished), 'finished run')} have no value"
    return dataclasses.replace(
        empty,
        values=values.tolist(),
        problem=problem,
        reason=reason,
        calibration=versions[0] if versions else None,
        code=good["code"].iloc[0],
        current=bool(good["code_is_current"].all()),
        hardware=next(iter(good["hardware"].dropna()), None) if "hardware" in good else None,
        records=join_records(good["record"]),
        runs=_digests(good),
    )


def _digests(runs: pd.DataFrame) -> tuple[str, ...]:
    """A digest of each run; none of loads."""
    return tuple(first_verdicts.compute_digest(run) for _, run in runs.iterrows()) if "started_wall_ns" in runs else ()


def _shortly(how: str, row: dict[str, Any]) -> str:
    """How a run or a load failed: ``failed: oom``; of a load, its message."""
    kind = row.get("failure_kind") or row.get("message")
    return f"failed: {kind}" if how.startswith("failed") and kind else how


def _reason(quantity: str, finished: pd.DataFrame) -> str | None:
    """Why finished runs have no value of a quantity, as their records say; None if they do not."""
    columns = ["target_reason", "target_energy_reason"] if quantity in targets.MEASURES else []
    if quantity.endswith(("_w", "_j", "_js")):
        columns.append("power_reason")
    if quantity in OF_TRAINING:
        columns.append("program_reason")
    told = [text for column in columns if column in finished for text in finished[column].dropna()]
    if "resumed_after_epoch" in finished and finished["resumed_after_epoch"].notna().all():
        told.insert(0, "trained in several pieces, resumed from a checkpoint")
    return "; ".join(dict.fromkeys(told)) or None


def _problem(good: pd.DataFrame, quantity: str, versions: list[Any] | None) -> str | None:
    """Why the values of a point are no repeats of each other, or too few; None if they are fine."""
    if good["code"].nunique() > 1 or ("loader_sensor_code" in good and good["loader_sensor_code"].nunique() > 1):
        return MIXED
    if "packages" in good and good["packages"].nunique() > 1:
        return UNLIKE_PACKAGES
    if power.has_no_mean(good, quantity):
        return UNLIKE_POWER
    if likeness.describe_difference(good, free=("training_code", "loader_sensor_code", "packages")):
        return UNLIKE
    if overlap.mark_overlapping_runs(good).any():
        return AT_ONCE
    if versions is not None and any(pd.isna(version) for version in versions):
        return NOT_CALIBRATED
    if versions is not None and len(versions) > 1:
        return OTHER_CALIBRATION
    return NOT_ENOUGH if len(good) < LEAST_REPEATS else None


def compare(found: list[Series], accepted: dict[tuple[str, str], Accepted]) -> pd.DataFrame:
    """One row per series: reference, measurement, their ratio with its interval, and the verdict.

    The intervals of all ratios together are meant to fail on the side of a limit with a probability of at most
    `FALSE_ALARM` (Bonferroni); how well that holds with few repeats is in docs/performance-references.md. Runs that
    were accepted are not compared with themselves.
    """
    found = [series.since(accepted.get(series.key)) for series in found]
    problems = {series.key: _why_not(series, accepted.get(series.key)) for series in found}
    error = FALSE_ALARM / max(1, sum(problem is None for problem in problems.values()))
    return pd.DataFrame([_row(each, accepted.get(each.key), problems[each.key], error) for each in found])


def _why_not(series: Series, own: Accepted | None) -> str | None:
    """Why there is no verdict, or None."""
    if _has_failures(series, own):
        return FAILURES
    if series.problem:  # first: such values cannot be accepted either
        return series.problem
    if own is None:
        return NO_REFERENCE
    if own.unit != series.unit:
        return OTHER_UNIT
    if own.calibration not in (None, series.calibration):
        return OTHER_CALIBRATION
    if None not in (own.hardware, series.hardware) and own.hardware != series.hardware and not series.calibration:
        return OTHER_HARDWARE
    return OWN if own.fingerprint == series.fingerprint else None


def _has_failures(series: Series, own: Accepted | None) -> bool:
    """Whether more repeats failed than in the reference: the others are survivors, and no repeats of the reference.

    Without a reference, or with one that tells no failures, none may fail, except where the study expects it.
    """
    if not series.failed:
        return False
    if own is None and not series.values and not any(how.startswith("failed") for how in series.failed):
        return False  # a target that no run has reached yet
    if own is None or own.failed is None:
        return not series.may_fail
    before = own.failed + (own.repeats or 0)
    return len(series.failed) / series.attempts > own.failed / before if before else True


def _row(series: Series, own: Accepted | None, problem: str | None, error: float) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": series.quantity, "point": series.point, "unit": series.unit}
    row |= _columns("reference", own.sample if own else None) | {"repeats_reference": own.repeats if own else None}
    sample = log_sample(series.values) if series.values else None
    row |= _columns("measured", sample) | {"repeats": len(series.values)}
    row |= {"low": series.low, "high": series.high, "code_is_current": series.current, "records": series.records}
    told = [
        failed_runs.describe_failures(series.failed, series.attempts),
        failed_runs.describe_lost_runs(series.lost, series.attempts + series.lost),
        series.reason,
    ]
    alike = alike_blocks(len(series.values), sample.n) if sample else ""
    row |= {"blocks_alike": f"{counted(len(series.values), 'repeat')} {alike}" if alike else None}
    row |= {"repeats_failed": len(series.failed) + series.lost, "reason": "; ".join(filter(None, told)) or None}
    if problem or own is None or sample is None:
        return row | dict.fromkeys(("ratio", "ratio_low", "ratio_high")) | {"verdict": problem}
    ratio, low, high = ratio_interval(sample, own.sample, error)
    return row | {"ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": verdict(low, high, series)}


def _columns(name: str, sample: LogSample | None) -> dict[str, float | None]:
    """Geometric mean and 90 % interval; no interval with fewer than two values, or for an exact value."""
    if sample is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    low, high = sample.interval(FALSE_ALARM) if 1 < sample.n < float("inf") else (None, None)
    return {name: sample.middle, f"{name}_low": low, f"{name}_high": high}


def verdict(low: float, high: float, limits: Any) -> str:
    """Of the interval (low, high) of a ratio. limits: has ``low`` and ``high``, relative changes or None."""
    least = 0.0 if limits.low is None else 1 + limits.low
    most = float("inf") if limits.high is None else 1 + limits.high
    if low > most or high < least:
        return REGRESSION
    return PASS if least <= low and high <= most else UNCERTAIN


def refusal(series: Series, own: Accepted | None) -> str | None:
    """Why the values of a series cannot become the reference, or None. own: the reference of before."""
    return FAILURES if _has_failures(series, own) else series.problem


def accept(found: list[Series], accepted: dict[tuple[str, str], Accepted]) -> Iterator[Accepted]:
    """The accepted values after this check: new ones where the repeats suffice, else those of before."""
    for series in found:
        own = accepted.get(series.key)
        if refusal(series, own):
            if own:
                yield own
            continue
        sample = log_sample(series.values)
        yield Accepted(
            series.quantity,
            series.point,
            references.rounded(sample.middle),
            series.unit,
            low=own.low if own else None,
            high=own.high if own else None,
            repeats=len(series.values),
            worth=references.rounded(sample.n) if sample.n < len(series.values) else None,
            failed=len(series.failed),
            interval=[references.rounded(end) for end in sample.interval(FALSE_ALARM)],
            calibration=series.calibration,
            fingerprint=series.fingerprint,
            runs=list(series.runs) or None,
            failed_runs=list(series.failed_runs) or None,
            hardware=series.hardware,
            code=series.code,
            accepted=date.today().isoformat(),
        )
