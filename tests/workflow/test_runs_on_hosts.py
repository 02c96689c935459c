"""Runs on several hosts, in the network laboratory: real ssh, TCP and Horovod between namespaces of this machine."""

import json
import math
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from data_faults import NotHere
from place import ROOT, Place, make_data, signal_and_wait
from run_faults import LONG, failed

from lab import Lab, LabPlace
from study.experiment import expansion, inputs

SECRET = "hunter2-in-the-shell"
UNFUSED = {"environment": {"HOROVOD_FUSION_THRESHOLD": "0"}}
ON_SERVER = {"gpus": 2, "strategy": "parameter_server", "servers": 1}
# Lines of Python for each rank: keep the trained weights, and what it knows of the launching shell.
KEPT = """import json, os
import numpy
from study.training import rank
checksum = rank.compute_checksum
def kept(trainer):
    number = os.environ.get("HOROVOD_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
    name = "rank-" + (number or str(json.loads(os.environ["STUDY_PROCESS"])[0]))
    folder = os.environ["KEPT_IN"]
    os.makedirs(folder, exist_ok=True)
    numpy.savez(f"{folder}/{name}.npz", *trainer.model.get_weights())
    with open(f"{folder}/{name}.txt", "w") as handle:
        handle.write("\\n".join(f"{key}={value}" for key, value in os.environ.items()))
    return checksum(trainer)
rank.compute_checksum = kept
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    try:
        with Lab(3, tmp_path_factory.mktemp("lab") / "lab") as lab:
            yield lab
            assert lab.left() == {}
    except NotHere as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(str(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def place(lab, data, tmp_path_factory):
    place = LabPlace(tmp_path_factory.mktemp("place"), data, lab)
    place.copy.in_ranks(KEPT)
    return place


def trained(place, name, machine=None, **changes):
    """The outcome of a run whose ranks keep their weights in ``folder/name.kept``."""
    machine = machine or {}
    environment = {**machine.get("environment", {}), "KEPT_IN": str(place.folder / f"{name}.kept")}
    return place.run(name, machine={**machine, "environment": environment}, **changes)


def weights(place, name, rank=0):
    (path,) = (place.folder / f"{name}.kept").glob(f"rank-{rank}.npz")
    with np.load(path) as arrays:
        return [arrays[key] for key in arrays.files]


def metrics(place, name):
    return json.loads((place.folder / name / "metrics.json").read_text())


@pytest.fixture(scope="module")
def three(place):
    """A run on three hosts, with a secret in the launching shell; also all command lines seen while it ran."""
    place.variables |= {"SECRET": SECRET, "OMP_NUM_THREADS": "7"}
    kept = {**UNFUSED["environment"], "KEPT_IN": str(place.folder / "three.kept")}
    launch = place.launch("three", gpus=3, staging="local_copy", machine={"environment": kept})
    seen = set()
    while launch.poll() is None:
        for process in psutil.process_iter(["cmdline"]):
            seen.add(" ".join(process.info["cmdline"] or []))
        time.sleep(0.05)
    assert launch.returncode == 0, launch.stderr.read()
    return seen


def test_weights_are_those_of_ranks_on_one_host(place, three, data, tmp_path):
    one = Place(tmp_path, data)
    one.copy.in_ranks(KEPT)
    outcome = trained(one, "one", UNFUSED, gpus=3)
    assert outcome["status"] == place.outcome("three")["status"] == "ok"
    for ours, theirs in zip(weights(place, "three"), weights(one, "one"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
def test_with_fusion_weights_are_close(place, three):
    modelled = {"power_model": {"idle_w": 50, "peak_w": 150}}
    assert trained(place, "fused", modelled, gpus=3)["status"] == "ok"
    for ours, theirs in zip(weights(place, "three"), weights(place, "fused"), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)

    # Each host has a power sampler of its own; here a model, since the hosts have no sensors.
    sampled = pd.read_csv(place.folder / "fused" / "telemetry.csv")
    assert sampled.groupby("host").size().index.tolist() == ["h1", "h2", "h3"]
    assert (sampled.groupby("host").size() > 10).all()


def test_each_host_copies_the_files_once(place, three):
    run = place.definition(gpus=3)
    size = sum(Path(paths["path"]).stat().st_size for paths in run["data"].values()) / 1e6
    read = [rank["shared_read_mb"] for rank in metrics(place, "three")["ranks"]]
    assert [round(each / size, 1) for each in read] == [1.0, 1.0, 1.0]


def test_a_secret_of_the_shell_is_nowhere(place, three):
    assert any("--remote" in line for line in three) and any("scripts/train.py" in line for line in three)
    assert [line for line in three if SECRET in line] == []
    found = [
        path for path in (place.folder / "three").rglob("*") if path.is_file() and SECRET in path.read_text("latin1")
    ]
    assert found == []
    for rank in range(3):
        known = (place.folder / "three.kept" / f"rank-{rank}.txt").read_text().splitlines()
        assert not [line for line in known if SECRET in line]
        assert "OMP_NUM_THREADS=1" in known


def test_the_record_knows_its_hosts(place, three):
    provenance = json.loads((place.folder / "three" / "provenance.json").read_text())
    assert [(host["name"], host["hostname"], host["ranks"]) for host in provenance["hosts"]] == [
        ("h1", "h1", 1), ("h2", "h2", 1), ("h3", "h3", 1)
    ]  # fmt: skip
    assert len({host["boot_id"] for host in provenance["hosts"]}) == 1
    assert {host["congestion_control"] for host in provenance["hosts"]} == {"reno"}
    assert all(abs(host["clock_offset_s"]) < 1 for host in provenance["hosts"])


@pytest.mark.long
def test_two_hosts_with_interfaces_of_different_names(place, lab):
    lab.on("h2", "sh", "-c", "ip link set br0 down && ip link set br0 name eth7 && ip link set eth7 up")
    try:
        outcome = trained(place, "interfaces", {"interface": {"h1": "br0", "h2": "eth7"}}, gpus=2)
        assert outcome["status"] == "ok", outcome["failure"]
    finally:
        lab.on("h2", "sh", "-c", "ip link set eth7 down && ip link set eth7 name br0 && ip link set br0 up")


@pytest.mark.long
@pytest.mark.usefixtures("mpi")
def test_mpirun_places_ranks_on_hosts(place, three, lab):
    place.variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    outcome = trained(place, "mpi", {"launcher": "mpirun", **UNFUSED}, gpus=3)
    assert outcome["status"] == "ok", outcome["failure"]
    assert [rank["host"] for rank in metrics(place, "mpi")["ranks"]] == ["h1", "h2", "h3"]
    assert lab.left() == {}


@pytest.mark.long
def test_a_parameter_server_has_a_host_of_its_own(place, lab):
    outcome = trained(place, "served", **ON_SERVER)
    assert outcome["status"] == "ok", outcome["failure"]
    found = metrics(place, "served")
    assert [each["host"] for each in found["processes"]] == ["h1", "h1", "h2", "h3"], "chief, workers, server"
    assert [rank["local_rank"] for rank in found["ranks"]] == [0, 0]
    told = json.loads((place.folder / "served" / "processes.json").read_text())["processes"]
    assert [(each["name"], each["host"]) for each in told] == [
        ("chief", "h1"), ("worker 0", "h1"), ("worker 1", "h2"), ("server 0", "h3")
    ]  # fmt: skip
    sent = sum(rank["tcp_sent_bytes"] for rank in found["ranks"])
    steps = 2 * math.ceil(found["workload"]["samples_per_rank"] / place.definition()["derived"]["batch_size_per_rank"])
    assert 1.00 < sent / steps / (4 * found["trainable_parameters"]) < 1.15, "not the channel's bytes, but gradients"
    assert lab.left() == {}


@pytest.mark.long
def test_a_server_that_is_killed_on_its_host_is_named_and_nothing_is_left(place):
    kept = {"environment": {"KEPT_IN": str(place.folder / "killed.kept")}}
    launch = place.launch("killed", machine=kept, **ON_SERVER, **LONG)
    place.wait_for_epoch(1, "killed")
    signal_and_wait(place, launch, place.ranks("killed")[3], signal.SIGKILL)
    failure = failed(place, "killed", name="killed")
    assert (failure["rank"], failure["host"]) == (3, "h3"), failure
    assert failure["phase"] in ("train", "after train"), failure  # the latter while the workers validate
    assert failure["message"] == "server 0 ended first: signal 9 (SIGKILL)"


def test_the_hosts_agree_with_what_lab_says(lab):
    assert lab("status").startswith("3 hosts (h1 to h3), link rate ")
    assert lab("up", 3) == lab("status")


@pytest.mark.long
def test_the_launching_host_may_have_ranks(place, lab):
    prefix, place.prefix = place.prefix, [place.prefix[0], "on", "h1"]
    names = (lab.folder / "hosts").read_text().replace("10.77.0.2 h1", "127.0.1.1 h1")  # as Debian does
    (place.folder / "names").write_text(names)
    lab.on("h1", "mount", "--bind", place.folder / "names", "/etc/hosts")
    place.variables |= {"SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}  # of a user who sits at another computer
    try:
        outcome = trained(place, "mixed", {"interface": None}, gpus=2)
        assert outcome["status"] == "ok", outcome["failure"]
        assert [rank["host"] for rank in metrics(place, "mixed")["ranks"]] == ["h1", "h2"]
        assert trained(place, "alone", gpus=1)["status"] == "ok"
    finally:
        place.prefix = prefix
        del place.variables["SSH_CONNECTION"]
        lab.on("h1", "umount", "/etc/hosts")


@pytest.mark.parametrize("starts", ["rank", pytest.param("node", marks=pytest.mark.long)])
def test_a_program_of_one_s_own_has_its_ranks_on_the_hosts(lab, data, tmp_path, monkeypatch, starts):
    """The NumPy example, whose ranks meet at rank 0's host; with starts: node, a program that starts nothing itself."""
    example = ROOT / "examples" / "numpy_logistic"
    monkeypatch.chdir(example)
    study = {"description": "", "runs": [{"benchmark": "numpy_logistic", "scaling": "strong", "gpus": 3}], "tables": []}
    (run,) = expansion.expand_study("hosts", study, "hosts").runs
    if starts == "node":
        shown = "import os; print('node', os.environ['NODE_RANK'], os.environ['MASTER_ADDR'])"
        run.spec.update(starts="node", command=["python", "-c", shown])
    place = LabPlace(tmp_path, data, lab)
    monkeypatch.setattr(place, "definition", lambda: inputs.define_run(run, place.machine(), str(data)).as_dict())
    outcome = place.run("program")
    assert outcome["status"] == "ok", outcome["failure"]
    told = metrics(place, "program")
    assert [rank["host"] for rank in told["ranks"]] == ["h1", "h2", "h3"]
    if starts == "rank":
        assert told["test"]["accuracy"] > 0.9 and told["workload"]["samples_per_rank"] == 6667
    else:
        log = (tmp_path / "program" / "train.log").read_text()
        addresses = {line.split()[-1] for line in log.splitlines() if "node" in line}
        assert len(addresses) == 1 and "127.0.0.1" not in addresses
    place.nothing_is_left("program")


