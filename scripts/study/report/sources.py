"""What tables, figures and findings of a study are made from: the runs and loading measurements that each uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from study.core import configuration, validation
from study.core.errors import StudyError
from study.experiment.study import LoadingMeasurement, PlannedRun, Study
from study.records.table_inputs import NOWHERE, Elsewhere
from study.report.figures.description import load_description
from study.report.figures.kinds import KINDS
from study.report.figures.published_points import check_published
from study.report.findings import declaration
from study.report.tables import TABLES


@dataclass(frozen=True)
class Sources:
    """The sources of a table or figure.

    further: the finished runs of other machines that it also shows.
    """

    runs: tuple[PlannedRun, ...]
    loading: tuple[LoadingMeasurement, ...] = ()
    further: Mapping[str, tuple[PlannedRun, ...]] = field(default_factory=dict)


def select_table_sources(study: Study, name: str, elsewhere: Elsewhere = NOWHERE) -> Sources:
    """The `Sources` of a table; raises `StudyError` if there is no such table or the study has nothing for it.

    elsewhere: see `study.records.table_inputs.elsewhere`.
    """
    where = f"config/studies/{study.name}.yaml: tables"
    if name not in TABLES:
        raise StudyError(
            f"{where}: {name!r} is not one of {', '.join(TABLES)}{validation.suggest_nearest(name, TABLES)}"
        )
    kind = TABLES[name]
    if not kind.is_there(study):
        raise StudyError(f"{where}: {name} needs {kind.needs}; the study has none")
    further = _select_used(elsewhere if kind.reads_further else NOWHERE, kind.uses)
    used = tuple(filter(kind.uses, study.runs))
    return Sources(used, study.loading if kind.uses_loading else (), further)


def select_figure_sources(study: Study, name: str, elsewhere: Elsewhere = NOWHERE) -> Sources:
    """The `Sources` of a figure; raises `StudyError` if there is no such figure or the study has nothing for it.

    elsewhere: as for `select_table_sources`.
    """
    where = f"config/studies/{study.name}.yaml: figures"
    try:
        description = load_description(name)
        check_published(description)
    except StudyError as error:
        raise StudyError(f"{where}: {error}") from None
    if description.kind not in KINDS:
        raise StudyError(
            f"{where}: {name}: there is no kind '{description.kind}'"
            f"{validation.suggest_nearest(description.kind, KINDS)}; known: {', '.join(KINDS)}"
        )
    kind = KINDS[description.kind]
    if not kind.is_there(description, study):
        raise StudyError(f"{where}: {name} needs {kind.needs(description)}; the study has none")
    uses = partial(kind.uses, description)
    runs = tuple(filter(uses, study.runs))
    further = _select_used(elsewhere if kind.reads_further else NOWHERE, uses)
    return Sources(runs, further=further)


def check_further(study: Study) -> None:
    """Raise `StudyError` for further results that no table or figure of the study shows."""
    tables = (TABLES[name].reads_further for name in study.tables if name in TABLES)
    figures = (KINDS[kind].reads_further for name in study.figures if (kind := load_description(name).kind) in KINDS)
    if study.further and not any((*tables, *figures)):
        able = sorted(name for name, kind in TABLES.items() if kind.reads_further)
        raise StudyError(
            f"config/studies/{study.name}.yaml: further_results: no table or figure of the study shows them; add one, "
            f"such as the table {able[0]}, or leave further_results out"
        )


def select_finding_sources(study: Study) -> Sources:
    """The `Sources` of all findings of a study; raises `StudyError` for an unknown one, or one without runs for it."""
    used: dict[str, PlannedRun] = {}
    for name in study.findings:
        where = f"config/studies/{study.name}.yaml: findings"
        try:
            configuration.check_name("findings", name)
        except StudyError as error:
            raise StudyError(f"{where}: {error}") from None
        finding = declaration.load_finding(name)
        _check_shown(finding)
        for runs in declaration.select_arms(finding, study).values():
            used |= {run.directory: run for run in runs}
    return Sources(tuple(used.values()))


def _check_shown(finding: declaration.Finding) -> None:
    """Raise `StudyError` if the figure or table that a finding names does not exist."""
    place, name = f"config/findings/{finding.name}.yaml", finding.table
    if name and name not in TABLES:
        raise StudyError(f"{place}: table: there is no table {name!r}{validation.suggest_nearest(name, TABLES)}")
    try:
        load_description(finding.figure) if finding.figure else None
    except StudyError as error:
        raise StudyError(f"{place}: figure: {error}") from None


def _select_used(elsewhere: Elsewhere, uses: Callable[[Any], bool]) -> dict[str, tuple[PlannedRun, ...]]:
    return {machine: tuple(filter(uses, runs)) for machine, runs in elsewhere.items()}
