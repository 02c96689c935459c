"""The claims of the ICPP 2019 paper, computed from this study's runs by the paper's formulas, and its own values."""

import functools
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.wording import counted
from study.records.names import join_records
from study.report.papers.icpp2019 import quantities
from study.report.papers.icpp2019.quantities import DERIVED, FILE_SPEEDUP, MEASURES, Case, Found
from study.report.papers.icpp2019.tables import BASE, OPTIMIZED
from study.report.papers.icpp2019.workload import PAPER, file_difference, in_the_papers_way, workload_difference
from study.report.papers.points import benchmark as specification
from study.report.tables.layout import Table
from study.report.tables.summary import (
    IDENTITY,
    NOT_STATED,
    not_stated,
    notes,
    optional_columns,
    points,
    published,
)

# An experiment: points that differ in nothing but the number of ranks and the loader.
EXPERIMENT = [name for name in IDENTITY if name not in ("gpus", "loader")]
OF_A_MACHINE = ("machine", "memory_mode")
LABELS = ["benchmark", "scaling", "batch_scaling", "quantity", "unit", "gpus"]


@kinds.table(
    "icpp2019_claims",
    title="The paper's claims, recomputed",
    look_for="Each claim of the paper with a number, from our runs by the same formula; where it cannot be "
    "computed, which runs are missing.",
    needs=kinds.NEEDS_TIMINGS,
    uses=kinds.runs(),
    uses_loading=True,
    is_there=lambda study: any(map(kinds.runs(), study.runs)),
    compares_runs=True,
    reads_further=True,
)
def claims(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per claim and experiment: the range of its quantity over our numbers of ranks, or what is missing.

    `study.report.papers.icpp2019.quantities` has a function for each quantity. Only points trained in the paper's way
    and with the claim's batch size count. Points of two experiments (machines, datasets, input pipelines, loaders where
    the claim names none) are never in one row. The paper's machines fill their own rows only; runs of any other machine
    have rows of their own, with that machine in ``machine``.
    """
    runs = runs.assign(**{name: derive(runs) for name, derive in DERIVED.items()})
    table = in_the_papers_way(points(runs, list(MEASURES)))
    rows = [
        row
        for _, claim in _paper().iterrows()
        for row in (_file_rows(claim, loading) if claim["quantity"] == FILE_SPEEDUP else _rows(claim, table, runs))
    ]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("gpus", "batch_size", "repeats", "repeats_failed"), "Int64"))
    shown = ["machine", "benchmark", "scaling", "batch_scaling", "batch_size", "quantity", "unit", "gpus", "loader",
             "input_pipeline", "low", "high", "interval_low", "interval_high", "load_share_pct", "measured_gpus",
             "repeats", "repeats_failed", "pairing", NOT_STATED, "published_machine", "published_low", "published_high",
             "paper_section", "note", "missing"]  # fmt: skip
    caption = (
        "the paper's claims, computed from this study's runs by the same formulas (docs/method.md): reductions are "
        "100 x (read_csv - chunked) / read_csv of runtime, energy per GPU without start-up, or broadcast; loading "
        "dominates where load_s > train_s, that is where loading takes longer than TensorFlow; low and high are over "
        "our GPU counts (measured_gpus), interval_low and interval_high the ends of their 95 % intervals; "
        "load_share_pct: the largest share of loading in the runtime of these read_csv runs, about the most that can "
        "be saved; repeats: the fewest behind one value; pairing: unpaired where two arms were not run interleaved; "
        "published: icpp2019, sections 2.1 and 4 to 6; low alone is at least, high alone is up to; machine: of the "
        "runs. Summit's and Theta's are beside their own published numbers only, those of other machines beside both."
    )
    differences = frame["workload_difference"].dropna().unique()
    remarks = [f"not the paper's workload, so no like for like: {each}" for each in differences]
    hidden = (*optional_columns(shown), "batch_size", "note", "interval_low", "interval_high")
    optional = tuple(name for name in hidden if name != "input_pipeline")
    identity = (*LABELS, "published_machine", *(name for name in IDENTITY if name not in LABELS))
    return Table("icpp2019_claims", caption, frame, shown, optional, remarks + notes(frame, "values"), identity)


@functools.cache
def _paper() -> pd.DataFrame:
    """The paper's claims; not to be changed."""
    table = published("icpp2019_claims.csv").astype({"gpus": "Int64", "batch_size": "Int64"})
    return table.astype(object).where(table.notna(), None)


