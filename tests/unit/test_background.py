"""What else uses a host while a run is timed, and when that disturbs the run."""

import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import FakeNvml
from project import wait_for

from study.core import cores, fields, validation
from study.core.paths import ROOT
from study.instruments import background, disturbance, gpus, standstill
from study.instruments.background import COLUMNS, OF_GPUS, Background
from study.instruments.power.sampler import BackgroundFile

WAIT_S = 60
KERNEL = 0x00200000
RUN = "/results/run"


class Host:
    """A host whose /proc and /sys are files, and whose clock is set."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.now = folder, 100.0
        self.on: dict[int, int] = {}  # {process: the CPU on which it ran last}, where that is told
        self.bound: dict[int, set[int]] = {}  # {process: the CPUs on which it may run}
        monkeypatch.setattr(cores, "list_allowed_cpus", lambda: [0, 1])
        monkeypatch.setattr(background, "CLOCK_S", 60.0)
        monkeypatch.setattr(cores, "read_cpus_of_process", lambda pid, root: frozenset(self.bound.get(pid, ())))
        self.processes({})
        self.cores([0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0])

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cores(self, *times):
        """Ticks of each core: user, nice, system, idle, iowait, irq, softirq, steal."""
        lines = [f"cpu{core} {' '.join(map(str, each))} 0 7\n" for core, each in enumerate(times)]
        self.write("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(lines) + "intr 5\n")

    def processes(self, given):
        """{id: (name, parent, ticks, ticks of ended children, is of the run, flags)}"""
        for old in self.folder.glob("proc/[0-9]*"):
            shutil.rmtree(old)
        for pid, (name, parent, used, ended, is_own, flags) in given.items():
            fields = ["S", parent, 1, 1, 0, -1, flags, 0, 0, 0, 0, used, 0, ended, 0, 20, 0, 1, 0, pid * 10, 0]
            fields += [0] * 15 + [self.on[pid]] if pid in self.on else []  # the 39th with the two before
            self.write(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(map(str, fields))}\n")
            self.write(f"proc/{pid}/environ", f"A=b\0{background.VARIABLE}={RUN if is_own else RUN + '2'}\0")

    def observed(self, tmp_path, *changes):
        """The row for what the last of ``changes`` does in ten seconds; each of them takes as long."""
        path = tmp_path / "background-here.csv"
        seen = BackgroundFile(path, Background(RUN, None, self.folder, lambda: self.now))
        for change in changes:
            change()
            self.now += 10
            seen.write_row()
        seen.close()
        return list(csv.DictReader(path.open()))[-1]

    def threads_of_cores(self, *siblings):
        """The hyper-threads of each CPU's core, as the kernel lists them."""
        for cpu, listed in enumerate(siblings):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{listed}\n")


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path / "root", monkeypatch)


def test_a_machine_s_file_can_set_each_limit_whose_default_it_tells():
    limits = validation.read_schema("machines")["properties"]["disturbance"]["properties"]
    told = {name: float(re.search(r"([0-9.]+) by default$", each["description"])[1]) for name, each in limits.items()}
    assert told == disturbance.LIMITS


def test_time_of_others_is_what_was_busy_less_the_run_s_and_the_kernel_s(host, tmp_path):
    host.processes({10: ("rank", 1, 500, 0, True, 0), 11: ("a) b (c", 1, 50, 0, False, 0),
                    2: ("kworker", 0, 5, 0, False, KERNEL)})  # fmt: skip

    def change():
        host.cores([600, 20, 80, 9, 9, 9, 9, 30], [300, 0, 100, 0, 0, 0, 0, 20])
        host.processes({10: ("rank", 1, 1200, 0, True, 0), 11: ("a) b (c", 1, 350, 900, False, 0),
                        2: ("kworker", 0, 55, 0, False, KERNEL)})  # fmt: skip

    row = host.observed(tmp_path, change)
    assert (row["seconds"], row["cores"]) == ("10.0", "2")
    assert [float(row[name]) for name in ("own_cpu_s", "others_cpu_s", "kernel_cpu_s", "steal_s")] == [7, 3.5, 0.5, 0.5]
    assert row["busiest"] == "a) b (c 0.30"


def test_time_of_the_run_s_ended_processes_stays_the_run_s(host, tmp_path):
    """A parent has the time of its children that ended; that of a process without a parent is kept."""
    host.processes({10: ("launcher", 1, 100, 0, True, 0), 12: ("rank", 10, 100, 0, True, 0),
                    20: ("other rank", 1, 50, 0, True, 0)})  # fmt: skip

    def change():
        host.cores([500, 0, 0, 0, 0, 0, 0, 0], [0] * 8)
        host.processes({10: ("launcher", 1, 100, 600, True, 0)})

    row = host.observed(tmp_path, change)
    assert (float(row["own_cpu_s"]), float(row["others_cpu_s"])) == (5, 0)


@pytest.mark.parametrize("gone", [(12,), (12, 11)], ids=["nobody waited for it", "with its parent"])
def test_time_of_ended_processes_is_counted_once(host, tmp_path, gone):
    """A parent that ignores SIGCHLD does not get its children's time, and one that ends passes it on."""
    before = {10: ("rank", 1, 100, 0, True, 0), 11: ("pool", 10, 50, 0, True, 0), 12: ("worker", 11, 900, 0, True, 0)}
    host.processes(before)

    def change():
        host.cores([300, 0, 0, 0, 0, 0, 0, 0], [0] * 8)
        ended = 970 if 11 in gone else 0  # of 950 it was counted before
        now = {pid: each for pid, each in before.items() if pid not in gone} | {10: ("rank", 1, 200, ended, True, 0)}
        host.processes(now)

    row = host.observed(tmp_path, change)
    assert float(row["own_cpu_s"]) == (1.2 if 11 in gone else 1)


