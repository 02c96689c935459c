"""The descriptions of figures: what each shows and which runs it needs, from its YAML."""

import copy
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import validation
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.experiment import schemas
from study.experiment.parameters import PARAMETERS, list_observing_keys
from study.experiment.parameters.registry import list_observers
from study.records import targets, tidy

POINTS = "points"  # the kind of figure that plots points against the number of GPUs

OWN_FIGURES = CONFIG / "figures.yaml"  # legend texts, and this project's own figures

Labels = dict[str, dict[str, str]]  # column -> {value as text: what legends say}


@dataclass(frozen=True)
class HorizontalAxis:
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
    x: HorizontalAxis = HorizontalAxis()
    together: tuple[str, ...] = ()  # columns in which the points of a line may differ


def get_benchmark_title(benchmark: str, labels: Labels) -> str:
    """Return a benchmark's name for titles: its legend text, else its name in capitals."""
    return labels.get("benchmark", {}).get(benchmark, benchmark.upper())


def list_figure_files() -> list[Path]:
    """List the YAML files that describe figures: our own, then the papers'."""
    return [OWN_FIGURES, *sorted(CONFIG.glob("papers/*/figures.yaml"))]


@functools.cache
def make_schema() -> dict[str, Any]:
    """Make the schema of these files, with the identifying columns, their values, and the drawable columns."""
    schema = copy.deepcopy(validation.read_schema("figures"))
    schema["$defs"]["column"] = {"enum": list_identifying_columns()}
    schema["$defs"]["filter"] = {"enum": ["gpus", *list_identifying_columns(), *list_observing_keys()]}
    schema["$defs"]["quantity"] = {"enum": list(tidy.MEASURED)}
    values = {
        name: PARAMETERS[name].kind.to_schema()
        for name in ("gpus", *list_identifying_columns(), *list_observing_keys())
    }
    figure, panel = schema["$defs"]["figure"]["properties"], schema["$defs"]["panel"]["properties"]
    figure["runs"]["properties"] = {name: schemas.allow_list(value) for name, value in values.items()}
    panel["relative_to"]["properties"] = values
    return schema


def list_identifying_columns() -> list[str]:
    """List the columns of runs.csv that identify an experiment: runs that differ in one are never averaged."""
    return [name for name in schemas.list_separating_keys() if name not in ("gpus", *list_observing_keys())]


@functools.cache
def _load_file(file: Path) -> dict[str, Any]:
    """Load and check a YAML file of figures."""
    return validation.load_valid_yaml(file, make_schema())


def load_figures() -> dict[str, dict[str, Any]]:
    """Load all figures by name, as in their YAML files."""
    return {name: figure for file in list_figure_files() for name, figure in _load_file(file)["figures"].items()}


def load_description(name: str) -> Description:
    """Load the `Description` of one figure; raises `StudyError` for an unknown name."""
    all_figures = load_figures()
    if name not in all_figures:
        where = ", ".join(map(validation.shorten_path, list_figure_files()))
        hint = validation.suggest_nearest(name, all_figures)
        raise StudyError(f"there is no figure '{name}' in {where}{hint}; known: {', '.join(all_figures)}")
    figure = all_figures[name]
    return Description(
        name,
        figure["title"],
        figure["caption"],
        tuple(figure["paper_figures"]),
        {column: to_list(value) for column, value in figure.get("runs", {}).items()},
        tuple(figure.get("smallest", ())),
        tuple(figure.get("panels", ())),
        _load_file(OWN_FIGURES).get("labels", {}),
        figure.get("kind", POINTS),
        HorizontalAxis(**figure.get("x", {})),
        tuple(figure.get("together", ())),
    )


def to_list(value: Any) -> list[Any]:
    """Return a value of the YAML as a list; a single value may be given without brackets."""
    return value if isinstance(value, list) else [value]


def describe_filters(description: Description) -> str:
    """Describe the runs that a figure needs, as `` with benchmark nt3, scaling strong``; empty if any will do."""
    conditions = [f"{column} {' or '.join(map(str, values))}" for column, values in description.runs.items()]
    return f" with {', '.join(conditions)}" if conditions else ""


def has_targets(description: Description) -> bool:
    """True if the figure draws a measure of `study.records.targets`."""
    return any(name in targets.MEASURES for panel in description.panels for name in panel["quantities"])


def is_drawn(description: Description, run: Any, traced: bool = False) -> bool:
    """True if a run belongs in the figure.

    The run gives timings, unless the figure asks by the key for runs that are observed. traced: the figure shows
    traced runs, and no others.
    """
    observing_keys = [name for name in list_observers(run) if name.partition(":")[0] not in description.runs]
    return observing_keys == (["trace"] if traced else []) and all(
        run[column] in values for column, values in description.runs.items()
    )
