"""Settings: what a prediction needs to know of a point. And observations: what finished runs measured there.

A setting has the columns ranks, nodes, epochs_per_rank, samples (of a rank in an epoch), batch (of a rank) and
learning_rate (with the scaling rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from study.compare import failed_runs, likeness
from study.core.wording import format_count, format_significant
from study.data.samples import count_samples_per_rank
from study.experiment.parameters import PARAMETERS, is_observed
from study.experiment.study import scale_batch_size
from study.records import disturbed, overlap
from study.records.names import join_records
from study.records.targets import has_stopped_early
from study.workloads import command

# Grid keys that are part of a setting, or that number repeats; runs that differ in others are other workloads.
VARIED = ("gpus", "scaling", "epochs", "batch_size", "batch_scaling", "link_mbit_per_s", "repeat")
SERIES = [name for name in VARIED if name not in ("gpus", "repeat")]
WORKLOAD = ["machine", *(name for name in PARAMETERS if name not in VARIED)]
ROUNDING = 1e-3  # of a run's runtime: its parts may be longer together by as much
ACCURACIES = ("accuracy", "test_accuracy")
GPU_MEMORY = "gpu_memory_mb"
NOT_EXTRAPOLATED = (*ACCURACIES, GPU_MEMORY)  # quantities of which only what was measured counts
REPEATED = ("mean_epoch_s", "load_s", "other_s", "energy_per_rank_j", "runtime_s")  # whose scatter is kept
MISSED = "missed the target"  # the kind of failure of a run that does not reach the target quality of its dataset
ENOUGH_POINTS = 3  # with which a newer version goes before an older one
MOST_DIFFERENT = 0.2  # of repeats' runtimes, relative: more is contradictory


@dataclass(frozen=True)
class Selection:
    """The runs that a prediction uses.

    Args:
        used: rows of the tidy table.
        left_out: {reason: number of runs}.
        problems: a line per contradictory run or point.
        failed: rows of the failed runs that would have been used, and of those that missed the target quality, which
            others reached. They take part in the recommendation. Those that were lost with a host or a batch job are
            not among them, as in findings: they say nothing of their rank count.
    """

    used: pd.DataFrame
    left_out: dict[str, int]
    problems: list[str]
    failed: pd.DataFrame = field(default_factory=pd.DataFrame)


def select_runs(runs: pd.DataFrame) -> Selection:
    """Choose the usable runs of a tidy table (`study.records.tidy`)."""
    left_out: dict[str, int] = {}
    rest = _fill_program_times(runs.assign(overlapped=overlap.mark_overlapping_runs(runs)))
    if (is_unproven := failed_runs.mark_unproven(rest)).any():
        whys = rest.loc[is_unproven, "unproven"].value_counts()
        left_out |= {f"{failed_runs.UNPROVEN}: {why}": int(number) for why, number in whys.items()}
        rest = rest[~is_unproven]
    for reason, is_out in _list_reasons():
        out = np.array([is_out(run) for _, run in rest.iterrows()], dtype=bool)
        left_out |= {reason: int(out.sum())} if out.any() else {}
        rest = rest[~out]
    if rest.empty:
        return Selection(rest, left_out, [])
    why_unlike = _find_unlike(rest)
    left_out |= {why: int(number) for why, number in why_unlike.value_counts().items()}
    rest = rest[why_unlike.isna()]
    has_failed, is_own = rest["status"] != "ok", failed_runs.mark_failures_of_arm(rest)
    failed, lost, rest = rest[is_own], rest[has_failed & ~is_own], rest[~has_failed]
    missed = rest[_has_missed_target(rest)]
    for how, ended in (("failed", failed), (failed_runs.LOST, lost)):
        if len(ended):
            counts = _list_counts(ended)
            ranks = "rank" if counts == "1" else "ranks"
            left_out[f"{how} ({count_failure_kinds(ended)}) on {counts} {ranks}"] = len(ended)
    problems = pd.Series([_find_problem(run) for _, run in rest.iterrows()], rest.index, dtype=object)
    good, wrong = rest[problems.isna()], rest["record"] + ": left out, " + problems + "; delete its folder to run again"
    doubts = [*_describe_contradictory(good), *_describe_crowded(good)]
    if "disturbed" in good:
        doubts += disturbed.sentence(int(good["disturbed"].eq(True).sum()), len(good), "run")
    counted_as_failed = pd.concat([failed, missed.assign(failure_kind=MISSED)]) if len(missed) else failed
    return Selection(good, left_out, [*wrong.dropna(), *doubts], counted_as_failed)


def _fill_program_times(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs, where a command that told no epochs or no loading has the time of its program instead.

    The program's time is then that of its epochs, and its loading takes next to nothing: the model needs a number.
    """
    if "program_s" not in runs or runs["program_s"].isna().all():
        return runs
    of_command = runs["program_s"].notna()
    no_epochs = of_command & runs["time_per_epoch_s"].isna()
    load_s = runs["load_s"].where(~of_command | runs["load_s"].notna(), ROUNDING * runs["runtime_s"])
    epoch_s = (runs["program_s"] - load_s) / runs["epochs_per_rank"]
    times = {"load_s": load_s, "time_per_epoch_s": runs["time_per_epoch_s"].where(~no_epochs, epoch_s)}
    numbers = {name: pd.to_numeric(runs[name]) for name in ("learning_rate",) if name in runs}
    return runs.assign(**times, **numbers)


