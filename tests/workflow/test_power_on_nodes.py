"""The power of a whole run on several nodes, with real ranks: each node has a clock and meters of its own.

The nodes are namespaces of this machine, and their meters are stand-ins; see tests/clusters/node.py.
"""

import json
import os
import subprocess
import sys

import pytest
from examples import expand, make_data
from project import BIN, ROOT, wait_for

from study.core import environment
from study.experiment import inputs
from study.instruments import phases
from study.launch import launch
from study.machines import machine
from study.records.power import power_columns
from study.records.record import make_record

NODE = ROOT / "tests" / "clusters" / "node.py"
WATTS = {"n1": 100, "n2": 300}
RANKS = 3  # two on the first node


def can_emulate():
    """Whether this process may make the namespaces of a node."""
    asked = ["unshare", "--uts", "--mount", "--time", "--monotonic", "1", "--fork", "true"]
    return subprocess.run(asked, capture_output=True).returncode == 0


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Launch a run through a stand-in of a batch system's launcher, from a node without ranks; gives its folder."""
    if not can_emulate():
        pytest.skip("needs root and time namespaces")
    nodes, state = tmp_path / "nodes", tmp_path / "state"
    state.mkdir()
    (state / "1000.job").write_text(json.dumps({"nodes": 2}))
    meters = [
        subprocess.Popen([sys.executable, NODE, "meter", nodes, name[1:], str(watts)], stdin=subprocess.PIPE)
        for name, watts in WATTS.items()
    ]
    wait_for(lambda: all((nodes / name / "freshness").exists() for name in WATTS))

    def make(launcher, folder="cobalt"):
        path = f"{ROOT / 'tests' / 'clusters' / folder}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}"
        monkeypatch.setattr(environment, "build_search_path", lambda: path)
        for name, value in {"PATH": path, "STANDIN_STATE": state, "STANDIN_JOB": 1000, "STANDIN_NODES": nodes}.items():
            monkeypatch.setenv(name, str(value))
        (planned,) = expand(scaling="weak", gpus=RANKS, epochs=2, loader="npy")
        make_data(planned, tmp_path / "data")
        of_site = {"launcher": launcher, "ranks_per_node": 2, "nodes": 2, "power_sensors": ["cray"], "sampling_hz": 10}
        run = inputs.define_run(planned, {**machine.load("local"), **of_site}, str(tmp_path / "data"))
        launch.launch(run, tmp_path / "run", 600, {"id": "1000", "ends_s": None})
        return tmp_path / "run"

    yield make
    for each in meters:
        each.communicate()


def test_power_of_the_whole_run_on_two_nodes(launched):
    """Each node's window is by its own clock, from before its first process imports a framework; energies add up."""
    folder = launched("aprun")
    assert json.loads((folder / "outcome.json").read_text())["status"] == "ok", (folder / "train.log").read_text()
    found = {each["host"]: each for each in json.loads((folder / "sensors.json").read_text())}
    assert sorted(found) == ["n1", "n2"], "one sampler a node, though the first has two ranks"
    joules, seconds = 0.0, []
    edges = phases.read_edges(folder / "phases.jsonl")
    for host, each in found.items():
        of_host = [edge for edge in edges if edge["host"] == host]
        at = {name: [edge["monotonic_ns"] for edge in of_host if (edge["phase"], edge["edge"]) == name]
              for name in (("startup", "begin"), ("startup", "end"), ("evaluate", "end"))}  # fmt: skip
        started, imported, evaluated = (min(at["startup", "begin"]), min(at["startup", "end"]),
                                        max(at["evaluate", "end"]))  # fmt: skip
        begin, end = max(started, each["begin_monotonic_ns"]), each["processes_end_monotonic_ns"]
        end = min(end, each["end_monotonic_ns"])
        assert started < begin < started + (imported - started) / 2, "frameworks are imported in the window"
        assert evaluated < end
        joules += WATTS[host] * (end - begin) / 1e9
        seconds.append((end - begin) / 1e9)
    record = make_record(folder)
    columns = power_columns(record)
    assert columns["whole_run_node_energy_j"] == pytest.approx(joules, rel=0.01, abs=6), "counters of whole joules"
    assert columns["whole_run_window_s"] == pytest.approx(sum(seconds) / 2)
    assert columns["whole_run_outside_s"] == pytest.approx(record["runtime_s"] - sum(seconds) / 2)
    assert columns["whole_run_node_power_w"] == pytest.approx(200, rel=0.03)
    assert columns["whole_run_power_reason"] is None
    assert record["power"]["energy_window_s"] < min(seconds), "from load to evaluate only"
