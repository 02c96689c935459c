"""Power and energy of a run, worked out by hand from made-up telemetry of one or two hosts."""

import csv
import json
from types import SimpleNamespace

import pytest

from study.instruments.background import COLUMNS as BACKGROUND
from study.instruments.phases import PHASES
from study.instruments.power.sampler import COLUMNS
from study.instruments.power.summary import (
    _compute_unread_s,
    energy_of_gpus,
    energy_until,
    select_power_series,
    summarize,
)

TIMES = {"startup": (0, 2), "load": (2, 6), "preprocess": (6, 7), "broadcast": (7, 8), "train": (8, 18),
         "evaluate": (18, 20)}  # fmt: skip
ON_NODES = {"name": "m", "gpus_per_rank": 0, "power_sensors": ["cray"], "sampling_hz": 10}
ON_GPUS = {**ON_NODES, "gpus_per_rank": 1, "power_sensors": ["nvml"], "ranks_per_node": 1}


def edges(hosts=("n1",), last="evaluate", one_clock=False):
    """Phases of one rank a host; the second host's clock began 1000 s earlier, if it is not the same machine."""
    return [
        {"phase": phase, "edge": edge, "rank": rank, "host": host, "wall_ns": 0,
         "monotonic_ns": int((at + (0 if one_clock else 1000 * rank)) * 1e9)}
        for rank, host in enumerate(hosts)
        for phase in PHASES[: PHASES.index(last) + 1]
        for edge, at in zip(("begin", "end"), TIMES[phase], strict=True)
    ]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Summarise made-up devices: ``run({(host, sensor, kind): watts}, ...)``."""

    def make(
        devices,
        gpus_per_rank=1,
        ranks=1,
        ranks_per_node=1,
        hosts=("n1",),
        reasons=None,
        seconds=(1.5, 20.5),
        last="evaluate",
        used=None,
        whole=True,
        busy=None,
        spoil=lambda row, at: {},
        slots=None,
        samplers=(),
        one_clock=False,
        told=None,
        users=None,
        ranks_told=None,
    ):
        lines = [",".join(COLUMNS)]
        for (host, sensor, kind), watts in devices.items():
            offset = 1000 * hosts.index(host)
            sensor, _, name = sensor.partition("/")
            for tick in range(int(seconds[0] * 10), int(seconds[1] * 10) + 1):
                at = tick / 10
                row = {"monotonic_ns": int((at + offset) * 1e9), "host": host, "sensor": sensor, "kind": kind,
                       "device": name or f"{sensor}-{kind}", "power_w": watts, "energy_j": watts * at,
                       "wall_ns": 0, "utilization_pct": busy(at) if busy else ""}  # fmt: skip
                if sensor == "modelled":
                    row["energy_j"] = ""
                row |= spoil(row, at)
                lines.append(",".join(str(row.get(column, "")) for column in COLUMNS))
        if devices:
            (tmp_path / "telemetry.csv").write_text("\n".join(lines) + "\n")
        gpus = ["nvml-gpu" if gpus_per_rank else None] * ranks
        (tmp_path / "metrics.json").unlink(missing_ok=True)
        if whole:
            of_command = {} if users is None else {"program": {}}
            metrics = {"ranks": ranks_told or [{"gpu": gpu} for gpu in used or gpus], **of_command}
            (tmp_path / "metrics.json").write_text(json.dumps(metrics))
        with open(tmp_path / "background.csv", "w", newline="") as handle:
            rows = csv.DictWriter(handle, BACKGROUND)
            rows.writeheader()
            for at, text in users or ():
                row = {"end_wall_ns": 0, "end_monotonic_ns": int(at * 1e9), "host": hosts[0], "gpu_users": text}
                rows.writerow(row)
        found = [{"reasons": reasons or {}, **each} for each in samplers or [{"boot_id": "b"}]]
        (tmp_path / "sensors.json").write_text(json.dumps(found))
        sensors = ["nvml", "cray", "rapl"]
        machine = {"name": "m", "gpus_per_rank": gpus_per_rank, "power_sensors": sensors, "sampling_hz": 10}
        machine |= {"ranks_per_node": ranks_per_node, "hosts": slots}
        return summarize(tmp_path, machine, ranks, told or edges(hosts, last, one_clock))

    return make


def test_a_gpu(run):
    """100 W from load to evaluate, 18 s."""
    power = run({("n1", "nvml", "gpu"): 100})
    assert power["energy_per_gpu_j"] == pytest.approx(1800)
    assert power["power_per_gpu_w"] == power["power_per_gpu_one_hz_w"] == pytest.approx(100)
    assert power["energy_per_gpu_one_hz_j"] == pytest.approx(1800)
    assert power["energy_window_s"] == pytest.approx(18)
    assert power["power_per_gpu_training_w"] == pytest.approx(100)
    assert power["phases"]["train"]["gpu"]["energy_j"] == pytest.approx(1000)
    assert power["phases"]["load"]["gpu"]["trapezoid_j"] == pytest.approx(400)
    assert (power["source"], power["reason"]) == ("measured", None)


def sampler(host, begin, end, processes_end, boot="b", **more):
    """As `sampling` writes it; times in seconds of the host's monotonic clock, None for what is not known."""
    times = {"begin": begin, "end": end, "processes_end": processes_end}
    known = {f"{name}_monotonic_ns": int(at * 1e9) for name, at in times.items() if at is not None}
    return {"host": host, "boot_id": boot, **known, **more}


