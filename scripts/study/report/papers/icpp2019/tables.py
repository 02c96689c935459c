"""The tables of the ICPP 2019 paper, as measured by this study's runs."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import summarize
from study.core.units import MIB_IN_MB
from study.data.loaders import TRAINING_LOADERS
from study.instruments.power.readings import MODELLED
from study.records import pairing
from study.records.names import join_records
from study.records.power import WHOLE_RUN
from study.report.papers.beside import TOLD, first, window_notes
from study.report.papers.workload import file_difference, workload_difference
from study.report.tables.layout import Table, ci95_name
from study.report.tables.published_values import NOT_STATED, beside_published, published
from study.report.tables.summary import IDENTITY, POINT, WORKLOAD, counted_kinds, notes, optional_columns, points

DIFFERENCE = workload_difference("icpp2019")
STEADY = "time_per_epoch_steady_s"  # without the first epoch, in which TensorFlow builds its graph
BASE, OPTIMIZED = "read_csv", "chunked"  # the paper's original loader and its improved one
MACHINES = {"summit": "icpp2019_table3_loading_summit.csv", "theta": "icpp2019_table4_loading_theta.csv"}
# On Summit the paper read nvidia-smi once a second (section 3), in the whole run.
ONE_HZ = "power_per_gpu_one_hz_w"
ALIKE = {"power_per_gpu_w": "whole_run_power_per_gpu_one_hz_w"}
POWER_IS = (
    "power, energy: from load to evaluate (energy_window_s), without start-up. The paper's are probably of the "
    "whole run, whose time is the energy / power of Table 5. one_hz: power read once a second, as the paper did on "
    "Summit. whole_run: start-up included."
)


@kinds.table(
    "icpp2019_table1",
    title="The benchmarks as run here",
    look_for="How large the benchmarks were here, beside the paper's: a difference here is why ratios elsewhere "
    "are empty.",
    needs="runs",
    uses=kinds.any_run,
)
def table1(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 1: sizes, epochs, batch size, learning rate, optimizer and samples of each benchmark, as run.

    A ratio is ours / published. It stands for itself: here the workload is what is compared.
    """
    keys = ["machine", "benchmark", "dataset", "scaling", "epochs", "batch_size", "learning_rate"]
    measures = ["train_mb", "test_mb", "optimizer", "train_samples", "features"]
    groups = runs.groupby(keys, sort=False, dropna=False)  # a command has no learning rate
    table = (
        groups[measures]
        .first()
        .assign(records=groups["record"].agg(join_records), code_is_current=groups["code_is_current"].all())
        .reset_index()
    )
    paper = published("icpp2019_table1_benchmarks.csv").rename(columns={"elements_per_sample": "features"})
    paper = paper.assign(**{f"{split}_mb": paper[f"{split}_mib"] * MIB_IN_MB for split in ("train", "test")})
    beside = ["train_mb", "test_mb", "epochs", "batch_size", "learning_rate", "train_samples", "features"]
    table = table.join(paper.set_index("benchmark")[beside].add_prefix("published_"), on="benchmark")
    table["published_epochs"] = table["published_epochs"].where(table["scaling"] != "weak")  # which Table 1 lacks
    for name in beside:
        table[f"ratio_{name}"] = table[name] / table[f"published_{name}"]
    table = table.astype(
        {
            name: "Int64"
            for name in table
            if name.endswith(("_samples", "features", "_epochs", "size")) and not name.startswith("ratio_")
        }
    )
    shown = ["benchmark", "dataset", "scaling"]
    for name in ("train_mb", "test_mb", "epochs", "batch_size", "learning_rate", "optimizer", *beside[-2:]):
        shown += [name, *([f"published_{name}", f"ratio_{name}"] if name in beside else [])]
    caption = (
        "The benchmarks as run here: sizes of the files, epochs, batch size, learning rate (of one rank), samples of "
        "an epoch and elements of a sample. All sizes are in units of 10^6 bytes. published: icpp2019, Table 1, "
        "which counts P1B1's label as an element. The paper's sizes are MiB, rounded up; here they are multiplied by "
        "1.048576 (P1B2's known bytes show it)."
    )
    return _of_runs("icpp2019_table1", caption, table, shown)


