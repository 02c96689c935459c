"""The sampler as a process: its rate, what a kill leaves, and that nothing ever outlives the ranks."""

import csv
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import psutil
import pytest
from project import wait_for

from study.core.paths import ROOT
from study.instruments.power import sampler, sampling, telemetry
from study.instruments.power.readings import Reading

MODEL = '{"idle_w": 10, "peak_w": 20}'
PROGRAM = [sys.executable, str(ROOT / "scripts" / "sample_power.py"), "--model", MODEL]


def start(path, rate=50, **options):
    line = [*PROGRAM, "--rate-hz", str(rate), "--output", str(path)]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)


def rows(path):
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.slow
@pytest.mark.timed
def test_ticks_come_at_their_rate_and_one_more_at_the_end(tmp_path):
    process = start(tmp_path / "t.csv", rate=20)
    told = json.loads(process.stdout.readline())
    assert told == {"devices": [{"sensor": "modelled", "kind": "node", "device": "modelled"}], "reasons": {}}
    begun = time.monotonic_ns()
    time.sleep(2)
    process.stdin.close()
    closed = time.monotonic_ns()
    assert process.wait(120) == 0
    found = rows(tmp_path / "t.csv")
    times = [int(row["monotonic_ns"]) for row in found]
    assert 0.75 <= len(found) / (20 * (closed - begun) / 1e9) <= 1.25
    assert times == sorted(times)
    assert times[-1] >= closed - 20e6
    assert all(row["sensor"] == "modelled" and 10 <= float(row["power_w"]) <= 20 for row in found)
    assert abs(int(found[0]["wall_ns"]) - time.time_ns()) < 60e9


class _Slow:
    """A device whose reading takes most of a period."""

    sensor, kind, name = "nvml", "gpu", "GPU-0"

    def __init__(self):
        self.times, self.took_s = [], []

    def read(self):
        self.times.append(time.monotonic())
        time.sleep(0.04)
        self.took_s.append(time.monotonic() - self.times[-1])
        return Reading(power_w=1.0)


@pytest.mark.slow
@pytest.mark.timed
def test_readings_that_take_most_of_a_period_are_not_left_out(tmp_path):
    device, (read, write) = _Slow(), os.pipe()
    with open(read, "rb", buffering=0) as stop:
        threading.Timer(3, os.close, [write]).start()
        sampler.sample([device], tmp_path / "t.csv", 20, stop)
    reading_s = statistics.median(device.took_s)  # 0.04 s, and more where the machine is late
    assert len(device.times) >= 0.8 * (device.times[-1] - device.times[0]) / max(0.05, reading_s)


@pytest.mark.slow
@pytest.mark.timed
def test_a_kill_loses_less_than_a_second(tmp_path):
    process = start(tmp_path / "t.csv", rate=10)
    process.stdout.readline()
    time.sleep(1.5)
    killed = time.monotonic_ns()
    process.kill()
    process.wait()
    times = [int(row["monotonic_ns"]) for row in rows(tmp_path / "t.csv")]
    late_ns = max(later - earlier for earlier, later in itertools.pairwise(times))  # 0.1 s, if the machine is not busy
    assert killed - times[-1] < 1e9 + 2 * late_ns


def of_process(folder, model=MODEL, sensors=()):
    """As a process of a run is told to sample by its environment."""
    wanted = {"power_sensors": list(sensors), "power_model": json.loads(model), "sampling_hz": 50}
    return sampling.join_sampling(folder, {sampling.VARIABLE: json.dumps(wanted)})


def own(folder, ending):
    """The file of this node's sampler with that ending."""
    (path,) = folder.glob(f"telemetry-*{ending}")
    return path


def test_a_sampler_that_hangs_is_killed_and_costs_no_run(tmp_path, monkeypatch, capsys):
    """As in a driver's call: it does not notice that its input is closed."""
    monkeypatch.setattr(sampling, "PROGRAM", tmp_path / "hangs.py")
    monkeypatch.setattr(sampling, "STOP_S", 0.1)
    answer = json.dumps({"devices": [], "reasons": {}})
    says = "print('libdriver: a library greets its user')"
    (tmp_path / "hangs.py").write_text(f"import time; {says}; print('{answer}', flush=True); time.sleep(600)")
    with of_process(tmp_path) as sampled:
        process = sampled._sampler.process
    assert process.wait(60) == -signal.SIGKILL
    assert "the sampler did not end within 0.1 s" in capsys.readouterr().err
    assert json.loads(own(tmp_path, ".json").read_text())["reasons"] == {}


def test_a_sampler_that_does_not_answer_is_killed_and_costs_no_run(tmp_path, monkeypatch):
    """As in a driver that hangs before the first reading."""
    monkeypatch.setattr(sampling, "PROGRAM", tmp_path / "hangs.py")
    monkeypatch.setattr(sampling, "START_S", 0.1)
    (tmp_path / "hangs.py").write_text("import time; time.sleep(600)")
    with of_process(tmp_path) as sampled:
        assert sampled._sampler.process.wait(60) == -signal.SIGKILL
    found = json.loads(own(tmp_path, ".json").read_text())
    assert (found["devices"], found["reasons"]) == ([], {"sampler": "it did not answer within 0.1 s"})


def test_signals_meant_for_the_ranks_do_not_end_it(tmp_path):
    process = start(tmp_path / "t.csv")
    process.stdout.readline()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    found = len(rows(tmp_path / "t.csv"))
    wait_for(lambda: len(rows(tmp_path / "t.csv")) > found + 3)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(120) == 0