def draws_more_after_2_s(row, at):
    """40 W until load begins at 2 s, then 100 W."""
    return {"power_w": 40 if at % 1000 < 2 else 100, "energy_j": ""}


@pytest.mark.parametrize(
    ("begin", "end", "processes_end", "window"),
    [(1.2, 20.4, 20.3, (1.2, 20.3)), (-3, 25, 20.3, (0, 20.3)), (1.2, 20.1, 20.3, (1.2, 20.1)),
     (1.2, None, 20.3, (1.2, 20.3))],
    ids=["by the first process", "by the launch", "stopped by a process", "its process was lost"],
)  # fmt: skip
def test_the_whole_run_s_window_is_that_of_its_processes(run, begin, end, processes_end, window):
    """The processes are there from 0 s on; a sampler counts as running once it has read for the first time."""
    samplers = [sampler("n1", begin, end, processes_end)]
    power = run({("n1", "nvml", "gpu"): 100}, seconds=(-4, 26), samplers=samplers, spoil=draws_more_after_2_s)
    whole = power["whole_run"]
    begun, ended = window
    assert whole["window_s"] == pytest.approx(ended - begun)
    assert whole["energy_per_gpu_j"] == pytest.approx(40 * (2 - begun) + 100 * (ended - 2) + 0.05 * 60)
    assert whole["reason"] is None
    assert power["energy_per_gpu_j"] == pytest.approx(1800, rel=2e-3), "from load to evaluate"


def test_the_whole_run_of_a_program_that_tells_no_phase_begins_with_its_process(run):
    """Startup begins at 0 s and has no end; the program ends at 20 s. 40 W until 2 s, then 100 W."""
    program = [{**edge, "phase": "program"} for edge in edges(last="load") if edge["phase"] == "load"]
    program[1]["monotonic_ns"] = 20 * 10**9
    told = [*edges(last="startup")[:1], *program]
    samplers = [sampler("n1", -3, 20.4, 20.3)]
    power = run({("n1", "nvml", "gpu"): 100}, told=told, seconds=(-4, 26), samplers=samplers,
                spoil=draws_more_after_2_s)  # fmt: skip
    assert power["whole_run"]["window_s"] == pytest.approx(20.3)
    assert power["whole_run"]["energy_per_gpu_j"] == pytest.approx(40 * 2 + 100 * 18.3 + 0.05 * 60)
    assert power["energy_by_phase_j"] == {} and power["energy_window_s"] == pytest.approx(18), "of the program"


def test_the_whole_run_on_two_nodes_each_by_its_own_clock(run):
    """The second node's clock began 1000 s earlier; its sampler was there 1 s later. Energies add up."""
    devices = {("n1", "nvml", "gpu"): 100, ("n2", "nvml", "gpu"): 300}
    samplers = [sampler("n1", 0.5, 20.4, 20.3), sampler("n2", 1001.5, 1020.4, 1020.3, boot="c")]
    whole = run(devices, ranks=2, hosts=("n1", "n2"), seconds=(0, 21), samplers=samplers)["whole_run"]
    assert whole["window_s"] == pytest.approx((19.8 + 18.8) / 2)
    assert whole["components"]["gpu"]["energy_j"] == pytest.approx(100 * 19.8 + 300 * 18.8)
    assert whole["energy_per_gpu_j"] == pytest.approx((100 * 19.8 + 300 * 18.8) / 2)


