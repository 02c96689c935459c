"""What each figure shows and which runs it needs, from its YAML."""

import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.experiment import schemas
from study.experiment.parameters import PARAMETERS, observing
from study.experiment.parameters.registry import observed_by
from study.records import targets, tidy

POINTS = "points"  # the kind of figure that plots points against the number of GPUs

OWN = CONFIG / "figures.yaml"  # legend texts, and this project's own figures

Labels = dict[str, dict[str, str]]  # column -> {value as text: what legends say}


@dataclass(frozen=True)
class Horizontal:
    """The horizontal axis: a column whose values are positive numbers, or ``names``."""

    column: str = "gpus"
    label: str = "GPUs (ranks)"
    names: bool = False


@dataclass(frozen=True)
class Description:
    """One figure of the YAML; ``panels`` are as in ``config/schemas/figures.schema.yaml``. kind: a name in `KINDS`."""

    name: str
    title: str
    caption: str
    paper_figures: tuple[str, ...]
    runs: dict[str, list[Any]]  # column -> list of the values that are drawn
    smallest: tuple[str, ...]  # columns of which only the smallest value is drawn
    panels: tuple[dict[str, Any], ...]  # none in a figure of traced runs over time, or of formats
    labels: Labels
    kind: str
    x: Horizontal = Horizontal()
    together: tuple[str, ...] = ()  # columns in which the points of a line may differ


def benchmark_title(benchmark: str, labels: Labels) -> str:
    """What a title calls a benchmark: its legend text, else its name in capitals."""
    return labels.get("benchmark", {}).get(benchmark, benchmark.upper())


def files() -> list[Path]:
    """The YAML files that describe figures: our own, then the papers'."""
    return [OWN, *sorted(CONFIG.glob("papers/*/figures.yaml"))]


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of these files, with the columns that tell experiments apart, their values, and what may be drawn."""
    found = copy.deepcopy(checked.named_schema("figures"))
    found["$defs"]["column"] = {"enum": columns()}
    found["$defs"]["filter"] = {"enum": ["gpus", *columns(), *observing()]}
    found["$defs"]["quantity"] = {"enum": list(tidy.MEASURED)}
    values = {name: PARAMETERS[name].kind.schema() for name in ("gpus", *columns(), *observing())}
    figure, panel = found["$defs"]["figure"]["properties"], found["$defs"]["panel"]["properties"]
    figure["runs"]["properties"] = {name: schemas.several(value) for name, value in values.items()}
    panel["relative_to"]["properties"] = values
    return found


def columns() -> list[str]:
    """The columns of runs.csv that identify an experiment: runs that differ in one of them are never averaged."""
    return [name for name in schemas.separating() if name not in ("gpus", *observing())]


@functools.cache
def _content(file: Path) -> dict[str, Any]:
    return checked.load(file, schema())


def figures() -> dict[str, dict[str, Any]]:
    """All figures by name, as in their YAML files."""
    return {name: figure for file in files() for name, figure in _content(file)["figures"].items()}


def describe(name: str) -> Description:
    """The `Description` of one figure; raises `StudyError` for an unknown name."""
    known = figures()
    if name not in known:
        where = ", ".join(map(checked.shown, files()))
        hint = checked.nearest(name, known)
        raise StudyError(f"there is no figure '{name}' in {where}{hint}; known: {', '.join(known)}")
    figure = known[name]
    return Description(
        name,
        figure["title"],
        figure["caption"],
        tuple(figure["paper_figures"]),
        {column: several(value) for column, value in figure.get("runs", {}).items()},
        tuple(figure.get("smallest", ())),
        tuple(figure.get("panels", ())),
        _content(OWN).get("labels", {}),
        figure.get("kind", POINTS),
        Horizontal(**figure.get("x", {})),
        tuple(figure.get("together", ())),
    )


def several(value: Any) -> list[Any]:
    """A value of the YAML as a list; a single value may be given without brackets."""
    return value if isinstance(value, list) else [value]


def filters(description: Description) -> str:
    """The runs that a figure needs, in words: `` with benchmark nt3, scaling strong``; empty if any run will do."""
    told = [f"{column} {' or '.join(map(str, values))}" for column, values in description.runs.items()]
    return f" with {', '.join(told)}" if told else ""


def draws_targets(description: Description) -> bool:
    """Whether the figure draws a measure of `study.records.targets`."""
    return any(name in targets.MEASURES for panel in description.panels for name in panel["quantities"])


def draws(description: Description, run: Any, traced: bool = False) -> bool:
    """Whether a run belongs in the figure.

    It gives timings, unless the figure asks by the key for runs that are observed. traced: whether the figure shows
    traced runs, and no others.
    """
    by = [name for name in observed_by(run) if name.partition(":")[0] not in description.runs]
    return by == (["trace"] if traced else []) and all(
        run[column] in values for column, values in description.runs.items()
    )