def test_a_process_id_that_is_used_again_is_another_process(host, tmp_path):
    host.processes({10: ("rank", 1, 900, 0, True, 0)})

    def change():
        host.cores([200, 0, 0, 0, 0, 0, 0, 0], [0] * 8)
        host.processes({10: ("other", 1, 200, 0, False, 0)})
        stat = host.folder / "proc/10/stat"
        stat.write_text(stat.read_text().replace(" 100 0\n", " 777 0\n"))  # its start

    row = host.observed(tmp_path, change)
    assert (float(row["own_cpu_s"]), float(row["others_cpu_s"]), row["busiest"]) == (0, 2, "other 0.20")


def test_others_on_the_second_hyper_thread_of_a_core_take_from_it(host, tmp_path):
    host.threads_of_cores("0,2", "1,3", "0,2", "1,3")
    host.on = {30: 3}

    def told(ticks):
        host.processes({30: ("cc1", 1, ticks, 0, False, 0)})
        host.cores(*busy(0, 0, 0, ticks))

    told(0)
    row = host.observed(tmp_path, lambda: told(500))
    assert (row["cores"], row["others_cpu_s"], row["busiest"]) == ("2", "5.0", "cc1 0.50")


def test_a_child_is_the_run_s_also_with_a_lower_number_than_its_parent(host, tmp_path):
    host.processes({90: ("rank", 1, 0, 0, True, 0), 10: ("worker", 90, 0, 0, False, 0)})
    started = host.folder / "proc/10/stat"
    started.write_text(started.read_text().replace(" 100 0\n", " 950 0\n"))  # numbers began anew

    def change():
        host.cores([300, 0, 0, 0, 0, 0, 0, 0], [0] * 8)
        started.write_text(started.read_text().replace("-1 0 0 0 0 0 0 0", "-1 0 0 0 0 0 300 0"))

    row = host.observed(tmp_path, change)
    assert (float(row["own_cpu_s"]), float(row["others_cpu_s"])) == (3, 0)


@pytest.mark.parametrize(
    ("chain", "are_own"),
    [(["slurmstepd"], True), (["orted"], True), (["flux-shell"], True),
     (["sshd", "sshd-session", "bash", "hydra_pmi_proxy"], True), (["numad"], False)],
)  # fmt: skip
@pytest.mark.parametrize("has_more", [False, True])
def test_daemons_that_serve_only_the_run_are_the_run_s(host, tmp_path, chain, are_own, has_more):
    """They are started by the system, so neither their environment nor their parents are the run's."""
    pids = list(range(10, 10 + len(chain)))

    def told(ticks):
        found = {pid: (name, pid - 1, ticks, 0, False, 0) for pid, name in zip(pids, chain, strict=True)}
        last = pids[-1]
        more = {70: ("other", last, 0, 0, False, 0)} if has_more else {}
        return found | {50: ("rank", last, 0, 0, True, 0), 60: ("bash", 1, 0, 0, False, 0)} | more

    host.processes(told(0))

    def change():
        host.cores([400, 0, 0, 0, 0, 0, 0, 0], [0] * 8)
        host.processes(told(100))

    row = host.observed(tmp_path, change)
    assert float(row["own_cpu_s"]) == (len(chain) if are_own and not has_more else 0)


IDLE = [0, 0, 0, 0, 0, 0, 0, 0]


def busy(*ticks):
    """The times of cores that were busy so long."""
    return [[each, *IDLE[1:]] for each in ticks]


def ranks_and_another(host, others):
    """Two ranks with two cores each, and what others use on the second one's. The launcher may run everywhere."""
    host.bound = {9: {0, 1, 2, 3}, 10: {0, 1}, 20: {2, 3}}
    host.on = {9: 0, 10: 1, 20: 2, 30: 3}

    def told(rank, other, on_first):
        host.processes({9: ("python", 1, 100, 0, True, 0), 10: ("python", 9, 2 * rank, 0, True, 0),
                        20: ("python", 9, rank, 0, True, 0), 30: ("cc1", 1, other, 0, False, 0),
                        31: ("backup", 1, on_first, 0, False, 0)})  # fmt: skip
        host.cores(*busy(rank + on_first, rank, rank, other))

    told(0, 0, 0)
    host.on[31] = 0
    return [lambda: told(900, others, 0), lambda: told(1800, others, 40)]


