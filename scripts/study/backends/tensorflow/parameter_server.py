"""A parameter server through TensorFlow's ParameterServerStrategy: a chief, workers, and servers with the weights.

The chief sends each worker the steps that it is to make, and evaluates. It loads tables and sends each worker their
samples; images are read by each worker itself, see `study.backends.tensorflow.shards`. A worker reads
the weights from the servers, computes a step's gradients, and sends them to the servers, which apply them at once:
training is asynchronous. TensorFlow's guide:
https://www.tensorflow.org/tutorials/distribute/parameter_server_training
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

from study.backends.tensorflow import shards, strategy_input
from study.backends.tensorflow.devices import limit_threads, pin_device
from study.backends.tensorflow.gradient_averaging import OfStrategy
from study.communication import roles
from study.communication.channel import Channel
from study.communication.collectives import Gathered
from study.communication.roles import BY_RANK, CHIEF_ENDED, JOBS, Place
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition
from study.instruments.counters import Reads, Traffic, read_peak_memory_mb
from study.instruments.heartbeats import Heartbeat
from study.instruments.phases import PhaseLog
from study.machines.run_layout import CHIEF, PARAMETER_SERVER, SERVER, WORKER, Role

BEGIN, END, FINISH = "begin", "end", "finish"  # what the chief asks the others
COUNTERS = ("tcp_sent_bytes", "tcp_received_bytes", "cpu_busy")


def own_role(run: RunDefinition) -> Role:
    """The role of this process."""
    return roles.of_run(run)[Place.own().number]


class Chief(OfStrategy):
    """A `study.communication.collectives.Collectives`, seen from the chief: it stands for all workers.

    ``size`` is the number of workers. ``rank`` is 0, as a process; it has no samples of its own.
    """

    rank = 0
    own_threads: frozenset[int] = frozenset()
    name = PARAMETER_SERVER
    registered: shards.Registered  # once the workers have opened their images

    def __init__(self, run: RunDefinition, with_process_sets: bool = False) -> None:
        """Wait for workers and servers, then connect to them."""
        import tensorflow as tf

        place = Place.own()
        self._place, self.local_rank = place, place.number_on_host(place.number)
        pin_device(run, self.local_rank)
        self._roles = roles.of_run(run)
        self.size = self.local_size = run.ranks
        self.libraries = {"tensorflow": tf.__version__, "controller": "grpc"}
        self.channel = Channel(place)
        self._traffic = ClusterTraffic(self.channel, self._roles)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=_partitioner(run))

    def gather(self, value: Any) -> list[Any]:
        """The chief's own ``value``."""
        return [value]

    def traffic(self) -> ClusterTraffic:
        """The counters of all processes."""
        return self._traffic

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """(one entry per worker, one per process), each as ``mine`` is; a lost process has no entry."""
        answers = {0: mine | {"final_weights_crc32": None}, **self.channel.ask(FINISH)}
        _require_all(self.channel, self._roles)
        processes = [
            {"process": number, "role": role.kind, "index": role.index} | answers[number] | self._traffic.mean(number)
            for number, role in enumerate(self._roles)
            if number in answers
        ]
        local = self._place.local_ranks(self._roles)
        ranks = [
            each
            | {"rank": each["index"], "local_rank": local[each["index"]], "final_weights_crc32": None}
            | {"sparse_gradients": mine.get("sparse_gradients")}  # the chief's model is theirs
            for each in processes
            if each["role"] == WORKER
        ]
        return ranks, processes

    def close(self) -> None:
        """Nothing: the others end when this process does."""


