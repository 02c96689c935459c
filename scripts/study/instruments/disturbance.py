"""Disturbance of a run by other load of its hosts (`study.instruments.background`), and a look at the load of now."""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core import cores
from study.core.csv_columns import Columns, read_columns
from study.core.csv_files import FINITE, NAME, TEXT, WHOLE
from study.core.files import AnyPath, write_aside
from study.core.wording import format_count, format_significant
from study.instruments import phases
from study.instruments.background import COLUMNS, COUNTED, DOUBTFUL, OF_GPUS, STOOD_STILL, TEXTS_OF_GPUS, Background
from study.instruments.gpus import UNUSED
from study.instruments.power import telemetry

SEPARATOR = "\t"
NUMBER = r"([0-9]+([.][0-9]+)?(e-?[0-9]{1,2})?)?"
BUSY = r"[^,\t\n\r]+ [0-9]{1,6}[.][0-9]{2}"  # a process with its cores
WHOLE_ROW = re.compile(SEPARATOR.join([r"[0-9]{1,19}"] * 2 + [r"[^\t\n\r\ufffd]+", NUMBER + "(?<!\t)", r"[0-9]{1,6}"]
                                      + [NUMBER] * (len(COUNTED) + 1) + [f"({BUSY}(, {BUSY})*)?"]
                                      + [NUMBER] * (len(OF_GPUS) - len(TEXTS_OF_GPUS))
                                      + [r"[^\t\n\r\ufffd]*"] * len(TEXTS_OF_GPUS) + [NUMBER, "[a-z_ ]*"]))  # fmt: skip
FILE = "background.csv"  # in the run's directory
LATER = {STOOD_STILL: FINITE, DOUBTFUL: TEXT}  # columns that need not be there
KINDS = {**{name: FINITE for name in COLUMNS if name not in LATER}, "end_wall_ns": WHOLE, "end_monotonic_ns": WHOLE,
         "host": NAME, "cores": WHOLE, "busiest": TEXT, **dict.fromkeys(TEXTS_OF_GPUS, TEXT)}  # fmt: skip
# {of the record: (column of the file, whether it is divided by the run's seconds x cores, or by its seconds)}
SHARES = {"others_cpu_share": ("others_cpu_s", True), "cpu_steal_share": ("steal_s", True),
          "cpu_throttled_share": ("throttled_s", False), "memory_stalled_share": ("memory_stalled_s", False),
          "io_stalled_share": ("io_stalled_s", False), "gpu_slowed_share": ("gpu_slowed_s", False),
          "gpu_capped_share": ("gpu_capped_s", False), "gpu_shared_share": ("gpu_shared_s", False)}  # fmt: skip
SUMS = ("swapped_mb", "major_faults", "thermal_throttles")
CLOCKS = {"clock_mhz": "cpu_clock_mhz", "gpu_clock_mhz": "gpu_sm_clock_mhz"}  # {column of the file: of the record}
# From which on a run is disturbed, unless the machine's file says otherwise; docs/comparing-runs.md says why these.
LIMITS: Mapping[str, float] = {"stood_still_s": 0.0, "others_cpu_share": 0.05, "cpu_steal_share": 0.02,
                               "cpu_throttled_share": 0.001, "swapped_mb": 1.0, "gpu_slowed_share": 0.01,
                               "gpu_shared_share": 0.01}  # fmt: skip
NO_FILE = "the sampler of the hosts wrote nothing"
# Counters on which a limit depends.
LIMITED = {"own_cpu_s", "kernel_cpu_s", *(SHARES[name][0] if name in SHARES else name for name in LIMITS)}
LEAST_WATCHED = 0.8  # of a run's time: with less, nobody knows that it was undisturbed
WORDS = {
    "stood_still_s": "it stood still for {} s (stopped, frozen or suspended)",
    "others_cpu_share": "other processes used {:.1f} % of its cores",
    "cpu_steal_share": "the hypervisor took {:.1f} % of its cores",
    "cpu_throttled_share": "a CPU quota stopped it for {:.1f} % of the time",
    "swapped_mb": "its host swapped {} MB",
    "gpu_slowed_share": "heat or a power brake slowed its GPUs for {:.1f} % of the time",
    "gpu_shared_share": "other processes were on its GPUs for {:.1f} % of the time",
}

