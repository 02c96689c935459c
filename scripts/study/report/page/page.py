"""The report: how many ranks, findings, recommendation, failures, machine, tables, figures, runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import failed_runs, rank_answer
from study.core import paths, validation
from study.core.files import check_links_inside
from study.experiment.study import Study
from study.records import attempts, tidy
from study.records.failures import message, run_name
from study.report import sources
from study.report.figures.description import load_description
from study.report.findings.outcome import VERDICTS, Outcome
from study.report.page import appendix, assets, files, machine, tables
from study.report.page.links import Embedding, Link, RecordLinks
from study.report.tables import TABLES

RECOMMENDATION_TABLES = {
    "recommendation": "The candidates",
    "prediction": "Predicted and measured values",
    "prediction_check": "How well held-out rank counts are predicted",
}
CURVES = "prediction_curves"
FAILURE_COLUMNS = ["what", "kind", "phase", "message", "expected because", "record"]
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
    """The results of ``make recommend`` for one goal."""

    goal: str
    sentences: list[str]
    curves: Figure | None
    tables: list[tables.View]
    later_runs: int  # that began after it was made


@dataclass(frozen=True)
class ShownFinding:
    """A finding with its figure, a link to its table, and links to its runs.

    above: an earlier finding with the same figure, which is not drawn twice.
    """

    finding: Outcome
    figure: Figure | None
    above: Link | None
    table: Link | None
    runs: list[Link]
    left_out: list[tuple[Link, str]]


@dataclass(frozen=True)
class LinkedAnswer:
    """An answer to how many ranks a job deserves, with links to its runs."""

    answer: rank_answer.Answer
    runs: list[Link]


@dataclass(frozen=True)
class SoFar:
    """The rows of the runs and loads that have ended while a study runs, and their findings."""

    runs: pd.DataFrame
    loading: pd.DataFrame
    findings: list[Outcome]


def make_page(study: Study, settings: dict[str, Any], folder: Path, so_far: SoFar | None = None) -> str:
    """Make the report as HTML.

    Args:
        study: the expanded study.
        settings: the machine's YAML with its name.
        folder: the study's results folder, which has ``runs.csv`` and ``loading.csv``; tables, figures, findings and
            recommendations that are not in it are left out, and so are those that the study does not declare.
        so_far: while the study runs, what the page shows instead of the files in ``folder``, which may be older.

    Raises `StudyError` for a file that cannot be read, and for a link in ``folder`` that leaves the machine's results.
    """
    check_links_inside(folder, folder.parents[1])
    return _Report(study, settings, folder, so_far).make_html()


class _Report:
    """Collects what the template shows."""

    def __init__(self, study: Study, settings: dict[str, Any], folder: Path, so_far: SoFar | None) -> None:
        self.study, self.settings, self.folder = study, settings, folder
        self.is_whole = so_far is None
        content = so_far or SoFar(
            tidy.read_runs(folder / "runs.csv"),
            tidy.read_loading(folder / "loading.csv"),
            read_findings(folder) if study.findings else [],
        )
        self.runs, self.loading, self.findings = content.runs, content.loading, content.findings
        self.records = RecordLinks(self.runs, self.loading)
        self.goals = files.list_goal_folders(folder) if self.is_whole else []
        self.drawn: dict[str, Link] = {}  # figures of findings, and the finding that has each
        self.space = Embedding(folder, len(study.tables) + len(RECOMMENDATION_TABLES) * len(self.goals))
        self.own = Embedding(folder, 1)  # of the report's own tables, which are whole: links lead to their rows

    def make_html(self) -> str:
        """Make the page; what comes first in it is embedded first."""
        on = machine.describe_machine(self.settings, self.runs, self.loading, self.folder.parents[1])
        return assets.make_environment().get_template("report.html").render(
            study=self.study,
            machine=on,
            findings=[self.make_finding(each) for each in self.findings],
            verdicts=VERDICTS,
            answers=[
                LinkedAnswer(each, self.records.make_links(each.records))
                for each in rank_answer.answer_workloads(self.runs)
            ],
            rule=rank_answer.RULE,
            recommendations=[self.make_recommendation(goal) for goal in self.goals],
            failures=self.make_failures_table(),
            shown_tables=[view for name in self.study.tables if (view := self.make_table(name))],
            figures=[figure for name in self.study.figures if (figure := self.make_figure(name))],
            counts=self.count_results(),
            measured=self.describe_time(),
            attempts=attempts.describe_attempts(self.folder) if self.is_whole else [],
            runs=appendix.make_runs_table(self.runs, self.records, self.own),
            listed=appendix.list_runs(self.records),
            loads=appendix.list_loads(self.loading, self.records),
            files=[self.space.make_link(self.folder / name) for name in ("runs.csv", "loading.csv") if self.is_whole],
            runs_to_come=0 if self.is_whole else len(self.study.runs) - len(self.runs),
            attempts_file=self.space.make_link(self.folder / attempts.FILE),
            style=assets.load_style(),
            script=assets.load_script(),
            library=assets.load_library(),
            policy=assets.make_content_policy(),
        )  # fmt: skip

    def count_results(self) -> dict[str, int]:
        """Count runs, also failed, unproven and disturbed ones, loads and findings for the head of the page."""
        failed = int((self.runs["status"] != "ok").sum()) if len(self.runs) else 0
        unproven = int(failed_runs.mark_unproven(self.runs).sum())
        return {
            "runs": len(self.runs),
            "failed": failed,
            "unproven": unproven,
            "disturbed": int(self.runs["disturbed"].eq(True).sum()) if "disturbed" in self.runs else 0,
            "loads": len(self.loading),
            "findings": len(self.findings),
        }

    def describe_time(self) -> str:
        """Describe when the first run started and the last one ended; empty without runs."""
        started = pd.to_datetime(pd.to_numeric(self.runs["started_wall_ns"])).dropna()
        ended = started + pd.to_timedelta(self.runs["runtime_s"], unit="s").fillna(pd.Timedelta(0))
        return f"{started.min():%Y-%m-%d %H:%M} to {ended.max():%Y-%m-%d %H:%M} UTC" if len(started) else ""

    def is_shown(self, path: Path) -> bool:
        """True if a result can be shown; while the study runs, those in its folder are of an earlier call."""
        return self.is_whole and path.exists()

    def make_table(self, name: str) -> tables.View | None:
        """Read a table of the study; None if it was not made."""
        folder, kind = self.folder / "tables", TABLES[name]
        if not self.is_shown(folder / f"{name}.csv") or not self.is_shown(folder / f"{name}.md"):
            return None
        return tables.read_view(folder, name, kind.title, kind.look_for, self.records, self.space)

    def make_figure(self, name: str) -> Figure | None:
        """Make a figure of the study with its links; None if it was not drawn."""
        description = load_description(name)
        used = sources.select_figure_sources(self.study, name)
        runs = self.records.make_links(str(Path(paths.locate_record(".", run.directory))) for run in used.runs)
        path = self.folder / "figures" / name
        return self.make_file_figure(f"figure-{name}", path, description.title, description.caption, runs)

    def make_file_figure(self, key: str, path: Path, title: str, look_for: str, runs: list[Link]) -> Figure | None:
        """Make the figure of the files ``path``.svg and ``path``.pdf; None if there are none."""
        image, print_form = path.with_name(f"{path.name}.svg"), path.with_name(f"{path.name}.pdf")
        if not self.is_shown(image):
            return None
        links = [self.space.make_link(each) for each in (image, print_form) if each.exists()]
        return Figure(key, title, look_for, self.space.embed_figure(image), links, runs)

    def make_finding(self, finding: Outcome) -> ShownFinding:
        """Make a finding's part of the page, with its figure and links."""
        above = self.drawn.get(finding.figure or "")
        figure = None
        if finding.figure and not above:
            figure = self.make_file_figure(
                f"finding-figure-{finding.name}", self.folder / "figures" / finding.figure, finding.title,
                finding.look_for or "", [],
            )  # fmt: skip
        if figure and finding.figure:
            self.drawn[finding.figure] = Link(finding.title, f"#finding-{finding.name}")
        left_out = [(self.records.make_link(each["record"]), each["reason"]) for each in finding.left_out]
        return ShownFinding(finding, figure, above, self.make_table_link(finding.table),
                            self.records.make_links(finding.records),
                     left_out)  # fmt: skip

    def make_table_link(self, name: str | None) -> Link | None:
        """Link to a table in the page, or to its file if the study does not list it."""
        path = self.folder / "tables" / f"{name}.csv"
        if not name or not self.is_shown(path):
            return None
        return Link(TABLES[name].title, f"#table-{name}") if name in self.study.tables else self.space.make_link(path)

    def make_recommendation(self, folder: Path) -> Recommendation:
        """Read the recommendation in the folder of one goal."""
        views = [
            tables.read_view(folder, name, title, "", self.records, self.space, f"goal-{folder.name}-{name}")
            for name, title in RECOMMENDATION_TABLES.items()
            if (folder / f"{name}.csv").exists() and (folder / f"{name}.md").exists()
        ]
        curves = self.make_file_figure(f"goal-{folder.name}-curves", folder / CURVES, "Predicted and measured values",
                              "Predicted values with their intervals, beside the measured ones.", [])  # fmt: skip
        sentences = [note for view in views for note in view.notes if RECOMMENDED in note]
        made_ns = (folder / "recommendation.csv").stat().st_mtime_ns
        later = int((pd.to_numeric(self.runs["started_wall_ns"]) > made_ns).sum())
        return Recommendation(folder.name, sentences, curves, views, later)

    def make_failures_table(self) -> tables.View | None:
        """Make the table of failed runs and loads; None if nothing failed."""
        failures = list_failures(self.runs, self.loading)
        if failures.empty:
            return None
        return tables.make_view(
            failures, "table-failures", "Failed runs and loads", self.records.make_cell_links, self.own
        )