def test_a_quota_is_noticed_below_a_group_that_was_stopped_for_longer_before(host, tmp_path):
    host.write("proc/self/cgroup", "0::/site/job\n")
    host.write("proc/self/mountinfo", "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    host.write("sys/fs/cgroup/cgroup.controllers", "cpu\n")

    def told(of_job):
        host.write("sys/fs/cgroup/site/cpu.stat", "throttled_usec 900000000\n")
        host.write("sys/fs/cgroup/site/job/cpu.stat", f"throttled_usec {of_job}\n")

    told(0)
    assert host.observed(tmp_path, lambda: told(3_000_000))["throttled_s"] == "3.0"


def test_of_ranks_with_cores_of_their_own_the_one_that_loses_the_most_counts(host, tmp_path):
    """The sampler may use the first one's cores only; that one's processes do not hide what the second one loses."""
    first, second = ranks_and_another(host, others=800)
    row = host.observed(tmp_path, first)
    assert (row["cores"], row["busiest"]) == ("2", "cc1 0.80")
    assert [float(row[name]) for name in ("own_cpu_s", "others_cpu_s")] == [9, 8], "of cores 2 and 3"
    first, second = ranks_and_another(host, others=800)
    row = host.observed(tmp_path, first, second)
    assert [float(row[name]) for name in ("own_cpu_s", "others_cpu_s")] == [9, 0], "they have lost more until now"
    assert row["busiest"] == ""


def test_ranks_that_share_cores_are_one(host, tmp_path):
    first, _ = ranks_and_another(host, others=800)
    host.bound[10] = {0, 1, 2}
    row = host.observed(tmp_path, first)
    assert row["cores"] == "4"
    assert [float(row[name]) for name in ("own_cpu_s", "others_cpu_s")] == [27, 8]


def test_a_launcher_is_no_rank_and_a_rank_with_workers_is_one(host, tmp_path):
    """A worker of data may be on one of its rank's cores only, as its rank's first thread was.

    What watches over a rank for its launcher may run everywhere, and does nothing.
    """
    host.bound, host.on = {9: {0, 1, 2}, 10: {0, 1}, 11: {0}}, {9: 2, 10: 0, 11: 0, 30: 1}

    def told(rank, other):
        host.processes({9: ("python", 1, 50, 0, True, 0), 10: ("python", 1, rank, 0, True, 0),
                        11: ("python", 10, 200, 0, True, 0), 30: ("cc1", 1, other, 0, False, 0)})  # fmt: skip
        host.cores(*busy(rank, other))

    told(0, 0)
    row = host.observed(tmp_path, lambda: told(500, 300))
    assert (row["cores"], row["others_cpu_s"], row["busiest"]) == ("2", "3.0", "cc1 0.30")
    told(0, 0)
    assert host.observed(tmp_path, lambda: told(50, 300))["cores"] == "1", "it only waits"


def test_the_kernel_s_threads_and_own_processes_elsewhere_hide_nobody(host, tmp_path):
    """A batch job has two of four cores; the kernel compresses a file system on another one."""
    host.on = {2: 3, 10: 0, 11: 2, 30: 1, 31: 3}

    def told(ticks):
        host.processes({2: ("z_wr_iss", 0, 3 * ticks, 0, False, KERNEL), 10: ("rank", 1, ticks, 0, True, 0),
                        11: ("launcher", 1, 4 * ticks, 0, True, 0), 30: ("cc1", 1, ticks, 0, False, 0),
                        31: ("neighbour", 1, 5 * ticks, 0, False, 0)})  # fmt: skip
        host.cores(*busy(ticks, ticks, 4 * ticks, 8 * ticks))

    told(0)
    row = host.observed(tmp_path, lambda: told(200))
    assert [float(row[name]) for name in ("own_cpu_s", "others_cpu_s", "kernel_cpu_s")] == [2, 2, 0]
    assert row["busiest"] == "cc1 0.20"


def test_the_times_of_lxcfs_are_not_the_host_s(host, tmp_path):
    """It numbers a container's CPUs anew, and may count the container only (lxcfs, proc_stat_read).

    The line is as in published listings of LXD's containers.
    """
    row = host.observed(tmp_path, lambda: host.cores(*busy(900, 900)))
    assert (row["others_cpu_s"], background.can_measure_other_load(host.folder)) == ("18.0", True)
    host.folder = tmp_path / "container"
    host.write(
        "proc/self/mountinfo",
        "613 540 0:51 /proc/stat /proc/stat rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0\n",
    )
    host.cores(*busy(0, 0))
    row = host.observed(tmp_path, lambda: host.cores(*busy(900, 900)))
    assert (row["others_cpu_s"], row["steal_s"]) == ("", "")
    assert not background.can_measure_other_load(host.folder)
    assert disturbance.describe_machine(0.0, host.folder)[0].startswith(
        "machine: 2 cores, use unknown (/proc/stat), load "
    )


def test_clock_rates_that_take_long_to_read_are_read_in_turns(host, monkeypatch):
    for core in (0, 1):
        host.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{2_000_000 + core * 1_000_000}\n")
    seen = Background(RUN, None, host.folder)
    assert seen.read_clock_mhz() == 2500
    monkeypatch.setattr(background, "CLOCK_S", 0.0)
    assert [seen.read_clock_mhz() for _ in range(3)] == [2000, 3000, 2000]


def test_a_core_that_is_taken_away_leaves_its_rows_empty(host, tmp_path):
    row = host.observed(tmp_path, lambda: host.write("proc/stat", "cpu0 900 0 0 0 0 0 0 0 0 0\n"))
    assert (row["others_cpu_s"], row["steal_s"], row["cores"]) == ("", "", "2")


def test_limits_and_waiting_of_the_host_are_counted(host, tmp_path):
    mounted = "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    host.write("proc/self/cgroup", "0::/job\n")
    host.write("proc/self/mountinfo", mounted)
    speed = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    heat = "sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"

    def told(throttled, pages, stalled, hot):
        host.write("sys/fs/cgroup/job/cpu.stat", f"usage_usec 7\nnr_throttled 3\nthrottled_usec {throttled}\n")
        host.write("sys/fs/cgroup/cpu.stat", "usage_usec 9\n")
        host.write("proc/vmstat", f"pswpin {pages}\npswpout {2 * pages}\npgmajfault {pages}\n")
        for name in ("memory", "io"):
            host.write(f"proc/pressure/{name}", f"some avg10=0.00 total={stalled}\nfull avg10=0.00 total=5\n")
        for core in (0, 1):
            host.write(speed.format(core), f"{2_000_000 + core * 1_000_000}\n")
            host.write(heat.format(core), f"{hot}\n")

    told(500_000, 100, 1_000_000, 1)
    row = host.observed(tmp_path, lambda: told(2_000_000, 600, 3_500_000, 4))
    assert (float(row["throttled_s"]), float(row["memory_stalled_s"]), float(row["io_stalled_s"])) == (1.5, 2.5, 2.5)
    assert float(row["swapped_mb"]) == pytest.approx(1500 * os.sysconf("SC_PAGE_SIZE") / 1e6, abs=1e-3)
    assert (row["major_faults"], row["thermal_throttles"], float(row["clock_mhz"])) == ("500", "6.0", 2500)


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3\n", "".join(f"cpu{core}{' 0' * 10}\n" for core in (0, 1))])
def test_what_a_host_does_not_tell_is_empty(host, tmp_path, stat):
    """A masked file, and that of a sandbox, which counts nothing."""
    host.write("proc/stat", stat)
    assert not background.can_measure_other_load(host.folder)
    row = host.observed(tmp_path, lambda: None)
    empty = ("others_cpu_s", "steal_s", "throttled_s", "swapped_mb", "io_stalled_s", "thermal_throttles", "clock_mhz")
    assert {row[name] for name in empty} == {""}


# Counters that tell what cannot be


def write_counters(host, value):
    """Set one counter after the other to ``value`` (text) more than 1,000; all of them are 1,000 at first."""
    host.write("proc/self/cgroup", "0::/job\n")
    host.write("proc/self/mountinfo", "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    of = dict.fromkeys((*OF_LIMITS, *OTHER_COUNTERS), "1000") | value
    cpu = [of["others_cpu_s"], 0, 0, 0, 0, 0, 0, of["steal_s"]]
    host.cores(cpu, [1000, 0, 0, 0, 0, 0, 0, 1000])
    host.processes(
        {10: ("rank", 1, of["own_cpu_s"], 0, True, 0), 2: ("kworker", 0, of["kernel_cpu_s"], 0, False, KERNEL)}
    )
    host.write("sys/fs/cgroup/job/cpu.stat", f"throttled_usec {of['throttled_s']}\n")
    host.write("proc/vmstat", f"pswpin {of['swapped_mb']}\npswpout 1000\npgmajfault {of['major_faults']}\n")
    for resource, name in (("memory", "memory_stalled_s"), ("io", "io_stalled_s")):
        host.write(f"proc/pressure/{resource}", f"some avg10=0.00 total={of[name]}\nfull avg10=0.00 total=0\n")
    host.write("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", f"{of['thermal_throttles']}\n")


OF_LIMITS = ("others_cpu_s", "steal_s", "own_cpu_s", "kernel_cpu_s", "throttled_s", "swapped_mb")
FORMS = {"backwards": "10", "huge": str(2**64 - 1), "wrapped": str(2**63), "negative": "-7", "no number": "nan",
         "missing": ""}  # fmt: skip


OTHER_COUNTERS = ("memory_stalled_s", "io_stalled_s", "major_faults", "thermal_throttles")
OF_PROCESSES = ("own_cpu_s", "kernel_cpu_s")  # their file is read by place, and the kernel writes numbers
OF_CPUS = ("others_cpu_s", "steal_s")  # also by place, so that none is missing alone


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for name in (*OF_LIMITS, *OTHER_COUNTERS) for form, text in FORMS.items()
     if text.isdecimal() or not (name in OF_PROCESSES or name in OF_CPUS and not text)],
)  # fmt: skip
def test_a_counter_that_tells_what_cannot_be_is_unknown(host, tmp_path, name, form):
    """Steal of 2^64 - 1 ticks was "the hypervisor took 9223372036.8 % of its cores"."""
    write_counters(host, {})
    row = host.observed(tmp_path, lambda: write_counters(host, {name: FORMS[form]}))
    assert row[name] == "", "empty, no number"
    others = {each for each in OF_LIMITS if row[each] == ""}
    of_cpu = (
        {"others_cpu_s", "steal_s"} if name in ("others_cpu_s", "steal_s") and not FORMS[form].isdecimal() else set()
    )
    depends = {"others_cpu_s"} if name in OF_PROCESSES else set()
    assert others == ({name} & set(OF_LIMITS)) | of_cpu | depends, "only what depends on it"
    folder = tmp_path / "run"
    (folder / "ranks").mkdir(parents=True)
    (tmp_path / "background-here.csv").rename(folder / "ranks" / "background-here.csv")
    disturbance.merge_background_files(folder / "ranks", folder / disturbance.FILE, {})
    summary = disturbance.summarize(folder, [])
    assert disturbance.list_reasons(summary) == []
    if name in OF_LIMITS and FORMS[form].isdecimal():
        assert disturbance.is_disturbed(summary) is None, "nobody knows"
        assert disturbance.explain_unknown(summary).startswith(f"{name} of ")


