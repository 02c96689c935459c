"""Roles by rank: equal processes of a batch system's launcher become chief, workers and servers."""

import json
import threading

import pytest
from examples import define, expand

from study.communication import rendezvous
from study.communication.roles import PLACES, Place, build_rank_variables, list_run_roles
from study.core.errors import StudyError
from study.instruments import heartbeats
from study.machines import launchers
from study.machines.machine import load as machine
from study.machines.run_layout import list_roles_by_rank

SERVED = {"strategy": "parameter_server", "servers": 1}


@pytest.mark.parametrize(
    ("workers", "servers", "per_node", "expected"),
    [
        (2, 1, 1, "chief, server 0, worker 0, worker 1"),
        (2, 1, 2, "chief, server 0, worker 0, worker 1"),
        (3, 2, 2, "chief, server 0, server 1, idle 0, worker 0, worker 1, worker 2, idle 1"),
        (1, 1, 4, "chief, server 0, idle 0, idle 1, worker 0, idle 2, idle 3, idle 4"),
    ],
)
def test_no_worker_shares_a_node_with_a_server(workers, servers, per_node, expected):
    found = list_roles_by_rank("parameter_server", workers, servers, per_node)
    assert ", ".join(map(str, found)) == expected
    kinds = [{role.kind for role in found[first : first + per_node]} for first in range(0, len(found), per_node)]
    assert not any({"worker", "server"} <= on or {"worker", "chief"} <= on for on in kinds)


@pytest.mark.parametrize(
    ("name", "strategy", "number"),
    [
        ("summitdev", "horovod", 6),
        ("summitdev", "ddp", 6),
        ("summitdev", "parameter_server", 4 + 8),
        ("theta", "parameter_server", 1 + 1 + 6),
        ("local", "parameter_server", 6),
    ],
)
def test_the_processes_that_a_launcher_starts(name, strategy, number):
    """On Summitdev four on each of three nodes; locally chief and server are started beside the ranks."""
    assert launchers.count_started(strategy, 6, int(strategy == "parameter_server"), machine(name)) == number


@pytest.mark.parametrize("name", [name for name, each in launchers.LAUNCHERS.items() if not each.on_own_hosts])
def test_a_launcher_of_a_job_tells_the_rank(name):
    names = list(launchers.LAUNCHERS[name].rank_variables)
    for variable in names:
        assert rendezvous.read_own_rank(names, {variable: "3", "HOROVOD_RANK": "1"}, 4) == 3
    with pytest.raises(StudyError, match=f"has set none of {', '.join(names)}: a process of this strategy"):
        rendezvous.read_own_rank(names, {"HOROVOD_RANK": "1"}, 4)
    for wrong in ("4", "-1", "one"):
        with pytest.raises(StudyError, match=f"{names[0]} is '{wrong}', but the run has the ranks 0 to 3"):
            rendezvous.read_own_rank(names, {names[0]: wrong}, 4)


def defined(**point):
    (planned,) = expand(scaling="weak", **{"gpus": 2, **SERVED, **point})
    run = define(planned)
    run.machine.update(launcher="srun", ranks_per_node=2)
    return run


def joined(run, folder, ranks, attempt=None):
    """{rank: (whether it takes part, its variables)} of processes, here of threads."""
    attempt = attempt or build_rank_variables(["SLURM_PROCID"])
    found = {}

    def take_part(rank):
        variables = {**attempt, "SLURM_PROCID": str(rank)}
        found[rank] = rendezvous.join_run(run, folder, variables), variables

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_processes_find_each_other(tmp_path):
    run = defined(gpus=3)
    found = joined(run, tmp_path, range(6))
    processes = list_run_roles(run, found[0][1])
    assert list(map(str, processes)) == ["chief", "server 0", "worker 0", "worker 1", "worker 2", "idle 0"]
    assert [found[rank][0] for rank in range(6)] == [True] * 5 + [False]
    assert PLACES not in found[5][1] and not list(tmp_path.glob("*-00005.json"))
    told = [json.loads(found[rank][1]["TF_CONFIG"]) for rank in range(5)]
    assert all(each["cluster"] == told[0]["cluster"] for each in told)
    assert {job: len(each) for job, each in told[0]["cluster"].items()} == {"chief": 1, "worker": 3, "ps": 1}
    assert [each["task"] for each in told][1:3] == [{"type": "ps", "index": 0}, {"type": "worker", "index": 0}]
    addresses = [address for each in told[0]["cluster"].values() for address in each]
    assert len(set(addresses)) == 5 and all(address.startswith("127.0.0.1:") for address in addresses)
    places = [Place.from_environment(found[rank][1]) for rank in range(5)]
    assert [place.number for place in places] == list(range(5))
    assert {(place.size, place.channel, place.key) for place in places} == {(5, places[0].channel, places[0].key)}
    assert len(places[0].key) == 32 and places[0].channel.removeprefix("study-") not in places[0].key
    assert places[0].list_local_ranks(processes) == [0, 1, 2], "all are on this host"
    assert places[0].hosts[5] == ""


