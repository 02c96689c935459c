"""Compare the latest measurements of a study with the accepted values of its performance references.

The rule is in docs/performance-references.md: Welch's interval of the ratio of geometric means, against the limits.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import failed_runs, first_verdicts, likeness, references
from study.compare.estimates import Estimate, estimate_mean, estimate_ratio_of_means
from study.compare.references import FALSE_ALARM, LEAST_REPEATS, Accepted
from study.core import code_version, fields, paths, validation
from study.core.errors import StudyError
from study.core.files import to_finite_or_none
from study.core.statistics import summarize_ratios
from study.core.wording import format_count
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
UNPROVEN = "unproven runs"
NO_VALUE, NOT_POSITIVE = "no value", "no positive value"
OWN = "the reference's own runs"
LEFT_OUT = "the reference's own runs are left out"
MIXED = "runs of several versions of the code"
UNLIKE_PACKAGES = "runs with several versions of the libraries"
UNLIKE, AT_ONCE = "runs that are not alike", "runs that shared a host"
UNLIKE_POWER = "measured and modelled power"
OTHER_UNIT = "reference in another unit"
OTHER_HARDWARE = "other hardware"
LOAD_QUANTITIES = ("load_s", "peak_memory_mb")
QUANTITIES: dict[str, tuple[str, ...]] = {"runs": tidy.MEASURED, "loads": LOAD_QUANTITIES}
OF_TRAINING = {each.name for each in fields.find_section("training").fields}
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
        unproven: how many repeats are left out since nothing shows that they did their work, and why.
        low, high: the limits of the relative change; None for no limit.
        problem: why the values cannot be compared, or None.
        reason: why the records have no value, as far as they say.
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
    unproven: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(quantity, point)."""
        return self.quantity, self.point

    @property
    def fingerprint(self) -> str:
        """A digest of the values."""
        return identity.compute_fingerprint({"values": self.values})

    @property
    def attempts(self) -> int:
        """Number of repeats, with those that failed."""
        return len(self.failed) + len(self.values) + self.besides

    def drop_accepted_runs(self, own: Accepted | None) -> Series:
        """The series without the runs that were accepted, as far as there are others.

        A number of failures that was written by hand is of unknown runs: then the share of failures is that of all
        runs. It is above the accepted one if that of the later runs is.
        """
        if own is None or self.problem or not self.runs or not self.values:
            return self
        accepted, accepted_failures = set(own.runs or ()), set(own.failed_runs or ())
        later = [place for place, run in enumerate(self.runs) if run not in accepted]
        if not later:
            return dataclasses.replace(self, problem=OWN)  # unless others have failed since: see `_explain_no_verdict`
        failed = [how for how, run in zip(self.failed, self.failed_runs, strict=True) if run not in accepted_failures]
        dropped = len(self.values) - len(later)
        if not dropped and len(failed) == len(self.failed):
            return self
        problem = NOT_ENOUGH if len(later) < LEAST_REPEATS else None
        besides = self.besides + (dropped if own.failed and own.failed_runs is None else 0)
        return dataclasses.replace(
            self.select_values(later, LEFT_OUT), failed=tuple(failed), besides=besides, problem=problem
        )

    def select_values(self, places: Sequence[int], reason: str) -> Series:
        """The series with the values at these places only. reason: why the others are left out."""
        values, runs = [self.values[place] for place in places], tuple(self.runs[place] for place in places)
        return dataclasses.replace(self, values=values, runs=runs, reason=reason)


def drop_later_repeats(measured: list[Series], earlier: first_verdicts.FirstVerdicts) -> list[Series]:
    """The series without repeats that were added after an earlier verdict."""
    return [_drop_later_repeats(series, earlier.get(" ".join(series.key))) for series in measured]


def _drop_later_repeats(series: Series, first: list[str] | None) -> Series:
    late = first_verdicts.find_later_runs(first, dict(enumerate(series.runs)))
    if series.problem or not late:
        return series
    earlier = series.select_values([place for place in range(len(series.runs)) if place not in late], ADDED_LATER)
    return dataclasses.replace(earlier, besides=len(late))  # those that failed among the later ones count as before


def add_first_verdicts(
    measured: list[Series], rows: pd.DataFrame, earlier: first_verdicts.FirstVerdicts
) -> dict[str, list[str]]:
    """The runs of the first verdicts after this check. rows: of `compare_series`."""
    judged = {(row["quantity"], row["point"]) for _, row in rows.iterrows() if row["verdict"] in VERDICTS}
    verdicts = {" ".join(each.key): list(each.runs) for each in measured if each.key in judged and each.runs}
    return {**earlier, **verdicts}


