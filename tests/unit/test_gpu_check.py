"""The check of GPUs on a stand-in for NVML: healthy GPUs pass, and each injected fault is found by the right check."""

import dataclasses
import importlib.util
import json
import re
import sys
import types

import pytest
from fake_nvml import FakeNvml

from study.commands import measurements
from study.contrib.gpu_check import check, devices, load, meters
from study.contrib.gpu_check.verdicts import NOT_OK, UNCHECKED, Verdicts
from study.core.files import write_json
from study.instruments.power.sampler import COLUMNS
from study.instruments.power.sensors import nvml as sensor

SECONDS = 10


class Host:
    """A stand-in for a host with GPUs, and what a run of benchmark ``gpu_load`` leaves there.

    used: on which GPU each rank works.
    """

    def __init__(self, folder, number=2, **options):
        self.folder, self.nvml = folder, FakeNvml(number, **options)
        self.used = list(range(number))
        self.has_counter = True

    def run_load(self):
        """Let the ranks work by their timetables, while the project's sensor reads; returns the run's folder."""
        gpus, clock = self.nvml.gpus, self.nvml.clock
        tables = [load.plan_timetable(rank, len(gpus), SECONDS) for rank in range(len(gpus))]
        begin, rows, found = clock.seconds + 1, [], sensor.find(self.nvml)
        while clock.seconds < begin + tables[0].end_s + 1:
            for rank, table in enumerate(tables):
                is_busy = any(start <= clock.seconds - begin < end for start, end in table.busy)
                if (gpu := gpus[self.used[rank]]).load != is_busy:
                    gpu.set_load(float(is_busy))
            rows += [self._row(device) for device in found]
            clock.sleep(1 / meters.RATE_HZ)
        (self.folder / "program").mkdir(exist_ok=True)
        (self.folder / "telemetry.csv").write_text("\n".join([",".join(COLUMNS), *rows, ""]))
        for rank, table in enumerate(tables):
            windows = {name: [begin + edge for edge in window] for name, window in table.windows.items()}
            write_json(
                self.folder / "program" / f"loads-{rank}.json", {"uuid": gpus[self.used[rank]].uuid, "windows": windows}
            )
        ranks = [{"gpu": None if gpu.mig else gpu.uuid, "gpu_reason": gpu.mig and "MIG" or None} for gpu in gpus]
        write_json(self.folder / "metrics.json", {"ranks": ranks})
        users = ", ".join(f"{gpus[number].uuid} own" for number in self.used)
        background = f'end_monotonic_ns,host,gpu_users\n{int(clock.seconds * 1e9)},vm,"{users}"\n'
        (self.folder / "background.csv").write_text(background)
        return self.folder

    def _row(self, device):
        reading = dataclasses.asdict(device.read()) | ({} if self.has_counter else {"energy_j": None})
        values = ["" if value is None else value for value in reading.values()]
        now = round(self.nvml.clock.seconds * 1e9)
        return ",".join(map(str, [now, now, "vm", device.sensor, device.kind, device.name, *values]))

    def judge(self):
        """The verdicts on devices and meters."""
        verdicts = Verdicts()
        run = devices.read_load_run(self.run_load())
        devices.judge_devices(verdicts, run, self.nvml)
        for gpu in run.select_gpus(devices.read_power_limits(self.nvml)):
            meters.judge_meters(verdicts, gpu)
        return verdicts


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a `Host`."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda *arguments, **options: Host(tmp_path, *arguments, **options)


def reasons(verdicts, verdict=NOT_OK):
    return {each.check: each.reason for each in verdicts if each.verdict == verdict}


def test_healthy_gpus_pass_every_check(make):
    verdicts = make().judge()
    assert reasons(verdicts) == {}
    assert reasons(verdicts, UNCHECKED) == {"update period of the power": "it changed 0 times only"}
    assert {each.gpu[:12] for each in verdicts} == {"", "GPU-00000000", "GPU-00000001"}
    measured = {each.check: each.measured for each in verdicts}
    assert measured["averaging window of the average power"].startswith("1")
    assert 0.09 < float(measured["update period of the energy counter"].split()[0]) < 0.11
    assert measured["power follows the load"] == "60 W idle, 280 W at full load"


FOLLOWS = "energy counter against power, "


