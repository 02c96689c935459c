"""The sampler as the launch or a process of the run starts it: start it, read which devices it found, stop it.

Each process of a run calls `join_sampling` before it imports anything else. The first process of each node starts the
node's sampler there and waits for its first reading, unless the launch has started it. So this module imports little.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from study.core import commands
from study.core.boot import read_boot_id
from study.core.files import AnyPath, read_json, write_json
from study.core.paths import ROOT
from study.instruments.phases import measure_zero_ns

PROGRAM = ROOT / "scripts" / "sample_power.py"
VARIABLE = "STUDY_POWER"  # of each process of a run: what `select_settings` returns, as JSON
OF_NODE, OF_HOST = "telemetry", "background"  # begin of names
BY_LAUNCH = "launch"
OF_LAUNCH = f"{OF_NODE}-{BY_LAUNCH}"  # name of the launch's files, without extension
ENDS = ".ends"  # file of a node: when each of its processes ended, monotonic ns, one per line
START_S, STOP_S = 60, 10


def select_settings(machine: Mapping[str, Any]) -> dict[str, Any]:
    """The machine's settings that the sampler needs."""
    return {name: machine[name] for name in ("power_sensors", "power_model", "sampling_hz")}


@contextmanager
def sample_with_launch(
    machine: Mapping[str, Any], are_ranks_here: bool, folder: AnyPath, environment: Mapping[str, str]
) -> Iterator[None]:
    """Sample this host's power while the block launches the ranks and waits for their end.

    No process of this host then starts a sampler (`join_sampling`).

    Args:
        machine: the settings of the run's machine.
        are_ranks_here: whether all ranks run on this host; otherwise nothing is done.
        folder: of the ranks' files, without any yet.
        environment: of the ranks.
    """
    wanted = select_settings(machine)
    if not are_ranks_here:
        yield
        return
    sampler = _Sampler(wanted, Path(folder) / OF_LAUNCH, environment)
    try:
        yield
    finally:
        sampler.stop()


def join_sampling(folder: AnyPath, variables: Mapping[str, str] = os.environ) -> ProcessSampling:
    """The part of this process in sampling its node's power; call it before frameworks are imported.

    The first process of each node starts the sampler and returns after its first reading. folder: of the ranks' files,
    which all processes share; a node is known there by its host name and boot id. variables: the environment.
    """
    wanted = json.loads(variables.get(VARIABLE, "null"))
    if wanted is None:
        return NOT_SAMPLED
    host = re.sub(r"[^\w-]", "_", socket.gethostname())
    own = Path(folder) / name_node_files(host, read_boot_id() or "")
    try:
        with open(own.with_suffix(ENDS), "x"):  # by the first process of the node, wherever the launcher put it
            is_first = True
    except FileExistsError:
        is_first = False
    except OSError:  # the run's directory is gone, which the process tells when it reads its definition
        return NOT_SAMPLED
    starts = is_first and not _is_sampled(folder)
    return ProcessSampling(own.with_suffix(ENDS), _Sampler(wanted, own, all_cores=True) if starts else None)


