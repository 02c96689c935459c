"""The Han paper's claims, from its printed numbers and from this study's runs by the same formulas.

``config/papers/han2019/han2019_claims.csv`` declares them, see `study.report.papers.claims`; the published side is in
`study.report.papers.han2019.published`.
"""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.experiment.parameters import is_observed
from study.report.papers.claims import OPTIONAL, SHOWN, Side, recomputed, remarks
from study.report.papers.han2019.published import networks, number
from study.report.papers.han2019.workload import PAPER, workload_difference
from study.report.tables.layout import Table
from study.report.tables.summary import notes

FILE = "han2019_claims.csv"
SIDE = Side(PAPER, number, workload_difference, "the paper's networks")


def of_the_paper(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings of one of the paper's networks."""
    return is_observed(run, None) and run["benchmark"] in networks()


@kinds.table(
    "han2019_claims",
    title="The paper's claims, recomputed",
    look_for="The results that the paper prints as numbers, what follows from them, and the same from these runs by "
    "one formula; where the paper contradicts itself, and what cannot be compared.",
    needs="runs of LeNet, AlexNet or ResNet",
    uses=of_the_paper,
    compares_runs=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim: from our runs, and from the published numbers alone, which need no run.

    If runs of several networks or datasets give a number, ``value`` is the mean, and there is no interval.
    """
    frame = recomputed(FILE, runs, SIDE)
    caption = (
        "the paper's claims: published_value from its printed numbers, value from this study's runs by the same "
        "formula; throughput is steady_samples_per_s, that of the training steps of the epochs after the first, which "
        "builds the graph; lowest and highest: over several networks or datasets (series); interval: 95 %, of ratios "
        "over the blocks (repeats) if both were run interleaved; stated: in words, or where the text differs from its "
        "own numbers; a worker here is a rank on one GPU, the paper's is a node of four; published: han2019, sections "
        "II to V."
    )
    return Table("han2019_claims", caption, frame, SHOWN, OPTIONAL, remarks(frame) + notes(frame, "values"))