@pytest.mark.parametrize(
    ("where", "changes", "check_name", "words"),
    [
        ("nvml", {"stuck_counter": 123_456}, "update period of the energy counter", "it changed 0 times at full load"),
        ("nvml", {"counter_unit": 1.0}, f"{FOLLOWS}idle load", "disagree by more than 10%"),
        ("nvml", {"counter_unit": 1e6}, f"{FOLLOWS}full load", "rose by more than"),
        ("nvml", {"counter_unit": 1050.0}, f"{FOLLOWS}alternating load", "they disagree"),
        ("nvml", {"power_factor": 0.5}, f"{FOLLOWS}alternating load", "disagree by more than 10%"),
        ("nvml", {"power_factor": 10.0}, "power at full load", "not above 0 and within the limit"),
        ("nvml", {"stuck_power_mw": 90_000}, "power follows the load", "it did not rise"),
        ("nvml", {"stuck_power_mw": 90_000}, "averaging window of the average power", "it stayed at 90 to 90 W"),
        ("host", {"used": [1, 0]}, "rank 0: PyTorch used the rank's GPU", "PyTorch used GPU-00000001"),
        ("host", {"used": [1, 0]}, "rank 0: power rises on its GPU", "it did not rise"),
        ("host", {"used": [0, 0]}, "rank 1: NVML shows its process there", "on GPU-00000000-aaaa only"),
        ("gpus", {"window_s": 2.5}, "averaging window of the average power", "a mean over 1 s"),
        ("gpus", {"update_s": 1.5}, "update period of the energy counter", "slower"),
    ],
)
def test_an_injected_fault_is_found_by_the_right_check(make, where, changes, check_name, words):
    host = make()
    for target in {"host": [host], "nvml": [host.nvml], "gpus": host.nvml.gpus}[where]:
        vars(target).update(changes)
    assert words in reasons(host.judge()).get(check_name, "not found")


# Training

ROW = {"checks": "own_gpus passed; autotuning_finished not made"}


# The whole


@pytest.fixture
def whole(make, monkeypatch, tmp_path):
    """Run the whole check with stand-ins for NVML and for studies; returns the exit code and the studies' contents."""

    def run(status="ok", **options):
        host = make(**options)
        contents = {}

        def run_study(folder, name, content, limit_s):
            contents[name] = content
            row = ROW | {"benchmark": "gpu_load", "gpus": 2, "status": status, "failure_message": "it broke"}
            (grid,) = content["runs"][:1]
            return [(row | grid, host.run_load())]

        monkeypatch.setattr(check.sensor, "import_library", lambda: host.nvml)
        monkeypatch.setattr(check.study_runs, "run_study", run_study)
        monkeypatch.setattr(check, "provenance", types.SimpleNamespace(collect_provenance=lambda **_: {
            "host": {"name": "n1", "system": "s"}, "gpus": {"found": [], "reason": "none"}, "packages": {"torch": None}
        }))  # fmt: skip
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
        monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--output", str(tmp_path / "out")])
        try:
            measurements.gpu(standalone_mode=False)
        except SystemExit as ended:
            return ended.code, contents
        return 0, contents

    return run


def test_the_studies_have_a_rank_on_each_gpu_and_the_report_every_section(whole, tmp_path, capsys):
    code, contents = whole()
    assert code == 0, capsys.readouterr().out
    grids = contents["gpu_check"]["runs"]
    assert [(grid["benchmark"], grid["gpus"]) for grid in grids] == [("gpu_load", 2), ("nt3", [1, 2])]
    text = (tmp_path / "out" / "report.md").read_text()
    assert re.findall("^## (.*)", text, re.M) == [
        "runs", "devices and meters"
    ]  # fmt: skip
    machine = json.loads((tmp_path / "out" / "config" / "machines" / "gpu_host.yaml").read_text())
    assert (machine["ranks_per_node"], machine["gpus_per_rank"]) == (2, 1)


def test_a_failed_check_of_a_run_is_not_ok(whole, capsys, monkeypatch):
    failed = "sensors_plausible failed (power above its limit)"
    monkeypatch.setitem(ROW, "checks", f"{failed}; own_gpus passed")
    assert whole()[0] == 1 and failed in capsys.readouterr().out


def test_timetables_have_one_rank_at_work_at_a_time_and_then_all_alike():
    tables = [load.plan_timetable(rank, 3, 20.0) for rank in range(3)]
    turns = [table.windows["turn"] for table in tables]
    assert all(begin - end >= load.SETTLE_S for (_, end), (begin, _) in zip(turns, turns[1:], strict=False))
    assert all(table.windows["idle"] == tables[0].windows["idle"] for table in tables)
    for table in tables:
        begin, end = table.windows["idle"]
        assert all(until <= begin - load.SETTLE_S or since >= end for since, until in table.busy)
        begin, end = table.windows["alternating"]
        assert sum(until - since for since, until in table.busy if since >= begin) == 10.0
        assert table.busy[-1][1] == end - load.SETTLE_S


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch: make setup WITH=pytorch")
@pytest.mark.slow
def test_the_load_runs_with_pytorch(tmp_path, monkeypatch):
    """On CPU cores, short."""
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "STUDY_RUN_FOLDER": tmp_path,
                        "STUDY_EVENTS": tmp_path / "events"}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    for name in ("SETTLE_S", "TURN_S"):
        monkeypatch.setattr(load, name, 0.1)
    monkeypatch.setattr(sys, "argv", ["load.py", "0.2", "cpu"])
    load.main()
    written = json.loads((tmp_path / "loads-0.json").read_text())
    assert written["uuid"] is None and set(written["windows"]) == {"turn", "idle", "step", "full", "alternating"}
    keys = [json.loads(line)["key"] for line in (tmp_path / "events").read_text().splitlines()]
    assert keys == ["epoch_start", "epoch_stop"]