WATCHED_S = 2.0
LONGEST_WAIT_S = 120.0  # for a quiet machine, where its file does not say otherwise (wait_for_quiet_s)
QUIET_S = 6.0  # for so long, others must have used no more than their limit
# A standstill of so many seconds, and so much swapped data, score as much as others on all cores for the whole run.
WHOLE_STANDSTILL_S, WHOLE_SWAP_MB = 10.0, 10_000.0
GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
STEADY = ("performance", "")  # governors that keep the clock rate; empty where the kernel does not tell


def merge_background_files(ranks: Path, path: Path, offsets: Mapping[str, int]) -> None:
    """Write the rows of all hosts into one file, ``path``; none if no host has left any. A cut-off row is left out.

    ranks: the folder of the hosts' files. offsets: {host: nanoseconds by which its clock is ahead}, subtracted from the
    wall times.
    """
    rows = []
    for part in sorted(ranks.glob("background-*.csv")):
        whole = part.read_text("utf-8", "replace").rpartition("\n")[0]
        for row in list(csv.reader(whole.splitlines()))[1:]:
            if WHOLE_ROW.fullmatch(SEPARATOR.join(row)):
                rows.append([str(int(row[0]) - offsets.get(row[2], 0)), *row[1:]])
    if rows:
        with write_aside(path) as aside, open(aside, "w", encoding="utf-8", newline="") as handle:
            csv.writer(handle, lineterminator="\n").writerows([COLUMNS, *rows])


def summarize(
    folder: AnyPath, edges: Iterable[Mapping[str, Any]], launch_stood_still_s: float = 0.0
) -> dict[str, Any] | None:
    """The record's ``background``: of each number the largest of all hosts; None for a run without the file.

    Rows and phases are matched by the host's name, so that all is empty, with the reason, if machines share one.

    Args:
        folder: the run's directory.
        edges: of its phases; rows outside of them count for the part that is within.
        launch_stood_still_s: for how long the launching process stood still.
    """
    path = Path(folder) / FILE
    names = (*SHARES, *SUMS, *CLOCKS.values(), "background_watched_share", "busiest_others", "gpu_reason")
    nothing: dict[str, Any] = dict.fromkeys(names) | {STOOD_STILL: launch_stood_still_s}
    if not path.exists():
        return nothing | {"background_reason": NO_FILE} if launch_stood_still_s else None
    moments: dict[str, list[int]] = {}  # of each host's phases, by its own clock
    for edge in edges:
        moments.setdefault(edge["host"], []).append(edge["monotonic_ns"])
    rows = read_columns(path, KINDS, LATER.get)
    if unclear := telemetry.explain_shared_name(Path(folder)):
        return nothing | {"background_reason": unclear}
    by_host = {host: _select_rows(rows, host, moments.get(host)) for host in sorted(set(rows["host"]))}
    parts = [part for part in by_host.values() if len(part.weight)]
    if not parts:
        return None
    hosts = [_summarize_host(part) for part in parts]
    summary: dict[str, Any] = {name: _find_largest([host[name] for host in hosts]) for name in (*SHARES, *SUMS)}
    for column, name in CLOCKS.items():
        summary[name] = min((rate for host in hosts if (rate := host[column]) is not None), default=None)
    summary["background_watched_share"] = _compute_watched_share(by_host, moments)
    summary["busiest_others"] = _name_busiest(parts)
    summary["gpu_reason"] = _find_gpu_reason(parts, is_known=summary["gpu_shared_share"] is not None)
    summary["background_reason"] = _explain_doubtful(rows)
    summary[STOOD_STILL] = max([launch_stood_still_s, *_sum_standstill(rows).values()])
    return summary


