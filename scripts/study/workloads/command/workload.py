"""A command as a `Workload`, for code that handles all benchmarks."""

from collections.abc import Iterable, Mapping

from study.workloads import base
from study.workloads.command import KIND


class Workload(base.Workload):
    """The workload of a program of the user's, without files, samples and metrics of this project."""

    kind = KIND
    metric_names = ()

    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """Raise `TypeError`: a program has no files."""
        raise TypeError("a command has no files")

    def arrange(self, tables: Mapping[str, base.Table], seed: int) -> base.Data:
        """Raise `TypeError`: a program loads its own samples."""
        raise TypeError("a command has no samples of ours")