def list_points(study: Study, of: str) -> dict[str, dict[str, Any]]:
    """The points whose times count, by name, with the keys by which a reference selects them. of: runs or loads."""
    if of == "runs":
        timed = [run for run in study.runs if is_observed(run, None)]
        return {run.point: {**run.parameters, "dataset": run.dataset.key} for run in timed}
    points = {}
    for each in study.loading:
        for keys in itertools.product(inputs.describe_loading_files(each, ""), each.loaders, each.page_caches):
            name = _name_load(each.dataset.benchmark, each.dataset.id, *keys)
            points[name] = dict(zip(LOAD_KEYS, (each.dataset.benchmark, each.dataset.key, *keys), strict=True))
    return points


def select_points(reference: Reference, study: Study) -> list[str]:
    """The names of the points that a reference selects."""
    return [
        name
        for name, keys in list_points(study, reference.of).items()
        if all(keys.get(key) == value for key, value in reference.point.items())
    ]


def require_known(name: str, names: Iterable[str], place: str) -> None:
    """Raise `StudyError`, with the nearest name, if ``what`` is not one of ``known``. place: where it stands."""
    names = list(names)
    if name not in names:
        raise StudyError(f"{place}: {name!r} is not one of {', '.join(names)}{validation.suggest_nearest(name, names)}")


def verify_accepted(accepted: dict[tuple[str, str], Accepted], study: Study, path: Path) -> None:
    """Raise `StudyError` for an accepted value that cannot be compared with anything that the study measures.

    accepted: the content of the file ``path``, in its order.
    """
    there = {kind: list_points(study, kind) for kind in QUANTITIES}
    declared = {
        (reference.quantity, point) for reference in study.references for point in select_points(reference, study)
    }
    for index, own in enumerate(accepted.values()):
        place = f"{validation.shorten_path(path)}: references[{index}]"
        kind = next((each for each, names in there.items() if own.point in names), None)
        require_known(own.quantity, QUANTITIES[kind] if kind else dict.fromkeys(sum(QUANTITIES.values(), ())), place)
        if kind is None:
            nearest = validation.suggest_nearest(own.point, [name for names in there.values() for name in names])
            raise StudyError(
                f"{place}.point: {own.point!r} is no point of study {study.name} that gives timings: correct it, or "
                f"remove the entry{nearest}"
            )
        if own.unit != (unit := references.find_unit(own.quantity)):
            raise StudyError(f"{place}.unit: unknown unit {own.unit!r} of {own.quantity}; write {unit}")
        if own.key not in declared and not references.has_limits(own):
            raise StudyError(
                f"{place}: {own.quantity} of {own.point} is no reference of study {study.name}: give it low or high, "
                "or remove it"
            )


def collect_series(study: Study, results: Path, accepted: dict[tuple[str, str], Accepted]) -> list[Series]:
    """The series of all references of a study, then those that only the file of accepted values has.

    results: ``results/<machine>``. Only existing records are read. accepted: checked by `verify_accepted`.
    """
    wanted = {reference.quantity for reference in study.references} | {quantity for quantity, _ in accepted}
    frames = {"runs": _read_runs(study, results, wanted), "loads": _read_loads(study, results)}
    series_by_key: dict[tuple[str, str], Series] = {}
    for reference in study.references:
        for point in select_points(reference, study):
            if (reference.quantity, point) not in series_by_key:
                series = _make_series(reference, point, frames[reference.of])
                own = accepted.get(series.key)
                if own and references.has_limits(own):
                    series = dataclasses.replace(series, low=own.low, high=own.high)
                series_by_key[series.key] = series
    for key, own in accepted.items():
        if key not in series_by_key:
            series_by_key[key] = _make_undeclared_series(own, study, frames)
    return list(series_by_key.values())


def _make_undeclared_series(own: Accepted, study: Study, frames: dict[str, pd.DataFrame]) -> Series:
    """The series of an accepted value that the study does not declare."""
    kind = next(each for each in frames if own.point in list_points(study, each))
    return _make_series(Reference(own.quantity, kind, {}, own.low, own.high), own.point, frames[kind])


def _read_runs(study: Study, results: Path, wanted: set[str]) -> pd.DataFrame:
    """The runs with a record. wanted: quantities; telemetry is read only for those that need it."""
    there, _ = tidy.split_ended_runs(study.runs, results)
    code = tidy.current_code(study.runs, machine.load(paths.find_machine_name(results)))
    reads_targets = bool(wanted & set(targets.MEASURES))
    frame = tidy.runs_frame(there, code, results, reads_targets=reads_targets)
    return frame.assign(point=[run.point for run in there], code=frame["training_code"]) if there else frame


