"""Points of a study in the columns of the SC18 paper's tables, and the paper's own; tables and claims read both."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

import study.report.tables.kinds as kinds
from study.core import configuration
from study.experiment.parameters import is_observed
from study.records.power import NODE_MEANS, NODE_POWER, WHOLE_RUN_NODE
from study.records.tidy import NO_MODE, PROFILE
from study.report.papers.sc18.workload import EPOCHS
from study.report.tables.layout import ci95_name
from study.report.tables.summary import points, published

QUALITY = ["loss", "accuracy", "validation_loss", "validation_accuracy"]


@dataclass(frozen=True)
class Source:
    """The points of one published table.

    Args:
        file: of published values.
        what: the paper's tables in it.
        columns: {the paper's column: the column of the tidy table of runs}, for measured ones.
        uses: whether a run belongs in it, planned or a row of the tidy table of runs.
        derive: adds columns that follow from the published ones; ours have them from `derive_ours`.
        derive_ours: the same, from columns that our points have besides.
    """

    file: str
    what: str
    columns: dict[str, str]
    uses: kinds.Uses
    derive: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table
    derive_ours: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table

    def ours(self, runs: pd.DataFrame) -> pd.DataFrame:
        """One row per point, in the paper's columns."""
        names = {ours: theirs for theirs, ours in self.columns.items()}
        more = [name for name in (*NODE_POWER, *WHOLE_RUN_NODE, "energy_window_s", "load_s") if name not in names]
        chosen = kinds.selected(runs, self.uses)
        if chosen.empty:
            return pd.DataFrame()
        table = points(chosen, [*names, *more])
        intervals = {ci95_name(ours): ci95_name(theirs) for ours, theirs in names.items()}
        alike = {"whole_run_node_energy_j": "whole_run_energy_j"}
        return self.derive_ours(table.rename(columns=names | intervals | alike))

    def theirs(self) -> pd.DataFrame:
        """The published rows."""
        return self.derive(published(self.file))


def lookup_mode(table: pd.DataFrame) -> pd.DataFrame:
    """The points with cache as memory mode where their machine declares none: the mode of the paper's main tables."""
    return table.assign(memory_mode=table["memory_mode"].where(table["memory_mode"] != NO_MODE, "cache"))


def _one_rank(run: Any) -> bool:
    return is_observed(run, None) and run["scaling"] == "weak" and run["gpus"] == 1


def _usual_batch(run: Any) -> bool:
    return _one_rank(run) and run["batch_size"] == _usual_batch_size(run["benchmark"])


@functools.cache
def _usual_batch_size(benchmark: str) -> int:
    return configuration.load_named("benchmarks", benchmark)["batch_size"]


def _energies(table: pd.DataFrame) -> pd.DataFrame:
    """What the printed energy has besides mean power x runtime; 0 if it was computed from them."""
    return table.assign(
        unexplained_energy_j=table["energy_j"] - table["node_power_w"] * table["runtime_s"],
        energy_per_time_w=table["energy_j"] / table["runtime_s"],
    )


def _our_energies(table: pd.DataFrame) -> pd.DataFrame:
    """The same, of the counter and the readings of power in one window; ``power_runtime_j`` is the paper's formula."""
    return table.assign(
        power_runtime_j=table["node_power_w"] * table["runtime_s"],
        unexplained_energy_j=table["energy_j"] - table["node_power_time_j"],
        energy_per_time_w=table["energy_j"] / table["energy_window_s"],
    )


def _per_epoch(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(model_fit_per_epoch_s=table["model_fit_s"] / (EPOCHS["strong"] / table["gpus"]))


def _our_per_epoch(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(model_fit_per_epoch_s=table["model_fit_s"] / table["epochs_per_rank"])


_RUNTIME_AND_POWER = {name: name for name in ("runtime_s", *NODE_MEANS)}
SOURCES = {
    "table1": Source(
        "sc18_table1_nt3_batch_size.csv", "Table 1", {**_RUNTIME_AND_POWER, "energy_j": "node_energy_j"}, _one_rank,
        _energies, _our_energies,
    ),
    "memory_modes": Source("sc18_memory_modes.csv", "section 4.1", _RUNTIME_AND_POWER, _usual_batch),
    "table2_3": Source(
        "sc18_table2_3_nt3_weak_profile.csv", "Tables 2 and 3", {name: f"profile_{name}" for name in PROFILE},
        kinds.runs(observed="profile"),
    ),
    "table4_5_6": Source(
        "sc18_table4_5_6_nt3_strong.csv", "Tables 4, 5 and 6",
        {"model_fit_s": "train_s", **{name: name for name in QUALITY}}, kinds.runs("strong"),
        _per_epoch, _our_per_epoch,
    ),
    "traced": Source("sc18_text.csv", "section 5.1", {"allreduce_first_s": "allreduce_first_s"},
                     kinds.runs("strong", observed="trace")),
}  # fmt: skip
