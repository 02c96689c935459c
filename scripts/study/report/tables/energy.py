"""Tables of energy: against time, and by batch size."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import study.report.tables.kinds as kinds
from study.compare import estimates
from study.core.statistics import ERROR_PER_SIDE, compute_all_pairs_quantile, find_pareto_front
from study.experiment.study import Study, compute_work_growth
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import POINT, points, to_target

# Keys that make work another, beside the ranks; of a command, its own parameters may. Not compared.
WORK = ["benchmark", "dataset", "scaling", "sharding", "epochs", "ensemble", "program_parameters", "members",
        "power_source"]  # fmt: skip
FRONT = "on_pareto_front"


@table_rows("energy_time")
def energy_time(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per point: its time, energy, power and energy-delay product, and whether it is on the Pareto front."""
    measures = ["energy_window_s", "energy_job_j", "power_per_gpu_w", "energy_delay_product_js", "samples_per_j"]
    table = points(runs, measures)
    table[FRONT] = False
    for _, group in group_equal_work(table):
        x, y = (pd.to_numeric(group[name]).to_numpy(float) for name in measures[:2])
        table.loc[group.index, FRONT] = find_pareto_front(x, y)
    table[FRONT] = table[FRONT].astype(object).where(table["energy_job_j"].notna(), None)
    table = table.sort_values([*WORK[:3], "energy_window_s"], ignore_index=True)
    return Rows(table, to_target(runs, "time and energy"))


def group_equal_work(table: pd.DataFrame) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """(number of ranks, points that did equal work); None as the number if all rank counts do the same work."""
    of_ranks = zip(table["scaling"], table["sharding"], strict=True)
    changes = np.array([compute_work_growth(scaling, sharding, 2.0) != 1 for scaling, sharding in of_ranks], dtype=bool)
    ranks = table["gpus"].where(changes, 0).rename("ranks")
    for key, rows in table.groupby([*WORK, ranks], sort=False, dropna=False):
        yield int(key[-1]) or None, rows


OF = {"energy_job_j": "energy", "runtime_s": "runtime"}
SERIES = [name for name in POINT if name not in ("batch_size", "batch_size_per_rank")]
LOWEST, HIGHER, OPEN = "lowest", "higher", "not told apart"


def _has_several_batch_sizes(study: Study) -> bool:
    sizes: dict[tuple[str, int], set[int]] = {}
    for run in filter(kinds.gives_timings, study.runs):
        sizes.setdefault((run.dataset.id, run.gpus), set()).add(run["batch_size"])
    return any(len(each) > 1 for each in sizes.values())