# It starts a child in a session of its own, as torchrun does, and is killed on one host.
KILLED_THERE = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
time.sleep(1)
if os.environ["NODE_RANK"] == "1":
    print("step 7", file=sys.stderr, flush=True)
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.mark.parametrize("starts", [pytest.param("rank", marks=pytest.mark.long), "node"])
def test_a_program_that_is_killed_on_another_host_is_named_and_leaves_nothing(lab, data, tmp_path, monkeypatch, starts):
    monkeypatch.chdir(ROOT / "examples" / "numpy_logistic")
    study = {"description": "", "runs": [{"benchmark": "numpy_logistic", "scaling": "strong", "gpus": 3}], "tables": []}
    (run,) = expansion.expand_study("hosts", study, "hosts").runs
    place = LabPlace(tmp_path, data, lab)
    monkeypatch.setattr(place, "definition", lambda: inputs.define_run(run, place.machine(), str(data)).as_dict())
    run.spec.update(starts=starts, command=["python", "-c", KILLED_THERE])
    failure = place.run("killed")["failure"]
    assert (failure["kind"], failure["rank"], failure["host"]) == ("killed", 1, "h2"), failure
    assert "signal 9 (SIGKILL); its last lines: step 7" in failure["message"]
    place.nothing_is_left("killed")
    assert not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "600"]]
    run.spec.update(command=["true"])
    assert place.run("next")["status"] == "ok", "the next run is good"
