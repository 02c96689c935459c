"""The ICPP paper's quantities that no declaration can express; its ``claims.yaml`` has the others."""

import math

import pandas as pd

from study.compare.estimates import Estimate
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
    known = average_by_ranks(runs, excess, ratio)
    if known.empty:
        return None
    largest = f"at most {known[ratio].max():.0%} of train_s on {list_ranks(known)} ranks"
    otherwise = f"loading does not dominate in these runs: {largest}"
    return find_threshold(runs, known, known[excess], known[ci95_name(excess)], otherwise)


@OWN_FORMS.register("accuracy_falls_from")
def accuracy_falls_from(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Number of ranks from which on the training accuracy is more than `FALL` below the experiment's best."""
    known = average_by_ranks(runs, "accuracy")
    if known.empty:
        return None
    fall = known["accuracy"].max() - FALL - known["accuracy"]
    otherwise = f"the accuracy does not fall in these runs, on {list_ranks(known)} ranks"
    return find_threshold(runs, known, fall, known[ci95_name("accuracy")], otherwise)


@OWN_FORMS.register("epochs_per_rank_needed")
def epochs_per_rank_needed(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Epochs of a rank on the largest number of ranks below `accuracy_falls_from`."""
    falls = accuracy_falls_from(claim, runs)
    if falls is None or math.isnan(falls.estimate.value):
        return falls
    known = average_by_ranks(runs, "accuracy")
    before = known[known["gpus"] < falls.estimate.value].iloc[-1]
    return Answer(Estimate(float(before["epochs_per_rank"]), blocks=falls.estimate.blocks), falls.arms)


@OWN_FORMS.register("accuracy_gain")
def accuracy_gain(claim: Claim, runs: pd.DataFrame) -> Answer | None:
    """Best accuracy on the claim's number of ranks or more, less the best on fewer.

    The interval is that of both means; there is none where one of them was chosen as the best of several.
    """
    accuracy = GROWTH_SIGN if claim.benchmark == "p1b3" else "accuracy"
    known = average_by_ranks(runs, accuracy)
    many = known["gpus"] >= claim.at["gpus"]
    if known.empty:
        return None
    if not many.any() or many.all():
        needed = f"runs on {claim.at['gpus']} ranks or more, and on fewer; these are on {list_ranks(known)}"
        return Answer(Estimate(blocks=int(known["repeats_ok"].min())), select_arms(runs, known), missing=needed)
    more, fewer = (known.loc[part[accuracy].idxmax()] for part in (known[many], known[~many]))
    gain = more[accuracy] - fewer[accuracy]
    was_chosen = many.sum() > 1 or (~many).sum() > 1
    half = math.nan if was_chosen else math.hypot(more[ci95_name(accuracy)], fewer[ci95_name(accuracy)])
    return Answer(Estimate(gain, gain - half, gain + half, int(known["repeats_ok"].min())), select_arms(runs, known))


def average_by_ranks(runs: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """The points of an experiment with a value of the first measure, by number of ranks."""
    return points(runs, list(measures)).dropna(subset=[measures[0]]).sort_values("gpus")


def select_arms(runs: pd.DataFrame, known: pd.DataFrame) -> Arms:
    """The runs of an experiment that are behind its points. known: of `average_by_ranks`."""
    return Arms(runs[runs["gpus"].isin(known["gpus"])])


def list_ranks(known: pd.DataFrame) -> str:
    """The rank counts of points in a message."""
    return ", ".join(map(str, known["gpus"]))


def find_first_lasting(known: pd.DataFrame, excess: pd.Series) -> float:
    """The smallest number of ranks from which on ``excess`` is positive, at it and all larger ones; NaN if none.

    known: points in ascending order of ``gpus``.
    """
    below = known.loc[~(excess > 0), "gpus"]
    above = known["gpus"] if below.empty else known.loc[known["gpus"] > below.max(), "gpus"]
    return float(above.min()) if len(above) else math.nan


def find_threshold(
    runs: pd.DataFrame, known: pd.DataFrame, excess: pd.Series, half: pd.Series, otherwise: str
) -> Answer:
    """Where an excess becomes positive for good: by its means, and by the ends of its 95 % intervals (half-width).

    otherwise: what to say if it does not.
    """
    first = find_first_lasting(known, excess)
    possible, certain = (
        math.nan if half.isna().any() else find_first_lasting(known, excess + sign * half) for sign in (1, -1)
    )
    estimate = Estimate(first, possible, certain, int(known["repeats_ok"].min()))
    return Answer(estimate, select_arms(runs, known), missing=otherwise if math.isnan(first) else None)