PARENT = """
import json, os, time
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})  # as a launcher binds a rank to some cores of its node
from study.instruments.power import sampling
wanted = {{"power_sensors": [], "power_model": {model}, "sampling_hz": 50}}
with sampling.join_sampling({folder!r}, {{sampling.VARIABLE: json.dumps(wanted)}}):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_it_ends_when_its_parent_is_killed(tmp_path):
    """SIGKILL of the rank: the sampler writes its last tick and is gone. It watches all cores of its node."""
    program = PARENT.format(model=MODEL, folder=str(tmp_path))
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    parent.stdout.readline()
    (child,) = psutil.Process(parent.pid).children()
    wait_for(lambda: len(rows(own(tmp_path, ".csv"))) > 5)
    assert set(child.cpu_affinity()) >= os.sched_getaffinity(0)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert None not in rows(own(tmp_path, ".csv"))[-1].values(), "the last line is whole"


def test_a_node_s_first_process_alone_samples(tmp_path):
    """It returns after the first reading; what the sampler and all processes did is known to the nanosecond."""
    before = time.monotonic_ns()
    with of_process(tmp_path, sensors=["rapl"]) as first:
        begun = time.monotonic_ns()
        with of_process(tmp_path) as second:
            assert second._sampler is None
        assert first._sampler
    ended = time.monotonic_ns()
    facts = json.loads(own(tmp_path, ".json").read_text())
    read = [int(row["monotonic_ns"]) for row in rows(own(tmp_path, ".csv"))]
    last = sampling.read_last_end_ns(tmp_path, facts["boot_id"])
    assert before < read[0] < facts["begin_monotonic_ns"] < begun < last < facts["end_monotonic_ns"] < read[-1] < ended
    assert len(own(tmp_path, ".ends").read_text().splitlines()) == 2
    assert facts["devices"][-1]["sensor"] == "modelled"


def test_nodes_of_one_name_have_samplers_of_their_own(tmp_path, monkeypatch):
    """They have boot ids of their own."""
    with of_process(tmp_path):
        monkeypatch.setattr(sampling, "read_boot_id", lambda: "11111111-2222-3333-4444-555555555555")
        with of_process(tmp_path) as other:
            assert other._sampler
    assert len(list(tmp_path.glob("telemetry-*.csv"))) == 2


def test_without_settings_nothing_is_sampled(tmp_path):
    with sampling.join_sampling(tmp_path, {}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_of_processes_that_were_killed_the_last_end_is_not_known(tmp_path):
    """A line that is cut off is no time."""
    assert sampling.read_last_end_ns(tmp_path, "ab") is None
    (tmp_path / "telemetry-n1-ab.ends").write_text("1000\n2000\n99")
    (tmp_path / "telemetry-n2-ab.ends").write_text("")
    (tmp_path / "telemetry-n3-cd.ends").write_text("7000\n")
    assert sampling.read_last_end_ns(tmp_path, "a-b") == 2000


def test_a_process_whose_host_the_launch_samples_starts_no_sampler(tmp_path):
    """Readings begin before the ranks and end after them."""
    machine = {"power_sensors": [], "power_model": json.loads(MODEL), "sampling_hz": 50}
    path, before = tmp_path / "telemetry-launch.csv", time.monotonic_ns()
    with sampling.sample_with_launch(machine, True, tmp_path, dict(os.environ)):
        begun = time.monotonic_ns()
        assert not sampling.has_files_of_ranks(tmp_path)
        with of_process(tmp_path) as sampled:
            assert sampled._sampler is None
            assert sampling.has_files_of_ranks(tmp_path)
        ended = time.monotonic_ns()
        wait_for(lambda: int(rows(path)[-1]["monotonic_ns"]) > ended)
    assert before < int(rows(path)[0]["monotonic_ns"]) < begun
    telemetry.merge_telemetry(tmp_path, tmp_path / "telemetry.csv", tmp_path / "sensors.json")
    (facts,) = json.loads((tmp_path / "sensors.json").read_text())
    assert begun < facts["processes_end_monotonic_ns"] < ended < facts["end_monotonic_ns"]


def test_the_launch_samples_no_host_without_ranks(tmp_path):
    machine = {"power_sensors": [], "power_model": json.loads(MODEL), "sampling_hz": 50}
    with sampling.sample_with_launch(machine, False, tmp_path, dict(os.environ)):
        assert list(tmp_path.iterdir()) == []


def test_tensorflow_is_not_imported():
    program = "import sys; sys.path.insert(0, sys.argv[1]); import sample_power; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, str(ROOT / "scripts")], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_device_that_fails_leaves_no_row(tmp_path):
    from study.instruments.power.readings import Device, Reading

    readings = iter([Reading(power_w=1.0), OSError("gone"), Reading(power_w=3.0)])

    def read():
        reading = next(readings)
        if isinstance(reading, Exception):
            raise reading
        return reading

    ours, theirs = os.pipe()
    ticks = iter([False, True])
    closed = sampler._wait_for_close
    sampler._wait_for_close = lambda *_: next(ticks)
    try:
        with os.fdopen(ours) as stop:
            sampler.sample([Device("x", "node", "d", read)], tmp_path / "t.csv", 10, stop)
    finally:
        sampler._wait_for_close = closed
        os.close(theirs)
    assert [row["power_w"] for row in rows(tmp_path / "t.csv")] == ["1.0", "3.0"]


@pytest.mark.parametrize("name", ["nvml", "rapl", "cray", "occ"])
def test_every_sensor_answers_or_says_why_not(tmp_path, name):
    """On whatever machine this is: devices, or a reason in words."""
    line = [*PROGRAM[:2], "--sensor", name, "--output", str(tmp_path / "t.csv")]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert bool(told["devices"]) != (name in told["reasons"])
