"""One process of a run that is given by a command: it starts the user's program, reads its events, and ends it.

It writes the same phases as our own ranks. The other events are left for `study.training.program_results`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.core import signals
from study.core.errors import StudyError
from study.core.files import read_json, write_json
from study.core.paths import CHECKPOINTS
from study.core.wording import describe_signal
from study.experiment.definition import RunDefinition
from study.instruments import gpus, heartbeats
from study.instruments.counters import read_peak_memory_mb
from study.instruments.phases import PhaseLog, now
from study.machines import launchers, probe
from study.training import divergence, process_tree
from study.workloads import command
from study.workloads.command import content, events, own_parameters, placeholders, reading
from study.workloads.command.output import OutputCopier

PROGRAM = "program"  # phase, and folder of the program's own files in the run's directory
ADDRESS_FILE = "master.json"  # in the folder of the ranks' files: the address where the processes meet
FIRST_POLL_S, POLL_S = 0.005, 0.2  # between two reads of the file of events: at first, then longer up to this
OWN_MEMORY_FACTOR = 1.05  # a larger peak, compared with that before the program was executed, is the program's
GRACE_S = 5.0  # for a program that gets SIGTERM
FIRST_COUNT_S = 0.5  # from a program's start until its processes are counted
HELPER_S = 0.5  # for processes that outlive the program
WORKER_SHARE = 0.1  # of the CPU time of all; a process with less does not train
WAITING_LINES = 1000  # that wait to be read; then the program's next line does
LAST_LINES_ARE = "; its last lines: "  # in such a message
LAST_LINES = 5  # of the program's last lines, in the message of a failure
SET_CHILD_SUBREAPER = 36  # of prctl
OF_ONE_RANK = ("RANK", "LOCAL_RANK", "NODE_RANK")  # variables


@dataclass(frozen=True)
class Place:
    """The ranks of a run that one process starts, all on one node. ranks: their numbers, the first one's first."""

    ranks: tuple[int, ...]
    local_rank: int
    node: int
    ranks_on_node: int

    @property
    def first(self) -> int:
        """The number of the first rank."""
        return self.ranks[0]


def list_ranks_by_node(run: RunDefinition) -> list[range]:
    """The ranks of each node, in order."""
    if hosts := run.machine.get("hosts"):
        sizes = [ranks for _, ranks in hosts if ranks]
    else:
        most = run.machine["ranks_per_node"]
        sizes = [min(most, run.ranks - first) for first in range(0, run.ranks, most)]
    firsts = [sum(sizes[:node]) for node in range(len(sizes))]
    return [range(first, first + size) for first, size in zip(firsts, sizes, strict=True)]


def find_place(run: RunDefinition, variables: dict[str, str]) -> Place:
    """Find the ranks of this process by the variables of its launcher.

    Raises:
        StudyError: the launcher tells no rank, or one that the run does not have.
    """
    nodes = list_ranks_by_node(run)
    starts = run.benchmark["starts"]
    if starts == command.JOB:
        return Place(tuple(range(run.ranks)), 0, 0, len(nodes[0]))
    names = launchers.get_launcher(run.machine).rank_variables
    number_text = next((variables[name] for name in names if name in variables), "")
    number = int(number_text) if number_text.isdigit() else -1
    if not 0 <= number < (run.ranks if starts == command.RANK else len(nodes)):
        raise StudyError(
            f"{run.machine['launcher']} tells this process no rank of the run: {', '.join(names)} = {number_text!r}"
        )
    if starts == command.NODE:
        return Place(tuple(nodes[number]), 0, number, len(nodes[number]))
    node = next(node for node, ranks in enumerate(nodes) if number in ranks)
    return Place((number,), number - nodes[node][0], node, len(nodes[node]))


def find_gpus(
    place: Place, machine: Mapping[str, Any], variables: Mapping[str, str], nvml: Any = None
) -> list[gpus.RankGpu]:
    """The GPU of each rank that a process starts, by the environment of its program.

    nvml: the pynvml module or a replacement for it; None to import it.
    """
    if not machine["gpus_per_rank"]:
        return [gpus.RankGpu()] * len(place.ranks)
    local_ranks = range(place.local_rank, place.local_rank + len(place.ranks))
    try:
        return gpus.assign_gpus(gpus.list_visible_gpus(variables, nvml), local_ranks)
    except Exception as error:  # whatever a driver's bindings raise: it must not fail a program that ended well
        return [gpus.RankGpu(reason=f"NVML: {str(error) or type(error).__name__}")] * len(place.ranks)