def _rows(claim: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> list[dict[str, Any]]:
    """One row for each experiment that gives a value; one that says what is missing if none does."""
    like = _of_claim(claim, table)
    chosen = like[_fills(claim, like["machine"])]
    loaders, machines = quantities.loaders(claim), quantities.machines(claim)
    apart = [name for name in EXPERIMENT if not (machines and name in OF_A_MACHINE)] + ([] if loaders else ["loader"])
    groups = chosen.groupby(apart, sort=False, dropna=False) if len(chosen) else ()
    cases = [Case(claim, group, runs) for _, group in groups]
    found = [(case, quantities.compute(case)) for case in cases] or [(Case(claim, chosen, runs), Found())]
    with_value = [(case, value) for case, value in found if pd.notna(value.low)]
    if with_value:
        return [_labels(claim, case) | _numbers(value) | {"missing": value.missing} for case, value in with_value]
    elsewhere = sorted({*like["machine"]} - {*chosen["machine"]})
    missing = dict.fromkeys(value.missing or _missing(claim, case, elsewhere) for case, value in found)
    labels = _labels(claim, found[0][0]) | {"loader": claim["loader"]}  # where none is named, either would do
    return [labels | _numbers(found[0][1]) | {"missing": "; ".join(missing)}]


def _file_rows(claim: pd.Series, loading: pd.DataFrame) -> list[dict[str, Any]]:
    """One row for each measurement of the training file: the median of the repeats' ratios base / optimised."""
    labels = _labels(claim, Case(claim, pd.DataFrame(), pd.DataFrame()))
    missing = f"a loading measurement of {claim['benchmark']} with {BASE} and {OPTIMIZED}"
    if loading.empty:
        return [{**labels, **_numbers(Found()), "missing": missing}]
    like = loading[(loading["benchmark"] == claim["benchmark"]) & (loading["split"] == "train")]
    used = like[like["loader"].isin([BASE, OPTIMIZED]) & (like["status"] == "ok") & _fills(claim, like["machine"])]
    found = []
    for (machine, dataset, cache), loads in used.groupby(["machine", "dataset", "page_cache"], sort=False):
        times = loads.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=[BASE, OPTIMIZED])
        ratios = (times[BASE] / times[OPTIMIZED]).dropna()
        if len(ratios):
            origin = {"machine": machine, "dataset": dataset, "page_cache": cache, "repeats": len(ratios)}
            found.append({**labels, **_numbers(Found(ratios.median(), ratios.median())), **origin,
                          "code_is_current": bool(loads["code_is_current"].all()), "missing": None,
                          "workload_difference": file_difference(loads.iloc[0]),
                          "records": join_records(loads["record"])})  # fmt: skip
    return found or [{**labels, **_numbers(Found()), "missing": missing}]


def _of_claim(claim: pd.Series, table: pd.DataFrame) -> pd.DataFrame:
    """The points that a claim is about, on any number of ranks of any machine."""
    batch_size = claim["batch_size"] or specification(claim["benchmark"])["batch_size"]
    wanted = ["benchmark", "scaling", "batch_scaling"]
    loaders = quantities.loaders(claim) or (BASE, OPTIMIZED)
    same = (table[wanted] == claim[wanted]).all(axis=1) & (table["batch_size"] == batch_size)
    return table[same & table["loader"].isin(loaders)]


def _fills(claim: pd.Series, machine: pd.Series) -> pd.Series:
    """Whether points of these machines may stand in a claim's rows: the claim's own, or one that the paper lacks."""
    if machines := quantities.machines(claim):
        return machine.isin(machines)
    return machine.eq(claim["machine"]) | ~machine.isin(_paper()["machine"])