# Standstills


class Clocks:
    """CLOCK_MONOTONIC and CLOCK_BOOTTIME, which are set."""

    def __init__(self, monkeypatch):
        self.monotonic = self.boot = 1000.0
        monkeypatch.setattr(standstill.time, "monotonic", lambda: self.monotonic)
        monkeypatch.setattr(standstill.time, "clock_gettime", lambda _: self.boot)


@pytest.mark.parametrize(
    ("passed", "suspended", "due", "busy", "cores", "still"),
    [
        (15.2, 0, 0.5, 0.6, 2, 14.7), (0.55, 0, 0.5, 1.0, 2, 0), (2.4, 0, 0.5, 0, 2, 0), (2.6, 0, 0.5, 0, 2, 2.1),
        (15.2, 0, 0.5, 15.0, 2, 0), (15.2, 0, 0.5, 30.0, 2, 0), (5, 0, 10, 0, 2, 0), (49, 0, 10, 0, 2, 0),
        (61, 0, 10, 0, 2, 51), (0.5, 3600, 0.5, 0.9, 2, 3600), (0.5, 0.05, 0.5, 0, 1, 0), (15.2, 60, 0.5, 0, 1, 74.7),
    ],
)  # fmt: skip
def test_a_look_that_comes_too_late_is_a_standstill(monkeypatch, passed, suspended, due, busy, cores, still):
    clocks = Clocks(monkeypatch)
    clock = standstill.StandstillClock()
    clocks.monotonic, clocks.boot = 1000 + passed, 1000 + passed + suspended
    assert clock.read_standstill_s(due, busy, cores) == pytest.approx(still, abs=1e-6)
    assert clock.read_standstill_s(due) == 0, "it is told once"


