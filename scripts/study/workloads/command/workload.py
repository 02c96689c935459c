"""A command as a `Workload`, for what asks every benchmark."""

from collections.abc import Iterable, Mapping

from study.workloads import base
from study.workloads.command import KIND


class Workload(base.Workload):
    """A program of the user's."""

    kind = KIND
    metric_names = ()

    def synthetic_blocks(self, file: str, shape: Mapping[str, int], seed: int) -> Iterable[bytes]:
        """A program has no files."""
        raise TypeError("a command has no files")

    def arrange(self, tables: Mapping[str, base.Table], seed: int) -> base.Data:
        """A program has no samples that we arrange."""
        raise TypeError("a command has no samples of ours")
