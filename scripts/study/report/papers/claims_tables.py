"""The table of each paper's claims, as the paper's ``claims.yaml`` declares it."""

import functools
from collections.abc import Callable
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.parameters.registry import list_observers
from study.experiment.study import Study
from study.report.papers.claims import PUBLISHED, list_workload_differences, recompute_claims
from study.report.papers.declaration import Declared, load_paper, papers
from study.report.tables.ensembles import gives_rates, has_ensembles, is_of_members
from study.report.tables.layout import Table
from study.report.tables.published_values import NOT_STATED
from study.report.tables.summary import IDENTITY, notes, steady


def _gives_timings(run: Any) -> bool:
    """Whether a run gives timings of one network that its ranks train together."""
    return kinds.gives_timings(run) and not is_of_members(run)


def _gives_observed_timings(run: Any) -> bool:
    """Whether a run gives the same, or was profiled or traced."""
    return set(list_observers(run)) <= {"profile", "trace"} and not is_of_members(run)


# {``runs.give``: (which runs the table is made from, which runs a study needs for it besides ensembles)}.
GIVE: dict[str, tuple[kinds.Uses, kinds.Uses | None]] = {
    "timings": (_gives_timings, None),
    "timings, profiles and traces": (_gives_observed_timings, None),
    "rates of members": (is_of_members, gives_rates),
}
SHOWN = ["machine", "quantity", "benchmark", "scaling", "batch_scaling", "batch_size", "at", "unit", "gpus",
         "loader", "input_pipeline", "value", "lowest", "highest", "low", "high", "load_share_pct", "measured_gpus",
         "pairing", "repeats", "repeats_failed", "series", NOT_STATED, "published_machine", *PUBLISHED, "follows_from",
         "not_published", "stated", "paper_section", "contradiction", "note", "oversubscribed",
         "missing"]  # fmt: skip
ALWAYS_SHOWN = ("quantity", "input_pipeline", "value", "published_value", "paper_section", "missing")
LABELS_OF_EXPERIMENTS = ("benchmark", "scaling", "batch_scaling", "quantity", "unit", "gpus", "published_machine")


def _uses_benchmarks(paper: Declared, gives: kinds.Uses) -> kinds.Uses:
    """Whether a run, planned or of the tidy table, is of the paper's networks and gives what its claims need."""
    benchmarks = paper.table["runs"].get("benchmarks")
    return lambda run: gives(run) and (benchmarks is None or run["benchmark"] in benchmarks)


def _find_uses(paper: Declared) -> kinds.Uses:
    """Which runs the claims are made from, planned or of the tidy table."""
    return _uses_benchmarks(paper, GIVE[paper.table["runs"]["give"]][0])


def _find_condition(paper: Declared) -> Callable[[Study], bool] | None:
    """Whether a study has the table; None for the usual condition."""
    if paper.quantities:  # loading measurements alone do not make it
        return lambda study: any(map(_find_uses(paper), study.runs))
    besides = GIVE[paper.table["runs"]["give"]][1]
    if besides is None:
        return None
    uses = _uses_benchmarks(paper, besides)
    return lambda study: has_ensembles(study) or any(map(uses, study.runs))


def _make_claims(paper: Declared, runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """The table of a paper's claims, from our runs and from the published numbers, which need no run."""
    frame = recompute_claims(paper, steady(runs) if paper.table.get("without_first_epoch") else runs, loading)
    remarks = list_workload_differences(frame) + notes(frame, share_runs=True)
    optional = tuple(name for name in SHOWN if name not in ALWAYS_SHOWN)
    identity = tuple(dict.fromkeys((*LABELS_OF_EXPERIMENTS, *IDENTITY))) if paper.quantities else ()
    return Table(f"{paper.paper}_claims", paper.table["caption"], frame, SHOWN, optional, remarks, identity)


def _register(paper: Declared) -> None:
    kinds.table(
        f"{paper.paper}_claims",
        title=paper.table["title"],
        look_for=paper.table["look_for"],
        needs=paper.table.get("needs", kinds.NEEDS_TIMINGS),
        uses=_find_uses(paper),
        uses_loading=bool(paper.quantities),
        is_there=_find_condition(paper),
        compares_runs=True,
        reads_further=paper.table.get("further_results", False),
    )(functools.partial(_make_claims, paper))


for _paper in papers():
    _register(load_paper(_paper))
