"""Whether a rank count reaches an accuracy, or fits into GPU memory, as far as measured runs tell.

Accuracy is not extrapolated. With equal batches of a rank it is assumed to fall with the learning rate at the same
number of epochs, and to rise with the epochs at the same learning rate. ICPP 2019 shows the first: NT3 with 8 epochs
per rank reaches 1.0 on 48 GPUs and 0.61 to 0.64 on 96 (Table 6 and section 4.2.1), where the linear scaling rule
doubles the rate.
"""

from __future__ import annotations

import pandas as pd

from study.prediction.settings import SERIES

MET, NOT_MET, UNKNOWN = "met", "not met", "unknown"


def judge_accuracies(observations: pd.DataFrame, candidates: pd.DataFrame, quantity: str, least: float) -> list[str]:
    """`MET`, `NOT_MET` or `UNKNOWN` for each candidate.

    A candidate that was measured has its own verdict, whatever its learning rate. Another one meets the limit if a
    measured point with its batch of a rank did with at least its learning rate and at most its epochs. It does not if
    such a point failed to with at most its rate and at least its epochs. Where the rates are not known, as of commands,
    nothing is known of it. Both frames have the columns of `SERIES`, ranks, batch, learning_rate (by the scaling rule,
    as a schedule changes that of the last epoch) and epochs_per_rank, the observations also ``quantity``.
    """
    measured = observations[observations[quantity].notna()]
    return [
        _judge_accuracy(row, measured[measured["batch"] == row["batch"]], quantity, least)
        for _, row in candidates.iterrows()
    ]


def _judge_accuracy(row: pd.Series, measured: pd.DataFrame, quantity: str, least: float) -> str:
    rate, epochs = row["learning_rate"], row["epochs_per_rank"]
    same = ["ranks", "epochs_per_rank", *SERIES]
    own = measured[(measured[same] == row[same]).all(axis=1)]
    if len(own):
        return MET if (own[quantity] >= least).all() else NOT_MET
    good, bad = measured[measured[quantity] >= least], measured[measured[quantity] < least]
    if ((bad["learning_rate"] <= rate) & (bad["epochs_per_rank"] >= epochs)).any():
        return NOT_MET
    if ((good["learning_rate"] >= rate) & (good["epochs_per_rank"] <= epochs)).any():
        return MET
    return UNKNOWN


def judge_memory(observations: pd.DataFrame, candidates: pd.DataFrame, quantity: str, most: float) -> list[str]:
    """`MET`, `NOT_MET` or `UNKNOWN` for each candidate: whether a rank's GPU needs at most so much memory.

    Every rank holds the whole model, so the memory is assumed to grow with the batch of a rank only. A candidate meets
    the limit if a measured point with at least its batch did, and does not if one with at most its batch did not. Its
    own measurement decides. Columns as for `judge_accuracies`.
    """
    measured = observations[observations[quantity].notna()]
    return [_judge_memory_of_candidate(row, measured, quantity, most) for _, row in candidates.iterrows()]


def _judge_memory_of_candidate(row: pd.Series, measured: pd.DataFrame, quantity: str, most: float) -> str:
    own = measured[(measured["ranks"] == row["ranks"]) & (measured["batch"] == row["batch"])]
    if len(own):
        return MET if (own[quantity] <= most).all() else NOT_MET
    fits = measured[quantity] <= most
    if (~fits & (measured["batch"] <= row["batch"])).any():
        return NOT_MET
    return MET if (fits & (measured["batch"] >= row["batch"])).any() else UNKNOWN
