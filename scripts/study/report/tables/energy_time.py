"""Our own table: energy against time, and which points no other point beats in both."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from study.core.statistics import pareto
from study.experiment.study import growth_of_work
from study.report.tables.declared import Rows, table_rows
from study.report.tables.summary import points, to_target

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
    for _, group in of_equal_work(table):
        x, y = (pd.to_numeric(group[name]).to_numpy(float) for name in measures[:2])
        table.loc[group.index, FRONT] = pareto(x, y)
    table[FRONT] = table[FRONT].astype(object).where(table["energy_job_j"].notna(), None)
    table = table.sort_values([*WORK[:3], "energy_window_s"], ignore_index=True)
    return Rows(table, to_target(runs, "time and energy"))


def of_equal_work(table: pd.DataFrame) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """The points that can be compared, with their number of ranks if those of another number do other work."""
    of_ranks = zip(table["scaling"], table["sharding"], strict=True)
    changes = np.array([growth_of_work(scaling, sharding, 2.0) != 1 for scaling, sharding in of_ranks], dtype=bool)
    ranks = table["gpus"].where(changes, 0).rename("ranks")
    for key, rows in table.groupby([*WORK, ranks], sort=False, dropna=False):
        yield int(key[-1]) or None, rows