def test_files_of_an_earlier_attempt_are_not_read(tmp_path):
    run = defined(framework="pytorch", strategy="ddp", servers=0)
    first = joined(run, tmp_path, range(2))
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    second = joined(run, tmp_path, range(2))
    assert first[1][1]["TF_CONFIG"] != second[1][1]["TF_CONFIG"]
    assert second[0][1][PLACES] != first[0][1][PLACES]
    assert json.loads(second[0][1]["TF_CONFIG"])["cluster"] == json.loads(second[1][1]["TF_CONFIG"])["cluster"]
    assert all((tmp_path / name).read_text() == text for name, text in before.items())


def test_a_wait_for_other_processes_ends_and_names_them(tmp_path, monkeypatch):
    monkeypatch.setenv(heartbeats.LIMIT_VARIABLE, "0.4")
    run = defined()
    variables = {**build_rank_variables(["SLURM_PROCID"]), "SLURM_PROCID": "0"}
    waited = r"waited 0.2 s for server 0 \(process 1\), worker 0 \(process 2\), worker 1 \(process 3\); 1 of 4 "
    with pytest.raises(StudyError, match=waited):
        rendezvous.join_run(run, tmp_path, variables)
    with pytest.raises(StudyError, match=r"waited 0.2 s for chief \(process 0\) to name the processes of the run"):
        rendezvous.join_run(run, tmp_path, {**build_rank_variables(["SLURM_PROCID"]), "SLURM_PROCID": "2"})


def host(name, *addresses, resolved=None):
    """The facts of a process there. addresses: of eth0, eth1, ..."""
    interfaces = [["lo", "127.0.0.1", "255.0.0.0"]]
    interfaces += [[f"eth{number}", each, "255.255.255.0"] for number, each in enumerate(addresses)]
    return {"name": name, "host": name, "interfaces": interfaces, "resolved": resolved, "ports": [1000, 2000]}


BRIDGE = "172.17.0.1"  # of containers: each host has the same address


@pytest.mark.parametrize(
    ("a", "b", "interface", "expected"),
    [
        (host("a", BRIDGE, "10.0.0.1"), host("b", BRIDGE, "10.0.0.2"), None, ("10.0.0.1", "10.0.0.2")),
        (host("a", "10.0.0.1", "10.1.0.1"), host("b", "10.0.0.2", "10.1.0.2"), None, ("10.0.0.1", "10.0.0.2")),
        (
            host("a", "10.0.0.1", "10.1.0.1", resolved="10.1.0.1"), host("b", "10.0.0.2", "10.1.0.2"), None,
            ("10.1.0.1", "10.1.0.2"),
        ),
        (host("a", "10.0.0.1", "10.1.0.1"), host("b", "10.0.0.2", "10.1.0.2"), "eth1", ("10.1.0.1", "10.1.0.2")),
        (
            host("a", "10.0.0.1", resolved="10.0.0.1"), host("b", "10.5.0.2", resolved="10.5.0.2"), None,
            ("10.0.0.1", "10.5.0.2"),
        ),
    ],
    ids=["no bridge", "first", "of the name", "given", "routed"],
)  # fmt: skip
def test_hosts_are_reached_through_a_network_that_all_have(a, b, interface, expected):
    found = rendezvous.describe_cluster({0: a, 1: b, 2: b | {"ports": [1001, 2001]}}, 4, "token" * 8, interface)
    assert found["addresses"] == [f"{expected[0]}:1000", f"{expected[1]}:1000", f"{expected[1]}:1001", ""]
    assert found["channel"] == f"{expected[0]}:2000"
    assert (found["hosts"], found["size"]) == (["a", "b", "b", ""], 3)


def test_the_loss_of_one_process_ends_the_others(monkeypatch):
    """MPI does so by itself; processes of srun that use no MPI would wait for one another."""
    monkeypatch.setattr(launchers, "is_installed", lambda _: True)
    slurm = machine("perlmutter")
    assert "--kill-on-bad-exit=1" in launchers.make_command(4, slurm, ["program"], ends_together=True)
    assert "--kill-on-bad-exit=1" not in launchers.make_command(4, slurm, ["program"])