@pytest.mark.parametrize(
    ("seconds", "samplers", "reason"),
    [((1.5, 20.5), [sampler("n1", 0.5, 20.4, 20.3)], "the sampler does not cover it"),
     ((0, 20.05), [sampler("n1", 0.5, 20.4, 20.3)], "the sampler does not cover it"),
     ((0, 20.5), [sampler("n1", None, None, 20.3)], "on n1 it is not known when the sampler began"),
     ((0, 20.5), [sampler("n1", 0.5, 20.4, None)], "on n1 it is not known"),
     ((0, 20.5), [sampler("n2", 0.5, 20.4, 20.3)], "on n1 it is not known")],
    ids=["late", "died", "no readings", "processes were killed", "no sampler of the node"],
)  # fmt: skip
def test_a_window_that_is_not_covered_has_no_energy(run, seconds, samplers, reason):
    power = run({("n1", "nvml", "gpu"): 100}, seconds=seconds, samplers=samplers)
    assert power["whole_run"]["energy_per_gpu_j"] is None
    assert reason in power["whole_run"]["reason"]
    assert power["energy_per_gpu_j"] == pytest.approx(1800), "from load to evaluate"


def test_utilisation_of_the_gpus_while_they_train(run):
    """40 % while training, from 8 to 18 s; 100 % before and 0 % after do not count."""
    busy = run({("n1", "nvml", "gpu"): 100}, busy=lambda at: 100 if at < 8 else 40 if at <= 18 else 0)
    assert busy["gpu_utilisation_pct"] == pytest.approx(40)
    assert run({("n1", "nvml", "gpu"): 100})["gpu_utilisation_pct"] is None, "the sensor has no utilisation"
    assert run({("n1", "rapl", "cpu"): 100}, gpus_per_rank=0)["gpu_utilisation_pct"] is None


def test_the_most_memory_in_use_on_a_gpu(run):
    """It grows to 12,000 MB while training; another GPU has 15,000, but is no rank's own."""
    grows = {"spoil": lambda row, at: {"memory_mb": 15_000 if row["device"] == "GPU-b" else 4_000 + 8_000 * (at > 10)}}
    assert run({("n1", "nvml", "gpu"): 100}, **grows)["gpu_memory_mb"] == 12_000
    assert run(TWO, used=["GPU-a"], **grows)["gpu_memory_mb"] == 12_000
    half = {"spoil": lambda row, at: {"memory_mb": 4_000} if row["device"] == "GPU-b" else {}}
    assert run(TWO, ranks=2, used=["GPU-a", "GPU-b"], **half)["gpu_memory_mb"] is None, "one sensor has none"


def test_a_job_s_energy_needs_all_its_parts(run):
    power = run({("n1", "nvml", "gpu"): 100, ("n1", "rapl", "cpu"): 50})
    assert power["energy_job_j"] is None, "memory is missing"
    power = run({("n1", "nvml", "gpu"): 100, ("n1", "rapl", "cpu"): 50, ("n1", "rapl", "memory"): 10})
    assert power["energy_job_j"] == pytest.approx(160 * 18)
    power = run({("n1", "nvml", "gpu"): 100, ("n1", "cray", "node"): 300, ("n1", "rapl", "cpu"): 50})
    assert power["energy_job_j"] == pytest.approx(300 * 18), "a node holds its parts: they are not added to it"


TWO = {("n1", "nvml/GPU-a", "gpu"): 100, ("n1", "nvml/GPU-b", "gpu"): 300}


def test_only_the_ranks_own_gpus_count(run):
    power = run(TWO, used=["GPU-b"])
    assert power["energy_per_gpu_j"] == pytest.approx(300 * 18)
    assert run(TWO, ranks=2, used=["GPU-a", "GPU-b"])["power_per_gpu_w"] == pytest.approx(200)
    assert run(TWO, ranks=2, used=["GPU-a", "GPU-a"])["power_per_gpu_w"] == pytest.approx(50), "two ranks share one"


