"""Whether a rank count reaches an accuracy, or fits into GPU memory, as far as measured runs tell.

Accuracy is not extrapolated. With equal batches of a rank it is assumed to fall with the learning rate at the same
number of epochs, and to rise with the epochs at the same learning rate. ICPP 2019 shows the first: NT3 with 8 epochs
per rank reaches 1.0 on 48 GPUs and 0.61 to 0.64 on 96 (Table 6 and section 4.2.1), where the linear scaling rule
doubles the rate. Every rank holds the whole model, so memory is assumed to grow with the batch of a rank only.
"""

from __future__ import annotations

import pandas as pd

from study.prediction.goals import Limit
from study.prediction.settings import GPU_MEMORY, SERIES

MET, NOT_MET, UNKNOWN = "met", "not met", "unknown"


def judge_limit(observations: pd.DataFrame, candidates: pd.DataFrame, limit: Limit) -> list[str]:
    """`MET`, `NOT_MET` or `UNKNOWN` for each candidate, of a limit of accuracy or of GPU memory.

    A candidate that was measured has its own verdict. Another one meets the limit if a measured point did that had it
    no easier, and does not if such a point failed that had it no harder. Where learning rates are not known, as of
    commands, nothing is known of the accuracy.

    Args:
        observations: with the limit's quantity, `SERIES` and the columns of ``candidates``.
        candidates: with ranks, batch and, for accuracies, `SERIES`, epochs_per_rank and learning_rate (by the scaling
            rule, as a schedule changes that of the last epoch).
        limit: of the quantity.
    """
    measured = observations[observations[limit.quantity].notna()]
    judge = _judge_memory if limit.quantity == GPU_MEMORY else _judge_accuracy
    return [judge(measured, limit.is_met(measured[limit.quantity]), row) for _, row in candidates.iterrows()]


def _judge_accuracy(measured: pd.DataFrame, is_met: pd.Series, row: pd.Series) -> str:
    same = ["ranks", "epochs_per_rank", "batch", *SERIES]
    rate, epochs = (
        measured["learning_rate"] - row["learning_rate"],
        measured["epochs_per_rank"] - row["epochs_per_rank"],
    )
    is_alike = measured["batch"] == row["batch"]
    is_own = (measured[same] == row[same]).all(axis=1)
    return _judge(is_met, is_own, is_alike & (rate >= 0) & (epochs <= 0), is_alike & (rate <= 0) & (epochs >= 0))


def _judge_memory(measured: pd.DataFrame, is_met: pd.Series, row: pd.Series) -> str:
    is_own = (measured["ranks"] == row["ranks"]) & (measured["batch"] == row["batch"])
    return _judge(is_met, is_own, measured["batch"] >= row["batch"], measured["batch"] <= row["batch"])


def _judge(is_met: pd.Series, is_own: pd.Series, is_harder: pd.Series, is_easier: pd.Series) -> str:
    """The verdict by the candidate's own points, else by those for which the limit is harder or easier to meet."""
    if is_own.any():
        return MET if is_met[is_own].all() else NOT_MET
    if (~is_met & is_easier).any():
        return NOT_MET
    return MET if (is_met & is_harder).any() else UNKNOWN
