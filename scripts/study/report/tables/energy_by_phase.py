"""Our own table: the energy of each phase of a run."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.records.power import PHASE_ENERGY
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

SHARES = ("load", "train")  # phases of which the share is shown


@kinds.table(
    "energy_by_phase",
    title="Energy by phase",
    look_for="How much of the energy goes into loading and into waiting, and so what faster loading can save. Without "
    "a power sensor the columns are empty.",
    needs=kinds.NEEDS_TIMINGS,
    uses=kinds.runs(),
    reads_further=True,
)
def energy_by_phase(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: energy of the job by phase, and the shares of loading and training.

    A phase lasts from its first rank's begin to its last rank's end, so phases overlap where ranks differ, and their
    sum may exceed the job's energy.
    """
    job = pd.to_numeric(runs["energy_job_j"]).where(lambda joules: joules > 0)
    runs = runs.assign(**{f"{phase}_share": pd.to_numeric(runs[f"{phase}_energy_j"]) / job for phase in SHARES})
    table = points(runs, ["energy_job_j", *PHASE_ENERGY, *(f"{phase}_share" for phase in SHARES)])
    for name in (name for name in table if "_share" in name):  # of measured and modelled energies there is none
        table[name] = table[name].mask(table["energy_job_j"].isna())
    table = table.sort_values(["benchmark", "dataset", "scaling", "batch_size", "gpus"], ignore_index=True)
    shown = ["machine", "memory_mode", "benchmark", "scaling", "gpus", "batch_size", "loader", "energy_job_j",
             *PHASE_ENERGY, "load_share", "train_share", "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    caption = (
        "Energy of the job from load to evaluate, and in each phase. A phase lasts from its first rank's begin to "
        "its last rank's end, so phases of different ranks may overlap. share: of the job's energy, mean over the "
        "repeats."
    )
    return Table("energy_by_phase", caption, table, shown, optional_columns(shown), notes(table, "values"), IDENTITY)