def test_each_rank_has_the_energy_of_its_own_gpu(run, tmp_path):
    """The second rank ends 5 s before the first one."""
    run(TWO)
    every = [*edges(), *({**edge, "rank": 1} for edge in edges() if edge["phase"] != "evaluate")]
    ends = [{**edge, "rank": 1, "monotonic_ns": int(15e9)} for edge in edges() if edge["phase"] == "evaluate"]

    def energies(gpus, gpus_per_rank=1, every=(*every, *ends)):
        machine = {"gpus_per_rank": gpus_per_rank, "sampling_hz": 10}
        return energy_of_gpus(tmp_path, machine, every, gpus)

    found = energies({0: "GPU-b", 1: "GPU-a"})
    assert found[0] == (pytest.approx(300 * 18), None)
    assert found[1] == (pytest.approx(100 * 13), None)
    assert energies({0: "GPU-a", 1: "GPU-a"})[1] == (None, "it shares its GPU with another rank")
    assert energies({0: "GPU-a", 1: "GPU-c"})[1] == (None, "no readings of its GPU")
    assert energies({0: None})[0] == (None, "no readings of its GPU")
    assert energies({0: "GPU-a"}, every=edges(last="train"))[0] == (None, "it did not come to its end")
    joules, reason = energies({0: None}, gpus_per_rank=0)[0]
    assert joules is None
    assert "no GPUs of their own" in reason


# A command: its program may have used another GPU than the one of its rank, or none


def test_a_command_has_the_energy_of_the_gpus_on_which_its_processes_were(run):
    """By the processes that NVML showed; where it shows none, as in a container, by the kernels that ran."""
    confirmed = run(TWO, used=["GPU-b"], users=[(5, "GPU-b own, GPU-a others"), (9, "")])
    assert confirmed == run(TWO, used=["GPU-b"]), "as a rank of ours"
    assert confirmed["energy_per_gpu_j"] == pytest.approx(300 * 18)
    hidden = run(TWO, used=["GPU-b"], users=[(5, "")], busy=lambda at: 30 if 10 < at < 11 else 0)
    assert hidden["energy_per_gpu_j"] == pytest.approx(300 * 18)
    assert hidden["gpu_utilisation_pct"] == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(
    ("users", "busy", "reason"),
    [
        ([(5, "GPU-a own")], 50, "a process of the run was on GPU GPU-a, which is no rank's: a rank should use"),
        ([(5, "GPU-a own, GPU-b own")], 50, "a process of the run was on GPU GPU-a, which is no rank's"),
        ([(5, "GPU-b others")], 50, "NVML showed processes of others on GPU GPU-b, a rank's, and never one of the run"),
        ([(5, "")], 0, "GPU GPU-b, a rank's, was not used: NVML showed no process of the run on it, and no util"),
        ([], None, "GPU GPU-b, a rank's, was not used"),
        ([(1, "GPU-b own"), (25, "GPU-b own")], 0, "GPU GPU-b, a rank's, was not used"),  # not while it ran
    ],
)
def test_the_power_of_a_gpu_that_a_command_did_not_use_is_not_the_run_s(run, tmp_path, users, busy, reason):
    power = run(TWO, used=["GPU-b"], users=users, busy=None if busy is None else lambda at: busy)
    assert power["reason"].startswith(reason)
    assert power["energy_per_gpu_j"] is power["energy_job_j"] is power["gpu_utilisation_pct"] is None
    assert power["components"]["gpu"]["energy_j"] is power["phases"]["train"]["gpu"]["energy_j"] is None
    assert power["whole_run"]["energy_per_gpu_j"] is None
    (tmp_path / "phases.jsonl").write_text("".join(json.dumps(edge) + "\n" for edge in edges()))
    assert len(select_power_series(tmp_path, ON_GPUS)) == 2, "nobody knows which one is the run's"
    joules, why = energy_until(tmp_path, ON_GPUS, edges(), int(18e9), ("n1", int(18e9)))
    assert joules is None and why.startswith(reason)


def test_a_command_says_why_the_gpu_of_a_rank_is_not_known(run):
    told = [{"gpu": "GPU-a", "gpu_reason": None}, {"gpu": None, "gpu_reason": "CUDA shows 1 GPU"}]
    assert run(TWO, ranks=2, ranks_told=told, users=[(5, "GPU-a own")])["reason"] == "CUDA shows 1 GPU"


