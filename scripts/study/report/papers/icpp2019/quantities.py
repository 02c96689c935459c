"""The ICPP paper's quantities that no declaration can express; its ``claims.yaml`` has the others."""

import math

from study.report.papers.quantities import Case, Found, listed, quantity, threshold
from study.report.tables.layout import ci95_name

FALL = 0.05  # accuracy has fallen where it is this far below the best of the experiment
GROWTH_SIGN = "validation_growth_sign_accuracy"  # what the paper's accuracy of P1B3 is compared with


@quantity("loading_dominates_from", measures=("load_minus_train_s", "load_to_train_ratio"))
def loading_dominates_from(case: Case) -> Found:
    """Number of ranks from which on loading takes longer than training: load_s > train_s (docs/method.md)."""
    known = case.of("load_minus_train_s")
    if known.empty:
        return Found()
    largest = f"at most {known['load_to_train_ratio'].max():.0%} of train_s on {listed(known)} ranks"
    otherwise = f"loading does not dominate in these runs: {largest}"
    return threshold(known, known["load_minus_train_s"], known[ci95_name("load_minus_train_s")], otherwise)


@quantity("accuracy_falls_from", measures=("accuracy",))
def accuracy_falls_from(case: Case) -> Found:
    """Number of ranks from which on the training accuracy is more than `FALL` below the experiment's best."""
    known = case.of("accuracy")
    if known.empty:
        return Found()
    fall = known["accuracy"].max() - FALL - known["accuracy"]
    otherwise = f"the accuracy does not fall in these runs, on {listed(known)} ranks"
    return threshold(known, fall, known[ci95_name("accuracy")], otherwise)


@quantity("epochs_per_rank_needed", measures=("accuracy",))
def epochs_per_rank_needed(case: Case) -> Found:
    """Epochs of a rank on the largest number of ranks below `accuracy_falls_from`."""
    falls = accuracy_falls_from(case)
    if falls.points is None or math.isnan(falls.low):
        return falls
    before = falls.points[falls.points["gpus"] < falls.low].iloc[-1]
    return Found(before["epochs_per_rank"], before["epochs_per_rank"], points=falls.points)


@quantity("accuracy_gain", measures=("accuracy", GROWTH_SIGN))
def accuracy_gain(case: Case) -> Found:
    """Best accuracy on the claim's number of ranks or more, less the best on fewer.

    The interval is that of both means; there is none where one of them was chosen as the best of several.
    """
    accuracy = GROWTH_SIGN if case.claim.benchmark == "p1b3" else "accuracy"
    known = case.of(accuracy)
    many = known["gpus"] >= case.claim.at["gpus"]
    if not many.any() or many.all():
        return Found()
    more, fewer = (known.loc[part[accuracy].idxmax()] for part in (known[many], known[~many]))
    gain = more[accuracy] - fewer[accuracy]
    was_chosen = many.sum() > 1 or (~many).sum() > 1
    half = math.nan if was_chosen else math.hypot(more[ci95_name(accuracy)], fewer[ci95_name(accuracy)])
    return Found(gain, gain, gain - half, gain + half, known)
