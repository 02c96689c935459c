"""Our own table: how well the members of an ensemble predict together, beside each of them."""

from typing import Any

import pandas as pd

from study.core.statistics import difference
from study.records.names import runs_of
from study.report.tables.declared import Rows, table_rows
from study.report.tables.ensembles import MEASURED, gives_rates
from study.report.tables.summary import points

ACCURACIES = ("member_test_accuracy", "vote_test_accuracy", "mean_test_accuracy")
GAINS = {"vote_gain": "vote_test_accuracy", "mean_gain": "mean_test_accuracy"}  # over one member, of the same run
REASON = "ensemble_accuracy_reason"


def predicts(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, trains several members."""
    return gives_rates(run) and run["ensemble"] > 1 and run["measure"] == "train" and run["compute"] == MEASURED


@table_rows("ensemble_accuracy", uses=predicts)
def ensemble_accuracy(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per ensemble: accuracy of a member, of the majority vote and of the mean of the probabilities."""
    member = runs["member_test_accuracy"].astype(float)
    known = runs.assign(**{gain: difference(runs[column].astype(float), member) for gain, column in GAINS.items()})
    table = points(known, ["voting_members", *ACCURACIES, *GAINS])
    table[REASON] = [_reasons(runs_of(known, records)) for records in table["records"]]
    order = ["benchmark", "dataset", "ensemble", "input_sharing"]
    table = table.sort_values(order, ignore_index=True)
    return Rows(table)


def _reasons(repeats: pd.DataFrame) -> str | None:
    return "; ".join(repeats[REASON].dropna().unique()) or None