def read_findings(folder: Path) -> list[Outcome]:
    """Read the findings in a study's folder; none without the file. Raises `StudyError` for a file of another form."""
    path = folder / files.FINDINGS
    if not path.exists():
        return []
    return [Outcome(**entry) for entry in validation.load_valid_json(path, "study_findings")["findings"]]


def list_failures(runs: pd.DataFrame, loading: pd.DataFrame) -> pd.DataFrame:
    """List failed runs and loads, one per row, with `FAILURE_COLUMNS`. runs, loading: the tidy tables."""
    rows = [_make_run_row(run) for run in _select_failed(runs)] + [
        _make_load_row(load) for load in _select_failed(loading)
    ]
    return pd.DataFrame(rows, columns=FAILURE_COLUMNS)


def _select_failed(frame: pd.DataFrame) -> list[dict]:
    """Select the rows whose status is not ok."""
    return frame[frame["status"] != "ok"].to_dict("records") if len(frame) else []


def _make_run_row(run: dict) -> dict:
    """Make the row of a failed run."""
    name = run_name(run["benchmark"], run["scaling"], run["gpus"], run["loader"])
    description = f"{name}, repeat {run['repeat']}"
    cells = (description, run["failure_kind"], run["failure_phase"], message(run["failure_message"]),
             run["may_fail"], run["record"])  # fmt: skip
    return dict(zip(FAILURE_COLUMNS, cells, strict=True))


def _make_load_row(load: dict) -> dict:
    """Make the row of a failed load."""
    description = f"{load['loader']} on {load['benchmark']} {load['file']}"
    return dict(zip(FAILURE_COLUMNS, (description, None, "load", load["message"], None, load["record"]), strict=True))