def test_a_command_that_used_a_gpu_on_a_machine_without_gpus_has_no_energy_of_its_processors_alone(run):
    devices = {**TWO, ("n1", "rapl", "cpu"): 50, ("n1", "rapl", "memory"): 10}
    power = run(devices, gpus_per_rank=0, users=[(5, "GPU-b own")])
    assert power["energy_per_gpu_j"] is power["energy_job_j"] is None
    assert power["reason"].startswith("a process of the run was on GPU GPU-b, but gpus_per_rank in the machine's file")
    assert power["components"]["cpu"]["energy_j"] == pytest.approx(50 * 18)
    others = run(devices, gpus_per_rank=0, users=[(5, "GPU-b others")])
    assert others == run(devices, gpus_per_rank=0), "those of others change nothing"
    assert others["energy_per_gpu_j"] == pytest.approx(60 * 18)


def test_utilisation_of_a_command_without_a_phase_train_is_of_its_program(run):
    program = [{**edge, "phase": "program"} for edge in edges() if edge["phase"] == "train"]
    of_gpu = {"used": ["GPU-b"], "users": [(9, "GPU-b own")], "busy": lambda at: 40 if 8 < at < 18 else 0}
    power = run(TWO, told=[*edges(last="startup"), *program], **of_gpu)
    assert power["gpu_utilisation_pct"] == pytest.approx(40, rel=0.05)
    assert power["energy_per_gpu_j"] == pytest.approx(300 * 10) and power["energy_window_s"] == pytest.approx(10)


def test_two_sensors_of_one_thing_count_once(run):
    power = run({("n1", "cray", "cpu"): 50, ("n1", "rapl", "cpu"): 48, ("n1", "cray", "memory"): 10}, gpus_per_rank=0)
    assert power["components"]["cpu"]["energy_j"] == pytest.approx(50 * 18), "cray comes first in power_sensors"
    assert power["energy_per_gpu_j"] == pytest.approx(60 * 18)


@pytest.mark.parametrize("untold", [("evaluate",), ("load", "preprocess", "broadcast", "train", "evaluate")],
                         ids=["a worker of a parameter server", "a program that tells events on one rank"])  # fmt: skip
def test_a_host_that_tells_no_phase_draws_power_in_it_too(run, untold):
    """Its window is that of the others by the wall clocks: 18 s from load to evaluate, 10 s of training."""
    every = edges(("n1", "n2"))
    told = [edge for edge in every if edge["host"] == "n1" or edge["phase"] not in untold]
    power = run({("n1", "nvml", "gpu"): 100, ("n2", "nvml", "gpu"): 300}, ranks=2, hosts=("n1", "n2"), told=told)
    assert power["energy_per_gpu_j"] == pytest.approx((100 + 300) / 2 * 18)
    assert power["phases"]["train"]["gpu"]["energy_j"] == pytest.approx((100 + 300) * 10)
    assert power["power_per_gpu_training_w"] == pytest.approx(200)


def again(told, hosts=("n1",), ahead_s=1000.0):
    """Edges of a command that tells its phases as often as it likes: (rank, phase, begin, end) in seconds."""
    program = [(rank, "program", 2, 20) for rank in range(len(hosts))]
    every = [
        {"phase": phase, "edge": edge, "rank": rank, "host": hosts[min(rank, len(hosts) - 1)], "wall_ns": int(at * 1e9),
         "monotonic_ns": int((at + ahead_s * (rank if len(hosts) > 1 else 0)) * 1e9)}
        for rank, phase, begin, end in [*program, *told]
        for edge, at in (("begin", begin), ("end", end))
    ]  # fmt: skip
    return sorted(every, key=lambda edge: edge["wall_ns"])


SHARDS = [(0, "load", 2, 5), (0, "train", 5, 9), (0, "load", 9, 11), (0, "train", 11, 19)]


