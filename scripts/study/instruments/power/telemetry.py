"""The sampler as the launch or a rank starts it: start it, read which devices it found, stop it."""

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from study.core import checked
from study.core.files import AnyPath, read_json, write_json, write_text
from study.core.paths import ROOT
from study.instruments.phases import wall_at_zero_ns
from study.instruments.power.sampler import COLUMNS, MEASURES

PROGRAM = ROOT / "scripts" / "sample_power.py"
START_S, STOP_S = 60, 10
END_NS = 2_000_000_000  # two samplers that end together do so within the slower one's period
NANOSECONDS, NAME, NUMBER = r"-?[0-9]{1,19}", r"[^,\0\ufffd]+", r"(-?[0-9]+([.][0-9]+)?(e[+-]?[0-9]{1,2})?)?"
WHOLE = re.compile(",".join([NANOSECONDS] * 2 + [NAME] * 4 + [NUMBER] * len(MEASURES)))  # a line that is not cut off


@contextmanager
def sampled_with_launch(
    machine: Mapping[str, Any], are_ranks_here: bool, folder: AnyPath, environment: Mapping[str, str]
) -> Iterator[None]:
    """Sample this host's power while the block launches the ranks and waits for their end.

    The first rank of this host then starts no sampler (`sampled`).

    Args:
        machine: the settings of the run's machine.
        are_ranks_here: whether all ranks run on this host; otherwise nothing is done.
        folder: of the ranks' files, without any yet.
        environment: of the ranks.
    """
    if not are_ranks_here or not (machine["power_sensors"] or machine["power_model"]):
        yield
        return
    process = _start(machine, folder, 0, environment)
    try:
        yield
    finally:
        cast(IO[bytes], process.stdin).close()
        _end(process)


@contextmanager
def sampled(machine: dict[str, Any], folder: AnyPath, communicator: Any, until_last: bool = False) -> Iterator[None]:
    """Sample this host's power while the block runs; only the first rank of each host does so, if the launch does not.

    machine: the settings of the run's machine. communicator: of the rank. until_last: whether ranks of a host may end
    one after another, or be lost; then the sampler ends with the last of them, and the first one waits for that. All
    ranks must call. Writes ``telemetry-<rank>.csv`` into ``folder``, and ``telemetry-<rank>.json`` with the devices
    found and the reasons for missing sensors. The sampler ends with the ranks, however they end.
    """
    if not (machine["power_sensors"] or machine["power_model"]):
        yield
        return
    is_first = communicator.local_rank == 0 and not _is_sampled(folder, communicator.rank)
    process = _start(machine, folder, communicator.rank) if is_first else None
    held, has_ended = _held(process, communicator) if until_last else None, False
    try:
        yield
        has_ended = True
    finally:
        if held is not None:
            os.close(held)
        if process:
            cast(IO[bytes], process.stdin).close()
            if not until_last:
                _end(process)
            elif has_ended:  # a rank that fails must leave at once, since the others wait for it
                process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the sampler's last readings; one that hangs, in a driver for example, is killed and costs no run."""
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        print(f"the sampler did not end within {STOP_S} s of its input and was killed", file=sys.stderr, flush=True)
        process.kill()


def has_files_of_ranks(folder: Path) -> bool:
    """Whether any process of a run has written into the folder of the ranks' files; the sampler does not count."""
    return any(not path.name.startswith("telemetry-") for path in folder.iterdir())


def _is_sampled(folder: AnyPath, rank: int) -> bool:
    """Whether the launch has started the sampler of this rank's host (`sampled_with_launch`)."""
    facts = _files(folder, rank)[1]
    return facts.exists() and read_json(facts)["boot_id"] == _boot_id()


def _files(folder: AnyPath, rank: int) -> tuple[Path, Path]:
    """The readings of the sampler that this rank starts, and the devices that it found."""
    path = Path(folder) / f"telemetry-{rank:05d}.csv"
    return path, path.with_suffix(".json")


