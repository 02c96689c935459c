"""The table of each paper's claims, as the paper's ``claims.yaml`` declares it."""

from collections.abc import Callable

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.study import Study
from study.report.papers import claims_of_experiments, claims_of_points
from study.report.papers.claims import ENDS, labels_of, recomputed, remarks
from study.report.papers.declaration import Declared, declared, papers
from study.report.tables.ensembles import gives_rates, has_ensembles, is_of_members
from study.report.tables.layout import Table
from study.report.tables.published_values import NOT_STATED
from study.report.tables.summary import IDENTITY, notes, optional_columns, steady

# {``runs.give``: (which runs the table is made from, which runs a study needs for it besides ensembles)}.
GIVE: dict[str, tuple[kinds.Uses, kinds.Uses | None]] = {
    "timings": (kinds.gives_timings, None), "rates of members": (is_of_members, gives_rates),
}  # fmt: skip
OF_RUNS = ["value", "lowest", "highest", "interval_low", "interval_high", "pairing", "repeats", "repeats_failed",
           "series", NOT_STATED]  # fmt: skip
OPTIONAL = ("machine", "oversubscribed", *OF_RUNS[1:], "contradiction")


def _of_its_benchmarks(paper: Declared, gives: kinds.Uses) -> kinds.Uses:
    """Whether a run, planned or of the tidy table, is of the paper's networks and gives what its claims need."""
    benchmarks = paper.table["runs"].get("benchmarks")
    return lambda run: gives(run) and (benchmarks is None or run["benchmark"] in benchmarks)


def _is_there(paper: Declared, besides: kinds.Uses | None) -> Callable[[Study], bool] | None:
    """Whether a study has the table; None for the usual condition."""
    if besides is None:
        return None
    uses = _of_its_benchmarks(paper, besides)
    return lambda study: has_ensembles(study) or any(map(uses, study.runs))


def _uses(paper: Declared) -> kinds.Uses:
    """Which runs the claims are made from, planned or of the tidy table."""
    if paper.points:
        return lambda run: any(points.uses(run) for points in paper.points.values())
    return _of_its_benchmarks(paper, GIVE[paper.table["runs"]["give"]][0])


def _make_of_points(paper: Declared) -> kinds.Make:
    """The claims by points, one per row: from our runs, and from the paper's own tables."""
    of_runs = [name for name in OF_RUNS if name != "series"]
    shown = ["quantity", "measure", "at", "unit", "machine", *of_runs, *ENDS, "stated", "source", "paper_section"]
    optional = ("machine", *of_runs[1:], "contradiction")

    def make(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
        frame = claims_of_points.recomputed(paper, runs)
        told = remarks(frame) + notes(frame, share_runs=True)
        columns = [*shown, "contradiction", "missing"]
        return Table(f"{paper.paper}_claims", paper.table["caption"], frame, columns, optional, told)

    return make


def _make_of_experiments(paper: Declared) -> kinds.Make:
    """The claims by experiments, one per row and experiment: from our runs, and the printed numbers."""
    shown = ["machine", "benchmark", "scaling", "batch_scaling", "batch_size", "quantity", "unit", "gpus", "loader",
             "input_pipeline", "low", "high", "interval_low", "interval_high", "load_share_pct", "measured_gpus",
             "repeats", "repeats_failed", "pairing", NOT_STATED, "published_machine", "published_low", "published_high",
             "paper_section", "note", "missing"]  # fmt: skip
    hidden = (*optional_columns(shown), "batch_size", "note", "interval_low", "interval_high")
    optional = tuple(name for name in hidden if name != "input_pipeline")
    labels = claims_of_experiments.LABELS
    identity = (*labels, "published_machine", *(name for name in IDENTITY if name not in labels))

    def make(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
        frame = claims_of_experiments.recomputed(paper, runs, loading)
        told = remarks(frame) + notes(frame, share_runs=True)
        return Table(f"{paper.paper}_claims", paper.table["caption"], frame, shown, optional, told, identity)

    return make


def _make(paper: Declared) -> kinds.Make:
    """The claims, one per row: from our runs, and from the published numbers alone, which need no run."""
    labels = labels_of(paper)
    after = [name for name in labels if name not in ("quantity", "benchmark", "at", "unit", "contradiction")]
    shown = [*labels[:4], "machine", *OF_RUNS, *ENDS, *after, "paper_section", "contradiction"]
    shown += ["oversubscribed", "missing"]

    def make(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
        frame = recomputed(paper, steady(runs) if paper.table.get("without_first_epoch") else runs)
        told = remarks(frame) + notes(frame, share_runs=True)
        return Table(f"{paper.paper}_claims", paper.table["caption"], frame, shown, OPTIONAL, told)

    return make


def _register(paper: Declared) -> None:
    besides = None if paper.points else GIVE[paper.table["runs"]["give"]][1]
    make = _make_of_experiments if paper.quantities else _make_of_points if paper.points else _make
    uses = _uses(paper)
    kinds.table(
        f"{paper.paper}_claims",
        title=paper.table["title"],
        look_for=paper.table["look_for"],
        needs=paper.table.get("needs", kinds.NEEDS_TIMINGS),
        uses=uses,
        uses_loading=bool(paper.quantities),
        is_there=(lambda study: any(map(uses, study.runs))) if paper.quantities else _is_there(paper, besides),
        compares_runs=True,
        reads_further=paper.table.get("further_results", False),
    )(make(paper))


for _paper in papers():
    _register(declared(_paper))