def _read_loads(study: Study, results: Path) -> pd.DataFrame:
    files = [paths.locate_loading(results, each.directory) for each in study.loading]
    frame = tidy.loading_frame(
        [file for file in files if Path(file).exists()], code_version.digest_loading_code(), results
    )
    names = [_name_load(*key) for key in zip(*(frame[key] for key in LOAD_KEYS), strict=True)]
    return frame.assign(point=names, code=None)


def _name_load(benchmark: str, dataset: str, file: str, loader: str, page_cache: str) -> str:
    return f"{benchmark}/{dataset}/{file} {loader} {page_cache}"


def _make_series(reference: Reference, point: str, frame: pd.DataFrame) -> Series:
    """The values of a point, and its failures; the values of resumed runs are missing."""
    quantity = reference.quantity
    unit = references.find_unit(quantity)
    empty = Series(quantity, point, unit, [], reference.low, reference.high, problem=NO_RUNS)
    if frame.empty:
        return empty
    of_point = frame[frame["point"] == point]
    rows = of_point.to_dict("records")
    hows = [failed_runs.describe_failure(row, [quantity]) for row in rows]
    is_own = [failed_runs.is_failure_of_arm(row) for row in rows]
    is_failed = [how is not None and own for how, own in zip(hows, is_own, strict=True)]
    failures = zip(itertools.compress(hows, is_failed), itertools.compress(rows, is_failed), strict=True)
    empty = dataclasses.replace(
        empty,
        failed=tuple(_shorten_failure(str(how), row) for how, row in failures),
        lost=is_own.count(False),
        failed_runs=_compute_digests(of_point[is_failed]),
        may_fail=bool("may_fail" in of_point and of_point["may_fail"].any()),
        records=join_records(of_point["record"]),
        unproven=failed_runs.describe_unproven(of_point),
    )
    finished = failed_runs.keep_proven(of_point)
    if finished.empty:
        return dataclasses.replace(empty, problem=UNPROVEN) if empty.unproven else empty
    reached = failed_runs.keep_proven(of_point[[how is None for how in hows]])
    finished = finished if reached.empty else reached
    numbers = finished[quantity].astype(float)
    good = finished[numbers > 0]
    if good.empty:
        if numbers.notna().any():
            return dataclasses.replace(empty, problem=NOT_POSITIVE)
        return dataclasses.replace(empty, problem=NO_VALUE, reason=_explain_missing_values(quantity, finished))
    problem, reason = _find_problem(good, quantity), None
    possible = len(finished) + int(failed_runs.mark_unproven(of_point).sum())
    if problem is None and not references.are_enough(len(good), possible):
        problem = NOT_ENOUGH
        without = len(finished) - len(good)
        if len(good) >= LEAST_REPEATS and without:
            reason = f"{without} of {format_count(len(finished), 'finished run')} have no value"
    return dataclasses.replace(
        empty,
        values=good[quantity].astype(float).tolist(),
        problem=problem,
        reason=reason,
        code=good["code"].iloc[0],
        current=bool(good["code_is_current"].all()),
        hardware=next(iter(good["hardware"].dropna()), None) if "hardware" in good else None,
        records=join_records(good["record"]),
        runs=_compute_digests(good),
    )


def _compute_digests(runs: pd.DataFrame) -> tuple[str, ...]:
    """A digest of each run; none of loads."""
    return tuple(first_verdicts.compute_digest(run) for _, run in runs.iterrows()) if "started_wall_ns" in runs else ()


def _shorten_failure(how: str, row: dict[str, Any]) -> str:
    """The failure of a run by its kind, ``failed: oom``, or of a load by its message."""
    kind = row.get("failure_kind") or row.get("message")
    return f"failed: {kind}" if how.startswith("failed") and kind else how


def _explain_missing_values(quantity: str, finished: pd.DataFrame) -> str | None:
    """Why finished runs have no value of a quantity, as their records say; None if they do not."""
    columns = ["target_reason", "target_energy_reason"] if quantity in targets.MEASURES else []
    if quantity.endswith(("_w", "_j", "_js")):
        columns.append(power.name_reason_column(quantity))
    if quantity in OF_TRAINING:
        columns.append("program_reason")
    reasons = [text for column in columns if column in finished for text in finished[column].dropna()]
    if "resumed_after_epoch" in finished and finished["resumed_after_epoch"].notna().all():
        reasons.insert(0, "trained in several pieces, resumed from a checkpoint")
    return "; ".join(dict.fromkeys(reasons)) or None


