"""The report: findings, recommendation, failures, machine, tables, figures, runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import paths
from study.core.files import read_json
from study.experiment import schemas
from study.experiment.study import Study
from study.records import tidy
from study.report import sources
from study.report.figures.description import describe
from study.report.page import assets, files, findings, machine, tables
from study.report.page.embedding import Embedding
from study.report.page.failures import failures
from study.report.page.findings import Finding
from study.report.page.links import Link, Records, to_file
from study.report.tables import TABLES

MOST_ROWS = 500  # a study with more runs has a list of links in place of a table of runs
RUN_COLUMNS = [*schemas.separating(), "epochs_per_rank", "batch_size_per_rank", "repeat", "status", "runtime_s",
               "time_per_epoch_s", "accuracy", "loss", "resumed_after_epoch", "code_is_current"]  # fmt: skip
OF_RECOMMENDATION = {
    "recommendation": "The candidates",
    "prediction": "Predicted and measured values",
    "prediction_check": "How well held-out rank counts are predicted",
}
CURVES = "prediction_curves"
RECOMMENDED = ": recommended: "  # in the notes that are recommendations


@dataclass(frozen=True)
class Figure:
    """A figure: its id in the page, heading, what to look for, the image, links to its files, the runs drawn.

    image: a data URI, empty if the file is too large for the page.
    """

    key: str
    title: str
    look_for: str
    image: str
    files: list[Link]
    runs: list[Link]


@dataclass(frozen=True)
class Recommendation:
    """What ``make recommend`` left for one goal."""

    goal: str
    sentences: list[str]
    curves: Figure | None
    tables: list[tables.View]


@dataclass(frozen=True)
class Shown:
    """A finding with what the page has for it: its figure, a link to its table, links to its runs."""

    finding: Finding
    figure: Figure | None
    table: Link | None
    runs: list[Link]
    left_out: list[tuple[Link, str]]


@dataclass(frozen=True)
class Run:
    """An entry of the lists of runs and of loading measurements."""

    key: str
    record: Link
    note: str = ""


@dataclass(frozen=True)
class Profile:
    """The functions of rank 0 of a profiled run that took most time."""

    title: str
    run: Link
    names: list[str]
    rows: list[list[Any]]


def page(study: Study, settings: dict[str, Any], folder: Path) -> str:
    """The report as HTML.

    Args:
        study: the expanded study.
        settings: the machine's YAML with its name.
        folder: the study's results folder, which has ``runs.csv`` and ``loading.csv``; tables, figures, findings and
            recommendations that are not in it are left out.

    Raises `StudyError` for a file that cannot be read.
    """
    return _Report(study, settings, folder).html()


class _Report:
    """Collects what the template shows."""

    def __init__(self, study: Study, settings: dict[str, Any], folder: Path) -> None:
        self.study, self.settings, self.folder = study, settings, folder
        self.runs, self.loading = tidy.read_runs(folder / "runs.csv"), tidy.read_loading(folder / "loading.csv")
        self.records = Records(self.runs, self.loading)
        self.goals = files.goals(folder)
        self.findings = findings.read(folder)
        drawn = len(study.figures) + len(self.findings) + len(self.goals)
        self.space = Embedding(folder, len(study.tables) + len(OF_RECOMMENDATION) * len(self.goals) + 2, drawn)

    def html(self) -> str:
        views = [view for name in self.study.tables if (view := self.table(name))]
        figures = [figure for name in self.study.figures if (figure := self.figure(name))]
        on = machine.of_study(self.settings, self.runs, self.loading, self.folder.parents[1])
        return assets.environment().get_template("report.html").render(
            study=self.study,
            machine=on,
            findings=[self.shown(each) for each in self.findings],
            verdicts=findings.VERDICTS,
            recommendations=[self.recommendation(goal) for goal in self.goals],
            failures=self.failed(),
            shown_tables=views,
            figures=figures,
            counts=self.counts(),
            runs=self.table_of_runs(),
            listed=self.listed(),
            loads=self.loads(),
            profiles=self.profiles(),
            files=[self.space.link(self.folder / name) for name in ("runs.csv", "loading.csv")],
            style=assets.style(),
            script=assets.script(),
            library=assets.library(),
            policy=assets.policy(),
        )  # fmt: skip

    def counts(self) -> dict[str, int]:
        """What the study has, for the head of the page."""
        failed = int((self.runs["status"] != "ok").sum()) if len(self.runs) else 0
        return {"runs": len(self.runs), "failed": failed, "loads": len(self.loading), "findings": len(self.findings)}

    def table(self, name: str) -> tables.View | None:
        """A table of the study, if it was made."""
        folder, kind = self.folder / "tables", TABLES[name]
        if not (folder / f"{name}.csv").exists() or not (folder / f"{name}.md").exists():
            return None
        return tables.from_files(folder, name, kind.title, kind.look_for, self.records, self.space)

    def figure(self, name: str) -> Figure | None:
        """A figure of the study, if it was made."""
        description = describe(name)
        used = sources.of_figure(self.study, name)
        runs = self.records.links(str(Path(paths.record(".", run.directory))) for run in used.runs)
        loads = self.records.loading if used.loading else []
        return self.drawing(f"figure-{name}", self.folder / "figures" / name, description.title, description.caption,
                            [*runs, *self.records.links(loads)])  # fmt: skip

    def drawing(self, key: str, path: Path, title: str, look_for: str, runs: list[Link]) -> Figure | None:
        """The figure of the files ``path``.svg and ``path``.pdf, if there are any."""
        image, print_form = path.with_name(f"{path.name}.svg"), path.with_name(f"{path.name}.pdf")
        if not image.exists():
            return None
        links = [self.space.link(each) for each in (image, print_form) if each.exists()]
        return Figure(key, title, look_for, self.space.figure(image), links, runs)

    def shown(self, finding: Finding) -> Shown:
        """A finding with its figure and links."""
        figure = finding.figure and self.drawing(
            f"finding-figure-{finding.name}", self.folder / "figures" / finding.figure, finding.title,
            finding.look_for or "", [],
        )  # fmt: skip
        left_out = [(self.records.link(each["record"]), each["reason"]) for each in finding.left_out]
        return Shown(finding, figure or None, self.table_link(finding.table), self.records.links(finding.records),
                     left_out)  # fmt: skip

    def table_link(self, name: str | None) -> Link | None:
        """To a table in the page, or to its file if the study does not list it."""
        path = self.folder / "tables" / f"{name}.csv"
        if not name or not path.exists():
            return None
        return Link(TABLES[name].title, f"#table-{name}") if name in self.study.tables else self.space.link(path)

    def recommendation(self, folder: Path) -> Recommendation:
        """What is in the folder of one goal."""
        views = [
            tables.from_files(folder, name, title, "", self.records, self.space, f"goal-{folder.name}-{name}")
            for name, title in OF_RECOMMENDATION.items()
            if (folder / f"{name}.csv").exists() and (folder / f"{name}.md").exists()
        ]
        curves = self.drawing(f"goal-{folder.name}-curves", folder / CURVES, "Predicted and measured values",
                              "Predicted values with their intervals, beside the measured ones.", [])  # fmt: skip
        sentences = [note for view in views for note in view.notes if RECOMMENDED in note]
        return Recommendation(folder.name, sentences, curves, views)

    def failed(self) -> tables.View | None:
        """The failed runs and loads; None if nothing failed."""
        found = failures(self.runs, self.loading)
        return tables.of_frame(found, "table-failures", "Failed runs and loads", self.records.of_cell, self.space,
                               caption="Failed runs and loads, with the reason") if len(found) else None  # fmt: skip

    def table_of_runs(self) -> tables.View | None:
        """Every run, with what tells runs apart; None if there are none, or too many for a table."""
        if not 0 < len(self.runs) <= MOST_ROWS:
            return None
        frame = self.runs[[name for name in (*RUN_COLUMNS, "record") if name in self.runs]].convert_dtypes()
        keys = [self.records.link(record).href.removeprefix("#") for record in frame["record"]]
        return tables.of_frame(frame, "table-runs", "All runs", self.records.to_record, self.space, keys=keys)

    def listed(self) -> list[Run]:
        """Every run as an entry with a link, where there are too many for a table."""
        if len(self.runs) <= MOST_ROWS:
            return []
        return [Run(f"run-{n}", Link(record, to_file(record))) for n, record in enumerate(self.records.runs, 1)]

    def loads(self) -> list[Run]:
        """Every loading measurement."""
        counts = self.loading["record"].value_counts() if len(self.loading) else {}
        return [Run(f"load-{n}", Link(record, to_file(record)), f"{counts[record]} loads")
                for n, record in enumerate(self.records.loading, 1)]  # fmt: skip

    def profiles(self) -> list[Profile]:
        """The top of each profiled run's profile."""
        runs = self.runs
        profiled = runs[runs["profile"].astype(bool) & (runs["status"] == "ok")] if len(runs) else runs
        return [self._profile(run) for run in profiled.to_dict("records")]

    def _profile(self, run: dict[str, Any]) -> Profile:
        top = pd.DataFrame(read_json(self.folder.parents[1] / run["record"])["profile"]["top"])
        title = f"{run['benchmark']}, {run['scaling']} scaling, {run['gpus']} ranks, {run['loader']}"
        return Profile(title, self.records.link(run["record"]), list(top.columns), tables.plain(top))
