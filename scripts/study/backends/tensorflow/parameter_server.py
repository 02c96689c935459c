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
from study.backends.tensorflow.gradient_averaging import StrategyAveraging
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


def get_own_role(run: RunDefinition) -> Role:
    """The role of this process."""
    return roles.list_run_roles(run)[Place.from_environment().number]


class Chief(StrategyAveraging):
    """A `study.communication.collectives.Collectives`, seen from the chief: it stands for all workers.

    ``size`` is the number of workers. ``rank`` is 0, as a process; it has no samples of its own.
    """

    rank = 0
    own_threads: frozenset[int] = frozenset()
    name = PARAMETER_SERVER
    registered: shards.Registered  # once the workers have opened their images

    def __init__(self, run: RunDefinition) -> None:
        """Wait for workers and servers, then connect to them."""
        import tensorflow as tf

        place = Place.from_environment()
        self._place, self.local_rank = place, place.count_earlier_on_host(place.number)
        pin_device(run, self.local_rank)
        self._roles = roles.list_run_roles(run)
        self.size = self.local_size = run.ranks
        self.libraries = {"tensorflow": tf.__version__, "controller": "grpc"}
        self.channel = Channel(place)
        self._traffic = ClusterTraffic(self.channel, self._roles)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=_make_partitioner(run))

    def gather(self, value: Any) -> list[Any]:
        """The chief's own ``value``."""
        return [value]

    def traffic(self) -> ClusterTraffic:
        """The counters of all processes."""
        return self._traffic

    def collect(self, mine: dict[str, Any]) -> Gathered:
        """Gather (one entry per worker, one per process), each like ``mine``; a lost process has no entry."""
        answers = {0: mine | {"final_weights_crc32": None}, **self.channel.ask(FINISH)}
        _check_all_alive(self.channel, self._roles)
        processes = [
            {"process": number, "role": role.kind, "index": role.index}
            | answers[number]
            | self._traffic.compute_means(number)
            for number, role in enumerate(self._roles)
            if number in answers
        ]
        local = self._place.list_local_ranks(self._roles)
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
        self._channel, self._own, self._processes = channel, Traffic(channel.list_sockets()), processes
        self._epochs: list[dict[int, dict[str, float | None]]] = []

    def begin(self) -> None:
        """Have all processes note their counters; no step is under way."""
        self._channel.ask(BEGIN)
        _check_all_alive(self._channel, self._processes)
        self._own.begin()

    def end(self) -> dict[str, float | None]:
        """End an epoch: the chief's traffic since `begin`; that of the others is kept for `compute_means`."""
        own = self._own.end()
        self._epochs.append({0: own, **self._channel.ask(END)})
        return own

    def compute_means(self, number: int) -> dict[str, float | None]:
        """Means per epoch of one process, without the first epoch if possible."""
        epochs = [epoch[number] for epoch in self._epochs if number in epoch]
        later = epochs[1:] if len(epochs) > 1 else epochs
        means: dict[str, float | None] = {}
        for name in COUNTERS:
            values = [value for value in (epoch[name] for epoch in later) if value is not None]
            means[name] = sum(values) / len(values) if values else None
        return means


def _check_all_alive(channel: Channel, processes: list[Role]) -> None:
    """Raise `StudyError` if a process has ended that no launch of ours watches."""
    if channel.lost and BY_RANK in os.environ:
        number = min(channel.lost)
        raise StudyError(f"another worker has ended: {processes[number]} (process {number})")


def _make_partitioner(run: RunDefinition) -> Any:
    """Make TensorFlow's partitioner, which splits variables over the servers; None places them whole, in turn."""
    import tensorflow as tf

    if run["server_placement"] == "round_robin":
        return None
    return tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=run["servers"])


def serve(run: RunDefinition, folder: str | Path, started: tuple[int, int], heartbeat: Heartbeat | None = None) -> None:
    """Work as worker or server until the chief has finished. Arguments: as of `study.training.rank.run_rank`."""
    role, place = get_own_role(run), Place.from_environment()
    phases = PhaseLog(Path(folder) / "ranks" / f"phases-{place.number:05d}.jsonl", place.number, socket.gethostname())
    phases.edge("startup", "begin", started)
    if heartbeat:
        heartbeat.phases = phases
        heartbeat.busy_phases |= {"train"}  # it does not know steps; while it waits it is idle
    gpu = _start_server(run, role, place)
    channel = Channel(place)
    phases.edge("startup", "end")
    _answer_chief(run, role, channel, phases, gpu)


def _answer_chief(run: RunDefinition, role: Role, channel: Channel, phases: PhaseLog, gpu: str | None) -> None:
    """Answer the chief's requests as worker or server, at the end with this process's own measures.

    Returns when the chief has ended; exits with `CHIEF_ENDED` if it did so before it asked for these measures.
    """
    traffic, reads, opened = Traffic(channel.list_sockets()), Reads(), None
    epoch = contextlib.ExitStack()
    try:
        while (question := channel.receive()) != FINISH:
            if question == shards.OPEN:
                with phases("load"):
                    opened = shards.Shards(run, role.index, reads.shared) if role.kind == WORKER else None
                channel.answer(opened.registered if opened else None)
            elif question == shards.UNREADABLE:
                channel.answer(opened.find_unreadable() if opened else None)
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
        channel.receive()  # until the chief has ended: TensorFlow there still releases what it has here


def _start_server(run: RunDefinition, role: Role, place: Place) -> str | None:
    """Start TensorFlow's server in this process; returns the UUID of a worker's GPU."""
    import tensorflow as tf

    limit_threads(run.machine["cores_per_rank"])
    gpu = None
    if role.kind == SERVER:
        tf.config.set_visible_devices([], "GPU")
    else:
        gpu = pin_device(run, place.list_local_ranks(roles.list_run_roles(run))[role.index])
        strategy_input.store_worker_number(role.index)
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
    """True if this process is the chief of a parameter-server run."""
    return get_own_role(run).kind == CHIEF
