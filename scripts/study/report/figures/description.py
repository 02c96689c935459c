"""What each figure shows, from its YAML, and which runs it needs."""

import difflib
import functools
from dataclasses import dataclass

from study.core import configuration
from study.core.errors import StudyError

FILE = configuration.CONFIG / "figures" / "icpp2019.yaml"


@dataclass(frozen=True)
class Description:
    """One figure of the YAML; ``panels`` are as in ``config/schemas/figures.schema.yaml``."""

    name: str
    title: str
    caption: str
    paper_figures: tuple
    runs: dict  # column -> list of the values that are drawn
    smallest: tuple  # columns of which only the smallest value is drawn
    panels: tuple  # none in a figure of traced runs over time, or of formats
    labels: dict  # column -> {value as text: what legends say}
    shows: str  # ``runs``, ``timeline`` or ``formats``

    @property
    def is_timeline(self):
        """Whether it shows traced runs over time, not points against GPUs."""
        return self.shows == "timeline"

    @property
    def is_of_formats(self):
        """Whether it shows loading measurements of formats, and no runs."""
        return self.shows == "formats"


@functools.cache
def _content(file):
    return configuration.load(file, "figures")


def names(file=FILE):
    """The names of all figures, in the order of the YAML."""
    return list(_content(file)["figures"])


def describe(name, file=FILE):
    """The `Description` of one figure; raises `StudyError` for a name that the YAML does not have."""
    content = _content(file)
    if name not in content["figures"]:
        known = list(content["figures"])
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise StudyError(f"{configuration.shown(file)}: there is no figure '{name}'{hint}; known: {', '.join(known)}")
    figure = content["figures"][name]
    return Description(
        name,
        figure["title"],
        figure["caption"],
        tuple(figure["paper_figures"]),
        {column: several(value) for column, value in figure.get("runs", {}).items()},
        tuple(figure.get("smallest", ())),
        tuple(figure.get("panels", ())),
        content["labels"],
        next((kind for kind in ("timeline", "formats") if figure.get(kind)), "runs"),
    )


def several(value):
    """A value of the YAML as a list: it may be given alone."""
    return value if isinstance(value, list) else [value]


def needs(description):
    """What runs a figure needs, in words: ``runs with benchmark nt3, scaling strong, loader read_csv or chunked``."""
    if description.is_of_formats:
        return "a loading measurement of a format, such as hdf5"
    filters = [f"{column} {' or '.join(map(str, values))}" for column, values in description.runs.items()]
    return ("traced runs" if description.is_timeline else "runs") + (f" with {', '.join(filters)}" if filters else "")


def has_runs(description, parameters):
    """Whether any of a study's runs would be in the figure.

    parameters: an iterable of dicts, each a run's parameters. Traced runs are in the figures over time only, profiled
    ones in none.
    """
    return any(
        bool(run.get("trace")) == description.is_timeline
        and not run.get("profile")
        and all(run.get(column) in values for column, values in description.runs.items())
        for run in parameters
    )