def _start(
    machine: Mapping[str, Any], folder: AnyPath, rank: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """The sampler, once it has found its devices and written its first readings. environment: by default ours."""
    path, facts = _files(folder, rank)
    line = [sys.executable, str(PROGRAM), "--output", str(path), "--rate-hz", str(machine["sampling_hz"])]
    line += ["--sensor", *machine["power_sensors"]]
    if machine["power_model"]:
        line += ["--model", json.dumps(machine["power_model"])]
    # In its own session: a signal to the ranks' process group must not truncate its last lines.
    process = subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=environment
    )
    found = _answer(process)
    identity = {"host": socket.gethostname(), "boot_id": _boot_id(), "boot_wall_ns": wall_at_zero_ns()}
    write_json(facts, {**identity, "rank": rank, **found})
    return process


def _boot_id() -> str:
    """Equal for hosts that are one machine, such as two containers: they read the same meters. Empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the sampler has found; one that does not answer, as in a driver that hangs, is killed and costs no run."""
    answers = cast(IO[bytes], process.stdout)
    ready, _, _ = select.select([answers], [], [], START_S)
    if not ready:
        process.kill()
        return {"devices": [], "reasons": {"sampler": f"it did not answer within {START_S} s"}}
    # It writes its answer at once, as one line.
    return json.loads(answers.readline() or b'{"devices": [], "reasons": {"sampler": "it did not start"}}')


def _held(process: subprocess.Popen[bytes] | None, communicator: Any) -> int | None:
    """The sampler's standard input, opened by this rank too, so that it stays open without the first rank.

    process: the sampler, on the rank that has started it, which gets None. None too for a rank that does not see the
    first one's files, as in a container of its own: then the sampler ends without it.
    """
    own = None
    if process:
        descriptor = cast(IO[bytes], process.stdin).fileno()
        own = f"/proc/{os.getpid()}/fd/{descriptor}", _identity(os.fstat(descriptor))
    held = None
    for path, identity in filter(None, communicator.gather(own)):
        with contextlib.suppress(OSError):
            if not process and held is None and _identity(Path(path).stat()) == identity:
                held = os.open(path, os.O_WRONLY)
    communicator.gather(None)  # before the first rank may end
    return held


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def merge(ranks: AnyPath, path: AnyPath, sensors: AnyPath, offsets: Mapping[str, int] | None = None) -> None:
    """Merge the hosts' ``telemetry-<rank>`` files in the folder ``ranks`` into ``path`` and ``sensors``.

    A line truncated by a kill is left out. A file without content is not written. offsets: nanoseconds by which the
    clocks of hosts are ahead, {host: offset}; they are subtracted from the wall times.
    """
    hosts = [read_json(file) for file in sorted(Path(ranks).glob("telemetry-*.json"))]
    if hosts:
        checked.check(hosts, "sensors", str(ranks))
        write_json(sensors, hosts)
    read: dict[str, dict[Path, list[str]]] = {}  # the lines of each device, by the sampler that read it
    for part in sorted(Path(ranks).glob("telemetry-*.csv")):
        for line in part.read_text("utf-8", "replace").split("\n")[1:-1]:
            if WHOLE.fullmatch(line):
                read.setdefault(",".join(line.split(",")[2:6]), {}).setdefault(part, []).append(line)
    whole = [line for samplers in read.values() for line in _most_whole(list(samplers.values()))]
    if whole:
        lines = (_shifted(line, offsets or {}) for line in whole)
        write_text(path, ",".join(COLUMNS) + "\n" + "".join(f"{line}\n" for line in lines))


def _most_whole(samplers: list[list[str]]) -> list[str]:
    """A device's lines of one sampler, where several ran on its host: of those that read for longest, the fastest."""
    longest = max(map(_length_ns, samplers))
    return max((lines for lines in samplers if _length_ns(lines) >= longest - END_NS), key=len)


def _length_ns(lines: list[str]) -> int:
    """From the first of a device's readings to its last, by the monotonic clock."""
    return int(lines[-1].split(",")[1]) - int(lines[0].split(",")[1])


def _shifted(line: str, offsets: Mapping[str, int]) -> str:
    """A line of a host's telemetry with the wall time of the launching host's clock."""
    wall, monotonic, host, rest = line.split(",", 3)
    return f"{int(wall) - offsets[host]},{monotonic},{host},{rest}" if host in offsets else line