@kinds.table(
    "icpp2019_table2",
    title="Time per epoch and power, strong scaling",
    look_for="The time per epoch should stay the same as GPUs are added; what it grows by is communication.",
    needs="strong-scaling runs with read_csv",
    uses=kinds.runs("strong", [BASE]),
)
def table2(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 2: time per epoch and average GPU power under strong scaling, with the original loader."""
    measures = ["time_per_epoch_s", "power_per_gpu_w"]
    table = points(runs, [*measures, STEADY, ONE_HZ, *ALIKE.values(), "energy_window_s"]).sort_values(
        ["benchmark", "batch_size", "gpus"], ignore_index=True
    )
    keys = ["benchmark", "scaling", "batch_size", "gpus"]
    table = beside_published(table, "icpp2019_table2_nt3_strong.csv", keys, measures, DIFFERENCE, ours=ALIKE)
    shown = ["machine", "benchmark", "scaling", "batch_size", "gpus", "epochs_per_rank", "time_per_epoch_s",
             STEADY, "published_time_per_epoch_s", "ratio_time_per_epoch_s", "power_per_gpu_w",
             ONE_HZ, *ALIKE.values(), "published_power_per_gpu_w", f"ratio_{ALIKE['power_per_gpu_w']}",
             "energy_window_s", *TOLD, NOT_STATED]  # fmt: skip
    caption = (
        f"Time per epoch and average power per GPU, strong scaling. {POWER_IS} published: icpp2019, Table 2 (Summit)."
    )
    return _of_runs("icpp2019_table2", caption, table, shown, window_notes(runs))


@kinds.table(
    "icpp2019_table3",
    title="Loading by loader (the paper's Tables 3 and 4)",
    look_for="How much faster each loader is than read_csv. The paper found much for wide files (NT3, P1B1, P1B2) "
    "and hardly anything for a long, narrow one (P1B3).",
    needs="a loading measurement",
    uses_loading=True,
)
def table3(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Tables 3 and 4: time to load each file by loader, and the speedup over ``read_csv``."""
    keys = ["machine", "benchmark", "dataset", "file", "split", "rows", "columns", "size_mb", "page_cache"]
    loading = loading[loading["loader"].isin(TRAINING_LOADERS)]  # other formats have their own table
    loaders = list(loading["loader"].unique())
    rows = [
        _loading_row(dict(zip(keys, key, strict=True)), group, loaders)
        for key, group in loading.groupby(keys, sort=False, dropna=False)
    ]
    names = (lambda name: f"{name}_s", lambda name: ci95_name(f"{name}_s"), lambda name: f"{name}_peak_memory_mb")
    columns = [name(loader) for name in names for loader in loaders]
    columns += [f"speedup_{loader}" for loader in loaders if loader != BASE]
    table = pd.DataFrame(
        rows,
        columns=[
            *keys,
            *columns,
            "repeats_ok",
            "repeats_failed",
            "failures",
            "cold_reason",
            "code_is_current",
            "records",
        ],
    )
    measures = [f"{loader}_s" for loader in (BASE, OPTIMIZED) if loader in loaders]
    table["split"] = table["split"].astype(object)
    beside = []
    for machine, file in MACHINES.items():
        table = beside_published(table, file, ["benchmark", "split"], measures, file_difference, f"{machine}_")
        speedup = f"published_{machine}_speedup_chunked"
        if len(measures) == 2:
            table[speedup] = table[f"published_{machine}_{BASE}_s"] / table[f"published_{machine}_{OPTIMIZED}_s"]
        beside += [f"{kind}_{machine}_{measure}" for kind in ("published", "ratio") for measure in measures]
        beside += [speedup] * (len(measures) == 2)
    shown = ["machine", "benchmark", "file", "rows", "columns", "size_mb", "page_cache",
             *(f"{name}_s" for name in loaders), *(c for c in table if c.startswith("speedup_")), *beside,
             "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    caption = (
        "Seconds to load each file by loader, each load in a process of its own. npy reads the matrix that was "
        "converted before. P1B3's two files are inferred (docs/benchmarks.md). speedup: read_csv's time divided by "
        "the loader's, paired; median over the repeats. published: icpp2019, Table 3 (Summit) and Table 4 (Theta)."
    )
    reasons = [f"no cold loads: {reason}" for reason in table["cold_reason"].dropna().unique()]
    return Table(
        "icpp2019_table3",
        caption,
        first(table, shown),
        shown,
        optional_columns(shown),
        [*notes(table, "times"), *reasons],
        tuple(keys),
    )


def _loading_row(row: dict[str, Any], group: pd.DataFrame, loaders: list[str]) -> dict[str, Any]:
    ok = group[group["status"] == "ok"]
    failed = group[group["status"] != "ok"]
    times = ok.pivot(index="repeat", columns="loader", values="load_s").reindex(columns=loaders)
    for loader in loaders:
        if loader not in set(group["loader"]):
            continue
        sample = summarize(times[loader])
        row[f"{loader}_s"], row[ci95_name(f"{loader}_s")] = sample.mean, sample.ci95
        row[f"{loader}_peak_memory_mb"] = ok.loc[ok["loader"] == loader, "peak_memory_mb"].max()
        if loader != BASE and BASE in loaders:
            row[f"speedup_{loader}"] = (times[BASE] / times[loader]).median()
    measured = group["loader"].unique()
    row["repeats_ok"] = int(times[measured].notna().all(axis=1).sum())
    row["repeats_failed"] = group["repeat"].nunique() - row["repeats_ok"]
    row["cold_reason"] = group["cold_reason"].iloc[0]
    row["code_is_current"] = bool(group["code_is_current"].all())
    row["records"] = join_records(group["record"])
    row["failures"] = counted_kinds(failed["loader"])
    return row


@kinds.table(
    "icpp2019_table5",
    title="Power and energy, base and optimised loading",
    look_for="Faster loading raises the average power, since less of the run is idle, and lowers the energy. "
    "Without a power sensor the columns are empty.",
    needs="strong-scaling runs with read_csv or chunked",
    uses=kinds.runs("strong", [BASE, OPTIMIZED]),
)
def table5(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 5: power and energy per GPU under strong scaling, base and optimised loader, and the change in percent."""
    table = _base_beside_optimized(points(runs, list(POWER)), runs)
    measures = ["power_w", "power_optimized_w", "energy_per_gpu_j", "energy_optimized_per_gpu_j"]
    changes = ["power_change_pct", "energy_change_pct"]
    keys, file = ["benchmark", "scaling", "batch_size", "gpus"], "icpp2019_table5_nt3_power_energy.csv"
    table = beside_published(table, file, keys, measures, DIFFERENCE, ours=TABLE_5_ALIKE)
    table = table.join(published(file).set_index(keys)[changes].add_prefix("published_"), on=keys)
    shown = ["machine", "benchmark", "batch_size", "gpus"]
    for name in (*measures[:2], changes[0], *measures[2:], changes[1]):
        alike = TABLE_5_ALIKE.get(name)
        shown += [name, *([TABLE_5_ONE_HZ[name], alike] if alike else _ends(name)), f"published_{name}"]
        shown += [f"ratio_{alike}"] if alike else []
    shown += ["pairing", "repeats_ok", "repeats_optimized_ok", "repeats_failed", "failures", "may_fail"]
    shown += ["oversubscribed", NOT_STATED]
    caption = (
        "Average power and energy per GPU, strong scaling, with the original loader (read_csv) and the optimised one "
        "(chunked). change: from the first to the second, with its 95 % interval, paired within the blocks (repeats) "
        f"that both have; unpaired where they were not run interleaved. {POWER_IS} published: icpp2019, Table 5 "
        "(Summit, batch size 20)."
    )
    return _of_runs("icpp2019_table5", caption, table, shown, window_notes(runs))


POWER = {  # measured column: base, optimised, change
    "power_per_gpu_w": ("power_w", "power_optimized_w", "power_change_pct"),
    "energy_per_gpu_j": ("energy_per_gpu_j", "energy_optimized_per_gpu_j", "energy_change_pct"),
    "power_per_gpu_one_hz_w": ("power_one_hz_w", "power_optimized_one_hz_w", "power_one_hz_change_pct"),
    "energy_per_gpu_one_hz_j": (
        "energy_per_gpu_one_hz_j",
        "energy_optimized_per_gpu_one_hz_j",
        "energy_one_hz_change_pct",
    ),
    "whole_run_power_per_gpu_one_hz_w": (
        "whole_run_power_one_hz_w",
        "whole_run_power_optimized_one_hz_w",
        "whole_run_power_one_hz_change_pct",
    ),
    "whole_run_energy_per_gpu_one_hz_j": (
        "whole_run_energy_per_gpu_one_hz_j",
        "whole_run_energy_optimized_per_gpu_one_hz_j",
        "whole_run_energy_one_hz_change_pct",
    ),
}


def _table_5_at(prefix: str) -> dict[str, str]:
    """{column of Table 5: ours at the paper's rate, in the window of this prefix}."""
    pairs = (("power_per_gpu_w", "power_per_gpu_one_hz_w"), ("energy_per_gpu_j", "energy_per_gpu_one_hz_j"))
    return {
        usual: at_one_hz
        for ours, rate in pairs
        for usual, at_one_hz in zip(POWER[ours][:2], POWER[f"{prefix}{rate}"][:2], strict=True)
    }


TABLE_5_ONE_HZ, TABLE_5_ALIKE = _table_5_at(""), _table_5_at(WHOLE_RUN)
ALL_OR_ANY = {"code_is_current": "min", "oversubscribed": "max"}  # of what either side says


def _ends(change: str) -> list[str]:
    """The columns of the interval of a change: ``energy_change_low_pct``."""
    return [change.replace("_pct", f"_{end}_pct") for end in ("low", "high")]


def _base_beside_optimized(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per point for both loaders, with the paper's columns of Table 5; a loader without runs stays empty."""
    base, optimized = (table[table["loader"] == loader].drop(columns="loader") for loader in (BASE, OPTIMIZED))
    same = [name for name in POINT if name != "loader"]
    table = base.merge(optimized, on=same, how="outer", suffixes=("", "_other"))
    modelled = (table[["power_source", "power_source_other"]] == MODELLED).any(axis=1)
    for column in ("power_reason", "power_source", "may_fail", "repeats_unlike", *WORKLOAD):
        table[column] = table[column].combine_first(table[f"{column}_other"])
    table["power_source"] = table["power_source"].mask(modelled, MODELLED)  # of either side
    for column in ("repeats_failed", "code_is_current", "oversubscribed"):
        both = table[[column, f"{column}_other"]].apply(pd.to_numeric)
        table[column] = both.sum(axis=1) if column == "repeats_failed" else both.agg(ALL_OR_ANY[column], axis=1) > 0
    table["failures"] = table[["failures", "failures_other"]].apply(lambda both: "; ".join(both.dropna()), axis=1)
    table["repeats_optimized_ok"] = table["repeats_ok_other"].fillna(0).astype(int)
    table["repeats_ok"] = table["repeats_ok"].fillna(0).astype(int)
    changes = pd.DataFrame([_changes(row, runs) for _, row in table.iterrows()], index=table.index)
    sides = {name: table[column] for name, column in _sides().items()}
    table["records"] = table[["records", "records_other"]].apply(lambda both: join_records(both.dropna()), axis=1)
    table = table.assign(**sides, **{name: changes[name] for name in changes})
    columns = [*same, *WORKLOAD, *sides, *changes]
    columns += ["repeats_ok", "repeats_optimized_ok", "repeats_failed", "failures", "may_fail", "power_source"]
    columns += ["power_reason", "oversubscribed", "code_is_current", "repeats_unlike", "records"]
    return table[columns].sort_values(["benchmark", "batch_size", "gpus"], ignore_index=True)


def _sides() -> dict[str, str]:
    """The measured columns of Table 5 with their intervals: {its name: the column of the merged points}."""
    return {
        of(name): f"{of(measured)}{end}"
        for measured, names in POWER.items()
        for name, end in zip(names[:2], ("", "_other"), strict=True)
        for of in (str, ci95_name)
    }


def _changes(row: pd.Series, runs: pd.DataFrame) -> dict[str, Any]:
    """The change of each measure from base to optimised, %, with its interval; NaN where one has no mean."""
    found: dict[str, Any] = {"pairing": None}
    ratios: dict[str, pairing.Ratio] = {}
    for measured, (_, _, change) in POWER.items():
        names = [change, *_ends(change)]
        found |= dict.fromkeys(names, math.nan)
        if row[[measured, f"{measured}_other"]].notna().all():
            ratio = pairing.between(runs, row["records_other"], row["records"], measured)
            found |= dict(zip(names, (100 * (end - 1) for end in ratio.numbers), strict=True))
            found["pairing"] = found["pairing"] or ratio.pairing
            found["blocks_unlike"] = found.get("blocks_unlike") or ratio.unlike
            ratios[change] = ratio
    return found | {"blocks_alike": pairing.blocks_alike(ratios)}


@kinds.table(
    "icpp2019_table6",
    title="Accuracy, time per epoch and power, weak scaling",
    look_for="Under weak scaling the time per epoch should stay the same, and the loader should not change it.",
    needs="weak-scaling runs with read_csv or chunked",
    uses=kinds.runs("weak", [BASE, OPTIMIZED]),
)
def table6(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """Table 6: training accuracy, time per epoch and GPU power under weak scaling, base and optimised loader."""
    measures = ["accuracy", "time_per_epoch_s", "power_per_gpu_w"]
    table = points(runs, [*measures, STEADY, "loss", ONE_HZ, *ALIKE.values(), "energy_window_s"])
    order = table["loader"].map({BASE: 0, OPTIMIZED: 1})
    table = (
        table.assign(order=order).sort_values(["benchmark", "order", "gpus"], ignore_index=True).drop(columns="order")
    )
    keys = ["benchmark", "scaling", "loader", "gpus"]
    table = beside_published(table, "icpp2019_table6_nt3_weak.csv", keys, measures, DIFFERENCE, ours=ALIKE)
    shown = ["machine", "benchmark", "scaling", "loader", "gpus"]
    for measure in measures:
        shown += [measure, *([STEADY] if measure == "time_per_epoch_s" else [])]
        shown += ["loss"] if measure == "accuracy" else []
        alike = ALIKE.get(measure, measure)
        shown += [*([ONE_HZ, alike] if alike != measure else []), f"published_{measure}", f"ratio_{alike}"]
    shown += ["energy_window_s", *TOLD, NOT_STATED]
    caption = (
        "Training accuracy (P1B1 has a loss only), time per epoch and average power per GPU, weak scaling. read_csv "
        f"is the paper's original loader, chunked its optimised one. {POWER_IS} published: icpp2019, Table 6 "
        "(Summit)."
    )
    return _of_runs("icpp2019_table6", caption, table, shown, window_notes(runs))


def _of_runs(name: str, caption: str, table: pd.DataFrame, shown: list[str], more: Sequence[str] = ()) -> Table:
    """A finished table of runs."""
    optional, remarks = optional_columns(shown), notes(table, "values")
    hidden = [column for column in shown if column.startswith(WHOLE_RUN)]
    return Table(
        name, caption, first(table, shown), shown, (*optional, *hidden, "energy_window_s"), [*remarks, *more], IDENTITY
    )
