"""Our own table: how well the members of an ensemble predict together, beside each of them."""

from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import difference
from study.records.names import runs_of
from study.report.tables.ensembles import MEASURED, gives_rates
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

ACCURACIES = ("member_test_accuracy", "vote_test_accuracy", "mean_test_accuracy")
GAINS = {"vote_gain": "vote_test_accuracy", "mean_gain": "mean_test_accuracy"}  # over one member, of the same run
REASON = "ensemble_accuracy_reason"


def predicts(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, trains several members."""
    return gives_rates(run) and run["ensemble"] > 1 and run["measure"] == "train" and run["compute"] == MEASURED


@kinds.table(
    "ensemble_accuracy",
    title="Accuracy of the members together",
    look_for="Whether the members predict better together than one of them: vote_gain and mean_gain are above 0 by "
    "more than their intervals. Of two members, the vote is that of the first one.",
    needs="runs of an ensemble (ensemble above 1) that trains",
    uses=predicts,
)
def ensemble_accuracy(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per ensemble: accuracy of a member, of the majority vote and of the mean of the probabilities."""
    member = runs["member_test_accuracy"].astype(float)
    known = runs.assign(**{gain: difference(runs[column].astype(float), member) for gain, column in GAINS.items()})
    table = points(known, ["voting_members", *ACCURACIES, *GAINS])
    table[REASON] = [_reasons(runs_of(known, records)) for records in table["records"]]
    order = ["benchmark", "dataset", "ensemble", "input_sharing"]
    table = table.sort_values(order, ignore_index=True)
    shown = ["benchmark", "ensemble", "members", "voting_members", *ACCURACIES, *GAINS, REASON, "repeats_ok",
             "repeats_failed", "failures"]  # fmt: skip
    caption = (
        "Accuracy on the test set, 0 to 1: means over the repeats with 95 % intervals. Members vote that have "
        "trained to the end. member: of one member, mean over those that vote. vote: of the class that most of them "
        "predict; a tie is decided by the first member that predicts one of the tied classes. mean: of the class "
        "with the highest mean probability. vote_gain, mean_gain: vote or mean less member, in the same run."
    )
    optional = (*optional_columns(shown), REASON)
    return Table("ensemble_accuracy", caption, table, shown, optional, notes(table, "values"), IDENTITY)


def _reasons(repeats: pd.DataFrame) -> str | None:
    return "; ".join(repeats[REASON].dropna().unique()) or None
