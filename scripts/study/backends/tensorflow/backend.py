"""TensorFlow as a `study.backends.base.Backend`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from study import workloads
from study.backends.base import Trainer
from study.backends.tensorflow import devices, input, parameter_server, shards
from study.backends.tensorflow.blocks import blocks, form
from study.backends.tensorflow.horovod import Horovod
from study.backends.tensorflow.parameter_server import Chief
from study.backends.tensorflow.trainer import KerasTrainer
from study.communication import rendezvous, roles
from study.communication.collectives import Collectives, Members
from study.communication.roles import strategy_of
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

    def workload(self, run: RunDefinition) -> Benchmark:
        """With its Keras model."""
        return workloads.with_model(run.benchmark["name"], run.benchmark, self.name)

    def serve(self, run: RunDefinition, folder: Path, started: tuple[int, int], heartbeat: Heartbeat | None) -> bool:
        """Be a worker or a server of a parameter server until its chief has finished, if that is this process's role.

        Also true for a process that the run does not need.
        """
        if strategy_of(run) != PARAMETER_SERVER:
            return False
        if roles.BY_RANK in os.environ and not rendezvous.join(run, folder / "ranks"):
            return True
        if parameter_server.is_chief(run):
            return False
        parameter_server.serve(run, folder, started, heartbeat)
        return True

    def connect(
        self, run: RunDefinition, with_process_sets: bool = False, static_sets: Sequence[Members] = ()
    ) -> Collectives:
        """Horovod's ranks, or the chief of a parameter server."""
        return Chief(run) if strategy_of(run) == PARAMETER_SERVER else Horovod(with_process_sets, static_sets)

    def own_files(self, run: RunDefinition) -> Collection[str] | None:
        """Under a parameter server the workers read the files of training."""
        return run.data.keys() - shards.trained(run) if strategy_of(run) == PARAMETER_SERVER else None

    def open_elsewhere(self, ranks: Collectives) -> None:
        """Have a parameter server's workers open their images."""
        if isinstance(ranks, Chief):
            ranks.registered = shards.opened(ranks.channel)

    def source(self, samples: SampleSource, ranks: Collectives) -> SampleSource:
        """Under a parameter server, images are read by the worker that trains on them."""
        if not isinstance(ranks, Chief):
            return samples
        return shards.read_by_workers(samples, ranks.registered.readers, ranks.channel)

    reading_errors = staticmethod(input.reading_errors)
    blocks = staticmethod(blocks)
    block_form = staticmethod(form)

    def takes_all_samples(self, ranks: Collectives) -> bool:
        """Under a parameter server."""
        return isinstance(ranks, Chief)

    def build(self, workload: Workload, run: RunDefinition, ranks: Collectives, data: Data) -> Trainer:
        """The workload's Keras model."""
        return KerasTrainer(cast(Benchmark, workload), run, ranks, data)


BACKEND = TensorFlow()
