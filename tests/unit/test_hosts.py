"""Several hosts: where ranks are placed, host files, launcher lines, and clocks that differ."""

import os
import subprocess
import sys

import pytest
from examples import expand

from study.communication import roles
from study.core.paths import ROOT
from study.experiment import inputs
from study.instruments import phases
from study.instruments.power import telemetry
from study.launch import run_directory
from study.machines import host_capabilities, launchers, run_layout
from study.machines import machine as machine_files
from study.machines.machine import load as machine
from study.records import record

UNLIMITED = {"physical_cores_allowed": None, "cpu_quota_cores": None}
PAIR = {"a": 2, "b": 3}
LINKS = run_layout.Links({"a": "eno1", "b": "eth7"}, "eno1", "10.0.0.0/24", {"a": "10.0.0.1", "b": "10.0.0.2"})


@pytest.mark.parametrize(
    ("ranks", "placed"), [(1, {"a": 1}), (2, {"a": 2}), (3, {"a": 2, "b": 1}), (5, {"a": 2, "b": 3})]
)
def test_hosts_are_filled_one_after_the_other(ranks, placed):
    assert run_layout.place_ranks(ranks, PAIR) == placed


def test_a_host_file(tmp_path):
    file = tmp_path / "hosts.txt"
    file.write_text("# our two\na slots=2\n\nb   slots = 3  # newer\nc\n")
    assert machine_files.read_hosts(str(file)) == {"a": 2, "b": 3, "c": 1}
    assert machine_files.derive_host_settings({"hosts": str(file)}) == {
        "hosts": {**PAIR, "c": 1},
        "nodes": 3,
        "ranks_per_node": 3,
    }


@pytest.mark.parametrize(
    ("placed", "servers", "expected"),
    [
        ({"a": 2, "b": 1, "c": 0, "d": 0}, 1, ["c"]),
        ({"a": 2, "b": 1, "c": 0}, 4, ["c", "b", "a", "c"]),
        ({"a": 1, "b": 1, "c": 1}, 2, ["c", "b"]),
        ({"a": 2}, 2, ["a", "a"]),
    ],
)
def test_servers_go_to_hosts_without_workers_first(placed, servers, expected):
    assert run_layout.place_servers(servers, placed) == expected


def test_the_processes_of_a_parameter_server_have_hosts():
    (run,) = expand(scaling="weak", gpus=2, strategy="parameter_server", servers=2)
    run = inputs.define_run(run, on_pair(hosts={"a": 2, "b": 1, "c": 1, "d": 1}), "data")
    assert run.machine["hosts"] == [["a", 2], ["b", 0], ["c", 0]], "d has no process"
    assert run.derived.nodes == 3
    assert roles.list_hosts(run) == ["a", "a", "a", "b", "c"]
    three = [{"name": name, "boot_id": name, "cores_allowed": 3} | UNLIMITED for name in "abc"]
    assert not record._is_oversubscribed(run, {"hosts": three})
    three[0]["cores_allowed"] = 2
    assert record._is_oversubscribed(run, {"hosts": three}), "the chief needs a core too"


def on_pair(**changes):
    return {**machine("local"), "hosts": PAIR, "nodes": 2, "ranks_per_node": 3, **changes}


def test_ranks_need_slots():
    assert launchers.refuse_ranks(5, on_pair()) is None
    assert launchers.refuse_ranks(6, on_pair()) == "6 ranks are more than the 5 slots of the machine's hosts"
    assert "places ranks itself" in launchers.refuse_ranks(2, {**machine("summit"), "hosts": PAIR})
    assert [launchers.count_nodes(ranks, on_pair()) for ranks in (1, 2, 3, 5)] == [1, 1, 2, 2]


def test_lines(monkeypatch):
    monkeypatch.setattr(launchers.shutil, "which", lambda *_, **__: "/somewhere")
    linked = on_pair(links=LINKS)
    assert launchers.make_command(3, linked, ["PROGRAM"]) == [
        sys.executable, launchers.HOROVODRUN, "--interfaces", "a=eno1,b=eth7", "--network-interfaces", "eno1",
        "--gloo", "-np", "3", "-H", "a:2,b:1", "PROGRAM",
    ]  # fmt: skip
    line = launchers.make_command(3, {**linked, "launcher": "mpirun"}, ["PROGRAM"])
    assert line[-3:] == ["-H", "a:2,b:1", "PROGRAM"]
    assert "plm_rsh_agent" in line and "10.0.0.0/24" in line


def test_a_run_stays_the_same_when_hosts_are_added_that_it_does_not_use():
    (run,) = expand(gpus=2)
    before = inputs.define_run(run, on_pair(), "data")
    after = inputs.define_run(run, on_pair(hosts={**PAIR, "c": 8}, nodes=3, ranks_per_node=8), "data")
    assert inputs.to_param(before) == inputs.to_param(after)
    assert (before.machine["hosts"], before.derived.nodes) == ([["a", 2]], 1)
    assert "hosts" not in inputs.define_run(run, machine("local"), "data").machine


def test_link_rates_are_for_the_laboratory():
    assert host_capabilities.refuse_rate(100, machine("lab")) is None
    assert host_capabilities.refuse_rate(0, machine("local")) is None
    assert "needs the laboratory" in host_capabilities.refuse_rate(100, machine("local"))
    assert "scripts/lab.sh up 8" in host_capabilities.refuse_outside_laboratory(machine("lab"))


@pytest.mark.skipif(os.geteuid() != 0, reason="the laboratory needs root")
def test_a_laboratory_does_not_take_a_folder_that_holds_something(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run(
        [ROOT / "scripts" / "lab.sh", "up", "1"],
        env={**os.environ, "LAB_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "holds files of something else; give a new or empty folder" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_wall_times_are_of_one_clock(tmp_path):
    ranks, hour = tmp_path / "ranks", 3_600 * 10**9
    for rank, (host, ahead) in enumerate({"a": 0, "b": hour}.items()):
        log = phases.PhaseLog(ranks / f"phases-{rank:05d}.jsonl", rank, host)
        log.edge("load", "begin", (1_000 + rank + ahead, 5))
        log.edge("load", "end", (2_000 + rank + ahead, 1_005))
        row = [str(1_000 + ahead), "5", host, "nvml", "gpu", "0", *[""] * (len(telemetry.COLUMNS) - 6)]
        text = ",".join(telemetry.COLUMNS) + "\n" + ",".join(row) + "\n"
        (ranks / f"telemetry-{rank:05d}.csv").write_text(text)
    clocks = [{"hostname": "a", "clock_offset_s": 0.0}, {"hostname": "b", "clock_offset_s": 3600.0}]
    run_directory.merge_rank_files(tmp_path, clocks)
    edges = phases.read_edges(tmp_path / "phases.jsonl")
    assert [(edge["rank"], edge["wall_ns"]) for edge in edges] == [(0, 1000), (1, 1001), (0, 2000), (1, 2001)]
    lines = (tmp_path / "telemetry.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["1000", "1000"]


def test_hosts_that_are_one_machine_share_its_cores():
    single = on_pair(hosts={"a": 1, "b": 1, "c": 1})
    two, three = (inputs.define_run(*expand(gpus=gpus, scaling="weak"), single, "data") for gpus in (2, 3))
    apart = [{"name": name, "cores_allowed": 2, "boot_id": name} | UNLIMITED for name in "abc"]
    one = [{**host, "boot_id": "x"} for host in apart]
    assert not record._is_oversubscribed(three, {"hosts": apart})
    assert record._is_oversubscribed(three, {"hosts": one})
    assert not record._is_oversubscribed(two, {"hosts": one[:2]})