def _labels(claim: pd.Series, case: Case) -> dict[str, Any]:
    """What a row is about: the claim's labels, and those of the experiment where there is one."""
    experiment = case.points.iloc[0] if len(case.points) else pd.Series(dtype=object)
    loader = claim["loader"] or (None if quantities.loaders(claim) else experiment.get("loader"))
    return {
        **{name: experiment.get(name) for name in EXPERIMENT},
        **{name: claim[name] for name in LABELS},
        **({"machine": " / ".join(quantities.machines(claim))} if quantities.machines(claim) else {}),
        "batch_size": claim["batch_size"],
        "loader": loader,
        "published_machine": claim["machine"],
        "published_low": claim["low"],
        "published_high": claim["high"],
        "paper_section": claim["where"],
        "note": claim["note"],
    }


def _numbers(found: Found) -> dict[str, Any]:
    """A value, the GPU counts behind it, whether its workload is the paper's and its code is current."""
    used = pd.DataFrame() if found.points is None else found.points
    good = used[used["repeats_ok"] > 0] if len(used) else used
    difference = list(good.apply(workload_difference, axis=1).dropna().unique()) if len(good) else []
    repeats = found.blocks if found.blocks is not None or used.empty else int(used["repeats_ok"].min())
    return {
        "low": found.low,
        "high": found.high,
        "interval_low": found.interval_low,
        "interval_high": found.interval_high,
        "load_share_pct": found.load_share_pct,
        "pairing": found.pairing,
        "repeats": repeats,
        "repeats_failed": int(used["repeats_failed"].sum()) if len(used) else None,
        NOT_STATED: not_stated((row for _, row in good.iterrows()), PAPER),
        "measured_gpus": ", ".join(map(str, sorted(used["gpus"].unique()))) if len(used) else None,
        "workload_difference": f"{used['benchmark'].iloc[0]}: {'; or '.join(difference)}" if difference else None,
        "oversubscribed": bool(used["oversubscribed"].any()) if len(used) else False,
        "code_is_current": bool(used["code_is_current"].all()) if len(used) else True,
        "records": join_records(used["records"]) if len(used) else None,
    }


def _missing(claim: pd.Series, case: Case, elsewhere: list[str]) -> str:
    """The runs, or the measurement in existing runs, that a claim would need.

    elsewhere: machines that have such runs, but do not fill the claim's row.
    """
    of = f" on {claim['machine']}; those here are of {' and '.join(elsewhere)}" if elsewhere else ""
    if both := quantities.machines(claim):
        here = [name for name in both if name in set(case.points["machine"])]
        of = f" on {' and '.join(both)}, on equal numbers of ranks" + (f"; here: {' and '.join(here)}" if here else "")
    batch = "" if claim["batch_scaling"] == "none" else f", batch_scaling: {claim['batch_scaling']}"
    batch += f", batch_size: {claim['batch_size']}" if claim["batch_size"] else ""
    where = f" on {counted(claim['gpus'], 'rank')}" if claim["gpus"] else ""
    there = case.points[case.points["gpus"] == claim["gpus"]] if claim["gpus"] else case.points
    loaders = quantities.loaders(claim)
    absent = [loader for loader in loaders or (BASE, OPTIMIZED) if loader not in set(there["loader"])]
    if absent and (loaders or there.empty):
        names = (" and " if loaders else " or ").join(absent)
        return f"runs of {claim['benchmark']}, {claim['scaling']} scaling{batch}, with {names}{where}{of}"
    if both:
        return f"runs of {claim['benchmark']}, {claim['scaling']} scaling{batch}, with {claim['loader']}{of}"
    good = there[there["repeats_ok"] > 0]
    if good.empty:
        return f"good runs: {'; '.join(there['failures'].dropna().unique())}"
    if claim["quantity"] == "energy_reduction" and good[quantities.energy_of(claim)].isna().any():
        reasons = good["power_reason"].dropna().unique()
        return f"energy of these runs: {'; '.join(reasons) or 'the sensor has no power to read once a second'}"
    return (
        f"runs with both loaders on the same data, epochs and ranks{where}"
        if len(loaders) > 1
        else (f"runs on more ranks, or the measure in these{where}")
    )