@pytest.mark.parametrize(
    ("state", "ticks", "is_own", "still"),
    [("T", 100, True, 10), ("T", 100, False, 0), ("S", 0, True, 0), ("D", 0, True, 0), ("t", 0, True, 10),
     ("t", 100, True, 0)],
)  # fmt: skip
def test_a_stopped_process_of_the_run_is_a_standstill(host, tmp_path, state, ticks, is_own, still):
    """Its sampler goes on: SIGSTOP to the ranks alone, Ctrl-Z in the terminal of the launch, or a debugger.

    A process whose system calls are traced is stopped for an instant at each of them, and works all the same.
    """
    host.processes({10: ("rank", 1, 50, 0, is_own, 0)})

    def change():
        host.processes({10: ("rank", 1, 50 + ticks, 0, is_own, 0)})
        stat = host.folder / "proc/10/stat"
        stat.write_text(stat.read_text().replace(") S ", f") {state} "))

    assert float(host.observed(tmp_path, change)["stood_still_s"]) == still


def test_a_standstill_disturbs_a_run_and_was_not_watched(tmp_path):
    folder = run_of(
        tmp_path,
        {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 0, "stood_still_s": 0},
        {"end_monotonic_ns": 20 * 10**9, "others_cpu_s": 0, "stood_still_s": 9.5},
    )
    summary = disturbance.summarize(folder, edges(0, 20))
    assert (summary["stood_still_s"], summary["background_watched_share"]) == (9.5, pytest.approx(10.5 / 20))
    assert disturbance.list_reasons(summary) == ["it stood still for 9.5 s (stopped, frozen or suspended)"]
    assert disturbance.summarize(folder, edges(0, 5))["stood_still_s"] == 9.5, "its whole time counts"
    assert disturbance.summarize(folder, edges(0, 20), 12.0)["stood_still_s"] == 12, "that of the launch"
    assert disturbance.is_disturbed(disturbance.summarize(tmp_path / "none", [], 12.0)) is True


