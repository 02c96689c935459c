"""Tables of ensembles: rates, ways of sharing samples and what they gain."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from study.compare import estimates, failed_runs
from study.compare.arms import FAMILY_ERROR
from study.compare.references import LEAST_REPEATS
from study.core.statistics import adjust_by_holm, compute_p_value, summarize
from study.core.wording import format_count
from study.experiment import ensemble
from study.experiment.ensemble import ALONE
from study.experiment.parameters.registry import list_observers
from study.experiment.study import Study
from study.records.names import runs_of
from study.report import formulas
from study.report.tables.declared import Rows, average_points, load_declarations, table_rows
from study.report.tables.layout import text
from study.report.tables.summary import like

OF_RATES = ("measure", "compute")  # keys that say what is timed, and on what
DUPLICATED = "duplicated"  # every member preprocesses its own samples: what all ways of sharing are compared with
MEASURED = "measured"  # the members compute; else an accelerator is simulated


def gives_rates(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives times or rates: it is observed by no other key."""
    return set(list_observers(run)) <= set(OF_RATES)


def is_of_members(run: Any) -> bool:
    """Whether a run, planned or of the tidy table, gives times or rates of members, one or many.

    An ordinary run, whose ensemble is 1 too, has another input pipeline than members have.
    """
    return gives_rates(run) and any(run[name] != value for name, value in ALONE.items())


def has_ensembles(study: Study) -> bool:
    """Whether a study has an ensemble that gives times or rates."""
    return any(gives_rates(run) and run["ensemble"] > 1 for run in study.runs)


def predict_time_gain(preprocessing: float, compute: float, peak: float) -> float:
    """How many times as fast members train with a shared pipeline: min(r_c, peak) / min(r_p, r_c); NaN without a rate.

    Args:
        preprocessing: r_p, samples/s, as all.
        compute: r_c.
        peak: of the way of sharing.
    """
    return float(np.minimum(compute, peak)) / float(np.minimum(preprocessing, compute))  # `min` would hide NaN


def predict_cpu_gain(
    preprocessing: float, communication: float, rest: float, duplicated: float, shared: float
) -> float:
    """How many times the CPU time of a shared pipeline duplicated ones take; NaN if a shared one takes none.

    Args:
        preprocessing: c_p, CPU time per sample of the data, in one unit, as the next two; NaN where not measured.
        communication: c_c.
        rest: of all members together.
        duplicated: how often duplicated pipelines preprocess a sample.
        shared: how often a shared one does.
    """
    cost = rest + shared * preprocessing + communication
    return (rest + duplicated * preprocessing) / cost if cost > 0 else math.nan


OF_BLOCKS = ("share_block_samples", "prefetch_blocks")
OF_SHARING = ("input_sharing", "preprocessing_ranks", *OF_BLOCKS)
# What may differ between a run that trains and one that times a rate: the rate is of the same data and cores.
OF_TIMING = ("measure", "compute", "simulated_samples_per_s", "epochs", "members")
SIMULATED_RATE = "simulated_samples_per_s"  # the grid key: at which rate an accelerator is simulated
COSTS = ["preprocessing_ms_per_sample", "communication_ms_per_sample"]
TIMES_PREPROCESSED = "times_preprocessed"  # how often a sample of the data is preprocessed in an epoch, by all ranks
RATES = ["r_p_samples_per_s", "r_c_samples_per_s", "peak_samples_per_s"]
GAINS = {"time": "training_s", "cpu": "ranks_cpu_s"}  # name of a gain -> the measure of which it is the ratio
P_OF = "{}_p"
P_VALUES = [P_OF.format(gain) for gain in GAINS]
GAIN, LOSS, NO_DIFFERENCE = "gain", "loss", "no difference shown"


def shares(study: Study) -> bool:
    """Whether a study has an ensemble whose members share their input."""
    return any(gives_rates(run) and run["input_sharing"] != DUPLICATED for run in study.runs)


