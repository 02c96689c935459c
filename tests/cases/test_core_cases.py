"""Cores seen against cores allowed: quotas of control groups, hyper-threads, memory limits."""

import os

import pytest
from examples import define, expand

from study.core import cores
from study.records import record
from study.training import binding

V1 = "30 23 0:28 {root} {mount} rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "30 23 0:28 {root} {mount} rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with these CPUs and control groups: ``host("0::/a/b", V2, {"a/cpu.max": "50000 100000"})``."""

    def build(group, mounts, files, cpus=(0, 1), siblings=None, root="/", mount="/sys/fs/cgroup"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(group + "\n")
        (tmp_path / "proc/self/mountinfo").write_text(mounts.format(root=root, mount=mount))
        for name, text in files.items():
            file = tmp_path / mount.lstrip("/") / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        for cpu, of in (siblings or {cpu: str(cpu) for cpu in cpus}).items():
            folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(of + "\n")
        return cores.describe_host(tmp_path)

    return build


def oversubscribed(facts, ranks=2):
    run = define(expand(scaling="weak", gpus=ranks)[0])
    return record._is_oversubscribed(run, {"host": {"name": "n", **facts}}, {})


@pytest.mark.case("cpu-quota", source="moby/moby#42356, rstudio/keras3#721", right="oversubscribed, 0.5 cores")
def test_half_a_core_by_quota_is_oversubscribed(host):
    facts = host("1:cpu,cpuacct:/docker/1", V1, {"docker/1/cpu.cfs_quota_us": "50000",
                                                 "docker/1/cpu.cfs_period_us": "100000"})  # fmt: skip
    assert facts["cpu_quota_cores"] == 0.5
    assert oversubscribed(facts)


@pytest.mark.case("cpu-quota-of-a-parent", source="our own", right="1.5 cores")
def test_the_smallest_quota_of_all_groups_above_holds(host):
    files = {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000", "a/b/c/cpu.max": "400000 100000"}
    facts = host("0::/a/b/c", V2, files)
    assert facts["cpu_quota_cores"] == 1.5
    assert oversubscribed(facts), "two ranks of one core have the time of 1.5"
    assert not oversubscribed(facts, ranks=1)


@pytest.mark.case("cpu-quota-in-a-container", source="our own", right="1 core")
@pytest.mark.parametrize(("group", "root"), [("0::/", "/"), ("0::/docker/77", "/docker/77"), ("0::/docker/77", "/"),
                                             ("0::/../other", "/")])  # fmt: skip
def test_a_container_sees_its_own_group_at_the_mount(host, group, root):
    facts = host(group, V2, {"cpu.max": "100000 100000"}, root=root)
    assert facts["cpu_quota_cores"] == 1


@pytest.mark.case("hyper-threads-side-by-side", source="open-mpi/hwloc, our own", right="CPUs 0 and 2")
def test_ranks_get_cores_of_their_own_where_hyper_threads_are_neighbours(host, tmp_path):
    host("0::/", V2, {}, cpus=range(4), siblings={0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    of_ranks = [binding.choose_own_cores(cores.order_cpus_by_core(2, tmp_path), 1, rank, 2) for rank in (0, 1)]
    assert of_ranks == [[0], [2]]
    assert cores.order_cpus_by_core(4, tmp_path) == [0, 1, 2, 3], (
        "with more threads than cores, those of a core stay together"
    )


@pytest.mark.case("no-topology", source="google/gvisor, our own", right="logical CPUs")
def test_without_a_topology_logical_cpus_count(host, tmp_path):
    facts = host("0::/", V2, {}, cpus=range(3), siblings={0: "0"})
    assert facts["physical_cores_allowed"] is None
    assert cores.order_cpus_by_core(2, tmp_path) == [0, 1, 2]


@pytest.mark.case("removed-group", source="kernel cgroup-v2.rst ((deleted) paths), our own", right="1 core")
def test_the_quota_of_a_parent_holds_though_the_group_is_gone(host):
    facts = host("0::/user/job (deleted)", V2, {"user/cpu.max": "100000 100000"})
    assert facts["cpu_quota_cores"] == 1


@pytest.mark.case("memory-high", source="systemd MemoryHigh=, our own", right="256 MB")
def test_the_memory_above_which_processes_are_slowed_down_is_the_limit(host):
    facts = host("0::/a", V2, {"a/memory.max": "512000000", "a/memory.high": "256000000"})
    assert facts["memory_limit_mb"] == 256


@pytest.mark.case("memory-limit", source="our own", right="512 MB")
@pytest.mark.parametrize(("group", "mounts", "file"), [
    ("0::/a", V2, "a/memory.max"),
    ("4:memory:/a", "30 23 0:28 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n", "a/memory.limit_in_bytes"),
])  # fmt: skip
def test_a_limit_of_memory_is_in_the_provenance(host, group, mounts, file):
    facts = host(group, mounts, {file: "512000000"})
    assert facts["memory_limit_mb"] == 512 < facts["memory_mb"]


@pytest.mark.case("no-limits", source="our own", right="no quota")
def test_without_limits_nothing_changes(host):
    huge = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.max": "max", "memory.max": "max"}
    facts = host("1:cpu:/", V1 + V2, huge)
    assert facts["cpu_quota_cores"] is facts["memory_limit_mb"] is None
    assert not oversubscribed(facts)


def test_threads_fit_the_quota(host, tmp_path):
    host("0::/", V2, {"cpu.max": "150000 100000"}, cpus=range(8))
    assert (cores.count_threads(tmp_path), cores.count_usable_cores(tmp_path)) == (1, 1.5)


@pytest.mark.case("service-node", source="our own", right="not oversubscribed")
def test_cores_of_a_service_node_are_not_the_ranks_cores():
    run = define(expand(scaling="weak", gpus=2)[0])
    run.machine.update(launcher="aprun", scheduler="cobalt", cores_per_rank=64)
    facts = {"host": {"name": "mom1", "cores_allowed": 16, "physical_cores_allowed": None, "cpu_quota_cores": None}}
    found = [record._is_oversubscribed(run, facts, {"ranks": [{"cores_usable": each}] * 2}) for each in (64, 32)]
    assert found == [False, True]
