"""The paper's statements beside what its other numbers give: where they agree, and where they contradict each other."""

import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core.registry import Registry
from study.core.units import MIB
from study.report.papers.declaration import load_paper
from study.report.papers.icpp2019.quantities import find_first_lasting
from study.report.papers.icpp2019.tables import BASE, MACHINES, OPTIMIZED
from study.report.papers.points import benchmark as specification
from study.report.tables.declared import Rows, table_rows
from study.report.tables.published_values import read_published

CHUNK_ROWS = 2_000_000  # of the paper's listing (section 5)
LEAST_BYTES = 2  # of a value in a csv file: a digit and a separator
Derive = Callable[[str], float]
DERIVED: Registry[Derive] = Registry("value derived from published numbers")
# What a relation says of (derived, stated). Equal: with the decimals of the statement.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda derived, stated: round(derived, _decimals(stated)) == stated,
    ">": operator.gt,
    ">=": operator.ge,
    "<=": operator.le,
}


@table_rows("icpp2019_consistency", is_there=lambda study: True, uses=kinds.no_run)
def consistency(runs: pd.DataFrame, loading: pd.DataFrame) -> Rows:
    """One row per statement: its number, the number that other published values give, and whether they agree.

    Runs are not read. ``derived`` is computed from config/papers/icpp2019, or is a number given there with its place.
    """
    frame = read_published("icpp2019_consistency.csv").rename(columns={"where": "paper_section"})
    frame["derived"] = [_derive_number(row) for _, row in frame.iterrows()]
    frame["agrees"] = [_agrees(row) for _, row in frame.iterrows()]
    return Rows(frame)


def _derive_number(row: pd.Series) -> float:
    return row["other"] if pd.isna(row["derived_by"]) else DERIVED[row["derived_by"]](row["of"])


def _agrees(row: pd.Series) -> Any:
    """Whether the derived number fits the statement; None where there is nothing to compare."""
    if pd.isna(row["relation"]):
        return None
    return not math.isnan(row["derived"]) and RELATIONS[row["relation"]](row["derived"], row["stated"])


def _decimals(stated: float) -> int:
    return len(f"{stated:g}".partition(".")[2])


def _benchmark(name: str) -> pd.Series:
    return read_published("icpp2019_table1_benchmarks.csv").set_index("benchmark").loc[name]


def _files(benchmark: str, machine: str, loader: str, splits: Collection[str] = ("train", "test")) -> float:
    """Seconds to load a benchmark's training and test file alone (Tables 3 and 4), or one of them."""
    table = read_published(MACHINES[machine])
    wanted = (table["benchmark"] == benchmark) & table["split"].isin(splits)
    return float(table.loc[wanted, f"{loader}_s"].sum())


def _weak(gpus: int) -> float:
    """Time per epoch of NT3 with the original loader (Table 6), s."""
    table = read_published("icpp2019_table6_nt3_weak.csv").query("loader == @BASE").set_index("gpus")
    return float(table.loc[gpus, "time_per_epoch_s"])


def strong_scaling() -> pd.DataFrame:
    """NT3 with batch size 20 on Summit, one row per number of ``gpus``.

    ``train_s`` = epochs x time per epoch (Table 2); ``runtime_s``, ``runtime_optimized_s`` = energy / power (Table 5).
    """
    epochs = _strong(20)
    power = read_published("icpp2019_table5_nt3_power_energy.csv").set_index("gpus")
    times = pd.DataFrame(
        {
            "train_s": epochs["time_per_epoch_s"] * _benchmark("nt3")["epochs"] / epochs.index,
            "runtime_s": power["energy_per_gpu_j"] / power["power_w"],
            "runtime_optimized_s": power["energy_optimized_per_gpu_j"] / power["power_optimized_w"],
        }
    )
    return times.reset_index()


def _loading(of: str) -> float:
    """NT3's loading time on Summit, s: of the ``files`` alone (Table 3), or of a ``run`` on 384 GPUs (4.2.1)."""
    if of == "files":
        return _files("nt3", "summit", BASE)
    return float(load_paper("icpp2019").published.number("text('load_s')"))


@DERIVED.register("most_gpus")
def most_gpus(of: str) -> float:
    """Epochs of a benchmark / fewest epochs per GPU."""
    return _benchmark(of)["epochs"] / specification(of)["epochs"]["minimum_per_rank"]


@DERIVED.register("runtime_reduction")
def runtime_reduction(of: str) -> float:
    """Largest reduction of energy / power, %; the paper has it for NT3."""
    table = strong_scaling()
    return float((100 * (1 - table["runtime_optimized_s"] / table["runtime_s"])).max())


