"""The Pittman paper's claims, from its printed numbers and from this study's runs by the same formulas.

``config/papers/pittman2018/pittman2018_claims.csv`` declares them, and `study.report.papers.claims` has the formulas.
``derived_by`` and ``of`` name the published side (`study.report.papers.pittman2018.published`), and ``follows_from``
says from which printed numbers it follows. ``not_published`` says why there is no published number, ``contradiction``
where the paper contradicts itself, and ``not_compared`` why no run gives the number.
"""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.study import Study
from study.report.papers.claims import NOTHING, Found, declared, found, missing, numbers
from study.report.papers.pittman2018.published import networks, number
from study.report.papers.pittman2018.workload import workload_difference
from study.report.tables.ensembles import NEEDS, gives_rates, has_ensembles
from study.report.tables.layout import Table
from study.report.tables.summary import notes

FILE = "pittman2018_claims.csv"
# What else differs between runs that differ in a key: each way of sharing has its own number of preprocessing ranks.
FOLLOWS = {"input_sharing": ("preprocessing_ranks",)}
LABELS = ("quantity", "benchmark", "at", "unit", "follows_from", "not_published", "stated", "contradiction")
SHOWN = ["quantity", "benchmark", "at", "unit", "value", "lowest", "highest", "interval_low", "interval_high",
         "pairing", "repeats", "series", "published_value", "published_lowest", "published_highest", "follows_from",
         "not_published", "stated", "paper_section", "contradiction", "missing"]  # fmt: skip


def of_the_paper(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives rates of one of the paper's networks."""
    return gives_rates(run) and run["benchmark"] in networks()


def concerns(study: Study) -> bool:
    """Whether a study has ensembles, or runs of the paper's networks."""
    return has_ensembles(study) or any(map(of_the_paper, study.runs))


@kinds.table(
    "pittman2018_claims",
    title="The paper's claims, recomputed",
    look_for="Each number that the paper prints, what follows from it, and the same from these runs by one formula; "
    "what it does not print, and where it contradicts itself.",
    needs=f"{NEEDS}, or of AlexNet, Inception V1 or VGG-A",
    uses=of_the_paper,
    is_there=concerns,
    compares_runs=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim: from our runs, and from the published numbers alone, which need no run.

    If runs of several ensembles or datasets give a number, ``value`` is the mean, and there is no interval.
    """
    frame = pd.DataFrame([_row(claim, runs) for _, claim in declared(FILE).iterrows()])
    frame = frame.astype({"repeats": "Int64", "series": "Int64"})
    caption = (
        "the paper's claims: published_value from its printed numbers, derived where follows_from says from which; "
        "value from this study's runs by the same formula; lowest and highest: over several ensembles or datasets "
        "(series); interval: 95 %, of ratios over the blocks (repeats) if both were run interleaved; runs with a "
        "simulated accelerator are not among them; published: pittman2018."
    )
    differences = frame["workload_difference"].dropna().unique()
    remarks = [f"not the paper's workload, so no like for like: {each}" for each in differences]
    optional = ("lowest", "highest", "interval_low", "interval_high", "pairing", "repeats", "series", "contradiction")
    return Table("pittman2018_claims", caption, frame, SHOWN, optional, remarks + notes(frame, "values"))


def _row(claim: pd.Series, runs: pd.DataFrame) -> dict[str, Any]:
    ends = ("published_value", "published_lowest", "published_highest")
    labels = {name: claim[name] for name in LABELS}
    labels |= {"paper_section": claim["section"], **dict(zip(ends, number(claim), strict=True))}
    experiments = [] if claim["form"] is None or runs.empty else _found(claim, runs)
    if not experiments:
        told = claim["not_compared"] or missing(claim, runs, "the paper's networks")
        return {**labels, **NOTHING, "missing": told}
    return {**labels, **numbers(experiments, workload_difference)}


def _found(claim: pd.Series, runs: pd.DataFrame) -> list[Found]:
    """The claim's number from each experiment that has one."""
    measure = claim["measure"]
    if measure not in runs:
        return []
    return list(found(claim, runs[(runs["status"] == "ok") & runs[measure].notna()], FOLLOWS))