@dataclass(frozen=True)
class _End:
    """The end of a program. left_process: the command line of a process that it left at work, or None.

    cpu_s: with the processor time of all that it left. peak_kib: of wait4.
    """

    moment: events.Moment
    monotonic_s: float
    left_process: str | None
    cpu_s: float
    peak_kib: int


class Program:
    """The user's program, from its start to its end.

    Args:
        run: the run's definition.
        folder: the run's directory.
        started: (wall, monotonic) ns at the start of this process.
    """

    def __init__(self, run: RunDefinition, folder: Path, started: events.Moment) -> None:
        self._run, self._folder, self._started = run, folder.resolve(), started
        self._benchmark, self._ranks = run.benchmark, self._folder / "ranks"
        self._place = find_place(run, dict(os.environ))
        self._lock = threading.Lock()
        self._fault: StudyError | None = None
        self._progress: dict[int, events.Progress] = {}
        self._phases: dict[int, PhaseLog] = {}
        self._reading = reading.OutputReader(
            self._benchmark, run.ranks, run.derived.nodes, is_shared=len(self._place.ranks) > 1
        )
        self._lines: queue.Queue[tuple[bytes, bool, int, float] | None] = queue.Queue(
            WAITING_LINES
        )  # see `reading.OutputReader.take`; None is the end
        self._earlier_attempts: dict[int, list[Any]] = {}  # of each rank, the epochs of each earlier attempt
        self._stop: int | None = None
        self._pid = 0
        for rank in self._place.ranks:
            self._get_progress(rank)

    def run(self) -> int:
        """Run the program to its end and write its measures; returns 0.

        Raises:
            StudyError: it cannot be started, failed, or sent an event that cannot be.
            SystemExit: this process got a signal; 128 plus its number.
        """
        with self._agree_on_address() as (address, port):
            words, variables = self._make_command_line(address, port)
            with self._start_program(words, variables) as (process, streams, others):
                self._start_following(process, streams, others)
                end = self._read_until_end(process, streams, others)
            self._end_following()
            self._check_end(process.returncode, streams, end)
            self._finish_phases(end.moment)
            self._write_measures(words, variables, streams, end)
        return 0

    # Before the program

    def _get_progress(self, rank: int) -> events.Progress:
        """The progress of a rank, with a log of phases; made at its first use."""
        if rank not in self._progress:
            log = PhaseLog(self._ranks / f"phases-{rank:05d}.jsonl", rank, socket.gethostname())
            log.edge("startup", "begin", self._started)
            self._phases[rank] = log
            self._progress[rank] = events.Progress(log, self._started, lambda *each: self._report_epoch(rank, *each))
        return self._progress[rank]

    @contextlib.contextmanager
    def _agree_on_address(self) -> Iterator[tuple[str, int]]:
        """(Address, port) at which the processes meet; the run's first process reserves it while the block runs."""
        path, is_alone = self._ranks / ADDRESS_FILE, self._run.derived.nodes == 1
        if self._place.first == 0:
            (port_holder,) = probe.hold_ports(1)
            with port_holder:
                address = "127.0.0.1" if is_alone else _find_own_address(self._run.machine)
                write_json(path, {"address": address, "port": probe.list_ports([port_holder])[0]})
                yield address, probe.list_ports([port_holder])[0]
            return
        deadline = time.monotonic() + heartbeats.read_limit_s() / 2
        while not path.exists():
            if time.monotonic() > deadline:
                raise StudyError("waited for rank 0 to tell its address; do all nodes see the run's directory?")
            time.sleep(POLL_S / 10)
        meeting = read_json(path)
        yield meeting["address"], meeting["port"]

    def _make_command_line(self, address: str, port: int) -> tuple[list[str], dict[str, str]]:
        """(The words to execute, the environment variables set for them)."""
        run, place, spec = self._run, self._place, self._benchmark
        own, stored = self._folder / PROGRAM, self._folder / CHECKPOINTS / PROGRAM
        own.mkdir(exist_ok=True)
        values = make_placeholder_values(run) | {
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
            files = {rank: locate_earlier_epochs(self._folder, rank) for rank in place.ranks}
            self._earlier_attempts = {rank: read_json(path) for rank, path in files.items() if path.exists()}
        words = placeholders.fill_placeholders(
            [*spec["command"], *(spec["resume"] if self._is_resumed else [])], values
        )
        own_variables = {
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
        # A program that starts all ranks itself takes the number of a rank for that of one that was started for it.
        hidden = OF_ONE_RANK if spec["starts"] == command.JOB else ()
        variables = {
            **{name: str(value) for name, value in own_variables.items() if name not in hidden},
            **content.build_variables(spec, os.environ),
        }
        bound = [str(self._folder), *filter(None, [os.environ.get("TMPDIR")])]
        return content.build_command_line(spec, words, bound, run.machine["gpus_per_rank"]), variables

    @property
    def _events_file(self) -> Path:
        """The file into which the program writes its events."""
        return self._ranks / f"events-{self._place.first:05d}.jsonl"

    @contextlib.contextmanager
    def _start_program(
        self, words: list[str], variables: dict[str, str]
    ) -> Iterator[tuple[subprocess.Popen[bytes], list[OutputCopier], set[int]]]:
        """Start the program; yields it, its output streams, and the descendants that this process had before.

        The program ends with the block.
        """
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        others = process_tree.list_descendants(os.getpid())
        signals.set_handlers(self._forward_signal)
        for log in self._phases.values():
            log.edge(PROGRAM, "begin")
        self._killed_before, self._begun_s = process_tree.count_memory_kills(), time.monotonic()
        *pipes, (read_end, write_end) = (os.pipe() for _ in range(3))
        inherited = {name: value for name, value in os.environ.items() if name not in OF_ONE_RANK}
        try:
            process = subprocess.Popen(
                words, cwd=self._benchmark["folder"], env=inherited | variables, stdin=subprocess.DEVNULL,
                stdout=pipes[0][1], stderr=pipes[1][1], preexec_fn=lambda: _prepare_child(write_end),
            )  # fmt: skip
        except OSError as error:
            raise StudyError(
                f"command: {words[0]} cannot be started in {self._benchmark['folder']}: {error.strerror}"
            ) from None
        finally:
            for written in (write_end, *(written for _, written in pipes)):
                os.close(written)
            self._before_mb = float(os.read(read_end, 64) or "nan")  # it has executed the program, or ended
            os.close(read_end)
        self._pid = process.pid
        if self._stop is not None:  # a signal came while the program was being started
            self._end_program()
        targets = (sys.stdout.buffer, sys.stderr.buffer)
        streams = [
            OutputCopier(pipe[0], target, functools.partial(self._take_line, number))
            for number, (pipe, target) in enumerate(zip(pipes, targets, strict=True))
        ]
        try:
            yield process, streams, others
        finally:
            self._pid = 0
            process_tree.signal_processes(process_tree.list_descendants(os.getpid()) - others)

    # While it runs

    def _read_until_end(self, process: subprocess.Popen[bytes], streams: list[OutputCopier], others: set[int]) -> _End:
        """Wait for the program's end, and read its lines meanwhile, which must be done in the main thread."""

        def await_end() -> _End:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            left_process = _wait_for_helpers(others) if process.returncode == 0 else None
            moment, monotonic_s = now(), time.monotonic()
            process_tree.signal_processes(process_tree.list_descendants(os.getpid()) - others)
            left_s = process_tree.reap_children(others, GRACE_S)
            for stream in streams:
                stream.join(GRACE_S)
            return _End(moment, monotonic_s, left_process, used.ru_utime + used.ru_stime + left_s, used.ru_maxrss)

        with ThreadPoolExecutor(1) as pool:
            end = pool.submit(await_end)
            end.add_done_callback(lambda _: self._lines.put(None))
            for line_and_place in iter(self._lines.get, None):
                self._reading.take(*line_and_place)
            return end.result()

    def _forward_signal(self, number: int, _: Any) -> None:
        """Handle a signal to this process: end the program, once it runs."""
        if self._stop is None and self._pid:
            self._end_program()
        self._stop = number

    def _end_program(self) -> None:
        """End the program and its descendants, in a thread."""
        threading.Thread(target=process_tree.end_tree, args=(self._pid, GRACE_S), daemon=True).start()

    def _start_following(self, process: subprocess.Popen[bytes], streams: list[OutputCopier], others: set[int]) -> None:
        """Start a thread that reads the file of events, samples the memory, and sends heartbeats."""
        self._is_over, self._event_bytes = threading.Event(), 0
        self._sampled_peak_mb, self._sampled_s = 0.0, -math.inf  # the largest memory, and when it was last looked at
        heartbeat = _ProgramHeartbeat(self._ranks, heartbeats.read_limit_s())
        is_quiet_work = "silence_limit_s" not in self._benchmark  # whether CPU time alone is progress
        self._most_processes, begun_s = 1, time.monotonic()

        self._child_watch = process_tree.ChildWatch(process.pid)

        def watch() -> None:
            pause_s, count_after_s = FIRST_POLL_S, FIRST_COUNT_S
            while True:
                self._read_events()
                self._child_watch.look()
                event_count = sum(each.number for each in self._progress.values())
                tree = {process.pid}
                is_due = heartbeat.is_due()
                if is_due or time.monotonic() - begun_s > count_after_s:
                    tree |= process_tree.list_descendants(os.getpid()) - others
                    self._most_processes = max(self._most_processes, len(tree))
                    count_after_s *= 2  # ever more seldom, as it reads the state of all processes
                if is_due:
                    heartbeat.send_on_progress(
                        (event_count, sum(each.bytes for each in streams)), process_tree.sum_cpu_s(tree), is_quiet_work
                    )
                if sampled_mb := process_tree.read_peak_mb(tree):
                    self._sampled_peak_mb, self._sampled_s = max(self._sampled_peak_mb, sampled_mb), time.monotonic()
                if self._is_over.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, POLL_S)

        self._reader = threading.Thread(target=watch, daemon=True)
        self._reader.start()

    def _end_following(self) -> None:
        """End the thread that follows the program, then read the last events: two readers would mix their order."""
        self._is_over.set()
        self._reader.join(GRACE_S)
        self._child_watch.look()
        self._read_events(is_over=True)

    def _take_line(self, stream: int, line: bytes) -> None:
        """Take the events in a line of the program's output, and have the rest of it read."""
        marked_events = events.find_marked_events(line)
        for event in marked_events:
            self._take_event(event)
        self._lines.put((line, bool(marked_events), stream, time.monotonic()))

    def _read_events(self, is_over: bool = False) -> None:
        """Take the events written since the last read. is_over: take a last line without an end, too."""
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
                if event := events.parse_event(line, is_marked=events.MARK in line):
                    self._take_event(event)

    def _take_event(self, event: dict[str, Any]) -> None:
        """Apply an event to its rank's progress; a faulty one ends the program, and is raised after its end."""
        with self._lock:
            if self._fault:
                return
            try:
                rank = events.choose_rank(event, self._progress)
                if rank is None:
                    return
                if rank not in self._place.ranks:
                    ours = ", ".join(map(str, self._place.ranks[:8]))
                    raise StudyError(f"event {event['key']}: is of rank {rank}, but this process started rank {ours}")
                progress = self._get_progress(rank)
                progress.take(event, events.get_moment(event))
                if progress.is_between_epochs:
                    self._save_epochs(rank)
                if not events.is_finite(progress.losses):
                    values = ", ".join(f"{name} {value}" for name, value in progress.losses.items())
                    raise StudyError(f"{divergence.MESSAGE} in epoch {progress.epoch} ({values})")
            except StudyError as error:
                self._fault = error
                if self._pid:
                    threading.Thread(target=process_tree.end_tree, args=(self._pid, GRACE_S), daemon=True).start()

    def _report_epoch(self, rank: int, number: int, epoch: events.Epoch) -> None:
        """Print an epoch that has ended, if it is rank 0's, and save the epochs."""
        metrics_text = "".join(f", {name} {value:.4g}" for name, value in epoch.metrics.items())
        if rank == 0:
            print(
                f"epoch {number}/{self._run.derived.epochs_per_rank}: {epoch.seconds:.2f} s{metrics_text}", flush=True
            )
        self._save_epochs(rank)

    def _save_epochs(self, rank: int) -> None:
        """Save a rank's epochs for the next attempt, in case that this one does not finish."""
        if "resume" in self._benchmark:
            epochs = _replace_non_finite([asdict(each) for each in self._progress[rank].epochs])
            write_json(locate_earlier_epochs(self._folder, rank), [*self._earlier_attempts.get(rank, []), epochs])

    # After its end

    def _check_end(self, code: int, streams: list[OutputCopier], end: _End) -> None:
        """Raise the error of a program that failed; first a fault in an event, or a signal to this process."""
        if self._fault:
            raise self._fault
        if self._stop is not None:
            sys.exit(128 + self._stop)
        if code == 0 and end.left_process:
            raise StudyError(
                "the command ended, but a process that it started was still at work and was ended "
                f"({end.left_process}); let the command wait for what it starts (no nohup, no & without wait)"
            )
        final_errors = [error for each in streams if (error := reading.find_final_error(each.last))]
        if code == 0 and final_errors and self._reading.has_ended_with_failure(end.monotonic_s):
            raise StudyError(
                f"the program ended with exit code 0, but its output ends with an uncaught error ({final_errors[0]}); "
                "a pipe such as | tee hides the exit code of the program: set -o pipefail"
            )
        if code == 0:
            if losses := self._reading.list_divergences():
                raise StudyError(f"{divergence.MESSAGE} in the last lines of the output ({', '.join(losses)})")
            return
        killed = process_tree.count_memory_kills() - self._killed_before
        memory = f"out of memory: the kernel ended {killed} processes of this host meanwhile; " if killed else ""
        last_lines = [each.last for each in reversed(streams) if each.last]
        last_text = (
            " | ".join(line.strip()[:200] for line in list(last_lines[0])[-LAST_LINES:])
            if last_lines
            else "it printed nothing"
        )
        if code < 0:
            ended = f"was ended by {describe_signal(-code)}"
            raise StudyError(f"{memory}the program {ended}{LAST_LINES_ARE}{last_text}")
        raise StudyError(f"{memory}the program ended with exit code {code}{LAST_LINES_ARE}{last_text}")

    def _finish_phases(self, ended: events.Moment) -> None:
        """End the phases of all ranks, and check how many epochs they reported."""
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

    def _compute_peak_mb(self, waited_mb: float, ended_s: float) -> float | None:
        """Peak memory (MB) of the largest process; None if it was last sampled in the first half of the program's time.

        The peak of wait4, ``waited_mb``, includes the memory of our copy that executed the program (fs/exec.c of Linux,
        ``exec_mmap``). If it is not more than that, the program had less, and only the samples show how much.
        """
        if waited_mb > self._before_mb * OWN_MEMORY_FACTOR:
            return max(waited_mb, self._sampled_peak_mb)
        return self._sampled_peak_mb if self._sampled_s - self._begun_s >= (ended_s - self._begun_s) / 2 else None

    def _write_measures(
        self,
        words: list[str],
        variables: dict[str, str],
        streams: list[OutputCopier],
        end: _End,
    ) -> None:
        """Write the measures of this process, for `study.training.program_results`."""
        peak_mb = self._compute_peak_mb(end.peak_kib * 1024 / 1e6, end.monotonic_s)
        least_s = WORKER_SHARE * end.cpu_s
        deaths = [(each.alive_s, each.how) for each in self._child_watch.deaths if each.cpu_s >= least_s]
        host, rank_gpus = socket.gethostname(), find_gpus(self._place, self._run.machine, {**os.environ, **variables})
        reports = {
            rank: {
                "epochs": _replace_non_finite([asdict(each) for each in progress.epochs]),
                "test": _replace_non_finite(progress.test),
                "sizes": progress.sizes,
                "events": progress.number,
                "runs_left": progress.runs_left,
                "trained": progress.has_trained,
                "is_aborted": progress.is_aborted,
            }
            for rank, progress in self._progress.items()
        }
        write_json(
            self._ranks / f"program-{self._place.first:05d}.json",
            {
                "ranks": [{"rank": rank, "local_rank": self._place.local_rank + place, "host": host,
                           "gpu": rank_gpus[place].uuid, "gpu_reason": rank_gpus[place].reason,
                           "peak_memory_mb": peak_mb} for place, rank in enumerate(self._place.ranks)],
                "cpu_s": end.cpu_s,
                "processes": self._most_processes,
                "told": reports,
                "output": self._reading.to_json(self._child_watch.again, end.monotonic_s, deaths),
                "words": words,
                "variables": variables,
                "memory_kills": process_tree.count_memory_kills() - self._killed_before,
                "output_bytes": sum(each.bytes for each in streams),
                "is_resumed": self._is_resumed,
            },
        )  # fmt: skip


class _ProgramHeartbeat:
    """Heartbeats of a program: sent when it reports, prints, or its processes compute."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._path = folder / f"heartbeat-{socket.gethostname()}-{os.getpid()}"
        self._interval = min(heartbeats.LONGEST_INTERVAL_S, limit_s / 6)
        self._due = time.monotonic()
        self._before: tuple[Any, float, float] | None = None

    def is_due(self) -> bool:
        """True if it is time to look for progress."""
        return time.monotonic() >= self._due

    def send_on_progress(self, reported: Any, cpu_s: float, computes: bool) -> None:
        """Send a heartbeat if there was progress. reported: changes with events and output.

        cpu_s: of its processes. computes: whether CPU time is progress.
        """
        now_s = time.monotonic()
        before, self._before, self._due = self._before, (reported, cpu_s, now_s), now_s + self._interval
        is_busy = before is not None and cpu_s - before[1] > heartbeats.BUSY_SHARE * (now_s - before[2])
        if before is None or reported != before[0] or (computes and is_busy):
            with contextlib.suppress(OSError):
                self._path.touch()


def locate_earlier_epochs(folder: Path, rank: int) -> Path:
    """The path of the file with a rank's epochs, a list for each attempt; it is kept as the checkpoints are."""
    return folder / CHECKPOINTS / f"epochs-{rank:05d}.json"


def make_placeholder_values(run: RunDefinition) -> dict[str, Any]:
    """The values of the placeholders that are equal in all processes of a run."""
    spec, derived = run.benchmark, run.derived
    samples = spec["workload"]["train_samples"]
    of_rank = command.count_rank_samples(samples, run["scaling"], run["work"], run.ranks)
    steps = None if of_rank is None else derived.epochs_per_rank * math.ceil(of_rank / derived.batch_size_per_rank)
    return {
        **run.parameters,
        **own_parameters.parse_values(run[own_parameters.NAME], spec["parameters"]),
        "epochs_per_rank": derived.epochs_per_rank,
        "batch_size_per_rank": derived.batch_size_per_rank,
        "samples_per_rank": of_rank,
        "steps_per_rank": steps,
        "train_samples": samples,
        "seed": derived.seed,
        "ranks": run.ranks,
        "nodes": derived.nodes,
    }


def _find_own_address(machine: dict[str, Any]) -> str:
    """The address at which other hosts reach this one: of the machine's interface, its name, or any interface.

    In many set-ups a host's own name leads to itself only (127.0.1.1).
    """
    interface = machine.get("interface")
    names = list(interface.values()) if isinstance(interface, dict) else [interface]
    addresses = [(name, address[0]) for name, address in probe.list_interfaces()]
    try:
        own_addresses = [socket.gethostbyname(socket.gethostname())]
    except OSError:
        own_addresses = []
    outside = [each for each in (*own_addresses, *(address for _, address in addresses)) if not each.startswith("127.")]
    return next(
        iter([*(address for name, address in addresses if name in names), *outside, *own_addresses]), "127.0.0.1"
    )


def _replace_non_finite(value: Any) -> Any:
    """A value for JSON, with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _replace_non_finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _wait_for_helpers(others: set[int]) -> str | None:
    """Wait `HELPER_S` for processes that outlive the program; returns the command line of one that is still at work.

    Helpers that clean up after a program, such as Python's resource tracker, take an instant. others: not its own.
    """
    deadline = time.monotonic() + HELPER_S
    while helpers := process_tree.list_descendants(os.getpid()) - others:
        if time.monotonic() > deadline:
            return process_tree.read_command_line(min(helpers))
        time.sleep(FIRST_POLL_S)
    return None


def _prepare_child(write_end: int) -> None:
    """Send this process's peak memory (MB) and let it end with its parent, before it becomes the program."""
    with contextlib.suppress(OSError):
        os.write(write_end, str(read_peak_memory_mb() or "nan").encode())
    signals.die_with_parent(signal.SIGKILL)
