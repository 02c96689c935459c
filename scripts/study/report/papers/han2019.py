"""Table I of the Han paper beside this study's runs."""

from typing import Any

import pandas as pd

from study.experiment.parameters import is_observed
from study.report.papers.published_tables import networks
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import read_published

MODELS = "han2019_table1_models.csv"


def is_of_paper(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives timings of one of the paper's networks (Table I)."""
    return is_observed(run, None) and run["benchmark"] in set(read_published(MODELS)["benchmark"])


@table_rows("han2019_table1", uses=is_of_paper)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Table I: layers and parameters of each network, as recorded by its runs and as printed."""
    return Rows(networks(runs, MODELS, ["conv_layers", "fc_layers", "parameters"]))