@DERIVED.register("files_theta_over_summit")
def files_theta_over_summit(of: str) -> float:
    """Loading a benchmark's two files alone with the original loader, Theta / Summit."""
    return _files(of, "theta", BASE) / _files(of, "summit", BASE)


def _files_speedup(machine: str, splits: Collection[str]) -> Derive:
    """The derivation: loading these files of a benchmark alone on a machine, original / improved loader."""
    return lambda of: _files(of, machine, BASE, splits) / _files(of, machine, OPTIMIZED, splits)


for _machine in MACHINES:
    DERIVED.add(f"files_speedup_{_machine}", _files_speedup(_machine, ("train", "test")))
    DERIVED.add(f"train_file_speedup_{_machine}", _files_speedup(_machine, ("train",)))


def _strong(batch_size: int) -> pd.DataFrame:
    """NT3 on Summit under strong scaling (Table 2), by number of GPUs."""
    table = read_published("icpp2019_table2_nt3_strong.csv")
    return table[table["batch_size"] == batch_size].set_index("gpus")


@DERIVED.register("lower_with_batch_40")
def lower_with_batch_40(of: str) -> float:
    """On how many numbers of GPUs a column of Table 2 is lower with batch size 40 than with 20."""
    return float((_strong(40)[of] < _strong(20)[of]).sum())


@DERIVED.register("strong_epoch_s")
def strong_epoch_s(of: str) -> float:
    """NT3's time per epoch with batch size 20 on this number of GPUs, s."""
    return float(_strong(20).loc[int(of), "time_per_epoch_s"])


@DERIVED.register("power_increase")
def power_increase(of: str) -> float:
    """Largest increase of NT3's power as printed, %."""
    return float(read_published("icpp2019_table5_nt3_power_energy.csv")["power_change_pct"].max())


@DERIVED.register("steps_per_epoch")
def steps_per_epoch(of: str) -> float:
    """Samples / batch size of a benchmark."""
    row = _benchmark(of)
    return row["train_samples"] / row["batch_size"]


@DERIVED.register("cubic_root_batch")
def cubic_root_batch(of: str) -> float:
    """P1B3's batch size on this number of GPUs: int(batch size x GPUs^(1/3)) (section 2.3.1)."""
    return float(int(_benchmark("p1b3")["batch_size"] * int(of) ** (1 / 3)))


@DERIVED.register("dominates_training")
def dominates_training(of: str) -> float:
    """Number of GPUs from which on loading takes longer than training: the definition of docs/method.md."""
    table = strong_scaling()
    return find_first_lasting(table, _loading(of) - table["train_s"])


@DERIVED.register("dominates_half")
def dominates_half(of: str) -> float:
    """Number of GPUs from which on loading takes more than half of the runtime."""
    table = strong_scaling()
    return find_first_lasting(table, _loading(of) - table["runtime_s"] / 2)


@DERIVED.register("lowest_accuracy")
def lowest_accuracy(of: str) -> float:
    """NT3's lowest accuracy with 8 epochs per GPU and the original loader (Table 6)."""
    return float(read_published("icpp2019_table6_nt3_weak.csv").query("loader == @BASE")["accuracy"].min())


@DERIVED.register("epochs_per_gpu")
def epochs_per_gpu(of: str) -> float:
    """NT3's epochs per GPU on this number of GPUs, strong scaling."""
    return _benchmark("nt3")["epochs"] / int(of)


@DERIVED.register("epoch_growth")
def epoch_growth(of: str) -> float:
    """NT3's time per epoch on 3,072 GPUs / on 6 (``time``) or 1 (``sequential``); of ``overhead``: beyond one GPU's."""
    if of == "overhead":
        return (_weak(3072) - _weak(1)) / (_weak(6) - _weak(1))
    return _weak(3072) / _weak(1 if of == "sequential" else 6)


@DERIVED.register("most_columns")
def most_columns(of: str) -> float:
    """Columns for which the training file has room, if each value takes two bytes; its size is in MiB."""
    row = _benchmark(of)
    return row["train_mib"] * MIB / row["train_samples"] / LEAST_BYTES


@DERIVED.register("chunk_mb")
def chunk_mb(of: str) -> float:
    """Size of one chunk of the paper's listing: of the whole training file if it has fewer rows."""
    row = _benchmark(of)
    return row["train_mib"] * MIB / 1e6 * min(1, CHUNK_ROWS / row["train_samples"])
