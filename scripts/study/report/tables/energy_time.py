"""Our own table: energy against time, and which points no other point beats in both."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

import study.report.tables.kinds as kinds
from study.core.statistics import pareto
from study.experiment.study import growth_of_work
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points, to_target

# Keys that make work another, beside the ranks; of a command, its own parameters may. Not compared.
WORK = ["benchmark", "dataset", "scaling", "sharding", "epochs", "ensemble", "program_parameters", "members",
        "halving_epochs", "power_source"]  # fmt: skip
FRONT = "on_pareto_front"
VARIED = ("gpus", "batch_size", "loader", "precision", "gpu_power_limit_w", "gpu_clock_mhz", "cpu_power_limit_w",
          "cpu_governor")  # fmt: skip
CAPTION = (
    "Time from load to evaluate, and energy of the job in this time: means over the repeats. on_pareto_front: no other "
    "point of the same work has a lower mean of one and no higher mean of the other. The work is the same with equal "
    "benchmark, dataset, parameters of a program, scaling mode, sharding, epochs, and members of an ensemble and "
    "their halving. Where the work changes with the ranks, as under weak scaling, it also needs the same number of "
    "ranks. Measured and modelled energies are not compared."
)


@kinds.table(
    "energy_time",
    title="Energy against time",
    look_for="Which settings, such as power limits, are worth considering: of two points on the front, one needs less "
    "energy and the other less time. Without a power sensor the columns are empty.",
    needs=kinds.NEEDS_TIMINGS,
    uses=kinds.runs(),
)
def energy_time(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: its time, energy, power and energy-delay product, and whether it is on the Pareto front."""
    measures = ["energy_window_s", "energy_job_j", "power_per_gpu_w", "energy_delay_product_js", "samples_per_j"]
    table = points(runs, measures)
    table[FRONT] = False
    for _, group in of_equal_work(table):
        x, y = (pd.to_numeric(group[name]).to_numpy(float) for name in measures[:2])
        table.loc[group.index, FRONT] = pareto(x, y)
    table[FRONT] = table[FRONT].astype(object).where(table["energy_job_j"].notna(), None)
    table = table.sort_values([*WORK[:3], "energy_window_s"], ignore_index=True)
    shown = ["machine", "memory_mode", "benchmark", "scaling", *VARIED, *measures, FRONT, "power_source",
             "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    remarks = [*notes(table, "values"), *to_target(runs, "time and energy")]
    return Table("energy_time", CAPTION, table, shown, optional_columns(shown), remarks, IDENTITY)


def of_equal_work(table: pd.DataFrame) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """The points that can be compared, with their number of ranks if those of another number do other work."""
    of_ranks = zip(table["scaling"], table["sharding"], strict=True)
    changes = np.array([growth_of_work(scaling, sharding, 2.0) != 1 for scaling, sharding in of_ranks], dtype=bool)
    ranks = table["gpus"].where(changes, 0).rename("ranks")
    for key, rows in table.groupby([*WORK, ranks], sort=False, dropna=False):
        yield int(key[-1]) or None, rows