def _find_unlike(runs: pd.DataFrame) -> pd.Series:
    """Why runs are unlike those that their workload is predicted from, in words; None for those.

    Runs are alike if nothing differs that must be alike in comparisons, such as code, libraries and data, and that no
    key may change: the rank count changes the hardware. A value that is missing is taken to be alike. The newest
    version, by the start of its runs, with `ENOUGH_POINTS` rank counts is used; if none has so many, the one with the
    most. Counts of different versions would be taken for an effect of the ranks.
    """
    why = pd.Series(None, index=runs.index, dtype=object)
    for _, group in runs.groupby(WORKLOAD, dropna=False, sort=False) if "started_wall_ns" in runs else ():
        several = [name for name in likeness.ALIKE if name in group and group[name].nunique() > 1]
        freed_by = {name: group[[key for key in likeness.FREED_BY[name] if key in group]] for name in several}
        names = [name for name, keys in freed_by.items() if (keys.nunique(dropna=False) < 2).all()]
        if not names:
            continue
        narrow = group[[*names, "status", "gpus", "started_wall_ns"]]  # hundreds of columns take long to divide
        values = narrow[names]
        differences = [values.notna() & values.ne(version) for _, version in values.drop_duplicates().iterrows()]
        best = max(differences, key=lambda differs: _rank_version(narrow[~differs.any(axis=1)]))
        for place, row in best[best.any(axis=1)].iterrows():
            why[place] = (
                f"unlike the runs that are used ({', '.join(likeness.ALIKE[name] for name in names if row[name])})"
            )
    return why


def _rank_version(runs: pd.DataFrame) -> tuple[float, ...]:
    """By which the runs of a version go before those of another one: first the rank counts that succeeded."""
    points = failed_runs.keep_proven(runs)["gpus"].nunique()
    return min(points, ENOUGH_POINTS), runs["started_wall_ns"].max(), len(runs)


def _has_missed_target(runs: pd.DataFrame) -> pd.Series:
    """Which runs missed the target quality of their dataset, where others of their workload and series reached it."""
    if "target_reached" not in runs:
        return pd.Series(False, index=runs.index)
    reached = runs["target_reached"].eq(True)
    others = reached.groupby([runs[name] for name in (*WORKLOAD, *SERIES)], dropna=False).transform("any")
    return runs["target_reached"].eq(False) & others


def _list_counts(runs: pd.DataFrame) -> str:
    """The rank counts of some runs: ``1, 24``."""
    return ", ".join(map(str, sorted(set(runs["gpus"].astype(int)))))


def count_failure_kinds(failed: pd.DataFrame) -> str:
    """How often each kind of failure occurred in some failed runs: ``oom 3, timeout 1``."""
    kinds = failed["failure_kind"] if "failure_kind" in failed else pd.Series(None, failed.index, dtype=object)
    return ", ".join(f"{kind} {number}" for kind, number in kinds.fillna("unknown").value_counts().items())


def _list_reasons() -> Iterator[tuple[str, Any]]:
    yield overlap.OVERLAPPED, lambda run: run["overlapped"]
    yield "resumed from a checkpoint", lambda run: pd.notna(run["resumed_after_epoch"])
    yield "stopped at its target, before its last epoch", has_stopped_early
    yield "traced, profiled or otherwise observed", lambda run: not is_observed(run, None)
    yield "of an ensemble, whose members do not train together", lambda run: run["ensemble"] > 1
    # Elsewhere busy cores are the normal state of training on CPUs; in the laboratory all hosts share them.
    yield (
        "of the network laboratory and limited by its cores (cpu_limited)",
        lambda run: bool(run["link_mbit_per_s"]) and run.get("cpu_limited") in (True, "True"),
    )


