"""The ICPP paper's quantities that no declaration can express; its ``claims.yaml`` has the others."""

import math

import pandas as pd

from study.compare.estimates import Estimate
from study.report.formulas import find_first_lasting
from study.report.papers.claim_arms import Arms
from study.report.papers.claim_estimates import OWN_FORMS, Answer
from study.report.papers.declaration import Claim
from study.report.tables.layout import ci95_name
from study.report.tables.summary import points

FALL = 0.05  # accuracy has fallen where it is this far below the best of the experiment
GROWTH_SIGN = "validation_growth_sign_accuracy"  # what the paper's accuracy of P1B3 is compared with


@OWN_FORMS.register("loading_dominates_from")
def loading_dominates_from(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Number of ranks from which on loading takes longer than training: load_s > train_s (docs/method.md)."""
    excess, ratio = "load_minus_train_s", "load_to_train_ratio"
    averages = average_by_ranks(runs, excess, ratio)
    if averages.empty:
        return None
    largest = f"at most {averages[ratio].max():.0%} of train_s on {list_ranks(averages)} ranks"
    otherwise = f"loading does not dominate in these runs: {largest}"
    return answer_threshold(runs, averages, averages[excess], averages[ci95_name(excess)], otherwise)


@OWN_FORMS.register("accuracy_falls_from")
def accuracy_falls_from(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Number of ranks from which on the training accuracy is more than `FALL` below the experiment's best."""
    averages = average_by_ranks(runs, "accuracy")
    if averages.empty:
        return None
    fall = averages["accuracy"].max() - FALL - averages["accuracy"]
    otherwise = f"the accuracy does not fall in these runs, on {list_ranks(averages)} ranks"
    return answer_threshold(runs, averages, fall, averages[ci95_name("accuracy")], otherwise)


@OWN_FORMS.register("epochs_per_rank_needed")
def epochs_per_rank_needed(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Epochs of a rank on the largest number of ranks below `accuracy_falls_from`."""
    falls = accuracy_falls_from(claim, runs)
    if falls is None or math.isnan(falls.estimate.value):
        return falls
    averages = average_by_ranks(runs, "accuracy")
    before = averages[averages["gpus"] < falls.estimate.value].iloc[-1]
    return answer_from_points(runs, averages, before["epochs_per_rank"])


@OWN_FORMS.register("accuracy_gain")
def accuracy_gain(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Best accuracy on the claim's number of ranks or more, less the best on fewer.

    The interval is that of both means; there is none where one of them was chosen as the best of several.
    """
    accuracy = GROWTH_SIGN if claim.benchmark == "p1b3" else "accuracy"
    averages = average_by_ranks(runs, accuracy)
    many = averages["gpus"] >= claim.at["gpus"]
    if averages.empty:
        return None
    if not many.any() or many.all():
        needed = f"runs on {claim.at['gpus']} ranks or more, and on fewer; these are on {list_ranks(averages)}"
        return answer_from_points(runs, averages, math.nan, missing=needed)
    more, fewer = (averages.loc[part[accuracy].idxmax()] for part in (averages[many], averages[~many]))
    gain = more[accuracy] - fewer[accuracy]
    was_chosen = many.sum() > 1 or (~many).sum() > 1
    half = math.nan if was_chosen else math.hypot(more[ci95_name(accuracy)], fewer[ci95_name(accuracy)])
    return answer_from_points(runs, averages, gain, gain - half, gain + half)


def average_by_ranks(runs: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """The points of an experiment with a value of the first measure, by number of ranks."""
    return points(runs, list(measures)).dropna(subset=[measures[0]]).sort_values("gpus")


def answer_from_points(
    runs: pd.DataFrame, averages: pd.DataFrame, value: float, low: float = math.nan, high: float = math.nan,
    missing: str | None = None,
) -> Answer:  # fmt: skip
    """The answer of an experiment's points, which `average_by_ranks` gives, with the runs behind them."""
    estimate = Estimate(float(value), low, high, int(averages["repeats_ok"].min()))
    return Answer(estimate, Arms(runs[runs["gpus"].isin(averages["gpus"])]), missing=missing)


def list_ranks(averages: pd.DataFrame) -> str:
    """The rank counts of points in a message."""
    return ", ".join(map(str, averages["gpus"]))


def answer_threshold(
    runs: pd.DataFrame, averages: pd.DataFrame, excess: pd.Series, half: pd.Series, otherwise: str
) -> Answer:
    """Where an excess becomes positive for good: by its means, and by the ends of its 95 % intervals (half-width).

    otherwise: what to say if it does not.
    """
    excess, half = (pd.Series(each.to_numpy(), averages["gpus"]) for each in (excess, half))
    first = find_first_lasting(excess)
    possible, certain = (
        math.nan if half.isna().any() else find_first_lasting(excess + sign * half) for sign in (1, -1)
    )
    return answer_from_points(runs, averages, first, possible, certain, otherwise if math.isnan(first) else None)
