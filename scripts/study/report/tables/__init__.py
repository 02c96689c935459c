"""The tables: what each is made of, and what a study must have for it."""

from collections.abc import Callable
from dataclasses import dataclass

from study.data.formats import FORMATS
from study.report.papers.icpp2019 import claims
from study.report.papers.icpp2019 import tables as icpp2019
from study.report.papers.sc18 import tables as sc18
from study.report.tables import communication, formats, scaling, staging

BASE_AND_OPTIMIZED = {"read_csv", "chunked"}


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    title: what it shows. make: from the tidy tables (runs, loading) to a `layout.Table`. needs: what a
    study must have, in words; there: whether a `study.experiment.grid.Study` has it. look_for: what to look for in it.
    """

    title: str
    make: Callable
    needs: str
    there: Callable
    look_for: str


def _runs(scaling=None, loaders=None, observed=None):
    """observed: ``trace`` or ``profile`` for runs of that kind; else only runs that give timings count."""

    def there(study):
        return any(
            [name for name in ("trace", "profile") if run.parameters[name]] == ([observed] if observed else [])
            and (scaling is None or run.parameters["scaling"] == scaling)
            and (loaders is None or run.parameters["loader"] in loaders)
            for run in study.runs
        )

    return there


TABLES = {
    "scaling": Kind(
        "What each number of GPUs brings and costs",
        scaling.scaling,
        "runs",
        _runs(),
        "What each number of GPUs brings and costs: where the efficiency falls below what the job is worth, and which "
        "phase takes the time there.",
    ),
    "icpp2019_table1": Kind(
        "The benchmarks as run here",
        icpp2019.table1,
        "runs",
        _runs(),
        "How large the benchmarks were here, beside the paper's: a difference here is why ratios elsewhere are empty.",
    ),
    "icpp2019_table2": Kind(
        "Time per epoch and power, strong scaling",
        icpp2019.table2,
        "strong-scaling runs with read_csv",
        _runs("strong", {"read_csv"}),
        "The time per epoch should stay the same as GPUs are added; what it grows by is communication.",
    ),
    "icpp2019_table3": Kind(
        "Loading by loader (the paper's Tables 3 and 4)",
        icpp2019.table3,
        "a loading measurement",
        lambda study: bool(study.loading),
        "How much faster each loader is than read_csv. The paper found much for wide files (NT3, P1B1, P1B2) and "
        "hardly anything for a long, narrow one (P1B3).",
    ),
    "formats": Kind(
        "Formats of the converted matrix",
        formats.formats,
        "a loading measurement of a format, such as hdf5",
        lambda study: any(set(entry.loaders) & set(FORMATS) - {"npy"} for entry in study.loading),
        "What HDF5, Parquet, Feather, TFRecord and LMDB cost beside a plain array, to write and to load, when a file "
        "has 60,000 columns and when it has four.",
    ),
    "staging": Kind(
        "The way of the data to the ranks",
        staging.staging,
        "runs with staging other than none",
        lambda study: any(run.parameters["staging"] != "none" for run in study.runs),
        "How much the ranks ask of the file system that all nodes share, and what it costs in time when one rank reads "
        "for the others. On one host all nodes share one page cache and one set of cores.",
    ),
    "icpp2019_table5": Kind(
        "Power and energy, base and optimised loading",
        icpp2019.table5,
        "strong-scaling runs with read_csv or chunked",
        _runs("strong", BASE_AND_OPTIMIZED),
        "Faster loading raises the average power, since less of the run is idle, and lowers the energy. Without a "
        "power sensor the columns are empty.",
    ),
    "icpp2019_table6": Kind(
        "Accuracy, time per epoch and power, weak scaling",
        icpp2019.table6,
        "weak-scaling runs with read_csv or chunked",
        _runs("weak", BASE_AND_OPTIMIZED),
        "Under weak scaling the time per epoch should stay the same, and the loader should not change it.",
    ),
    "communication": Kind(
        "Broadcast and allreduce by the timeline",
        communication.communication,
        "traced runs (trace: true)",
        _runs(observed="trace"),
        "Whether the broadcast waits for ranks that load longer (skew) or for the network (transfer): the paper's "
        "faster loading shortened it from 43.72 s to 4.65 s on 384 GPUs. And what an epoch's allreduce is made of.",
    ),
    "sc18_table2_3": Kind(
        "Where the time goes by cProfile",
        sc18.table2_3,
        "profiled runs (profile: true)",
        _runs(observed="profile"),
        "Data loading and TensorFlow take the time; what Horovod does in Python hardly grows with the ranks. The "
        "profile does not see communication within TensorFlow: the timeline does.",
    ),
    "icpp2019_claims": Kind(
        "The paper's claims, recomputed",
        claims.claims,
        "runs",
        _runs(),
        "Each improvement that the paper states, from our runs by the same formula; where it cannot be computed, which "
        "runs are missing.",
    ),
}