@table_rows("batch_size_optimum", is_there=_has_several_batch_sizes)
def batch_size_optimum(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """Energy and runtime of each batch size relative to the lowest mean of its series, with a 95 % interval.

    The interval is that of the ratios within blocks (`study.compare`), widened for all pairs of the series: if no
    batch size differs, 5 % of the tables tell any apart. There is a verdict only where there is an interval.
    """
    table = points(runs, list(OF))
    groups = [_add_comparisons(group, runs) for _, group in table.groupby(SERIES, sort=False) if len(group) > 1]
    compared = pd.concat(groups, ignore_index=True) if groups else table.iloc[:0].assign(**_make_empty_columns())
    compared = compared.sort_values([*SERIES, "batch_size"], ignore_index=True)
    return Rows(compared, to_target(runs, "runtime and energy"))


ENDS = ("_to_lowest", "_to_lowest_low", "_to_lowest_high", "_verdict")


def _make_empty_columns() -> dict[str, Any]:
    return {f"{quantity}{end}": None for quantity in OF.values() for end in ENDS}


def _add_comparisons(series: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A series with the columns that compare each point's energy and runtime to the lowest."""
    alike: list[dict[str, estimates.Estimate]] = [{} for _ in range(len(series))]
    for measure, quantity in OF.items():
        if series[measure].isna().all():
            series = series.assign(**{f"{quantity}{end}": np.nan for end in ENDS[:-1]}, **{f"{quantity}_verdict": None})
            continue
        best, ratios = _find_best(series, runs, measure)
        itself = (series.index == best.name) | series[measure].isna()
        low, high = (np.where(itself, np.nan, [getattr(each, end) for each in ratios]) for end in ("low", "high"))
        series = series.assign(
            **{f"{quantity}_to_lowest": np.where(series.index == best.name, 1.0, [each.value for each in ratios])},
            **{f"{quantity}_to_lowest_low": low, f"{quantity}_to_lowest_high": high},
            **{f"{quantity}_verdict": _judge_batch_sizes(series[measure], low, series.index == best.name)},
        )
        for of_row, ratio, own in zip(alike, ratios, itself, strict=True):
            of_row |= {} if own else {f"{quantity}_to_lowest": ratio}
    return series.assign(blocks_alike=[estimates.describe_fewer_blocks(of_row) for of_row in alike])


def _find_best(series: pd.DataFrame, runs: pd.DataFrame, measure: str) -> tuple[pd.Series, list[estimates.Estimate]]:
    """The batch size with the lowest mean, and the ratios of all to it, within blocks.

    If one is surely lower in the blocks that both have, it takes its place: means may be of other repeats.
    """
    lowest = best = series.loc[series[measure].idxmin()]
    tried = {best.name}
    ratios = _estimate_ratios(series, runs, measure, best)
    while lower := [place for place, each in enumerate(ratios) if each.high < 1]:
        best = series.iloc[min(lower, key=lambda place: ratios[place].value)]
        if best.name in tried:  # in a circle, of unlike blocks: none is surely the lowest
            return lowest, _estimate_ratios(series, runs, measure, lowest)
        tried.add(best.name)
        ratios = _estimate_ratios(series, runs, measure, best)
    return best, ratios


def _estimate_ratios(
    series: pd.DataFrame, runs: pd.DataFrame, measure: str, best: pd.Series
) -> list[estimates.Estimate]:
    """The ratio of each batch size to the best, with an interval that holds for all pairs of the series together.

    The variance of a pair is the larger one of its own and that of all pairs: with few blocks its own is uncertain, and
    one batch size may be noisier than the others.
    """
    measured_records = list(series.loc[series[measure].notna(), "records"])
    pairs = [estimates.compare_rows(runs, *pair, measure) for pair in itertools.combinations(measured_records, 2)]
    certain = [each for each in pairs if not math.isnan(each.deviation)]
    ratios = [
        estimates.compare_rows(runs, records, best["records"], measure, judged=True) for records in series["records"]
    ]
    if not certain:
        return ratios
    freedoms = [each.worth - 1 for each in certain]
    common = sum(n * each.deviation**2 for n, each in zip(freedoms, certain, strict=True)) / sum(freedoms)
    wide = compute_all_pairs_quantile(
        len(measured_records), 2 * sum(freedoms) / len(measured_records), 2 * ERROR_PER_SIDE
    )
    return [_widen_interval(each, wide, common) for each in ratios]


def _widen_interval(ratio: estimates.Estimate, quantile: float, variance: float) -> estimates.Estimate:
    """The ratio with an interval by this quantile. variance: least one of the logarithms."""
    if math.isnan(ratio.deviation) or math.isnan(ratio.low):  # the latter of survivors
        return ratio
    half = quantile * math.sqrt(max(ratio.deviation**2, variance) / ratio.worth)
    return dataclasses.replace(ratio, low=ratio.value * math.exp(-half), high=ratio.value * math.exp(half))


def _judge_batch_sizes(values: pd.Series, low: np.ndarray, best: np.ndarray) -> list[str | None]:
    """A verdict for each batch size; the best one has one if all others with a value have an interval."""
    verdicts: list[str | None] = [None if np.isnan(each) else HIGHER if each > 1 else OPEN for each in low]
    others = [verdict for verdict, value, own in zip(verdicts, values, best, strict=True) if not own and value == value]
    sure = None if not others or None in others else LOWEST if set(others) == {HIGHER} else OPEN
    return [sure if own else verdict for verdict, own in zip(verdicts, best, strict=True)]
