"""TensorFlow as a `study.backends.base.Backend`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from study import workloads
from study.backends.base import Trainer
from study.backends.tensorflow import devices, input, parameter_server, shards
from study.backends.tensorflow.blocks import describe_blocks, make_blocks
from study.backends.tensorflow.horovod import Horovod
from study.backends.tensorflow.parameter_server import Chief
from study.backends.tensorflow.trainer import KerasTrainer
from study.communication import rendezvous, roles
from study.communication.collectives import Collectives, Members
from study.communication.roles import get_strategy
from study.data.samples import SampleSource
from study.experiment.definition import RunDefinition
from study.instruments.heartbeats import Heartbeat
from study.machines.run_layout import PARAMETER_SERVER
from study.workloads.base import Benchmark, Data, Workload


class TensorFlow:
    """TensorFlow with Keras 2, averaged by Horovod, or with a parameter server."""

    name = "tensorflow"
    limit_threads = staticmethod(devices.limit_threads)
    pin_device = staticmethod(devices.pin_device)

    def load_workload(self, run: RunDefinition) -> Benchmark:
        """Load the run's workload with its Keras model."""
        return workloads.load_benchmark(run.benchmark["name"], run.benchmark, self.name)

    def serve_or_stand_by(
        self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None
    ) -> bool:
        """False for ranks and a parameter server's chief; True for its workers and servers, once it has finished.

        True also for a process that the run does not need, at once.
        """
        if get_strategy(run) != PARAMETER_SERVER:
            return False
        if roles.BY_RANK in os.environ and not rendezvous.join_run(run, folder / "ranks"):
            return True
        if parameter_server.is_chief(run):
            return False
        parameter_server.serve(run, folder, started, heartbeat)
        return True

    def connect(self, run: RunDefinition, static_sets: Sequence[Members] = ()) -> Collectives:
        """Wait for the other ranks, through Horovod or as the chief of a parameter server."""
        return Chief(run) if get_strategy(run) == PARAMETER_SERVER else Horovod(static_sets)

    def list_own_files(self, run: RunDefinition) -> Collection[str] | None:
        """The files without those of training under a parameter server, whose workers read them; None for all."""
        return run.data.keys() - shards.list_training_files(run) if get_strategy(run) == PARAMETER_SERVER else None

    def open_on_workers(self, ranks: Collectives) -> None:
        """Have a parameter server's workers open their images; nothing without one."""
        if isinstance(ranks, Chief):
            ranks.registered = shards.open_on_workers(ranks.channel)

    def make_training_source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """Make the source of training samples; images are read by a parameter server's worker that trains on them."""
        if not isinstance(ranks, Chief):
            return samples
        return shards.hand_to_workers(samples, ranks.registered.readers, ranks.channel)

    report_read_errors = staticmethod(input.report_read_errors)
    make_blocks = staticmethod(make_blocks)
    describe_blocks = staticmethod(describe_blocks)

    def divides_samples(self, ranks: Collectives) -> bool:
        """True under a parameter server."""
        return isinstance(ranks, Chief)

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Trainer:
        """Build the trainer of the workload's Keras model."""
        return KerasTrainer(cast(Benchmark, workload), run, ranks, data)


BACKEND = TensorFlow()
