"""When a run's phases were, on each of its machines, by each machine's own monotonic clock.

The run's window begins with the first rank's ``load`` and ends with the last rank's ``evaluate``; of a command, it is
from the start of the user's program to its end. A further window is that of the run's processes (`PROCESSES`), start-up
included.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from study.core import validation
from study.instruments.phases import PROGRAM, compute_zeros_ns
from study.instruments.power import telemetry

RUN = "run"
PROCESSES = "processes"  # of a node: from its first process's start, with its sampler running, to its last one's end
Window = tuple[float, float]  # begin, end: monotonic seconds of a host
Windows = dict[tuple[str, str], Window]  # by host and name; of a phase's later times ``train#1``, ``train#2``, ...
AGAIN = "#"


def group_hosts(folder: Path) -> dict[str, str]:
    """{host: the first of the hosts that are the same machine}: they have one meter, which counts once."""
    of_hosts = telemetry.read_host_samplers(folder)
    boots = [(each.get("host"), each.get("boot_id")) for each in of_hosts]
    if (folder / "provenance.json").exists():
        hosts = validation.load_valid_json(folder / "provenance.json", "provenance").get("hosts", [])
        boots += [(host["hostname"], host["boot_id"]) for host in hosts]
    same, first = telemetry.group_boots(of_hosts), dict[str, str]()
    return {host: first.setdefault(same.get(boot, boot), host) for host, boot in boots if host and boot}


def rename_hosts(edges: Iterable[dict[str, Any]], hosts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The edges, each with its machine's first host; hosts of one machine have one monotonic clock."""
    return (edge | {"host": hosts.get(edge["host"], edge["host"])} for edge in edges)


def compute_windows(edges: Iterable[dict[str, Any]]) -> Windows:
    """{(host, window): (begin, end)}, monotonic seconds: the run, and each phase from its first to its last rank.

    A phase that the ranks begin again, as a program may, has a window for each time, without what is between them. A
    host whose processes do not tell a phase, such as one of a parameter server's workers, has that of the others.
    """
    edges = list(edges)
    zeros = compute_zeros_ns(edges)
    windows = _compute_phase_windows(edges, zeros)
    for host in {host for host, _ in windows}:
        if (host, PROGRAM) in windows:  # it may tell no phases, or on one host only
            windows[host, RUN] = windows[host, PROGRAM]
        elif (host, "load") in windows and (host, "evaluate") in windows:
            last = max(
                end for (other, name), (_, end) in windows.items() if other == host and get_phase(name) == "evaluate"
            )
            windows[host, RUN] = windows[host, "load"][0], last
    return windows | _fill_missing_windows(windows, zeros)


def _compute_phase_windows(edges: Iterable[dict[str, Any]], zeros: Mapping[str, int]) -> Windows:
    """The windows of the phases: of the first time under the phase's name, of later ones with their number.

    Times that overlap, where a rank is in the phase again before another one has left it, are one. zeros: as below.
    """
    begun: dict[str, dict[int, dict[str, tuple[float, float | None]]]] = {}  # by phase, time and host
    ended: Counter[tuple[int, str]] = Counter()  # how many times a rank has left a phase
    for edge in sorted(edges, key=lambda edge: edge["monotonic_ns"]):
        host, phase, at = edge["host"], edge["phase"], edge["monotonic_ns"] / 1e9
        spans = begun.setdefault(phase, {}).setdefault(ended[edge["rank"], phase], {})
        begin, end = spans.get(host, (at, None))
        spans[host] = (min(begin, at), end) if edge["edge"] == "begin" else (begin, max(end or at, at))
        ended[edge["rank"], phase] += edge["edge"] == "end"
    windows: Windows = {}
    for phase, times in begun.items():
        number, latest = -1, -np.inf
        for _, spans in sorted(times.items()):
            whole = {host: (begin, end) for host, (begin, end) in spans.items() if end is not None}
            first = min((begin + zeros[host] / 1e9 for host, (begin, _) in whole.items()), default=np.inf)
            number += first > latest and bool(whole)
            latest = max([latest, *(end + zeros[host] / 1e9 for host, (_, end) in whole.items())])
            for host, (begin, end) in whole.items():
                before = windows.get((host, _name_window(phase, number)), (begin, end))
                windows[host, _name_window(phase, number)] = min(before[0], begin), max(before[1], end)
    return windows