def _sum_standstill(rows: Columns) -> dict[str, float]:
    """{host: seconds of standstill in all of its rows}: also before the first phase and after the last one."""
    seconds: dict[str, float] = {}
    if STOOD_STILL in rows:
        for host, stood_still_s in zip(rows["host"], np.nan_to_num(rows[STOOD_STILL]), strict=True):
            seconds[host] = seconds.get(host, 0.0) + float(stood_still_s)
    return seconds


def _explain_doubtful(rows: Columns) -> str | None:
    """Which counters that a limit is for went back or rose by more than can be, with their hosts; None without any."""
    doubtful: Iterable[str | None] = rows[DOUBTFUL] if DOUBTFUL in rows else []  # noqa: SIM401  no mapping
    texts = {
        f"{name} of {host}"
        for host, names in zip(rows["host"], doubtful, strict=False)
        for name in (names or "").split()
        if name in LIMITED
    }
    return f"{', '.join(sorted(texts))} went back, or rose by more than can be" if texts else None


def _find_gpu_reason(parts: Sequence[_HostRows], is_known: bool) -> str | None:
    """The first reason of the rows. is_known: whether the run was seen on a GPU; then rows without one have none."""
    reasons = (each for part in parts for each in part["gpu_reason"] if each is not None)
    return next((each for each in reasons if each != UNUSED or not is_known), None)


@dataclass(frozen=True)
class _HostRows:
    """The rows of one host that count. weight: the share of each that is within the host's phases."""

    rows: Columns
    places: NDArray[np.int64]
    weight: NDArray[np.float64]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column's values in these rows."""
        return self.rows[name][self.places]

    @property
    def watched_s(self) -> NDArray[np.float64]:
        """Seconds of each row in which the sampler watched: it did not while it stood still."""
        still = np.nan_to_num(self[STOOD_STILL]) if STOOD_STILL in self.rows else 0.0
        return np.maximum(0.0, self["seconds"] - still)


def _select_rows(rows: Columns, host: str, moments: list[int] | None) -> _HostRows:
    """The rows of a host that overlap with its phases; all if it has none."""
    places = np.flatnonzero(rows["host"] == host)
    if moments is None:
        return _HostRows(rows, places, np.ones(len(places)))
    ends, lengths = rows["end_monotonic_ns"][places], rows["seconds"][places] * 1e9
    within = np.minimum(ends, max(moments)) - np.maximum(ends - lengths, min(moments))
    share = np.divide(within, lengths, out=np.zeros(len(places)), where=lengths > 0)
    weight = np.nan_to_num(np.clip(share, 0.0, 1.0), nan=0.0)
    return _HostRows(rows, places[weight > 0], weight[weight > 0])


def _compute_watched_share(by_host: Mapping[str, _HostRows], moments: Mapping[str, list[int]]) -> float | None:
    """The share of the phases that the rows cover, of the host with the least; None if they name other hosts.

    A row that does not tell the time of others covers nothing, unless no row of the run tells it. by_host: also hosts
    without a row that counts. moments: of the phases' edges.
    """
    if not moments or not set(by_host) <= set(moments):  # several network namespaces share one sampler
        return None
    tells = {host: ~np.isnan(part["others_cpu_s"]) for host, part in by_host.items()}
    if not any(each.any() for each in tells.values()):
        tells = {host: np.ones(len(part.weight), dtype=bool) for host, part in by_host.items()}
    shares = []
    for host, times in moments.items():
        length = (max(times) - min(times)) / 1e9
        part = by_host.get(host)
        covered = 0.0 if part is None else float((part.watched_s * part.weight)[tells[host]].sum())
        shares.append(min(1.0, covered / length) if length > 0 else 1.0)
    return min(shares)


