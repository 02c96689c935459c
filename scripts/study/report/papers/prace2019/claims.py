"""The PRACE guide's claims, from its printed numbers and from this study's runs by the same formulas.

``config/papers/prace2019/prace2019_claims.csv`` declares them, see `study.report.papers.claims`; the published side is
in `study.report.papers.prace2019.published`.
"""

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.papers.claims import OPTIONAL, SHOWN, Side, recomputed, remarks
from study.report.papers.prace2019.published import number
from study.report.papers.prace2019.workload import PAPER, workload_difference
from study.report.tables.layout import Table
from study.report.tables.summary import notes, steady

SIDE = Side(PAPER, number, workload_difference, "any network")


@kinds.table(
    "prace2019_claims",
    title="The guide's claims, recomputed",
    look_for="What the guide says about input, scaling and Keras's training loop, beside the same from these runs with "
    "an interval; where the guide contradicts itself, and what cannot be compared.",
    needs="runs that give timings",
    uses=kinds.runs(),
    compares_runs=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim: from our runs, and from the published numbers alone, which need no run.

    If runs of several networks or rank counts give a number, ``value`` is the mean, and there is no interval.
    """
    frame = recomputed("prace2019_claims.csv", steady(runs), SIDE)
    caption = (
        "the guide's claims: published_value: from its printed numbers; value: from this study's runs by the same "
        "formula, from times per step without the first epoch; lowest and highest: over several networks or rank "
        "counts (series); interval: 95 %, of ratios over the blocks (repeats) if both were run interleaved; stated: "
        "what the text says; published: prace2019, sections 6.1 to 6.4, without repeats or intervals."
    )
    return Table("prace2019_claims", caption, frame, SHOWN, OPTIONAL, remarks(frame) + notes(frame, "values"))
