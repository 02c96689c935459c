"""One process of a run that is given by a command: it starts the user's program, reads what it tells, and ends it.

It writes the same phases as our own ranks. What else the program told is left for `study.training.program_results`.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.core import signals
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.core.paths import CHECKPOINTS
from study.core.wording import signal_in_words
from study.experiment.definition import RunDefinition
from study.instruments import gpus, heartbeats
from study.instruments.counters import read_peak_memory_mb
from study.instruments.phases import PhaseLog, now
from study.machines import launchers, probe
from study.training import divergence, process_tree
from study.workloads import command
from study.workloads.command import content, events, own_parameters, patterns, placeholders
from study.workloads.command.output import Copied

PROGRAM = "program"  # phase, and folder of the program's own files in the run's directory
MEETING = "master.json"  # in the folder of the ranks' files: where the processes meet
FIRST_LOOK_S, LOOK_S = 0.005, 0.2  # between two looks at the file of events: at first, then longer up to this
OWN_MEMORY = 1.05  # a larger peak, compared with that before the program was executed, is the program's
GRACE_S = 5.0  # for a program that gets SIGTERM
TOLD_LINES = 5  # of the program's last lines, in the message of a failure
SET_CHILD_SUBREAPER = 36  # of prctl


@dataclass(frozen=True)
class Place:
    """Which ranks of the run a process starts. ranks: their numbers, the first one's first; all on one node."""

    ranks: tuple[int, ...]
    local_rank: int
    node: int
    ranks_on_node: int

    @property
    def first(self) -> int:
        """Its first rank."""
        return self.ranks[0]


def ranks_by_node(run: RunDefinition) -> list[range]:
    """The ranks of each node, in their order."""
    if hosts := run.machine.get("hosts"):
        sizes = [ranks for _, ranks in hosts if ranks]
    else:
        most = run.machine["ranks_per_node"]
        sizes = [min(most, run.ranks - first) for first in range(0, run.ranks, most)]
    firsts = [sum(sizes[:node]) for node in range(len(sizes))]
    return [range(first, first + size) for first, size in zip(firsts, sizes, strict=True)]


def place_of(run: RunDefinition, variables: dict[str, str]) -> Place:
    """The place of this process, by the variables of its launcher.

    Raises:
        StudyError: the launcher tells no rank, or one that the run does not have.
    """
    nodes = ranks_by_node(run)
    starts = run.benchmark["starts"]
    if starts == command.JOB:
        return Place(tuple(range(run.ranks)), 0, 0, len(nodes[0]))
    names = launchers.get_launcher(run.machine).rank_variables
    told = next((variables[name] for name in names if name in variables), "")
    number = int(told) if told.isdigit() else -1
    if not 0 <= number < (run.ranks if starts == command.RANK else len(nodes)):
        raise StudyError(
            f"{run.machine['launcher']} tells this process no rank of the run: {', '.join(names)} = {told!r}"
        )
    if starts == command.NODE:
        return Place(tuple(nodes[number]), 0, number, len(nodes[number]))
    node = next(node for node, ranks in enumerate(nodes) if number in ranks)
    return Place((number,), number - nodes[node][0], node, len(nodes[node]))


def gpus_of(
    place: Place, machine: Mapping[str, Any], variables: Mapping[str, str], nvml: Any = None
) -> list[gpus.RankGpu]:
    """The GPU of each rank that a process starts, by the variables of its program; nothing is asked without GPUs.

    nvml: the pynvml module or a replacement for it; None to import it.
    """
    if not machine["gpus_per_rank"]:
        return [gpus.RankGpu()] * len(place.ranks)
    local_ranks = range(place.local_rank, place.local_rank + len(place.ranks))
    try:
        return gpus.assign_gpus(gpus.list_visible_gpus(variables, nvml), local_ranks)
    except Exception as error:  # whatever a driver's bindings raise: it must not fail a program that ended well
        return [gpus.RankGpu(reason=f"NVML: {str(error) or type(error).__name__}")] * len(place.ranks)