def test_phases_that_a_program_begins_again_have_the_energy_of_each_time(run):
    """It loads for 3 and 2 s and trains for 4 and 8 s: 100 W while it trains, 30 W while it loads."""
    loads = {"spoil": lambda row, at: {"power_w": 30 if at < 5 or 9 <= at < 11 else 100, "energy_j": "",
                                       "average_power_w": 65}}  # fmt: skip
    busy = {"busy": lambda at: 0 if at < 5 or 9 < at < 11 else 80}
    power = run({("n1", "nvml", "gpu"): 100}, told=again(SHARDS), **loads, **busy)
    parts = {phase: part["gpu"]["energy_j"] for phase, part in power["phases"].items()}
    edge_j = 0.1 / 2 * 70  # power changes between two readings: at the end of both loads, and of the first training
    assert parts == pytest.approx({"load": 30 * 5 + 2 * edge_j, "train": 100 * 12 - edge_j})
    assert power["power_per_gpu_training_w"] == pytest.approx(100, rel=5e-3)
    assert power["gpu_utilisation_pct"] == pytest.approx(80)
    assert power["energy_window_s"] == pytest.approx(18)


def test_times_of_a_phase_that_overlap_are_one(run):
    """Another rank is in one long phase meanwhile, on the same host, or on another one with another clock."""
    long = [*SHARDS, (1, "load", 2, 5), (1, "train", 5, 19)]
    for hosts in (("n1",), ("n1", "n2")):
        devices = {(host, "nvml", "gpu"): 100 for host in hosts}
        power = run(devices, ranks=2, hosts=hosts, told=again(long, hosts))
        assert power["phases"]["train"]["gpu"]["energy_j"] == pytest.approx(100 * 14 * len(hosts))
        assert power["phases"]["load"]["gpu"]["energy_j"] == pytest.approx(100 * 5 * len(hosts))
    first = [(0, "load", 2, 5), (0, "train", 5, 9), (0, "train", 9.5, 19), (1, "load", 2, 5), (1, "train", 5, 10)]
    power = run(devices, ranks=2, hosts=hosts, told=again([*first, (1, "train", 11, 19)], hosts))
    assert power["phases"]["train"]["gpu"]["energy_j"] == pytest.approx(100 * 14 * 2), (
        "one began before the other ended"
    )


def test_a_time_of_a_phase_that_is_too_short_for_its_energy_leaves_the_phase_without(run):
    power = run({("n1", "nvml", "gpu"): 100}, told=again([(0, "load", 2, 5), (0, "load", 9, 9.15)]))
    load = power["phases"]["load"]["gpu"]
    assert load["energy_j"] is None and load["reason"] == "unresolved: 1 update of the sensor in 0.15 s"


def test_a_host_of_the_run_without_any_phase_makes_the_sum_unknown(run):
    devices = {("n1", "nvml", "gpu"): 100, ("n2", "nvml", "gpu"): 300}
    power = run(devices, ranks=2, hosts=("n1", "n2"), told=edges())
    assert power["energy_per_gpu_j"] is None
    assert power["reason"] == "no phase of the run on n2, whose gpu was read"


def test_a_lost_part_of_a_sensor_makes_the_sum_unknown(run):
    lost = run({("n1", "rapl", "cpu"): 50}, gpus_per_rank=0, reasons={"rapl/cpu/socket 1": "RAPL: socket 1 is lost"})
    assert lost["components"]["cpu"] == {
        **lost["components"]["cpu"],
        "energy_j": None,
        "reason": "RAPL: socket 1 is lost",
    }


def test_a_host_without_its_sensor_makes_the_sum_unknown(run):
    power = run({("n1", "nvml", "gpu"): 100}, ranks=2, hosts=("n1", "n2"))
    assert power["energy_per_gpu_j"] is None
    assert power["reason"] == "no gpu sensor on n2"
    kinds = [SimpleNamespace(kind=kind) for kind in ("cpu", "gpu")]
    spans = {"n1": (2.0, 5.0), "n2": (1.0, 3.0)}
    assert [_compute_unread_s(kind, kinds, spans) for kind in ("gpu", "node", "memory")] == [3.0, 3.0, None]


def test_ranks_without_gpus_are_nodes(run):
    """icpp2019, Theta: the node's power; without such a sensor CPU and memory together, and never CPU alone."""
    assert run({("n1", "cray", "node"): 300}, gpus_per_rank=0)["energy_per_gpu_j"] == pytest.approx(300 * 18)
    both = run({("n1", "rapl", "cpu"): 50, ("n1", "rapl", "memory"): 10}, gpus_per_rank=0, ranks=2)
    assert both["energy_per_gpu_j"] == pytest.approx(60 * 18 / 2)
    alone = run({("n1", "rapl", "cpu"): 50}, gpus_per_rank=0)
    assert alone["energy_per_gpu_j"] is None
    assert alone["components"]["cpu"]["energy_j"] == pytest.approx(900)
    assert "no node sensor" in alone["reason"]