def _find_problem(good: pd.DataFrame, quantity: str) -> str | None:
    """Why the values of a point are no repeats of each other; None if they are."""
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
    return None


def compare_series(measured: list[Series], accepted: dict[tuple[str, str], Accepted]) -> pd.DataFrame:
    """One row per series: reference, measurement, their ratio with its interval, and the verdict.

    The intervals of all ratios together are meant to fail on the side of a limit with a probability of at most
    `FALSE_ALARM` (Bonferroni); how well that holds with few repeats is in docs/performance-references.md. Runs that
    were accepted are not compared with themselves.
    """
    measured = [series.drop_accepted_runs(accepted.get(series.key)) for series in measured]
    problems = {series.key: _explain_no_verdict(series, accepted.get(series.key)) for series in measured}
    error = FALSE_ALARM / max(1, sum(problem is None for problem in problems.values()))
    return pd.DataFrame([_make_row(each, accepted.get(each.key), problems[each.key], error) for each in measured])


def _explain_no_verdict(series: Series, own: Accepted | None) -> str | None:
    """Why there is no verdict, or None."""
    if _has_failures(series, own):
        return FAILURES
    if series.problem:  # first: such values cannot be accepted either
        return series.problem
    if own is None:
        return NO_REFERENCE
    if own.unit != series.unit:
        return OTHER_UNIT
    if None not in (own.hardware, series.hardware) and own.hardware != series.hardware:
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


def _make_row(series: Series, own: Accepted | None, problem: str | None, error: float) -> dict[str, Any]:
    row: dict[str, Any] = {"quantity": series.quantity, "point": series.point, "unit": series.unit}
    measured = (
        estimate_mean(summarize_ratios(series.values), len(series.values), FALSE_ALARM) if series.values else Estimate()
    )
    accepted = estimate_mean(own.sample, own.repeats or 1, FALSE_ALARM) if own else Estimate()
    row |= _name_columns("reference", accepted) | {"repeats_reference": own.repeats if own else None}
    row |= _name_columns("measured", measured) | {"repeats": len(series.values)}
    row |= {"low": series.low, "high": series.high, "code_is_current": series.current, "records": series.records}
    reasons = [
        failed_runs.describe_failures(series.failed, series.attempts),
        failed_runs.describe_lost_runs(series.lost, series.attempts + series.lost),
        series.reason,
    ]
    row |= {"blocks_alike": measured.alike, "unproven": series.unproven}
    row |= {"repeats_failed": len(series.failed) + series.lost, "reason": "; ".join(filter(None, reasons)) or None}
    if problem or own is None or not series.values:
        return row | _name_columns("ratio", Estimate()) | {"verdict": problem}
    ratio = estimate_ratio_of_means(measured, accepted, error)
    return row | _name_columns("ratio", ratio) | {"verdict": judge_ratio(ratio, series)}


def _name_columns(name: str, estimate: Estimate) -> dict[str, float | None]:
    """The value and the ends of its interval; None where there are none."""
    return {column: to_finite_or_none(number) for column, number in estimate.to_columns(name).items()}


def judge_ratio(ratio: Estimate, limits: Any) -> str:
    """The verdict of a ratio. limits: has ``low`` and ``high``, relative changes or None."""
    least = 0.0 if limits.low is None else 1 + limits.low
    most = math.inf if limits.high is None else 1 + limits.high
    if ratio.find_side(least, most):
        return REGRESSION
    return PASS if ratio.is_within(least, most) else UNCERTAIN


def explain_refusal(series: Series, own: Accepted | None) -> str | None:
    """Why the values of a series cannot become the reference; None if they can. own: the earlier reference."""
    return FAILURES if _has_failures(series, own) else series.problem


def accept_series(measured: list[Series], accepted: dict[tuple[str, str], Accepted]) -> Iterator[Accepted]:
    """The accepted values after this check: new ones where the repeats suffice, else those of before."""
    for series in measured:
        own = accepted.get(series.key)
        if explain_refusal(series, own):
            if own:
                yield own
            continue
        sample = summarize_ratios(series.values)
        yield Accepted(
            series.quantity,
            series.point,
            references.round_value(sample.middle),
            series.unit,
            low=own.low if own else None,
            high=own.high if own else None,
            repeats=len(series.values),
            worth=references.round_value(sample.n) if sample.n < len(series.values) else None,
            failed=len(series.failed),
            interval=[references.round_value(end) for end in sample.interval(FALSE_ALARM)],
            fingerprint=series.fingerprint,
            runs=list(series.runs) or None,
            failed_runs=list(series.failed_runs) or None,
            hardware=series.hardware,
            code=series.code,
            accepted=date.today().isoformat(),
        )
