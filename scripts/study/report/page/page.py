"""The report: how many ranks, findings, recommendation, failures, machine, tables, figures, runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.core import paths
from study.core.files import check_contained
from study.experiment.study import Study
from study.records import attempts, tidy
from study.report import answer, sources
from study.report.figures.description import describe
from study.report.findings.outcome import Outcome
from study.report.page import appendix, assets, files, findings, machine, tables
from study.report.page.embedding import Embedding
from study.report.page.failures import failures
from study.report.page.links import Link, Records
from study.report.tables import TABLES

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
    later_runs: int  # that began after it was made


@dataclass(frozen=True)
class Shown:
    """A finding with what the page has for it: its figure, a link to its table, links to its runs.

    above: an earlier finding with the same figure, which is not drawn twice.
    """

    finding: Outcome
    figure: Figure | None
    above: Link | None
    table: Link | None
    runs: list[Link]
    left_out: list[tuple[Link, str]]


@dataclass(frozen=True)
class Answered:
    """How many ranks a job deserves, with links to the runs behind it."""

    answer: answer.Answer
    runs: list[Link]


@dataclass(frozen=True)
class SoFar:
    """What there is of a study while it runs: the rows of the runs and loads that have ended, and their findings."""

    runs: pd.DataFrame
    loading: pd.DataFrame
    findings: list[Outcome]


def page(study: Study, settings: dict[str, Any], folder: Path, so_far: SoFar | None = None) -> str:
    """The report as HTML.

    Args:
        study: the expanded study.
        settings: the machine's YAML with its name.
        folder: the study's results folder, which has ``runs.csv`` and ``loading.csv``; tables, figures, findings and
            recommendations that are not in it are left out, and so are those that the study does not declare.
        so_far: while the study runs, what the page shows instead of the files in ``folder``, which may be older.

    Raises `StudyError` for a file that cannot be read, and for a link in ``folder`` that leaves the machine's results.
    """
    check_contained(folder, folder.parents[1])
    return _Report(study, settings, folder, so_far).html()


class _Report:
    """Collects what the template shows."""

    def __init__(self, study: Study, settings: dict[str, Any], folder: Path, so_far: SoFar | None) -> None:
        self.study, self.settings, self.folder = study, settings, folder
        self.is_whole = so_far is None
        shown = so_far or SoFar(
            tidy.read_runs(folder / "runs.csv"),
            tidy.read_loading(folder / "loading.csv"),
            findings.read(folder) if study.findings else [],
        )
        self.runs, self.loading, self.findings = shown.runs, shown.loading, shown.findings
        self.records = Records(self.runs, self.loading)
        self.goals = files.goals(folder) if self.is_whole else []
        self.drawn: dict[str, Link] = {}  # figures of findings, and the finding that has each
        self.space = Embedding(folder, len(study.tables) + len(OF_RECOMMENDATION) * len(self.goals))
        self.own = Embedding(folder, 1)  # of the report's own tables, which are whole: links lead to their rows

    def html(self) -> str:
        """The page; what comes first in it has space first."""
        on = machine.of_study(self.settings, self.runs, self.loading, self.folder.parents[1])
        return assets.environment().get_template("report.html").render(
            study=self.study,
            machine=on,
            findings=[self.shown(each) for each in self.findings],
            verdicts=findings.VERDICTS,
            answers=[Answered(each, self.records.links(each.records)) for each in answer.answers(self.runs)],
            rule=answer.RULE,
            recommendations=[self.recommendation(goal) for goal in self.goals],
            failures=self.failed(),
            shown_tables=[view for name in self.study.tables if (view := self.table(name))],
            figures=[figure for name in self.study.figures if (figure := self.figure(name))],
            counts=self.counts(),
            attempts=attempts.sentences(self.folder) if self.is_whole else [],
            runs=appendix.table_of_runs(self.runs, self.study.runs, self.records, self.own),
            listed=appendix.listed(self.records),
            loads=appendix.loads(self.loading, self.records),
            profiles=appendix.profiles(self.runs, self.records, self.folder.parents[1]),
            files=[self.space.link(self.folder / name) for name in ("runs.csv", "loading.csv") if self.is_whole],
            runs_to_come=0 if self.is_whole else len(self.study.runs) - len(self.runs),
            attempts_file=self.space.link(self.folder / attempts.FILE),
            style=assets.style(),
            script=assets.script(),
            library=assets.library(),
            policy=assets.policy(),
        )  # fmt: skip

    def counts(self) -> dict[str, int]:
        """What the study has, for the head of the page."""
        failed = int((self.runs["status"] != "ok").sum()) if len(self.runs) else 0
        return {"runs": len(self.runs), "failed": failed, "loads": len(self.loading), "findings": len(self.findings)}

    def is_there(self, path: Path) -> bool:
        """Whether a result can be shown; while the study runs, those in its folder are of an earlier call."""
        return self.is_whole and path.exists()

    def table(self, name: str) -> tables.View | None:
        """A table of the study, if it was made."""
        folder, kind = self.folder / "tables", TABLES[name]
        if not self.is_there(folder / f"{name}.csv") or not self.is_there(folder / f"{name}.md"):
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
        if not self.is_there(image):
            return None
        links = [self.space.link(each) for each in (image, print_form) if each.exists()]
        return Figure(key, title, look_for, self.space.figure(image), links, runs)

    def shown(self, finding: Outcome) -> Shown:
        """A finding with its figure and links."""
        above = self.drawn.get(finding.figure or "")
        figure = None
        if finding.figure and not above:
            figure = self.drawing(
                f"finding-figure-{finding.name}", self.folder / "figures" / finding.figure, finding.title,
                finding.look_for or "", [],
            )  # fmt: skip
        if figure and finding.figure:
            self.drawn[finding.figure] = Link(finding.title, f"#finding-{finding.name}")
        left_out = [(self.records.link(each["record"]), each["reason"]) for each in finding.left_out]
        return Shown(finding, figure, above, self.table_link(finding.table), self.records.links(finding.records),
                     left_out)  # fmt: skip

    def table_link(self, name: str | None) -> Link | None:
        """To a table in the page, or to its file if the study does not list it."""
        path = self.folder / "tables" / f"{name}.csv"
        if not name or not self.is_there(path):
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
        made_ns = (folder / "recommendation.csv").stat().st_mtime_ns
        later = int((pd.to_numeric(self.runs["started_wall_ns"]) > made_ns).sum())
        return Recommendation(folder.name, sentences, curves, views, later)

    def failed(self) -> tables.View | None:
        """The failed runs and loads; None if nothing failed."""
        found = failures(self.runs, self.loading)
        if found.empty:
            return None
        return tables.of_frame(found, "table-failures", "Failed runs and loads", self.records.of_cell, self.own)