def _name_window(phase: str, time: int) -> str:
    return f"{phase}{AGAIN}{time}" if time > 0 else phase


def get_phase(window: str) -> str:
    """The phase of a window, whichever time of it that is."""
    return window.partition(AGAIN)[0]


def _fill_missing_windows(windows: Windows, zeros: Mapping[str, int]) -> Windows:
    """The windows that hosts lack and others have, from the first begin to the last end, by the wall clocks.

    A device draws power whether or not the processes of its host tell a phase: without it, the sum would be too low.
    zeros: of each host of the run, see `study.instruments.phases.compute_zeros_ns`.
    """
    missing: Windows = {}
    for name in {name for _, name in windows}:
        spans = {host: span for (host, window), span in windows.items() if window == name}
        for host, zero in zeros.items():
            if host not in spans:
                moved = [[at + (zeros[other] - zero) / 1e9 for at in span] for other, span in spans.items()]
                missing[host, name] = min(begin for begin, _ in moved), max(end for _, end in moved)
    return missing


def compute_windows_until(edges: list[dict[str, Any]], wall_ns: int, ended: tuple[str, int]) -> Windows:
    """{(host, `RUN`): (begin of its first ``load``, ``wall_ns``)}, in monotonic seconds of each host; as above."""
    until: Windows = {}
    windows = compute_windows(edges)
    for (host, name), (begin, _) in windows.items():
        if name == (PROGRAM if (host, PROGRAM) in windows else "load"):
            edge = next(each for each in edges if each["host"] == host)
            until_ns = wall_ns - edge["wall_ns"] + edge["monotonic_ns"]
            until[host, RUN] = begin, (ended[1] if ended[0] == host else until_ns) / 1e9
    return until


def _find_begins(edges: list[dict[str, Any]], windows: Windows) -> dict[str, float]:
    """{host: monotonic s at which its first rank began phase startup}, which a program without phases does not end."""
    begins = {host: begin for (host, phase), (begin, _) in windows.items() if phase == "startup"}
    edges_of_begins = [edge for edge in edges if edge["phase"] == "startup" and edge["edge"] == "begin"]
    for edge in sorted(edges_of_begins, key=lambda edge: -edge["monotonic_ns"]):
        begins[edge["host"]] = edge["monotonic_ns"] / 1e9
    return begins


def compute_process_windows(
    folder: Path, edges: list[dict[str, Any]], phase_windows: Windows, hosts: Mapping[str, str]
) -> tuple[Windows, str | None]:
    """({(host, `PROCESSES`): (begin, end)} of all nodes, None), or ({}, the reason why it is not known of one of them).

    It begins with the node's first process, or with the first reading of the sampler that this process starts before
    anything else; it ends with the node's last process. Nothing of it depends on how long the sampler lived.
    """
    by_host: dict[str, list[dict[str, Any]]] = {}
    for each in telemetry.read_host_samplers(folder):
        by_host.setdefault(hosts.get(each.get("host", ""), each.get("host", "")), []).append(each)
    windows: Windows = {}
    for host, started in _find_begins(edges, phase_windows).items():
        of_host = by_host.get(host, [])
        begins = [each["begin_monotonic_ns"] / 1e9 for each in of_host if "begin_monotonic_ns" in each]
        ends = [each["processes_end_monotonic_ns"] / 1e9 for each in of_host if "processes_end_monotonic_ns" in each]
        if not begins or len(begins) < len(of_host) or not ends:
            return {}, f"on {host} it is not known when the sampler began or when the run's processes ended"
        stops = [each["end_monotonic_ns"] / 1e9 for each in of_host if "end_monotonic_ns" in each]
        windows[host, PROCESSES] = max(started, *begins), min([max(ends), *stops])
    return windows, None if windows else "no phase startup in the run's files"


def compute_length(windows: Windows, name: str) -> float:
    """Length of a window, s: that of the longest host, since all wait for it; 0 without such a window."""
    lengths: dict[str, float] = {}
    for (host, window), (begin, end) in windows.items():
        if get_phase(window) == name:
            lengths[host] = lengths.get(host, 0.0) + end - begin
    return max(lengths.values(), default=0)
