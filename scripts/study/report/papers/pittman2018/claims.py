"""The Pittman paper's claims, from its printed numbers and from this study's runs by the same formulas.

``config/papers/pittman2018/pittman2018_claims.csv`` declares them, see `study.report.papers.claims`; the published side
is in `study.report.papers.pittman2018.published`. ``follows_from`` says from which printed numbers it follows, and
``not_published`` why there is no published number.
"""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.study import Study
from study.report.papers.claims import OPTIONAL, Side, recomputed, remarks
from study.report.papers.pittman2018.published import networks, number
from study.report.papers.pittman2018.workload import PAPER, workload_difference
from study.report.tables.ensembles import NEEDS, gives_rates, has_ensembles, is_of_members
from study.report.tables.layout import Table
from study.report.tables.summary import NOT_STATED, notes

FILE = "pittman2018_claims.csv"
LABELS = ("quantity", "benchmark", "at", "unit", "follows_from", "not_published", "stated", "contradiction")
SIDE = Side(PAPER, number, workload_difference, "the paper's networks", LABELS)
SHOWN = ["quantity", "benchmark", "at", "unit", "machine", "value", "lowest", "highest", "interval_low",
         "interval_high", "pairing", "repeats", "repeats_failed", "series", NOT_STATED, "published_value",
         "published_lowest", "published_highest", "follows_from", "not_published", "stated", "paper_section",
         "contradiction", "missing"]  # fmt: skip


def of_the_paper(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives rates of one of the paper's networks."""
    return gives_rates(run) and run["benchmark"] in networks()


def of_its_members(run: Any) -> bool:
    """The same, of runs with the pipeline of members, as all of the paper's are."""
    return of_the_paper(run) and is_of_members(run)


def concerns(study: Study) -> bool:
    """Whether a study has ensembles, or runs of the paper's networks."""
    return has_ensembles(study) or any(map(of_the_paper, study.runs))


@kinds.table(
    "pittman2018_claims",
    title="The paper's claims, recomputed",
    look_for="The results that the paper prints as numbers, and what follows from them, beside the same from these "
    "runs by the same formula; what the paper does not print, and where it contradicts itself.",
    needs=f"{NEEDS}, or of AlexNet, Inception V1 or VGG-A",
    uses=of_its_members,
    is_there=concerns,
    compares_runs=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim: from our runs, and from the published numbers alone, which need no run.

    If runs of several ensembles or datasets give a number, ``value`` is the mean, and there is no interval.
    """
    frame = recomputed(FILE, runs, SIDE)
    caption = (
        "the paper's claims: published_value: as printed, or derived from the printed numbers in follows_from; value: "
        "from this study's runs by the same formula; lowest and highest: over several ensembles or datasets (series); "
        "interval: 95 %, of ratios over the blocks (repeats) if both were run interleaved; runs with a simulated "
        "accelerator are left out; published: pittman2018."
    )
    return Table("pittman2018_claims", caption, frame, SHOWN, OPTIONAL, remarks(frame) + notes(frame, "values"))