def summarize_ended_run(folder: AnyPath) -> dict[str, Any] | None:
    """The record's ``background`` of a run that has just ended, however it did; see `summarize`."""
    path = Path(folder) / "phases.jsonl"
    return summarize(folder, phases.read_edges(path) if path.exists() else [])


def list_reasons(summary: Mapping[str, Any] | None, limits: Mapping[str, float] | None = None) -> list[str]:
    """Reasons in words why a run counts as disturbed; empty if it was not.

    summary: as of `summarize`. limits: those of the machine's file (``disturbance``), which replace `LIMITS`.
    """
    if summary is None:
        return []
    texts = []
    for name, limit in {**LIMITS, **(limits or {})}.items():
        value = summary.get(name)
        if value is not None and value > limit:
            who = f" ({summary['busiest_others']})" if name == "others_cpu_share" and summary["busiest_others"] else ""
            texts.append(WORDS[name].format(100 * value if name in SHARES else format_significant(value)) + who)
    return texts


def is_disturbed(summary: Mapping[str, Any] | None, limits: Mapping[str, float] | None = None) -> bool | None:
    """True if a run was disturbed, None if that is not known.

    That is so without the file, if it misses much of the run, if its hosts do not tell what others use or a counter of
    that told what cannot be, and if several of them have one name.

    The rest as for `list_reasons`.
    """
    if summary is None:
        return None
    if list_reasons(summary, limits):
        return True
    watched = summary.get("background_watched_share")
    has_values = summary.get("others_cpu_share") is not None and summary.get("background_reason") is None
    return False if has_values and (watched is None or watched >= LEAST_WATCHED) else None


def score_disturbance(summary: Mapping[str, Any] | None) -> float:
    """How much a run was disturbed, 0 for not at all; it depends on no time or result of the run.

    The sum of the shares of its cores and GPUs that others, the hypervisor, a quota and heat took, of its standstill in
    units of `WHOLE_STANDSTILL_S`, and of the swapped data in units of `WHOLE_SWAP_MB`. What is unknown counts as none.
    """
    values = {name: (summary or {}).get(name) or 0.0 for name in LIMITS}
    units = {STOOD_STILL: WHOLE_STANDSTILL_S, "swapped_mb": WHOLE_SWAP_MB}
    return sum(value / units.get(name, 1.0) for name, value in values.items())


def explain_unknown(summary: Mapping[str, Any], limits: Mapping[str, float] | None = None) -> str | None:
    """The reason why it is not known whether a run was disturbed, or None. The rest as for `list_reasons`."""
    if is_disturbed(summary, limits) is not None:
        return None
    if (reason := summary.get("background_reason")) is not None:
        return str(reason)
    if summary["others_cpu_share"] is None:
        return "its hosts do not show what others use of their cores (/proc/stat)"
    share = 100 * summary["background_watched_share"]
    return f"what others used of its hosts was seen for {share:.0f} % of its time only"


def _summarize_host(part: _HostRows) -> dict[str, float | None]:
    """The shares and sums of one host's rows, each row with its weight."""
    summary: dict[str, float | None] = {}
    doubtful = set(" ".join(each or "" for each in part[DOUBTFUL]).split()) if DOUBTFUL in part.rows else set()
    if doubtful & {"own_cpu_s", "kernel_cpu_s"}:
        doubtful.add("others_cpu_s")
    for name, (column, per_core) in SHARES.items():
        values, is_known = part[column], ~np.isnan(part[column]) & (column not in doubtful)
        time = (part["seconds"] * part.weight * (part["cores"] if per_core else 1))[is_known]
        summary[name] = float((values * part.weight)[is_known].sum() / time.sum()) if time.sum() > 0 else None
    for name in SUMS:
        values, is_known = part[name], ~np.isnan(part[name]) & (name not in doubtful)
        summary[name] = float((values * part.weight)[is_known].sum()) if is_known.any() else None
    for name in CLOCKS:
        values, is_known = part[name], ~np.isnan(part[name])
        summary[name] = float(np.where(is_known, values, 0.0).sum() / is_known.sum()) if is_known.any() else None
    return summary