def _find_problem(run: pd.Series) -> str | None:
    """Why a finished run's times cannot be used, in words; None if they can."""
    runtime, epoch, epochs = run["runtime_s"], run["time_per_epoch_s"], run["epochs_per_rank"]
    load, steady = run["load_s"], run["time_per_epoch_steady_s"]
    if not (0 < runtime < np.inf and 0 < epoch < np.inf):
        return f"its runtime_s is {runtime}, time_per_epoch_s {epoch}"
    for name in ("time_per_epoch_steady_s", "energy_job_j", "energy_per_gpu_j"):
        if pd.notna(run.get(name)) and run[name] <= 0:
            return f"its {name} is {run[name]}"
    if pd.isna(load):
        return "it has no load_s"
    if pd.notna(steady) and steady > (1 + ROUNDING) * epochs * epoch:
        return (
            f"because an epoch of {steady:.4g} s (time_per_epoch_steady_s) is longer than all {epochs} epochs, "
            f"{epochs * epoch:.4g} s"
        )
    if epochs * epoch + load > (1 + ROUNDING) * runtime:
        return (
            f"because {epochs} epochs x {epoch:.4g} s + {load:.4g} s of loading are longer than its runtime of "
            f"{runtime:.4g} s"
        )
    return None


def _describe_contradictory(runs: pd.DataFrame) -> Iterator[str]:
    """A line for each point whose repeats differ by more than `MOST_DIFFERENT`; they are used nevertheless."""
    for _, group in runs.groupby([*WORKLOAD, *SERIES, "gpus"], dropna=False):
        times = group["runtime_s"]
        if times.max() > (1 + MOST_DIFFERENT) * times.min():
            slowest = group.loc[times.idxmax(), "record"]
            yield (
                f"{slowest}: took {format_significant(times.max())} s, another repeat "
                f"{format_significant(times.min())} s; more than "
                f"{MOST_DIFFERENT:.0%} apart, so their mean is uncertain; delete the wrong one's folder to run it again"
            )


def _describe_crowded(runs: pd.DataFrame) -> Iterator[str]:
    """A line if ranks had fewer cores than they should; the runs are used nevertheless."""
    crowded = runs[runs["oversubscribed"].astype(bool)] if "oversubscribed" in runs else runs.iloc[:0]
    if len(crowded):
        yield (
            f"{format_count(len(crowded), 'run')} on {_list_counts(crowded)} ranks had fewer cores than ranks x "
            "cores_per_rank (oversubscribed); the predictions take this contention for a cost of more ranks"
        )