class Program:
    """The user's program, from its start to its end.

    Args:
        run: the run's definition.
        folder: the run's directory.
        started: (wall, monotonic) ns at the start of this process.
    """

    def __init__(self, run: RunDefinition, folder: Path, started: events.Moment) -> None:
        self._run, self._folder, self._started = run, folder.resolve(), started
        self._spec, self._ranks = run.benchmark, self._folder / "ranks"
        self._place = place_of(run, dict(os.environ))
        self._lock = threading.Lock()
        self._fault: StudyError | None = None
        self._progress: dict[int, events.Progress] = {}
        self._phases: dict[int, PhaseLog] = {}
        self._patterns = {name: re.compile(each.encode()) for name, each in self._spec.get("metrics", {}).items()}
        self._found: dict[str, tuple[float | None, str | None]] = {}  # of each pattern, or why it is no number
        self._single: set[str] = set()  # patterns that have matched once in some line
        self._earlier: dict[int, list[Any]] = {}  # of each rank, the epochs of each earlier attempt
        self._stop: int | None = None
        self._pid = 0
        for rank in self._place.ranks:
            self._of_rank(rank)

    def run(self) -> int:
        """Run it; returns its exit code, 128 plus the number of a signal that ended it.

        Raises:
            StudyError: it cannot be started, failed, or told what cannot be.
        """
        with self._meeting() as (address, port):
            words, variables = self._line(address, port)
            with self._started_program(words, variables) as (process, streams, others):
                self._follow(process, streams, others)
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                ended, ended_s = now(), time.monotonic()
                process_tree.kill(process_tree.below(os.getpid()) - others)
                left_s = process_tree.waited_cpu_s(others, GRACE_S)
                for stream in streams:
                    stream.join(GRACE_S)
            self._end_following()
            self._check(process.returncode, streams, words)
            self._finish(ended)
            peak_mb = self._peak_mb(used.ru_maxrss * 1024 / 1e6, ended_s)
            self._write(words, variables, streams, used.ru_utime + used.ru_stime + left_s, peak_mb)
        return 0

    # Before the program

    def _of_rank(self, rank: int) -> events.Progress:
        if rank not in self._progress:
            log = PhaseLog(self._ranks / f"phases-{rank:05d}.jsonl", rank, socket.gethostname())
            log.edge("startup", "begin", self._started)
            self._phases[rank] = log
            self._progress[rank] = events.Progress(log, self._started, lambda *each: self._epoch_ended(rank, *each))
        return self._progress[rank]

    @contextlib.contextmanager
    def _meeting(self) -> Iterator[tuple[str, int]]:
        """The address and the port at which the processes meet; the run's first process reserves it."""
        path, is_alone = self._ranks / MEETING, self._run.derived.nodes == 1
        if self._place.first == 0:
            (held,) = probe.hold_ports(1)
            with held:
                address = "127.0.0.1" if is_alone else _own_address(self._run.machine)
                write_json(path, {"address": address, "port": probe.list_ports([held])[0]})
                yield address, probe.list_ports([held])[0]
            return
        deadline = time.monotonic() + heartbeats.read_limit_s() / 2
        while not path.exists():
            if time.monotonic() > deadline:
                raise StudyError("waited for rank 0 to tell its address; do all nodes see the run's directory?")
            time.sleep(LOOK_S / 10)
        told = read_json(path)
        yield told["address"], told["port"]

    def _line(self, address: str, port: int) -> tuple[list[str], dict[str, str]]:
        """The words to execute, and the variables that are set for them."""
        run, place, spec = self._run, self._place, self._spec
        own, stored = self._folder / PROGRAM, self._folder / CHECKPOINTS / PROGRAM
        own.mkdir(exist_ok=True)
        values = placeholder_values(run) | {
            "rank": place.first,
            "local_rank": place.local_rank,
            "node_rank": place.node,
            "ranks_on_node": place.ranks_on_node,
            "master_addr": address,
            "master_port": port,
            "run_folder": own,
            placeholders.CHECKPOINT: stored,
        }
        if "resume" in spec:
            stored.parent.mkdir(exist_ok=True)
        self._is_resumed = "resume" in spec and stored.exists()
        if self._is_resumed:
            files = {rank: earlier_epochs(self._folder, rank) for rank in place.ranks}
            self._earlier = {rank: read_json(path) for rank, path in files.items() if path.exists()}
        words = placeholders.filled([*spec["command"], *(spec["resume"] if self._is_resumed else [])], values)
        told = {
            "RANK": place.first,
            "WORLD_SIZE": run.ranks,
            "LOCAL_RANK": place.local_rank,
            "LOCAL_WORLD_SIZE": place.ranks_on_node,
            "NODE_RANK": place.node,
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "STUDY_RUN_FOLDER": own,
            "STUDY_EVENTS": self._events_file,
        }
        variables = {name: str(value) for name, value in told.items()} | content.variables(spec, os.environ)
        bound = [str(self._folder), *filter(None, [os.environ.get("TMPDIR")])]
        return content.line(spec, words, bound, run.machine["gpus_per_rank"]), variables

    @property
    def _events_file(self) -> Path:
        return self._ranks / f"events-{self._place.first:05d}.jsonl"

    @contextlib.contextmanager
    def _started_program(
        self, words: list[str], variables: dict[str, str]
    ) -> Iterator[tuple[subprocess.Popen[bytes], list[Copied], set[int]]]:
        """The program, its standard output and error, and the processes that this one had before; it ends with us."""
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        others = process_tree.below(os.getpid())
        signals.handle(self._forward)
        for log in self._phases.values():
            log.edge(PROGRAM, "begin")
        self._killed_before, self._begun_s = process_tree.killed_for_memory(), time.monotonic()
        *pipes, (told, tells) = (os.pipe() for _ in range(3))
        try:
            process = subprocess.Popen(
                words, cwd=self._spec["folder"], env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                stdout=pipes[0][1], stderr=pipes[1][1], preexec_fn=lambda: _before_execution(tells),
            )  # fmt: skip
        except OSError as error:
            raise StudyError(
                f"command: {words[0]} cannot be started in {self._spec['folder']}: {error.strerror}"
            ) from None
        finally:
            for written in (tells, *(written for _, written in pipes)):
                os.close(written)
            self._before_mb = float(os.read(told, 64) or "nan")  # it has executed the program, or ended
            os.close(told)
        self._pid = process.pid
        if self._stop is not None:  # a signal came while the program was being started
            self._end_program()
        targets = (sys.stdout.buffer, sys.stderr.buffer)
        streams = [Copied(pipe[0], target, self._line_came) for pipe, target in zip(pipes, targets, strict=True)]
        try:
            yield process, streams, others
        finally:
            self._pid = 0
            process_tree.kill(process_tree.below(os.getpid()) - others)

    # While it runs

    def _forward(self, number: int, _: Any) -> None:
        """Hand a signal to the program, and end it if it does not go."""
        if self._stop is None and self._pid:
            self._end_program()
        self._stop = number

    def _end_program(self) -> None:
        threading.Thread(target=process_tree.end, args=(self._pid, GRACE_S), daemon=True).start()

    def _follow(self, process: subprocess.Popen[bytes], streams: list[Copied], others: set[int]) -> None:
        """Read the file of events and send heartbeats, in a thread."""
        self._is_over, self._event_bytes = threading.Event(), 0
        self._seen_mb, self._seen_s = 0.0, -math.inf  # the largest memory, and when it was last looked at
        beat = _Beat(self._ranks, heartbeats.read_limit_s())

        def watch() -> None:
            pause_s = FIRST_LOOK_S
            while True:
                self._read_events()
                told = sum(each.number for each in self._progress.values())
                trains = any(each.is_training for each in self._progress.values())
                tree = {process.pid}
                if beat.is_due():
                    tree |= process_tree.below(os.getpid()) - others
                    beat.look((told, sum(each.bytes for each in streams)), process_tree.cpu_s(tree), not trains)
                if seen_mb := process_tree.peak_mb(tree):
                    self._seen_mb, self._seen_s = max(self._seen_mb, seen_mb), time.monotonic()
                if self._is_over.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, LOOK_S)

        self._reader = threading.Thread(target=watch, daemon=True)
        self._reader.start()

    def _end_following(self) -> None:
        """Read what was written last, when the thread has ended: two readers would take events in another order."""
        self._is_over.set()
        self._reader.join(GRACE_S)
        self._read_events(is_over=True)

    def _line_came(self, line: bytes) -> None:
        for event in events.marked(line):
            self._take(event)
        is_shared = len(self._place.ranks) > 1
        for name, pattern in self._patterns.items():
            if found := pattern.search(line):
                # Two ranks that print at once may print into one line, and digits of one follow those of the other.
                is_single = not (is_shared and pattern.search(line, max(found.end(), found.start() + 1)))
                if is_single or name not in self._single:
                    self._found[name] = patterns.number_of(found)
                self._single |= {name} if is_single else set()

    def _read_events(self, is_over: bool = False) -> None:
        """Take what was written to the file of events since the last time; a line without an end if that is_over."""
        try:
            with open(self._events_file, "rb") as handle:
                handle.seek(self._event_bytes)
                read = handle.read()
        except FileNotFoundError:
            return
        whole = read if is_over else read.rpartition(b"\n")[0]
        if whole:
            self._event_bytes += len(whole) + 1
            for line in whole.split(b"\n"):
                if event := events.parsed(line, is_marked=events.MARK in line):
                    self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        with self._lock:
            if self._fault:
                return
            try:
                rank = events.rank_of(event, self._place.first)
                if rank not in self._place.ranks:
                    ours = ", ".join(map(str, self._place.ranks[:8]))
                    raise StudyError(f"event {event['key']}: is of rank {rank}, but this process started rank {ours}")
                progress = self._of_rank(rank)
                progress.take(event, events.moment(event))
                if progress.is_between_epochs:
                    self._keep_epochs(rank)
                if not events.is_finite(progress.losses):
                    told = ", ".join(f"{name} {value}" for name, value in progress.losses.items())
                    raise StudyError(f"{divergence.WORDS} in epoch {progress.epoch} ({told})")
            except StudyError as error:
                self._fault = error
                if self._pid:
                    threading.Thread(target=process_tree.end, args=(self._pid, GRACE_S), daemon=True).start()

    def _epoch_ended(self, rank: int, number: int, epoch: events.Epoch) -> None:
        told = "".join(f", {name} {value:.4g}" for name, value in epoch.metrics.items())
        if rank == 0:
            print(f"epoch {number}/{self._run.derived.epochs_per_rank}: {epoch.seconds:.2f} s{told}", flush=True)
        self._keep_epochs(rank)

    def _keep_epochs(self, rank: int) -> None:
        """For the next attempt, if this one does not come to the end."""
        if "resume" in self._spec:
            kept = _finite([asdict(each) for each in self._progress[rank].epochs])
            write_json(earlier_epochs(self._folder, rank), [*self._earlier.get(rank, []), kept])

    # After its end

    def _check(self, code: int, streams: list[Copied], words: list[str]) -> None:
        """Raise for a program that failed; a signal that we handed over, or a fault in an event, is told instead."""
        if self._fault:
            raise self._fault
        if self._stop is not None:
            sys.exit(128 + self._stop)
        if code == 0:
            return
        killed = process_tree.killed_for_memory() - self._killed_before
        memory = f"out of memory: the kernel ended {killed} processes of this host meanwhile; " if killed else ""
        said = [each.last for each in reversed(streams) if each.last]
        last = " | ".join(line.strip()[:200] for line in list(said[0])[-TOLD_LINES:]) if said else "it printed nothing"
        if code < 0:
            ended = f"was ended by {signal_in_words(-code)}"
            raise StudyError(f"{memory}the program {ended}; its last lines: {last}")
        raise StudyError(f"{memory}the program ended with exit code {code}; its last lines: {last}")

    def _finish(self, ended: events.Moment) -> None:
        expected = self._run.derived.epochs_per_rank
        for rank, progress in self._progress.items():
            progress.end(ended)
            self._phases[rank].edge(PROGRAM, "end", ended)
            number = len(progress.epochs)
            may_be_fewer = self._is_resumed or progress.has_succeeded
            if number > expected or (0 < number < expected and not may_be_fewer):
                raise StudyError(
                    f"the program reported {number} epochs, but a rank of this run trains {expected}; pass it "
                    "{epochs_per_rank}, or correct epochs in the benchmark's file; a program that stops at its target "
                    "reports run_stop with the status success"
                )
            if self._is_resumed and progress.has_succeeded and number and progress.epochs[0].number is None:
                raise StudyError(
                    "the program resumed and may have stopped early: report epoch_num with each epoch_start"
                )

    def _peak_mb(self, waited_mb: float, ended_s: float) -> float | None:
        """The peak of the largest process; None if it was last looked at in the first half of the program's time.

        What wait4 tells (``waited_mb``) includes the memory of our copy that executed the program (fs/exec.c of Linux,
        ``exec_mmap``). If it is not more than that, the program had less, and only looks tell how much.
        """
        if waited_mb > self._before_mb * OWN_MEMORY:
            return max(waited_mb, self._seen_mb)
        return self._seen_mb if self._seen_s - self._begun_s >= (ended_s - self._begun_s) / 2 else None

    def _write(
        self,
        words: list[str],
        variables: dict[str, str],
        streams: list[Copied],
        cpu_s: float,
        peak_mb: float | None,
    ) -> None:
        """Leave what was measured for `study.training.program_results`."""
        host, used = socket.gethostname(), gpus_of(self._place, self._run.machine, {**os.environ, **variables})
        told = {
            rank: {
                "epochs": _finite([asdict(each) for each in progress.epochs]),
                "test": _finite(progress.test),
                "sizes": progress.sizes,
                "events": progress.number,
                "runs_left": progress.runs_left,
            }
            for rank, progress in self._progress.items()
        }
        write_json(
            self._ranks / f"program-{self._place.first:05d}.json",
            {
                "ranks": [{"rank": rank, "local_rank": self._place.local_rank + place, "host": host,
                           "gpu": used[place].uuid, "gpu_reason": used[place].reason,
                           "peak_memory_mb": peak_mb} for place, rank in enumerate(self._place.ranks)],
                "cpu_s": cpu_s,
                "told": told,
                "patterns": {name: self._found.get(name, (None, None))[0] for name in self._patterns},
                "pattern_faults": {name: why for name, (_, why) in self._found.items() if why},
                "words": words,
                "variables": variables,
                "output_bytes": sum(each.bytes for each in streams),
                "is_resumed": self._is_resumed,
            },
        )  # fmt: skip