@table_rows("sharing", uses=gives_rates, is_there=shares)
def sharing(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per ensemble and way of sharing: costs per sample, rates, and predicted and measured gain."""
    declaration = load_declarations()["sharing"]
    trained = formulas.add_columns(runs[runs["measure"].eq("train")], declaration["run_columns"])
    table = average_points(declaration, trained[trained["ensemble"].gt(1)])
    order = ["benchmark", "dataset", "compute", "ensemble", "core_limit", *OF_SHARING]
    table["input_sharing"] = pd.Categorical(table["input_sharing"], _ways(table), ordered=True)
    table = table.sort_values([name for name in order if name in table], ignore_index=True)
    table = table.astype({"input_sharing": str})
    table = table.join(pd.DataFrame([_rates(row, runs) for _, row in table.iterrows()], columns=RATES))
    gains = [_gains(row, table, trained) for _, row in table.iterrows()]
    table = table.join(
        _add_verdicts(pd.DataFrame(gains, columns=[*_gain_columns(), *P_VALUES, "blocks_unlike", "blocks_alike"]))
    )
    return Rows(table, first_remarks=rules(table))


def rules(table: pd.DataFrame) -> list[str]:
    """When sharing pays, by how much, with what certainty: one sentence for each value of ``compute``."""
    shared = table[table["input_sharing"] != DUPLICATED]
    sentences = []
    for computes, rows in shared.groupby("compute", sort=False):
        slow = rows["r_p_samples_per_s"] < rows["r_c_samples_per_s"]
        fast = rows["r_p_samples_per_s"] >= rows["r_c_samples_per_s"]
        groups = {
            "where a rank preprocesses more slowly than a member computes (r_p < r_c)": rows[slow],
            "where it preprocesses as fast or faster": rows[fast],
            "where r_p or r_c was not measured": rows[~slow & ~fast],
        }
        outcomes = [f"{where}: {_outcome(group, 'time')}" for where, group in groups.items() if len(group)]
        who = "members that compute" if computes == MEASURED else f"a {computes} accelerator"
        sentences.append(
            f"rule, {who}: sharing shortens training {'; '.join(outcomes)}; CPU time: {_outcome(rows, 'cpu')}; each by "
            "paired blocks, and adjusted over the rows of the table (Holm)"
        )
    return sentences


def _outcome(rows: pd.DataFrame, gain: str) -> str:
    """``gain in 2 of 3 points (1.2 to 1.4 times, predicted 1.3 to 1.5), no difference shown in 1``."""
    verdicts = rows[f"{gain}_verdict"]
    if verdicts.isna().all():
        return f"no interval in {format_count(len(rows), 'point')}"
    parts = []
    for verdict in (GAIN, LOSS, NO_DIFFERENCE):
        of_it = rows[verdicts == verdict]
        if not len(of_it):
            continue
        factors = (
            f" ({_range(of_it[f'{gain}_gain'])} times{_describe_predicted_gain(of_it, gain)})"
            if verdict != NO_DIFFERENCE
            else ""
        )
        parts.append(f"{verdict} in {len(of_it)} of {format_count(len(rows), 'point')}{factors}")
    if unknown := int(verdicts.isna().sum()):
        parts.append(f"no interval in {unknown}")
    return ", ".join(parts)


def _describe_predicted_gain(rows: pd.DataFrame, gain: str) -> str:
    predicted = rows[f"predicted_{gain}_gain"].dropna()
    return f", predicted {_range(predicted)}" if len(predicted) else ""


def _range(values: pd.Series) -> str:
    ends = dict.fromkeys(text(value, 3) for value in (values.min(), values.max()))
    return " to ".join(ends)


def _ways(table: pd.DataFrame) -> list[str]:
    """The ways of sharing, the one that they are compared with first."""
    return [DUPLICATED, *sorted(set(table["input_sharing"]) - {DUPLICATED})]


def _list_gain_columns(gain: str) -> list[str]:
    names = (f"{gain}_gain", f"{gain}_gain_low", f"{gain}_gain_high", f"{gain}_verdict")
    return [f"predicted_{gain}_gain", *names]


def _gain_columns() -> list[str]:
    return [*(name for gain in GAINS for name in _list_gain_columns(gain)), "pairing"]


def _rates(row: pd.Series, runs: pd.DataFrame) -> tuple[float, float, float]:
    """r_p, r_c and the peak of a point, means over the repeats; NaN where not measured.

    r_p and r_c are those of ensembles of the same size, which compete for cores alike; where each member has a node,
    also those of one member alone.
    """
    way = _select_timed_runs(row, runs, "peak_throughput", ())
    preprocessing = _mean_of_members(row, runs, "peak_throughput", "peak_samples_per_s")
    simulated = row["compute"] != MEASURED
    computing = _mean_of_members(row, runs, "compute_throughput", "compute_samples_per_s")
    return preprocessing, _slowest_rate(row) if simulated else computing, _mean(way, "peak_samples_per_s")


def _slowest_rate(row: pd.Series) -> float:
    """The rate of the slowest simulated accelerator, which trains last: the grid's, or one that a member has itself."""
    members = ensemble.list_members({"ensemble": int(row["ensemble"]), "members": row["members"]})
    own = [member.simulated_samples_per_s for member in members]
    return float(min(row[SIMULATED_RATE] if rate is None else rate for rate in own))


def _mean_of_members(row: pd.Series, runs: pd.DataFrame, measure: str, column: str) -> float:
    """The mean of a rate that does not depend on sharing."""
    timed = _select_timed_runs(row, runs, measure, OF_SHARING)
    has_nodes = runs_of(runs, row["records"])["nodes"].min() >= row["ensemble"]
    if timed.empty and has_nodes:
        single = _select_timed_runs(row, runs, measure, (*OF_SHARING, "ensemble", "gpus"))
        timed = single[single["ensemble"] == 1]
    return _mean(timed[timed["input_sharing"] == DUPLICATED], column)


def _mean(runs: pd.DataFrame, column: str) -> float:
    return summarize(runs[column]).mean


def _select_timed_runs(row: pd.Series, runs: pd.DataFrame, measure: str, free: Collection[str]) -> pd.DataFrame:
    """The successful runs that measured a rate on a point's data. free: columns in which they may differ from it."""
    return like(failed_runs.keep_proven(runs[runs["measure"] == measure]), row, (*free, *OF_TIMING))


def _gains(row: pd.Series, table: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Predicted and measured gains of a way of sharing over duplicated pipelines; empty for these themselves."""
    gains: dict[str, Any] = dict.fromkeys(_gain_columns())
    ratios: dict[str, estimates.Estimate] = {}
    base = _another(row, table, DUPLICATED)
    if base is None:
        return gains | {"blocks_alike": estimates.describe_fewer_blocks(ratios)}
    gains["predicted_time_gain"] = predict_time_gain(*(float(row[name]) for name in RATES))
    # What sharing adds to the communication: Horovod's thread polls all the time, so there is some without it too.
    preprocessing, communication = COSTS
    costs = base[preprocessing], row[communication] - base[communication], base["rest_ms_per_sample"]
    times = (each[TIMES_PREPROCESSED] for each in (base, row))
    gains["predicted_cpu_gain"] = predict_cpu_gain(*map(float, (*costs, *times)))
    for gain, measure in GAINS.items():
        ratio = estimates.compare_rows(runs, base["records"], row["records"], measure, judged=True)
        gains |= ratio.to_columns(f"{gain}_gain") | {"pairing": ratio.pairing}
        gains["blocks_unlike"] = gains.get("blocks_unlike") or ratio.unlike
        gains[P_OF.format(gain)] = _p_value(ratio)
        ratios[f"{gain}_gain"] = ratio
    return gains | {"blocks_alike": estimates.describe_fewer_blocks(ratios)}


def _another(row: pd.Series, table: pd.DataFrame, way: str) -> pd.Series | None:
    """The point of the same ensemble with another way of sharing, if there is one of the same blocks.

    None without such a point, and for a point of that way itself.
    """
    if row["input_sharing"] == way:
        return None
    others = like(table[table["input_sharing"] == way], row, OF_SHARING)
    alike = others[(others[[*OF_BLOCKS]] == row[[*OF_BLOCKS]]).all(axis=1)]
    candidates = others if alike.empty else alike
    return None if candidates.empty else candidates.iloc[0]


def _p_value(ratio: estimates.Estimate) -> float:
    """Of the test whether there is a gain; NaN without an interval, or with too few blocks."""
    if ratio.blocks < LEAST_REPEATS or not (math.isfinite(ratio.low) and math.isfinite(ratio.high)):
        return math.nan
    return compute_p_value(ratio.sample)


def _add_verdicts(gains: pd.DataFrame) -> pd.DataFrame:
    """The gains with verdicts in place of their p-values; all rows of the table are tested together."""
    for gain in GAINS:
        adjusted = adjust_by_holm(gains[P_OF.format(gain)].astype(float).tolist())
        gains[f"{gain}_verdict"] = [
            None if math.isnan(p) else NO_DIFFERENCE if p >= FAMILY_ERROR else GAIN if ratio > 1 else LOSS
            for p, ratio in zip(adjusted, gains[f"{gain}_gain"], strict=True)
        ]
    return gains.drop(columns=P_VALUES)
