"""A finding as declared in config/findings/NAME.yaml, and the runs of a study that it compares."""

from __future__ import annotations

import copy
import functools
import string
from dataclasses import dataclass
from typing import Any

from study.compare.references import find_unit
from study.core import configuration, fields, validation
from study.core.errors import StudyError
from study.experiment import schemas
from study.experiment.parameters import PARAMETERS, list_observing_keys
from study.experiment.study import PlannedRun, Study
from study.records import tidy
from study.report.findings.kinds import KINDS, Kind

COLUMNS = (
    *tidy.MEASURED,
    *(each.column for each in fields.find_section("communication").fields if each.column_unit == "s"),
)
POINTS = "percentage points"  # the unit of a difference of shares
OF_THE_SHARE = "% of the share"  # the unit of a relative change of a share


@dataclass(frozen=True)
class Quantity:
    """A column of runs.csv, less another one if given, as a share of a third one if given."""

    column: str
    minus: str | None = None
    share_of: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that it is made from."""
        return [name for name in (self.column, self.minus, self.share_of) if name]

    @property
    def unit(self) -> str:
        """The unit of a difference of two values."""
        return POINTS if self.share_of else find_unit(self.column)

    def __str__(self) -> str:
        text = f"{self.column} - {self.minus}" if self.minus else self.column
        return (
            text if not self.share_of else f"({text}) / {self.share_of}" if self.minus else f"{text} / {self.share_of}"
        )

    def compute(self, rows: Any) -> Any:
        """The values of rows of runs.csv; a share in %."""
        values = rows[self.column].astype(float)
        if self.minus:
            values = values - rows[self.minus].astype(float)
        return 100 * values / rows[self.share_of].astype(float) if self.share_of else values


@dataclass(frozen=True)
class Finding:
    """A finding as declared; see config/schemas/findings.schema.yaml.

    claim: +1 for above, -1 for below. within: the margin of a claim of no effect in the unit of the estimate; or None.
    """

    name: str
    title: str
    kind: Kind
    claim: int
    within: float | None
    quantity: Quantity
    along: Quantity | None
    points: dict[str, Any]
    key: str
    sentences: dict[str, str]
    figure: str | None = None
    table: str | None = None
    look_for: str | None = None

    @property
    def values(self) -> list[Any]:
        """The values of the compared key, one for each arm."""
        return self.points[self.key]

    @property
    def formula(self) -> str:
        """What the estimate is, from columns of runs.csv."""
        arms = " / ".join(map(str, self.values))
        return self.kind.formula.format(value=self.quantity, along=self.along, key=self.key, arms=arms)

    @property
    def unit(self) -> str:
        """Of the estimate. A reduction of a share is relative to it, and not in percentage points."""
        unit = self.kind.unit.format(value=self.quantity.unit, along=self.along.unit if self.along else "")
        return OF_THE_SHARE if unit == "%" and self.quantity.share_of else unit

    @property
    def limits(self) -> list[float]:
        """What the estimate and its interval are compared with, and what they cannot reach."""
        margins = [] if self.within is None else [-self.within, self.within]
        bounds = [100.0] if self.kind.is_reduction else []
        return [self.kind.no_effect, *(self.kind.no_effect + margin for margin in margins), *bounds]


@functools.cache
def make_schema() -> dict[str, Any]:
    """The schema of config/findings/NAME.yaml, with the registered kinds and the grid keys."""
    schema = copy.deepcopy(validation.read_schema("findings"))
    schema["properties"]["kind"]["enum"] = list(KINDS)
    keys = {name: schemas.allow_list(PARAMETERS[name].kind.to_schema()) for name in schemas.list_separating_keys()}
    schema["properties"]["points"]["properties"] = keys
    for part in schema["$defs"]["quantity"]["properties"].values():
        part["enum"] = list(COLUMNS)
    return schema


def read_content(name: str) -> dict[str, Any]:
    """What config/findings/<name>.yaml says; raises `StudyError` for an unknown name or a mistake in the file."""
    return configuration.load_named("findings", name, make_schema())


def load_finding(name: str) -> Finding:
    """The finding `read_content` with its kind and quantities; raises `StudyError` for what does not fit together."""
    declared = read_content(name)
    try:
        return _make_finding(name, declared)
    except StudyError as error:
        raise StudyError(f"config/findings/{name}.yaml: {error}") from None


def _make_finding(name: str, content: dict[str, Any]) -> Finding:
    kind, points = KINDS[content["kind"]], content["points"]
    lists = [key for key, value in points.items() if isinstance(value, list)]
    if len(lists) != 1:
        raise StudyError(f"points: {len(lists)} keys have a list; give exactly one, whose values are compared")
    (key,) = lists
    arms = len(points[key])
    if arms < 2 or (kind.divides and arms != 2):
        wanted = "two values" if kind.divides else "two values or more"
        raise StudyError(f"points.{key}: kind {content['kind']} compares {wanted}, these are {arms}")
    numbers = all(isinstance(value, int | float) and value > 0 for value in points[key])
    if kind.numeric and not numbers:
        raise StudyError(f"points.{key}: kind {content['kind']} needs numbers above 0; compare values of gpus, say")
    if kind.along != ("along" in content):
        remedy = "needs the quantity along" if kind.along else "has no quantity along; leave it out"
        raise StudyError(f"along: kind {content['kind']} {remedy}")
    for verdict, text in content["sentences"].items():
        _check_sentence(verdict, text)
    return Finding(
        name,
        content["title"],
        kind,
        -1 if content.get("claim") == "below" else 1,
        _read_margin(content),
        Quantity(**content["quantity"]),
        Quantity(**content["along"]) if kind.along else None,
        points,
        key,
        content["sentences"],
        *(content.get(each) for each in ("figure", "table", "look_for")),
    )


def _read_margin(content: dict[str, Any]) -> float | None:
    """``within`` in the unit of the estimate: a share of a ratio, percent of a reduction."""
    if "within" not in content:
        return None
    if not KINDS[content["kind"]].divides:
        raise StudyError(f"within: kind {content['kind']} has no percent; use ratio or reduction")
    if "claim" in content:
        raise StudyError("claim: within takes its place; give one of them")
    return content["within"] / 100 if KINDS[content["kind"]].no_effect else content["within"]


def _check_sentence(verdict: str, text: str) -> None:
    """Refuse placeholders that are never filled in."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise StudyError(f"sentences.{verdict}: {error}; write a brace twice if it is meant") from None
    allowed = {"not_enough_runs": set()}.get(verdict, {"number"})
    if wrong := [field for field in fields if field not in allowed]:
        remedy = "only {number} is filled in" if allowed else "there is no number without an interval"
        raise StudyError(f"sentences.{verdict}: {{{wrong[0]}}}: {remedy}")


