"""The claims of the ICPP 2019 paper, computed from this study's runs by the paper's formulas, and its own values."""

import math
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core import configuration
from study.experiment.parameters import PARAMETERS
from study.records import pairing
from study.report.papers.icpp2019.tables import BASE, OPTIMIZED
from study.report.papers.icpp2019.workload import PAPER, workload_difference
from study.report.tables.layout import Table
from study.report.tables.summary import (
    joined_records,
    notes,
    optional_columns,
    points,
    published,
    timed,
)

MEASURES = ["runtime_s", "energy_per_gpu_j", "broadcast_s", "load_s", "time_per_epoch_s",
            "validation_growth_sign_accuracy"]  # fmt: skip
REDUCED = {
    "runtime_reduction": "runtime_s",
    "energy_reduction": "energy_per_gpu_j",
    "broadcast_reduction": "broadcast_s",
}
SAME = ["dataset", "epochs", "batch_size", "learning_rate_scaling", "warmup_epochs", "sharding", "gpus"]


@kinds.table(
    "icpp2019_claims",
    title="The paper's claims, recomputed",
    look_for="Each improvement that the paper states, from our runs by the same formula; where it cannot be "
    "computed, which runs are missing.",
    needs="runs",
    is_there=kinds.runs(),
    compares_runs=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim of the paper: the range of its quantity over our GPU counts, or the runs that are missing.

    A reduction is 100 x (base - optimised) / base of the means over repeats, for each GPU count that has both loaders
    (paper, sections 5 and 6: "up to" is its largest, "between" its smallest and largest). The broadcast is the slowest
    rank's phase; it begins when that rank has its data and so includes waiting for slower ranks, as in the paper's
    timeline. ``loading_dominates_from`` is the smallest number of GPUs from which on loading takes more than half of
    the run. Only points with the paper's batch size count, without staging, sharding, warm-up, checkpoints and
    ``keras_arrays``. ``load_share_pct`` is the largest share of loading in a base run: faster loading can hardly save
    more than that, and a difference beyond it is noise.
    """
    table = points(timed(runs), MEASURES)
    rows = [{**_labels(claim), **_computed(claim, table, runs)} for _, claim in _paper().iterrows()]
    frame = pd.DataFrame(rows).astype({"gpus": "Int64", "repeats": "Int64"})
    shown = ["benchmark", "scaling", "quantity", "unit", "gpus", "loader", "low", "high", "load_share_pct",
             "measured_gpus", "repeats", "pairing", "published_machine", "published_low", "published_high",
             "paper_section", "missing"]  # fmt: skip
    caption = (
        "the paper's claims, computed from this study's runs with the same formula: 100 x (read_csv - chunked) / "
        "read_csv of runtime, energy per GPU or broadcast; low and high are over our GPU counts (measured_gpus); "
        "load_share_pct: the largest share of those read_csv runs that is loading, about the most that can be saved; "
        "repeats: the fewest behind one of those points; pairing: unpaired where the loaders were not run interleaved; "
        "published: icpp2019, sections 4 to 6."
    )
    differences = frame["workload_difference"].dropna().unique()
    remarks = [f"not the paper's workload, so no like for like: {each}" for each in differences]
    return Table("icpp2019_claims", caption, frame, shown, optional_columns(shown), remarks + notes(frame, "values"))


def _paper() -> pd.DataFrame:
    table = published("icpp2019_claims.csv").astype({"gpus": "Int64"})
    return table.astype(object).where(table.notna(), None)


def _labels(claim: pd.Series) -> dict[str, Any]:
    return {
        "benchmark": claim["benchmark"],
        "scaling": claim["scaling"],
        "batch_scaling": claim["batch_scaling"],
        "quantity": claim["quantity"],
        "unit": claim["unit"],
        "gpus": claim["gpus"],
        "loader": claim["loader"],
        "published_machine": claim["machine"],
        "published_low": claim["low"],
        "published_high": claim["high"],
        "paper_section": claim["where"],
    }


NOTHING = {
    "low": math.nan,
    "high": math.nan,
    "load_share_pct": math.nan,
    "measured_gpus": None,
    "repeats": None,
    "pairing": None,
    "missing": None,
    "workload_difference": None,
    "code_is_current": True,
    "records": None,
}


def _computed(claim: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Our range of a claim's quantity and its origin, or what is missing for it."""
    wanted = ["benchmark", "scaling", "batch_scaling", *(["gpus"] if claim["gpus"] else [])]
    chosen = _in_the_paper_s_way(table[(table[wanted] == claim[wanted]).all(axis=1)])
    if claim["quantity"] in REDUCED:
        return _reduction(claim, chosen, REDUCED[claim["quantity"]], runs)
    chosen = chosen[chosen["loader"] == claim["loader"]]
    if claim["quantity"] == "loading_dominates_from":
        return _dominance(claim, chosen)
    return _value(claim, chosen, claim["quantity"])


def _in_the_paper_s_way(table: pd.DataFrame) -> pd.DataFrame:
    """The points run as in the paper: its batch size and its method; only the size of the data may differ."""
    if table.empty:
        return table
    batch_size = configuration.load_named("benchmarks", table["benchmark"].iloc[0])["batch_size"]
    declared = {name: parameter.papers[PAPER] for name, parameter in PARAMETERS.items() if PAPER in parameter.papers}
    way = {"batch_size": batch_size, **declared}
    return table[(table[list(way)] == pd.Series(way)).all(axis=1)]


def _reduction(claim: pd.Series, chosen: pd.DataFrame, measure: str, runs: pd.DataFrame) -> dict[str, Any]:
    base, optimized = (
        chosen[(chosen["loader"] == loader) & chosen[measure].notna()].set_index(SAME) for loader in (BASE, OPTIMIZED)
    )
    both = base.index.intersection(optimized.index)
    if both.empty:
        return NOTHING | {"missing": _missing(claim, chosen, [BASE, OPTIMIZED], measure)}
    values = 100 * (1 - optimized.loc[both, measure] / base.loc[both, measure])
    used = pd.concat([base.loc[both], optimized.loc[both]]).reset_index()
    share = 100 * base.loc[both, "load_s"] / base.loc[both, "runtime_s"]
    most = share.max() if measure == "runtime_s" else math.nan  # not a limit for energy and broadcast
    pairs = zip(optimized.loc[both, "records"], base.loc[both, "records"], strict=True)
    kinds = {pairing.between(runs, one, other, measure).pairing for one, other in pairs}
    together = pairing.PAIRED if kinds == {pairing.PAIRED} else pairing.UNPAIRED
    found = {"low": values.min(), "high": values.max(), "load_share_pct": most, "pairing": together}
    return NOTHING | found | _used(used)


def _value(claim: pd.Series, chosen: pd.DataFrame, measure: str) -> dict[str, Any]:
    known = chosen[chosen[measure].notna()]
    if known.empty:
        return NOTHING | {"missing": _missing(claim, chosen, [claim["loader"]], measure)}
    return NOTHING | {"low": known[measure].min(), "high": known[measure].max(), **_used(known)}


def _dominance(claim: pd.Series, chosen: pd.DataFrame) -> dict[str, Any]:
    known = chosen[chosen["load_s"].notna() & chosen["runtime_s"].notna()]
    if known.empty:
        return NOTHING | {"missing": _missing(claim, chosen, [claim["loader"]], "load_s")}
    share = (known["load_s"] / known["runtime_s"]).groupby(known["gpus"]).median().sort_index()
    below = share[share <= 0.5]
    above = share if below.empty else share[share.index > below.index.max()]
    if above.empty:
        largest = f"at most {share.max():.0%} of the run on {', '.join(map(str, share.index))} ranks"
        return NOTHING | {"missing": f"loading does not dominate in these runs: {largest}", **_used(known)}
    return NOTHING | {"low": above.index.min(), "high": above.index.min(), **_used(known)}


def _used(points_used: pd.DataFrame) -> dict[str, Any]:
    """The GPU counts of a value, and whether its workload is the paper's and its code is current."""
    difference = points_used.apply(workload_difference, axis=1).dropna().unique()
    return {
        "repeats": int(points_used["repeats_ok"].min()),
        "measured_gpus": ", ".join(map(str, sorted(points_used["gpus"].unique()))),
        "workload_difference": f"{points_used['benchmark'].iloc[0]}: {'; or '.join(difference)}"
        if len(difference)
        else None,
        "code_is_current": bool(points_used["code_is_current"].all()),
        "records": joined_records(points_used["records"]),
    }


def _missing(claim: pd.Series, chosen: pd.DataFrame, loaders: list[str], measure: str) -> str:
    """The runs, or the measurement in existing runs, that a claim would need."""
    batch = "" if claim["batch_scaling"] == "none" else f", batch_scaling: {claim['batch_scaling']}"
    where = f" on {claim['gpus']} ranks" if claim["gpus"] else ""
    absent = [loader for loader in loaders if loader not in set(chosen["loader"])]
    if absent:
        return f"runs of {claim['benchmark']}, {claim['scaling']} scaling{batch}, with {' and '.join(absent)}{where}"
    good = chosen[chosen["repeats_ok"] > 0]
    if good.empty:
        return f"good runs: {'; '.join(chosen['failures'].dropna().unique())}"
    if measure == "energy_per_gpu_j":
        return f"energy of these runs: {'; '.join(good['power_reason'].dropna().unique())}"
    return f"runs with both loaders on the same data, epochs and ranks{where}"