def test_what_is_modelled_says_so_and_never_joins_what_is_measured(run):
    modelled = run({("n1", "modelled", "node"): 70}, gpus_per_rank=0)
    assert (modelled["source"], modelled["energy_per_gpu_j"]) == ("modelled", pytest.approx(70 * 18))
    both = run({("n1", "modelled", "node"): 70, ("n1", "cray", "node"): 300}, gpus_per_rank=0)
    assert (both["source"], both["energy_per_gpu_j"]) == ("measured", pytest.approx(300 * 18))


def _frozen_from_8(row, at):
    """The GPU's counter holds its value from 8 s on."""
    return {"energy_j": 100 * min(at, 8)} if row["kind"] == "gpu" else {}


def test_a_frozen_counter_makes_the_energy_doubtful_and_both_figures_are_in_the_record(run):
    """600 J of 1,800 J are counted. Loading was over before: its energy is good."""
    power = run({("n1", "nvml", "gpu"): 100, ("n1", "cray", "node"): 300}, spoil=_frozen_from_8)
    doubtful = "doubtful: energy counter and power of a gpu disagree by more than 10%"
    assert (power["energy_per_gpu_j"], power["energy_per_gpu_one_hz_j"], power["power_per_gpu_w"]) == (None,) * 3
    assert (power["source"], power["reason"]) == (None, doubtful)
    gpu = power["components"]["gpu"]
    assert (gpu["energy_j"], gpu["trapezoid_j"], gpu["one_hz_j"]) == (None, None, None)
    (device,) = gpu["doubtful"]
    assert (device["host"], device["device"], device["why"]) == ("n1", "nvml-gpu", doubtful)
    assert (device["counter_j"], device["trapezoid_j"]) == pytest.approx((600, 1800))
    assert device["disagreement_pct"] == pytest.approx(100 * 2 / 3)
    assert power["phases"]["load"]["gpu"]["energy_j"] == pytest.approx(400)
    assert power["phases"]["train"]["gpu"]["doubtful"][0]["trapezoid_j"] == pytest.approx(1000)
    assert power["components"]["node"]["doubtful"] is None
    assert power["energy_job_j"] == pytest.approx(300 * 18), "the node's own sensor is good"


@pytest.mark.parametrize("gpus_per_rank", [0, 1])
def test_nothing_stands_for_a_node_whose_sensor_is_doubtful(run, gpus_per_rank):
    """CPU and memory are less than the node. Phases in which the node's sensor is good have its energy."""
    parts = {("n1", "cray", "node"): 300, ("n1", "cray", "cpu"): 50, ("n1", "cray", "memory"): 10}
    parts |= {("n1", "nvml", "gpu"): 100} if gpus_per_rank else {}
    spoil = lambda row, at: {"power_w": -5e6} if at == 9 and row["kind"] == "node" else {}  # noqa: E731
    power = run(parts, gpus_per_rank=gpus_per_rank, spoil=spoil)
    assert power["energy_job_j"] is None
    assert power["energy_by_phase_j"]["train"] is None
    assert power["energy_by_phase_j"]["load"] == pytest.approx(300 * 4)
    if not gpus_per_rank:
        assert (power["energy_per_gpu_j"], power["reason"]) == (None, "doubtful: a node read a negative power")


def test_a_sensor_that_does_not_tell_gpus_apart_counts_for_whole_nodes_only(run):
    """One rank on a node of two GPUs: its sensor reads both. Two ranks: they are the ranks' own."""
    one = run({("n1", "cray", "gpu"): 200}, ranks_per_node=2, used=[None])
    assert one["energy_per_gpu_j"] is None
    assert "may not have used all GPUs of their nodes" in one["reason"]
    both = run({("n1", "cray", "gpu"): 200}, ranks=2, ranks_per_node=2, used=[None, None])
    assert both["energy_per_gpu_j"] == pytest.approx(100 * 18)
    on_hosts = run({("n1", "cray", "gpu"): 200}, ranks=2, ranks_per_node=2, used=[None, None], slots=[["n1", 2]])
    assert on_hosts["energy_per_gpu_j"] is None, "a file with hosts does not say how many GPUs they have"