class _Beat:
    """Heartbeats of a program: what it tells or prints; else the time that its processes compute."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._path = folder / f"heartbeat-{socket.gethostname()}-{os.getpid()}"
        self._interval = min(heartbeats.LONGEST_INTERVAL_S, limit_s / 6)
        self._due = time.monotonic()
        self._before: tuple[Any, float, float] | None = None

    def is_due(self) -> bool:
        """Whether it is time to look."""
        return time.monotonic() >= self._due

    def look(self, told: Any, cpu_s: float, computes: bool) -> None:
        """Send one if there was progress. computes: whether processor time is progress."""
        at = time.monotonic()
        before, self._before, self._due = self._before, (told, cpu_s, at), at + self._interval
        is_busy = before is not None and cpu_s - before[1] > heartbeats.BUSY_SHARE * (at - before[2])
        if before is None or told != before[0] or (computes and is_busy):
            with contextlib.suppress(OSError):
                self._path.touch()


def earlier_epochs(folder: Path, rank: int) -> Path:
    """The file with the epochs that a rank has told, a list for each attempt; it is kept as the checkpoints are."""
    return folder / CHECKPOINTS / f"epochs-{rank:05d}.json"


def placeholder_values(run: RunDefinition) -> dict[str, Any]:
    """The values of placeholders that are the same for all processes of a run."""
    spec, derived = run.benchmark, run.derived
    samples = spec["workload"]["train_samples"]
    of_rank = command.samples_of_rank(samples, run["scaling"], run["work"], run.ranks)
    return {
        **run.parameters,
        **own_parameters.values(run[own_parameters.NAME], spec["parameters"]),
        "epochs_per_rank": derived.epochs_per_rank,
        "batch_size_per_rank": derived.batch_size_per_rank,
        "samples_per_rank": of_rank,
        "steps_per_rank": derived.epochs_per_rank * math.ceil(of_rank / derived.batch_size_per_rank),
        "train_samples": samples,
        "seed": derived.seed,
        "ranks": run.ranks,
        "nodes": derived.nodes,
    }


def _own_address(machine: dict[str, Any]) -> str:
    """The address at which other hosts reach this one: of the machine's interface, of its name, or of any interface.

    In many set-ups a host's own name leads to itself only (127.0.1.1).
    """
    interface = machine.get("interface")
    names = list(interface.values()) if isinstance(interface, dict) else [interface]
    known = [(name, address[0]) for name, address in probe.list_interfaces()]
    try:
        of_name = [socket.gethostbyname(socket.gethostname())]
    except OSError:
        of_name = []
    outside = [each for each in (*of_name, *(address for _, address in known)) if not each.startswith("127.")]
    return next(iter([*(address for name, address in known if name in names), *outside, *of_name]), "127.0.0.1")


def _finite(value: Any) -> Any:
    """A value for JSON, in which a number that is not finite is null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _before_execution(tells: int) -> None:
    """In the process that becomes the program: let it end with its parent, and tell its memory (MB) until now."""
    with contextlib.suppress(OSError):
        os.write(tells, str(read_peak_memory_mb()).encode())
    signals.die_with_parent(signal.SIGKILL)