def select_arms(finding: Finding, study: Study) -> dict[Any, list[PlannedRun]]:
    """The runs of each arm, one point each, {value of the compared key: its repeats}.

    Raises `StudyError` if the study has no such point, or several that differ in a key that the finding does not give.
    """
    where = f"config/studies/{study.name}.yaml: findings: {finding.name}"
    fitting = [run for run in study.runs if _is_compared(finding, run)]
    for name in schemas.list_separating_keys():
        if name not in finding.points and len(values := {_get_value(run, name) for run in fitting}) > 1:
            values_found = ", ".join(map(str, sorted(values, key=str)))
            raise StudyError(
                f"{where}: its runs differ in {name} ({values_found}); give {name} under points in "
                f"config/findings/{finding.name}.yaml"
            )
    runs_by_value = {
        value: [run for run in fitting if _get_value(run, finding.key) == value] for value in finding.values
    }
    for value, runs in runs_by_value.items():
        if not runs:
            wanted = {**finding.points, finding.key: value}
            values_found = ", ".join(f"{key} {each}" for key, each in wanted.items())
            raise StudyError(f"{where} needs runs with {values_found}; the study has none")
    return runs_by_value


def _is_compared(finding: Finding, run: PlannedRun) -> bool:
    usual = {name: PARAMETERS[name].default for name in list_observing_keys()}
    wanted = {**usual, **finding.points, finding.key: None}
    return _get_value(run, finding.key) in finding.values and all(
        _get_value(run, key) == value for key, value in wanted.items() if key != finding.key
    )


def _get_value(run: PlannedRun, key: str) -> Any:
    """The value of a grid key; of ``dataset``, as in the study's file."""
    return run.dataset.key if key == "dataset" else run[key]