@pytest.mark.parametrize(
    ("shares", "limit_s", "busy_s"),
    [([0.0], 120, None), ([0.9, 0.9, 0.01], 120, None), ([0.9], 10, 10), ([0.9, 0.0, 0.9], 20, 20), ([0.9], 0, 6),
     ([None], 120, None)],
)  # fmt: skip
def test_a_block_waits_for_a_quiet_machine_and_no_longer_than_it_may(monkeypatch, shares, limit_s, busy_s):
    """shares: of the cores that others use, in turns of two seconds; the last one stays."""
    clock, left = [0.0], list(shares)
    number = len(cores.list_allowed_cpus())

    def read_changes():
        share = left.pop(0) if len(left) > 1 else left[0]
        return 2.0, {"others_cpu_s": None if share is None else 2.0 * share * number}, "burner 1.00"

    monkeypatch.setattr(disturbance, "Background", lambda _: SimpleNamespace(read_changes=read_changes))
    monkeypatch.setattr(disturbance.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(disturbance.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    if shares == [0.9, 0.0, 0.9]:
        left.extend([0.0, 0.9])
    answer = disturbance.wait_for_quiet(limit_s)
    assert answer == (None if busy_s is None else "other processes use 90 % of its cores (burner 1.00)")
    assert busy_s is None or clock[0] == busy_s


BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\nprint(flush=True); input()"


@pytest.mark.slow
@pytest.mark.timed  # of busy processes of tests beside it, this one's are not the busiest
def test_real_processes_are_told_apart(tmp_path):
    other = tmp_path / "busybody"
    shutil.copy("/bin/sh", other)
    seen = BackgroundFile(tmp_path / "background-x.csv", Background(RUN))
    is_own = seen._background.is_own
    with (
        subprocess.Popen([sys.executable, "-c", BUSY.format(0.5)], env={**os.environ, background.VARIABLE: RUN},
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE) as own,
        subprocess.Popen([other, "-c", "while :; do :; done"]) as another,
    ):  # fmt: skip
        own.stdout.readline()
        used = ["ps", "-o", "cputimes=", "-p", str(another.pid)]
        wait_for(lambda: float(subprocess.check_output(used)) >= 1, seconds=WAIT_S)
        seen.close()
        assert (is_own(own.pid), is_own(another.pid)) == (True, False)
        another.kill()
        own.stdin.close()
    row = list(csv.DictReader((tmp_path / "background-x.csv").open()))[-1]
    assert 0.45 <= float(row["own_cpu_s"]) < 0.9
    assert float(row["others_cpu_s"]) > 0.8
    assert row["busiest"], "on a machine that others use, busybody is not among the first three"


# The run's GPUs


def seen_of_gpus(tmp_path, host, nvml, change=lambda: None, processes=(1,)):
    """The row of a host whose process 1 is the run's, after ten seconds."""
    named = {pid: (f"p{pid}", 0, 0, 0, pid == 1, 0) for pid in processes}
    host.processes(named)
    path = tmp_path / "background-gpus.csv"
    seen = BackgroundFile(path, Background(RUN, None, host.folder, lambda: host.now), gpus.find_gpus(True, nvml))
    change()
    host.now += 10
    seen.close()
    return {name: value for name, value in list(csv.DictReader(path.open()))[-1].items() if name in OF_GPUS}


@pytest.mark.parametrize(
    ("bits", "slowed", "capped"),
    [(0, "0.0", "0.0"), (0x1 | 0x2 | 0x100, "0.0", "0.0"), (0x4, "0.0", "10.0"), (0x8, "10.0", "0.0"),
     (0x20, "10.0", "0.0"), (0x40 | 0x4, "10.0", "10.0"), (0x80, "10.0", "0.0")],
)  # fmt: skip
def test_heat_slows_the_run_s_gpus_and_idling_and_set_clocks_do_not(host, tmp_path, bits, slowed, capped):
    nvml = FakeNvml()
    nvml.gpus[0].processes, nvml.gpus[0].throttled_by, nvml.gpus[0].load = [1], bits, 1.0
    row = seen_of_gpus(tmp_path, host, nvml)
    assert row == {"gpu_slowed_s": slowed, "gpu_capped_s": capped, "gpu_shared_s": "0.0", "gpu_clock_mhz": "1410",
                   "gpu_reason": "", "gpu_users": f"{nvml.gpus[0].uuid} own"}  # fmt: skip


def test_a_process_of_others_is_noticed_only_on_a_gpu_of_the_run(host, tmp_path):
    nvml = FakeNvml()
    nvml.gpus[0].processes, nvml.gpus[1].processes, nvml.gpus[1].throttled_by = [1], [7], 0x40
    row = seen_of_gpus(tmp_path, host, nvml, processes=(1, 7))
    assert (row["gpu_slowed_s"], row["gpu_shared_s"]) == ("0.0", "0.0"), "GPU 1 is not the run's"
    assert row["gpu_users"] == f"{nvml.gpus[0].uuid} own, {nvml.gpus[1].uuid} others"
    nvml.gpus[0].processes = [1, 7]
    assert seen_of_gpus(tmp_path, host, nvml, processes=(1, 7))["gpu_shared_s"] == "10.0"


def test_gpus_without_a_process_of_the_run_are_not_called_undisturbed(host, tmp_path):
    """Also under MPS, where NVML may show the server only."""
    nvml = FakeNvml()
    nvml.gpus[0].processes = [7]
    row = seen_of_gpus(tmp_path, host, nvml, processes=(1, 7))
    assert row.pop("gpu_reason") == gpus.UNUSED
    assert row.pop("gpu_users") == f"{nvml.gpus[0].uuid} others" and set(row.values()) == {""}


def test_what_nvml_does_not_tell_is_empty_with_the_reason(host, tmp_path, monkeypatch):
    nvml = FakeNvml()
    nvml.gpus[0].processes, nvml.gpus[0].throttled_by = [1], -3
    row = seen_of_gpus(tmp_path, host, nvml)
    assert (row["gpu_slowed_s"], row["gpu_shared_s"]) == ("", "0.0")
    assert row["gpu_reason"] == "NVML: GPU 0: nvmlDeviceGetCurrentClocksThrottleReasons: Not Supported"
    nvml.gpus[0].processes = [4711]
    row = seen_of_gpus(tmp_path, host, nvml)
    assert row.pop("gpu_reason") == "NVML: GPU 0: process 4711 is not known here (a container?)"
    assert set(row.values()) == {""}, "nobody knows whose it is"
    nvml.gpus[1].processes = [1]
    assert seen_of_gpus(tmp_path, host, nvml)["gpu_users"] == f"{nvml.gpus[1].uuid} own", "what is known is told"
    assert gpus.find_gpus(False).read_state(lambda pid: True).reason == "power_sensors of the machine's file lacks nvml"
    assert gpus.find_gpus(True, FakeNvml(0)).read_state(lambda pid: True).reason == "NVML: the driver sees no GPU"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py cannot be imported" in gpus.find_gpus(True).read_state(lambda pid: True).reason


# The summary of a run

ROW = {**dict.fromkeys(COLUMNS, ""), "end_wall_ns": 1, "host": "a", "seconds": 10, "cores": 2, "own_cpu_s": 5}


def run_of(tmp_path, *rows):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    by_host = {}
    for row in rows:
        by_host.setdefault(row.get("host", "a"), []).append({**ROW, **row})
    for name, each in by_host.items():
        with open(ranks / f"background-{name}.csv", "w", newline="") as handle:
            writer = csv.DictWriter(handle, COLUMNS)
            writer.writeheader()
            writer.writerows(each)
            handle.write("17956,cut o")
    disturbance.merge_background_files(ranks, tmp_path / disturbance.FILE, {"b": 5_000_000_000})
    return tmp_path


def edges(*seconds, host="a"):
    return [{"host": host, "monotonic_ns": int(each * 1e9)} for each in seconds]


def test_the_summary_weighs_rows_by_the_part_within_the_phases(tmp_path):
    folder = run_of(
        tmp_path,
        {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 20, "busiest": "cc1 2.00", "clock_mhz": 2000},
        {"end_monotonic_ns": 20 * 10**9, "others_cpu_s": 0, "busiest": "", "clock_mhz": 2400},
    )
    found = disturbance.summarize(folder, edges(5, 20))
    assert found["others_cpu_share"] == pytest.approx(10 / (15 * 2))
    assert (found["busiest_others"], found["cpu_clock_mhz"]) == ("cc1 0.67", 2200)
    assert disturbance.summarize(folder, edges(10, 20))["others_cpu_share"] == 0
    assert disturbance.summarize(folder, [])["others_cpu_share"] == pytest.approx(0.5), "without phases, all of it"


def test_gpus_are_summarized(tmp_path):
    row = {"gpu_slowed_s": 5, "gpu_capped_s": 10, "gpu_shared_s": 0, "gpu_clock_mhz": 1200}
    folder = run_of(
        tmp_path,
        {**row, "end_monotonic_ns": 10 * 10**9},
        {"end_monotonic_ns": 20 * 10**9, "gpu_reason": "NVML: GPU 0: GPU is lost"},
    )
    found = disturbance.summarize(folder, edges(0, 20))
    assert (found["gpu_slowed_share"], found["gpu_shared_share"], found["gpu_sm_clock_mhz"]) == (0.5, 0, 1200)
    assert found["gpu_reason"] == "NVML: GPU 0: GPU is lost"
    assert disturbance.list_reasons(found) == ["heat or a power brake slowed its GPUs for 50.0 % of the time"]


def test_the_time_before_a_run_has_its_gpus_is_no_reason(tmp_path):
    unused = {"gpu_reason": gpus.UNUSED}
    row = {"gpu_slowed_s": 5, "gpu_capped_s": 0, "gpu_shared_s": 0, "gpu_clock_mhz": 1200}
    for place, (last, share, reason) in enumerate([(row, 0.5, None), (unused, None, gpus.UNUSED)]):
        (tmp_path / str(place)).mkdir()
        rows = {**unused, "end_monotonic_ns": 10 * 10**9}, {**last, "end_monotonic_ns": 20 * 10**9}
        found = disturbance.summarize(run_of(tmp_path / str(place), *rows), edges(0, 20))
        assert (found["gpu_slowed_share"], found["gpu_reason"]) == (share, reason)


def test_a_host_that_does_not_tell_leaves_the_run_unknown(tmp_path):
    """One of two hosts is in a container with lxcfs: nobody used the other, which is only half of the run."""
    rows = {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 0}, {"end_monotonic_ns": 10 * 10**9, "host": "b"}
    found = disturbance.summarize(run_of(tmp_path, *rows), [*edges(0, 10), *edges(0, 10, host="b")])
    assert (found["others_cpu_share"], found["background_watched_share"]) == (0, 0)
    assert disturbance.is_disturbed(found) is None
    assert disturbance.explain_unknown(found) == "what others used of its hosts was seen for 0 % of its time only"
    assert disturbance.is_disturbed({**found, "others_cpu_share": 0.06}) is True


def test_the_worst_host_counts_each_by_its_own_clock(tmp_path):
    folder = run_of(
        tmp_path,
        {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 1, "steal_s": ""},
        {"end_monotonic_ns": 15 * 10**9, "others_cpu_s": 4, "steal_s": 1, "host": "b"},
    )
    found = disturbance.summarize(folder, [*edges(0, 10), *edges(5, 15, host="b")])
    assert (found["others_cpu_share"], found["cpu_steal_share"], found["swapped_mb"]) == (0.2, 0.05, None)


@pytest.mark.parametrize(("boot", "share"), [("a", 0.1), ("b", None)])
def test_rows_of_machines_with_one_name_are_not_mixed(tmp_path, boot, share):
    """Two samplers of one machine, one of which saw the second half; else two machines, at another time each."""
    rows = {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 4}, {"end_monotonic_ns": 20 * 10**9, "others_cpu_s": 0}
    folder = run_of(tmp_path, *rows)
    own = {"host": "a", "devices": [], "reasons": {}, "begin_monotonic_ns": 0}
    told = [{**own, "boot_id": "a", "boot_wall_ns": 0}, {**own, "boot_id": boot, "boot_wall_ns": 10**9}]
    (folder / "sensors.json").write_text(json.dumps(told))
    found = disturbance.summarize(folder, edges(0, 20))
    assert found["others_cpu_share"] == share
    reason = None if share else "several machines are named a: whose readings are whose cannot be told; rename one"
    assert (found["background_reason"], disturbance.explain_unknown(found)) == (reason, reason)
    assert disturbance.is_disturbed(found) is (True if share else None)
    assert set(found) == {each.name for each in fields.find_section("background").fields} - {
        "disturbed",
        "disturbed_by",
    }


def test_a_run_that_was_watched_in_part_is_not_called_undisturbed(tmp_path):
    """Its sampler ended early, or has no rows of one of its hosts; what it did see counts."""
    folder = run_of(tmp_path, {"end_monotonic_ns": 10 * 10**9, "others_cpu_s": 0})
    for phases, watched, known in [
        (edges(0, 10), 1, False), (edges(0.5, 11), 0.95 / 1.05, False), (edges(0, 20), 0.5, None),
        ([*edges(0, 10), *edges(0, 10, host="b")], 0, None), (edges(0, 10, host="b"), None, False),
    ]:  # fmt: skip
        found = disturbance.summarize(folder, phases)
        assert found["background_watched_share"] == (None if watched is None else pytest.approx(watched))
        assert disturbance.is_disturbed(found) is known
    busy = disturbance.summarize(folder, edges(0, 20)) | {"others_cpu_share": 0.5}
    assert disturbance.is_disturbed(busy) is True
    assert disturbance.explain_unknown(disturbance.summarize(folder, edges(0, 20))) == (
        "what others used of its hosts was seen for 50 % of its time only"
    )
    silent = {"busiest_others": None, "others_cpu_share": None}
    assert disturbance.is_disturbed(silent) is None
    assert disturbance.is_disturbed(silent | {"swapped_mb": 9.0}) is True
    assert disturbance.explain_unknown(silent) == "its hosts do not show what others use of their cores (/proc/stat)"


def test_a_run_without_the_file_is_neither_disturbed_nor_undisturbed(tmp_path):
    assert disturbance.summarize(tmp_path, []) is None
    assert disturbance.list_reasons(None) == []


@pytest.mark.parametrize(
    ("found", "limits", "told"),
    [
        ({"others_cpu_share": 0.051, "busiest_others": "cc1 0.10"}, None,
         ["other processes used 5.1 % of its cores (cc1 0.10)"]),
        ({"others_cpu_share": 0.05}, None, []),
        ({"others_cpu_share": 0.05}, {"others_cpu_share": 0.01}, ["other processes used 5.0 % of its cores"]),
        ({"cpu_steal_share": 0.03}, None, ["the hypervisor took 3.0 % of its cores"]),
        ({"cpu_throttled_share": 0.01}, None, ["a CPU quota stopped it for 1.0 % of the time"]),
        ({"swapped_mb": 12.5}, None, ["its host swapped 12.5 MB"]),
        ({"swapped_mb": 12.5}, {"swapped_mb": 20}, []),
        ({"gpu_shared_share": 0.5, "gpu_capped_share": 1.0}, None,
         ["other processes were on its GPUs for 50.0 % of the time"]),
    ],
)  # fmt: skip
def test_a_run_is_disturbed_by_what_is_above_a_limit(found, limits, told):
    assert disturbance.list_reasons({"busiest_others": None, **found}, limits) == told


QUOTA_US, PERIOD_US = 5_000, 100_000
IN_A_GROUP = """
import os, subprocess, sys, time
from pathlib import Path
from study.instruments.background import Background
loop = "echo $$ >$0/cgroup.procs; while :; do :; done"
busy = subprocess.Popen(["sh", "-c", loop, sys.argv[2]], start_new_session=True)
used = lambda: sum(map(int, Path(f"/proc/{busy.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / 100
while str(busy.pid) not in (Path(sys.argv[2]) / "cgroup.procs").read_text():
    time.sleep(0.01)
(Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
seen = Background("/run", None)
seen._is_own.update({(os.getpid(), seen._processes[os.getpid()].started): True,
                     (busy.pid, seen._processes[busy.pid].started): False})
before, end = used(), time.monotonic() + 0.8
while time.monotonic() < end:
    pass
seconds, changes, _ = seen.read_changes()
told = used() - before
busy.kill()
busy.wait()
print(changes["throttled_s"] / seconds, changes["own_cpu_s"] / seconds, changes["others_cpu_s"], told)
"""


@pytest.fixture
def limited():
    """Two control groups of this machine: one that allows 5 % of one core, and one beside it."""
    root = Path("/sys/fs/cgroup/cpu")
    settings = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(QUOTA_US)}
    if not root.is_dir():
        root, settings = Path("/sys/fs/cgroup"), {"cpu.max": f"{QUOTA_US} {PERIOD_US}"}
    groups = [root / f"study-test-{os.getpid()}-{name}" for name in ("limited", "sibling")]
    try:
        for group in groups:
            group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own: {error}")
    try:
        try:
            for name, value in settings.items():
                (groups[0] / name).write_text(value)
        except OSError as error:
            pytest.skip(f"needs a control group with a CPU quota: {error}")
        yield groups
    finally:
        for group in groups:
            group.rmdir()


@pytest.mark.slow
@pytest.mark.timed  # on a busy machine it does not come to its quota
def test_a_real_quota_and_a_busy_sibling_are_noticed(limited):
    """The quota stops a busy process for 95 % of the time; a third is asked for, as the machine may be shared."""
    line = [sys.executable, "-c", IN_A_GROUP, *map(str, limited)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    told = subprocess.run(line, env=variables, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout
    throttled, used, others, of_sibling = map(float, told.split())
    assert throttled > 0.35 and used < 0.2
    assert of_sibling > 0.02 and others > 0.8 * of_sibling - 0.05


# The machine before runs are timed


def test_the_machine_s_state_says_what_makes_times_vary(host, monkeypatch):
    monkeypatch.setattr(cores, "list_allowed_cpus", lambda: [0, 1])
    monkeypatch.setattr(disturbance.time, "sleep", lambda _: host.cores([60, 0, 0, 0, 0, 0, 0, 0], [60] + [0] * 7))
    clock = itertools.chain([0.0], itertools.repeat(1.0))
    monkeypatch.setattr(Background.__init__, "__defaults__", (None, cores.ROOT, lambda: next(clock)))
    for core in (0, 1):
        host.write(disturbance.GOVERNOR.format(core), "powersave\n")
        host.write(f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", "0-1\n")
    host.write("proc/self/cgroup", "0::/job\n")
    host.write("proc/self/mountinfo", "30 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    host.write("sys/fs/cgroup/job/cpu.max", "50000 100000\n")
    first, *others = disturbance.describe_machine(1.0, host.folder)
    assert first.startswith("machine: 60 % of 2 cores in use, load ")
    assert others == [
        "other processes use 60 % of the cores: runs that are timed now are disturbed",
        "the clock rate changes with the load (CPU governor powersave)",
        "2 logical CPUs are 1 core with hyper-threads, which share its units",
        "a control group allows the time of 0.5 of 2 cores, and stops what uses more",
    ]