def summarize_points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per point: its setting, its series (`SERIES`), means over the repeats, repeats, records.

    Accuracies are the lowest of the repeats, and GPU memory is the highest, since each must meet a limit.
    ``<name>_spread``, of `REPEATED`, is the sum of the squares of the repeats' relative differences from their mean,
    ``<name>_repeats`` the number of repeats that have a value: an energy may be missing in some.
    runs: usable runs of one workload.
    """
    rows = []
    for _, group in runs.groupby([*SERIES, "gpus"], sort=True, dropna=False):
        repeats = pd.DataFrame([measure_run(run) for _, run in group.iterrows()])
        means, first, repeated = repeats.mean(), group.iloc[0], repeats[list(REPEATED)]
        rows.append(
            {
                **{name: first[name] for name in SERIES},
                "ranks": first["gpus"],
                "nodes": first["nodes"],
                "epochs_per_rank": first["epochs_per_rank"],
                "samples": _get_samples(first, first["gpus"]),
                "batch": first["batch_size_per_rank"],
                "learning_rate": _scale_learning_rate(first, first["gpus"]),
                "base_rate": first["learning_rate"],
                **means,
                **repeats[list(ACCURACIES)].min(),
                GPU_MEMORY: repeats[GPU_MEMORY].max(),
                **((repeated / means[list(REPEATED)] - 1) ** 2).sum().add_suffix("_spread"),
                **repeated.count().add_suffix("_repeats"),
                "repeats": len(group),
                "code_is_current": bool(group["code_is_current"].all()),
                "records": join_records(group["record"]),
            }
        )
    return pd.DataFrame(rows)


def divide_rounding_up(number: Any, parts: Any) -> Any:
    """Number / parts, rounded up: nodes of some ranks, steps of some samples. Integers, or columns of them."""
    return -(-number // parts)


def measure_run(run: pd.Series) -> dict[str, float]:
    """The quantities of one run, seconds and joules: runtime = epochs x mean_epoch + load + other.

    ``epoch_s``: of the epochs after the first; NaN with one epoch.
    """
    steady, job = run["time_per_epoch_steady_s"], run.get("energy_job_j", np.nan)
    other = run["runtime_s"] - run["epochs_per_rank"] * run["time_per_epoch_s"] - run["load_s"]
    # Of the whole job where it is known, else of the GPUs, unless a part of it is doubtful; of one workload
    # `study.prediction.answers` leaves energies of one of the two kinds only.
    of_gpu = np.nan if pd.notna(run.get("doubtful_energy")) else run.get("energy_per_gpu_j", np.nan)
    return {
        "runtime_s": run["runtime_s"],
        "mean_epoch_s": run["time_per_epoch_s"],
        "epoch_s": steady if pd.notna(steady) else np.nan,
        "load_s": run["load_s"],
        "other_s": max(other, ROUNDING * run["runtime_s"]),
        "energy_per_rank_j": job / run["gpus"] if pd.notna(job) else of_gpu,
        **{name: run.get(name, np.nan) for name in NOT_EXTRAPOLATED},
    }


def derive_settings_at_counts(
    series: pd.Series, counts: Iterable[int], ranks_per_node: int, least_epochs: int = 1, is_checked: bool = True
) -> pd.DataFrame:
    """Settings of a series at other rank counts, one row per count that a study would accept.

    Where strong scaling divides the epochs, a count must divide them and leave each rank ``least_epochs``; a batch must
    not be larger than a rank's samples (`study.experiment.feasibility`).

    Args:
        series: a row of `summarize_points`, for what does not depend on the ranks.
        counts: of ranks.
        ranks_per_node: of the machine.
        least_epochs: of a rank, ``minimum_per_rank`` of the benchmark.
        is_checked: leave out counts that a study would not accept; else each rank has at least one epoch.
    """
    rows = pd.DataFrame([_derive_setting(series, count, ranks_per_node) for count in counts])
    if rows.empty or not is_checked:
        return rows
    is_accepted = (rows["batch"] <= rows["samples"]) | pd.isna(series.get("train_samples", 0))
    if series["scaling"] == "strong" and series.get("work", command.EPOCHS) == command.EPOCHS:
        is_accepted &= (series["epochs"] % rows["ranks"] == 0) & (rows["epochs_per_rank"] >= least_epochs)
    return rows[is_accepted].reset_index(drop=True)


def _derive_setting(series: pd.Series, ranks: int, ranks_per_node: int) -> dict[str, Any]:
    epochs: float = int(series["epochs"])
    work = series.get("work", command.EPOCHS)
    samples = _share_one(series, ranks) if pd.isna(series.get("train_samples", 0)) else series["samples"]
    if series.get("sharding", "none") != "none":
        samples = count_samples_per_rank(int(series["train_samples"]), ranks)
    if work != command.EPOCHS and pd.notna(series["train_samples"]):
        samples = command.count_rank_samples(int(series["train_samples"]), series["scaling"], work, ranks)
    if work == command.EPOCHS and series["scaling"] == "strong":
        epochs = max(epochs / ranks, 1)
    return {
        **{name: series[name] for name in SERIES},
        "sharding": series.get("sharding", "none"),
        "work": work,
        "ranks": ranks,
        "nodes": divide_rounding_up(ranks, ranks_per_node),
        "epochs_per_rank": epochs,
        "batch": scale_batch_size(int(series["batch_size"]), ranks, series["batch_scaling"]),
        "samples": samples,
        "learning_rate": _scale_learning_rate(series, ranks),
    }


def _get_samples(run: pd.Series, ranks: int) -> float:
    """Samples of a rank in an epoch; of a command that does not tell them, its share of one."""
    return _share_one(run, ranks) if pd.isna(run["samples_per_rank"]) else run["samples_per_rank"]


def _share_one(run: pd.Series, ranks: int) -> float:
    is_shared = run["scaling"] == "strong" and run.get("work", command.EPOCHS) != command.EPOCHS
    return 1 / ranks if is_shared else 1.0


def _scale_learning_rate(row: pd.Series, ranks: int) -> float:
    """That of a rank count by the scaling rule, before its schedule, which is the same for all runs of a workload."""
    base = row.get("base_rate", row.get("learning_rate"))
    return base * (ranks if row["learning_rate_scaling"] == "linear" else 1)
