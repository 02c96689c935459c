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

    observations, candidates: with ranks, batch and, for accuracies, `SERIES`, epochs_per_rank and learning_rate (by the
    scaling rule, as a schedule changes that of the last epoch), the former also with the limit's quantity.
    """
    measured = observations[observations[limit.quantity].notna()]
    is_met, batches = limit.is_met(measured[limit.quantity]), measured["batch"]
    verdicts = []
    for _, row in candidates.iterrows():
        same, is_harder, is_easier = ["ranks", "batch"], batches >= row["batch"], batches <= row["batch"]
        if limit.quantity != GPU_MEMORY:
            same += ["epochs_per_rank", *SERIES]
            rates, epochs = measured["learning_rate"], measured["epochs_per_rank"]
            is_harder &= is_easier & (rates >= row["learning_rate"]) & (epochs <= row["epochs_per_rank"])
            is_easier &= (
                (batches == row["batch"]) & (rates <= row["learning_rate"]) & (epochs >= row["epochs_per_rank"])
            )
        is_own = (measured[same] == row[same]).all(axis=1)
        if is_own.any():
            verdicts.append(MET if is_met[is_own].all() else NOT_MET)
        elif (~is_met & is_easier).any():
            verdicts.append(NOT_MET)
        else:
            verdicts.append(MET if (is_met & is_harder).any() else UNKNOWN)
    return verdicts