class ProcessSampling:
    """The part of one process of a run in its node's sampling. Leave its context at the process's end."""

    def __init__(self, ends: Path | None, sampler: _Sampler | None) -> None:
        self._ends, self._sampler = ends, sampler

    def __enter__(self) -> ProcessSampling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note that the process ends, and stop the sampler if this process started it."""
        if self._ends is None:
            return
        with contextlib.suppress(OSError), open(self._ends, "a", encoding="ascii") as handle:
            handle.write(f"{time.monotonic_ns()}\n")
        if self._sampler:
            self._sampler.stop()


NOT_SAMPLED = ProcessSampling(None, None)  # no power of this run


class _Sampler:
    """A sampler that has found its devices and written its first readings.

    path: of its files, without extension: ``.csv`` has the readings, ``.json`` the devices, the reasons for missing
    sensors, and between which moments of the monotonic clock the sampler was there. environment: by default ours.
    all_cores: whether it watches other cores of the node too than those that this process is bound to.
    """

    def __init__(
        self,
        wanted: Mapping[str, Any],
        path: Path,
        environment: Mapping[str, str] | None = None,
        all_cores: bool = False,
    ) -> None:
        line = [sys.executable, str(PROGRAM), "--output", str(path.with_suffix(".csv"))]
        line += ["--background", str(path.with_name(f"{OF_HOST}{path.name.removeprefix(OF_NODE)}.csv"))]
        line += ["--rate-hz", str(wanted["sampling_hz"]), "--sensor", *wanted["power_sensors"]]
        line += ["--all-cores"] if all_cores else []
        if wanted["power_model"]:
            line += ["--model", json.dumps(wanted["power_model"])]
        # In its own session: a signal to the ranks' process group must not truncate its last lines.
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=environment
        )
        answer = _read_answer(self.process)
        node = {"host": socket.gethostname(), "boot_id": read_boot_id() or "", "boot_wall_ns": measure_zero_ns()}
        self._path, self._facts = path.with_suffix(".json"), node | {"begin_monotonic_ns": time.monotonic_ns()} | answer
        write_json(self._path, self._facts)

    def stop(self) -> None:
        """End it after its last readings; one that hangs, in a driver for example, is killed and costs no run."""
        with contextlib.suppress(OSError):
            write_json(self._path, self._facts | {"end_monotonic_ns": time.monotonic_ns()})
        cast(IO[bytes], self.process.stdin).close()
        if not commands.wait_for_end(self.process, STOP_S):
            print(f"the sampler did not end within {STOP_S} s of its input and was killed", file=sys.stderr, flush=True)
            self.process.kill()


def has_files_of_ranks(folder: Path) -> bool:
    """Whether any process of a run has written into the folder of the ranks' files; the launch does not count."""
    return any(path.stem.partition("-")[2] != BY_LAUNCH for path in folder.iterdir())


def read_last_end_ns(folder: AnyPath, boot_id: str) -> int | None:
    """Moment of its monotonic clock at which a machine's last process ended, or None. folder: of `join_sampling`."""
    paths = Path(folder).glob(f"{name_node_files('*', boot_id)}{ENDS}")
    lines = [line for path in paths for line in path.read_text("ascii", "replace").split("\n")[:-1]]
    # Of a process that was killed, a line may be cut off.
    return max((int(line) for line in lines if re.fullmatch("[0-9]{1,19}", line)), default=None)


def name_node_files(host: str, boot_id: str) -> str:
    """The name of a node's files, without extension: by its boot id too, should two nodes have one host name."""
    return f"{OF_NODE}-{host}-{re.sub('[^0-9a-zA-Z]', '', boot_id)[:12]}"


def _is_sampled(folder: AnyPath) -> bool:
    """Whether the launch has started the sampler of this process's node (`sample_with_launch`)."""
    facts = Path(folder) / f"{OF_LAUNCH}.json"
    return facts.exists() and read_json(facts)["boot_id"] == (read_boot_id() or "")


def _read_answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The sampler's devices and reasons: its first line in JSON, after what a driver's library may print.

    One that does not answer, as in a driver that hangs, is killed and costs no run.
    """
    answers, until, text = cast(IO[bytes], process.stdout).fileno(), time.monotonic() + START_S, b""
    while True:
        line, end, rest = text.partition(b"\n")
        if end and line.startswith(b"{"):
            return cast("dict[str, Any]", json.loads(line))
        if end:
            text = rest
            continue
        ready, _, _ = select.select([answers], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            process.kill()
            return {"devices": [], "reasons": {"sampler": f"it did not answer within {START_S} s"}}
        more = os.read(answers, 1 << 16)
        if not more:
            return {"devices": [], "reasons": {"sampler": "it did not start"}}
        text += more
