"""PyTorch as a `study.backends.base.Backend`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from study import workloads
from study.backends.base import BlockOrder, OwnSamples, Trainer
from study.backends.pytorch import devices
from study.backends.pytorch.emulated_ranks import EmulatingTrainer
from study.backends.pytorch.process_group import ProcessGroup
from study.backends.pytorch.trainer import TorchTrainer
from study.communication import rendezvous, roles
from study.communication.collectives import Collectives, Members
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.instruments.heartbeats import Heartbeat
from study.machines.run_layout import HOROVOD
from study.workloads.base import Benchmark, Data, Workload


class PyTorch(OwnSamples):
    """PyTorch, averaged by DistributedDataParallel or Horovod."""

    name = "pytorch"
    limit_threads = staticmethod(devices.limit_threads)
    pin_device = staticmethod(devices.pin_device)

    def load_workload(self, run: RunDefinition) -> Benchmark:
        """Load the run's workload with its PyTorch module."""
        return workloads.load_benchmark(run.benchmark["name"], run.benchmark, self.name)

    def serve_or_stand_by(
        self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None
    ) -> bool:
        """False for a rank; True for a process that the run does not need.

        One that a batch system's launcher started first waits for the others, which gives it its rank.
        """
        if roles.get_strategy(run) == HOROVOD:
            return False
        return roles.BY_RANK in os.environ and not rendezvous.join_run(run, folder / "ranks")

    def connect(self, run: RunDefinition, static_sets: Sequence[Members] = ()) -> Collectives:
        """Wait for the other ranks, through Horovod or torch.distributed."""
        if roles.get_strategy(run) == HOROVOD:
            from study.backends.pytorch.horovod import Horovod

            return Horovod(run)
        return ProcessGroup(run)

    def make_blocks(
        self, samples: SampleSource, order: BlockOrder, reader: int, readers: int
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """Refused: blocks are for ensembles, which are TensorFlow's."""
        raise TypeError("ensembles need framework: tensorflow")

    def describe_blocks(self, samples: SampleSource, order: BlockOrder) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """Refused, as `make_blocks`."""
        raise TypeError("ensembles need framework: tensorflow")

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Trainer:
        """Build the trainer of the workload's module."""
        trainer = EmulatingTrainer if run.emulated_ranks > 1 else TorchTrainer
        return trainer(cast(Benchmark, workload), run, ranks, data)


BACKEND = PyTorch()