def _find_largest(values: list[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _name_busiest(parts: Sequence[_HostRows]) -> str | None:
    """The other processes that used the most, with their cores on average over the run, the most first."""
    lengths = [part["seconds"] * part.weight for part in parts]
    whole = max(length.sum() for length in lengths)
    used: dict[str, float] = {}
    for part, length in zip(parts, lengths, strict=True):
        for text, seconds in zip(part["busiest"], length, strict=True):
            for busy in text.split(", ") if text else []:
                name, _, cores = busy.rpartition(" ")
                used[name] = used.get(name, 0.0) + float(cores) * seconds / whole
    most = sorted(used.items(), key=lambda each: -each[1])[:3]
    return ", ".join(f"{name} {cores:.2f}" for name, cores in most if cores >= 0.01) or None


def wait_for_quiet(limit_s: float, limits: Mapping[str, float] | None = None) -> str | None:
    """Wait until other processes leave this machine alone: None if they do, else what they use, in words.

    limit_s: the longest wait. limits: as of `list_reasons`. A machine that does not tell their load counts as quiet.
    """
    most = {**LIMITS, **(limits or {})}["others_cpu_share"]
    number, began = len(cores.list_allowed_cpus()), time.monotonic()
    background, quiet_s, busy = Background(""), 0.0, ""
    while True:
        time.sleep(WATCHED_S)
        changes = background.read_changes()
        passed, values, named = changes or (WATCHED_S, {}, "")
        share = (values.get("others_cpu_s") or 0.0) / (passed * number)
        quiet_s = quiet_s + passed if share <= most else 0.0
        if quiet_s >= QUIET_S:
            return None
        if quiet_s == 0:
            busy = f"other processes use {100 * share:.0f} % of its cores" + (f" ({named})" if named else "")
        if time.monotonic() - began >= max(limit_s, QUIET_S):
            return busy


def describe_machine(seconds: float = WATCHED_S, root: Path = cores.ROOT) -> list[str]:
    """The machine's load, watched for some seconds, and a line for each thing that makes times vary.

    root: below which /proc and /sys are read; tests have others.
    """
    number = len(cores.list_allowed_cpus())
    background = Background("", None, root)
    time.sleep(seconds)
    changes = background.read_changes()
    share: float | None = 0.0
    named = ""
    if changes is not None:
        passed, values, named = changes
        others = values["others_cpu_s"]
        share = None if others is None else others / (passed * number)
    has = format_count(number, "core")
    used = f"{has}, use unknown (/proc/stat)" if share is None else f"{100 * share:.0f} % of {has} in use"
    texts = [f"machine: {used}, load {os.getloadavg()[0]:.2f}"]
    if share is not None and share > LIMITS["others_cpu_share"]:
        who = f" ({named})" if named else ""
        texts.append(
            f"other processes use {100 * share:.0f} % of the cores{who}: runs that are timed now are disturbed"
        )
    governors = {cores.read_or_empty(root / GOVERNOR.format(core)) for core in cores.list_allowed_cpus()} - set(STEADY)
    if governors:
        texts.append(f"the clock rate changes with the load (CPU governor {', '.join(sorted(governors))})")
    physical, quota = cores.count_physical_cores(root), cores.read_cpu_quota(root)
    if physical is not None and physical < number:
        texts.append(
            f"{number} logical CPUs are {format_count(physical, 'core')} with hyper-threads, which share its units"
        )
    if quota is not None and quota < number:
        texts.append(
            f"a control group allows the time of {quota:g} of {format_count(number, 'core')}, and stops what uses more"
        )
    return texts