def test_more_gpus_than_ranks_of_a_node_are_not_all_theirs(run):
    """4 AMD GPUs and 2 ranks: 2 x 500 W, and 2 x 90 W of idle GPUs, were 590 W for each rank's GPU."""
    watts = (500, 500, 90, 90)
    read = {("n1", f"amdsmi/{place}", "gpu"): each for place, each in enumerate(watts)}
    idle = run(read, ranks=2, ranks_per_node=2, used=[None, None])
    assert (idle["power_per_gpu_w"], idle["energy_job_j"]) == (None, None)
    assert "may not have used all GPUs of their nodes" in idle["reason"]
    whole = run(read, ranks=4, ranks_per_node=4, used=[None] * 4)
    assert whole["power_per_gpu_w"] == pytest.approx((500 + 500 + 90 + 90) / 4)
    modules = run({("n1", f"amdsmi/{place}", "gpu"): 500 for place in range(4)}, ranks=8, ranks_per_node=8,
                  used=[None] * 8)  # fmt: skip
    assert modules["power_per_gpu_w"] == pytest.approx(250), "an MI250 module has two GPUs, each with a rank"
    two = run({(host, f"amdsmi/{place}", "gpu"): 300 for host in ("n1", "n2") for place in range(2)},
              hosts=("n1", "n2"), ranks=4, ranks_per_node=2, used=[None] * 4)  # fmt: skip
    assert two["power_per_gpu_w"] == pytest.approx(300)


@pytest.mark.parametrize("gpus_per_rank", [0, 1])
def test_nothing_stands_for_a_node_s_sensor_that_one_host_lacks(run, gpus_per_rank):
    """Else repeats of one point would be of nodes, or of their CPUs and memory."""
    parts = {(host, "rapl", kind): 50 for host in ("n1", "n2") for kind in ("cpu", "memory")}
    parts |= {(host, "nvml", "gpu"): 100 for host in ("n1", "n2")} if gpus_per_rank else {}
    without = run(parts, gpus_per_rank=gpus_per_rank, hosts=("n1", "n2"), ranks=2)
    assert without["energy_job_j"] == pytest.approx((200 + 200 * gpus_per_rank) * 18)
    power = run(parts | {("n1", "cray", "node"): 300}, gpus_per_rank=gpus_per_rank, hosts=("n1", "n2"), ranks=2)
    assert power["energy_job_j"] is None
    assert power["components"]["node"]["reason"] == "no node sensor on n2"
    assert power["components"]["node"]["gap_s"] == pytest.approx(18)


def test_energy_until_a_time_is_not_told_if_it_is_doubtful(run, tmp_path):
    frozen = {("n1", "cray", "node"): 100}
    run(frozen, gpus_per_rank=0, spoil=lambda row, at: {"energy_j": 100 * min(at, 5)})
    wall = [edge | {"wall_ns": edge["monotonic_ns"]} for edge in edges()]
    assert energy_until(tmp_path, ON_NODES, wall, 5 * 10**9, ("n1", 5 * 10**9)) == (pytest.approx(300), None)
    joules, reason = energy_until(tmp_path, ON_NODES, wall, 12 * 10**9, ("n1", 12 * 10**9))
    assert joules is None
    assert "doubtful: energy counter and power of a node disagree" in reason


def test_a_run_that_did_not_end_or_was_not_covered(run):
    power = run({("n1", "nvml", "gpu"): 100}, last="train")
    assert (power["energy_per_gpu_j"], power["reason"]) == (None, "the run did not come to its end")
    lost_rank = run({("n1", "nvml", "gpu"): 100}, whole=False)  # rank 1 ended its evaluation, rank 0 was killed in it
    assert (lost_rank["energy_per_gpu_j"], lost_rank["reason"]) == (None, "the run did not come to its end")
    late = run({("n1", "nvml", "gpu"): 100}, seconds=(5, 20.5))
    assert (late["energy_per_gpu_j"], late["reason"]) == (None, "the sampler does not cover it")
    assert late["phases"]["train"]["gpu"]["energy_j"] == pytest.approx(1000), "what was covered is there"
