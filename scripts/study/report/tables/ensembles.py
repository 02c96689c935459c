"""Which runs the tables of ensembles use, and the measures that they share."""

from typing import Any

import pandas as pd

from study.experiment.ensemble import ALONE
from study.experiment.parameters.registry import observed_by
from study.experiment.study import Study

RATES = ("measure", "compute")  # keys that say what is timed, and on what
DUPLICATED = "duplicated"  # every member preprocesses its own samples: what all ways of sharing are compared with
MEASURED = "measured"  # the members compute; else an accelerator is simulated

NEEDS = "runs of an ensemble (ensemble above 1)"


def gives_rates(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives times or rates: it is observed by no other key."""
    return set(observed_by(run)) <= set(RATES)


def is_of_members(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives times or rates of members, one or many.

    An ordinary run, whose ensemble is 1 too, has another input pipeline than members have.
    """
    return gives_rates(run) and any(run[name] != value for name, value in ALONE.items())


def has_ensembles(study: Study) -> bool:
    """Whether a study has an ensemble that gives times or rates."""
    return any(gives_rates(run) and run["ensemble"] > 1 for run in study.runs)


def training_runs(runs: pd.DataFrame, computes: str | None = MEASURED) -> pd.DataFrame:
    """The runs that train, with `training_s`.

    computes: a value of the key ``compute``; None for any.
    """
    if runs.empty:
        return runs.assign(training_s=None)
    there = runs["measure"].eq("train")
    trained = runs[there & runs["compute"].eq(computes) if computes else there]
    trained = trained.astype(dict.fromkeys(trained.columns[trained.isna().all()], float))  # None cannot be compared
    return trained.assign(training_s=training_s(trained))


def training_s(runs: pd.DataFrame) -> pd.Series:
    """Seconds until the last member has trained: the makespan; of a single job, phase train of the slowest rank."""
    alone = runs["train_s"].astype(float).where(runs["ensemble"].eq(1))
    return runs["makespan_s"].astype(float).fillna(alone)