class ClusterTraffic:
    """As `study.instruments.counters.Traffic`, of all processes of the run; used by the chief."""

    def __init__(self, channel: Channel, processes: list[Role]) -> None:
        """processes: of the run, in the order of their numbers."""
        self._channel, self._own, self._processes = channel, Traffic(channel.sockets()), processes
        self._epochs: list[dict[int, dict[str, float | None]]] = []

    def begin(self) -> None:
        """All processes remember their counters; no step is under way."""
        self._channel.ask(BEGIN)
        _require_all(self._channel, self._processes)
        self._own.begin()

    def end(self) -> dict[str, float | None]:
        """The chief's columns since `begin`; keeps those of the others."""
        own = self._own.end()
        self._epochs.append({0: own, **self._channel.ask(END)})
        return own

    def mean(self, number: int) -> dict[str, float | None]:
        """Means per epoch of one process, without the first epoch if possible."""
        epochs = [epoch[number] for epoch in self._epochs if number in epoch]
        later = epochs[1:] if len(epochs) > 1 else epochs
        found: dict[str, float | None] = {}
        for name in COUNTERS:
            values = [value for value in (epoch[name] for epoch in later) if value is not None]
            found[name] = sum(values) / len(values) if values else None
        return found


def _require_all(channel: Channel, processes: list[Role]) -> None:
    """Raise `StudyError` if a process has ended, where no launch of ours goes on without it and tells of it."""
    if channel.lost and BY_RANK in os.environ:
        number = min(channel.lost)
        raise StudyError(f"another worker has ended: {processes[number]} (process {number})")


def _partitioner(run: RunDefinition) -> Any:
    """How variables are split over the servers; None places them whole, in turn."""
    import tensorflow as tf

    if run["server_placement"] == "round_robin":
        return None
    return tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=run["servers"])


def serve(run: RunDefinition, folder: str | Path, started: tuple[int, int], heartbeat: Heartbeat | None = None) -> None:
    """Be a worker or a server until the chief has finished. Arguments: as of `study.training.rank.run_rank`."""
    role, place = own_role(run), Place.own()
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{place.number:05d}.jsonl", place.number, socket.gethostname())
    phases.edge("startup", "begin", started)
    if heartbeat:
        heartbeat.phases = phases
        heartbeat.busy_phases |= {"train"}  # it does not know steps; while it waits it is idle
    gpu = _start_server(run, role, place)
    channel = Channel(place)
    phases.edge("startup", "end")
    _answer(run, role, channel, phases, gpu)


def _answer(run: RunDefinition, role: Role, channel: Channel, phases: PhaseLog, gpu: str | None) -> None:
    """Do what the chief asks, until it has ended."""
    traffic, reads, opened = Traffic(channel.sockets()), Reads(), None
    epoch = contextlib.ExitStack()
    try:
        while (question := channel.asked()) != FINISH:
            if question == shards.OPEN:
                with phases("load"):
                    opened = shards.Shards(run, role.index, reads.shared) if role.kind == WORKER else None
                channel.answer(opened.registered if opened else None)
            elif question == shards.UNREADABLE:
                channel.answer(opened.unreadable() if opened else None)
            else:
                phases.edge("train", question)  # the steps of an epoch; repetitions add up
                if question == BEGIN:
                    epoch.enter_context(reads.shared.count())
                    traffic.begin()
                else:
                    epoch.close()
                channel.answer(traffic.end() if question == END else None)
    except (EOFError, OSError):  # the launcher tells how the chief ended
        sys.exit(CHIEF_ENDED)
    own = {"host": socket.gethostname(), "gpu": gpu, "peak_memory_mb": read_peak_memory_mb()}
    channel.answer(own | (reads.as_mb() if opened and opened.readers else {}))
    with contextlib.suppress(EOFError, OSError):
        channel.asked()  # until the chief has ended: TensorFlow there still releases what it has here


def _start_server(run: RunDefinition, role: Role, place: Place) -> str | None:
    """TensorFlow's server of this process; returns the UUID of a worker's GPU."""
    import tensorflow as tf

    limit_threads(run.machine["cores_per_rank"])
    gpu = None
    if role.kind == SERVER:
        tf.config.set_visible_devices([], "GPU")
    else:
        gpu = pin_device(run, place.local_ranks(roles.of_run(run))[role.index])
        strategy_input.leave_number(role.index)
    # With fewer threads than workers, steps that wait for one another block a server (TensorFlow's guide).
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=run.machine["cores_per_rank"], inter_op_parallelism_threads=run.ranks + 1
    )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=JOBS[role.kind], task_index=role.index, protocol="grpc", config=config
    )
    return gpu


def is_chief(run: RunDefinition) -> bool:
    """Whether this process is the chief of a parameter-server run."""
    return own_role(run).kind == CHIEF
