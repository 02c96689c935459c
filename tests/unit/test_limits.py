"""Limits of power and clock rate, on stand-ins: set, read back, refused in one line, and put back whatever happens."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import FakeNvml
from project import wait_for

from study.core.errors import StudyError
from study.core.paths import ROOT
from study.experiment.parameters import PARAMETERS
from study.launch import run_limits
from study.machines import limits, machine_lock
from study.machines.limits import LIMITS, Place, holder
from study.machines.limits.governor import UNCHANGED

ZONE, CPU = "sys/class/powercap/intel-rapl:{}", "sys/devices/system/cpu/cpu{}/cpufreq"
STEPS = "sys.path.insert(0, {scripts!r})\nfrom pathlib import Path\nfrom study.machines.limits import Place, holder\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host of two packages and two CPUs: the tree of files below which /sys is, and a folder for the journal."""
    monkeypatch.setenv(machine_lock.VARIABLE, str(tmp_path / "locks"))
    root = tmp_path / "root"
    for package in range(2):
        write(root / ZONE.format(package), name=f"package-{package}", enabled=0, constraint_0_name="long_term",
              constraint_0_power_limit_uw=200_000_000, constraint_0_max_power_uw=205_000_000,
              constraint_1_name="short_term", constraint_1_power_limit_uw=240_000_000)  # fmt: skip
        write(root / ZONE.format(f"{package}:0"), name="core")
        write(root / CPU.format(package), scaling_governor="powersave",
              scaling_available_governors="performance powersave")  # fmt: skip
    return root


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def tree(root):
    return {path: path.read_text().strip() for path in root.rglob("*") if path.is_file()}


def of_package(root, number=0):
    return (root / ZONE.format(number) / "constraint_0_power_limit_uw").read_text().strip()


def test_each_limit_is_a_grid_key_that_sets_nothing_by_default():
    assert {name: PARAMETERS[name].default for name in LIMITS} == {name: limit.off for name, limit in LIMITS.items()}
    assert limits.asked({name: PARAMETERS[name].default for name in LIMITS}) == {}
    assert limits.asked({"cpu_power_limit_w": 90}) == {"cpu_power_limit_w": 90}, "older runs lack the others"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu_power_limit_w", 50, "50 W on GPU-00000000-aaaa: the driver allows 100 to 300 W"),
        ("gpu_clock_mhz", 700, "700 MHz on GPU-.*: it supports 210 to 1410 MHz; nearest: 210 or 705"),
        ("cpu_power_limit_w", 300, "300 W on intel-rapl:0: the processor allows at most 205 W"),
        ("cpu_governor", "schedutil", "schedutil: .*cpu0/cpufreq offers performance, powersave"),
        ("gpu_power_limit_w", 200, None),
        ("gpu_clock_mhz", 705, None),
        ("cpu_power_limit_w", 100, None),
        ("cpu_governor", "performance", None),
    ],
)
def test_what_a_device_cannot_have_is_refused_in_one_line(host, name, value, words):
    told = limits.problem(name, value, Place(host, {}, FakeNvml()))
    assert told is None if words is None else re.fullmatch(words, told)


def test_what_is_not_there_or_not_permitted_is_refused(host, tmp_path, monkeypatch):
    nowhere = Place(tmp_path / "none", {}, FakeNvml(0))
    assert "the driver sees no GPU" in limits.problem("gpu_power_limit_w", 200, nowhere)
    assert "no package" in limits.problem("cpu_power_limit_w", 90, nowhere)
    assert "no cpufreq" in limits.problem("cpu_governor", "performance", nowhere)
    nvml = FakeNvml()
    assert "shows none" in limits.problem("gpu_clock_mhz", 705, Place(host, {"CUDA_VISIBLE_DEVICES": ""}, nvml))
    nvml.gpus[1].mig = True
    assert "MIG" in limits.problem("gpu_power_limit_w", 200, Place(host, {}, nvml))
    assert limits.problem("gpu_power_limit_w", 200, Place(host, {"CUDA_VISIBLE_DEVICES": "0"}, nvml)) is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    for name, value in (("cpu_power_limit_w", 90), ("cpu_governor", "performance")):
        assert "no permission to write" in limits.problem(name, value, Place(host))


def test_gpus_of_the_ranks_are_limited_and_put_back(host):
    nvml = FakeNvml()
    place = Place(host, {"CUDA_VISIBLE_DEVICES": "1"}, nvml)
    nvml.gpus[1].limit_mw = 250_000
    made = holder._set({"gpu_power_limit_w": 200, "gpu_clock_mhz": 705}, place)
    assert [(each.device, each.asked) for each in made] == [(nvml.gpus[1].uuid, 200), (nvml.gpus[1].uuid, 705)]
    assert made[0].read_back == 200
    assert (nvml.gpus[0].limit_mw, nvml.gpus[1].limit_mw, nvml.gpus[1].locked) == (300_000, 200_000, 705)
    assert all(each.restored for each in holder.restore_left(place))
    assert (nvml.gpus[1].limit_mw, nvml.gpus[1].locked) == (250_000, None)
    assert holder.restore_left(place) == [], "the journal is gone"


def test_without_permission_everything_is_put_back(host):
    before = tree(host)
    with pytest.raises(limits.Refused, match="gpu_power_limit_w: .*no permission; only root may"):
        holder._set({"cpu_power_limit_w": 90, "gpu_power_limit_w": 200}, Place(host, {}, FakeNvml(is_root=False)))
    assert tree(host) == before


def test_a_limit_that_does_not_take_effect_is_refused(host, monkeypatch):
    before = tree(host)
    monkeypatch.setattr(limits.rapl.CpuPowerLimit, "read_back", lambda *_: 200.0)
    with pytest.raises(limits.Refused, match="90 W on intel-rapl:0 did not take effect: read back 200"):
        holder._set({"cpu_power_limit_w": 90}, Place(host))
    assert tree(host) == before


def test_the_short_term_limit_is_lowered_too(host):
    holder._set({"cpu_power_limit_w": 90}, Place(host))
    zone = host / ZONE.format(1)
    assert {name: (zone / name).read_text().strip() for name in ("constraint_1_power_limit_uw", "enabled")} == {
        "constraint_1_power_limit_uw": "90000000",
        "enabled": "1",
    }


@pytest.fixture
def program(host, tmp_path, monkeypatch):
    """The holder's program on the stand-in."""
    path = tmp_path / "hold.py"
    steps = STEPS.format(scripts=str(ROOT / "scripts"))
    path.write_text(f"import sys\n{steps}holder.main(Place(Path({str(host)!r})))\n")
    monkeypatch.setattr(run_limits, "PROGRAM", str(path))
    return path


ASKED = {"cpu_power_limit_w": 90, "cpu_governor": "performance"}


def test_limits_hold_while_a_run_is_launched_and_are_recorded(host, program, tmp_path):
    before, run = tree(host), SimpleNamespace(parameters=ASKED)
    with run_limits.held(run, [], tmp_path, {}, 60):
        assert (of_package(host), of_package(host, 1)) == ("90000000", "90000000")
        assert (host / CPU.format(1) / "scaling_governor").read_text().strip() == "performance"
    assert tree(host) == before
    settings = json.loads((tmp_path / run_limits.FILE).read_text())["settings"]
    assert {(each["limit"], each["read_back"]) for each in settings} == {*ASKED.items()}
    assert [each["restored"] for each in settings] == [True] * 3


def test_an_exception_puts_everything_back_and_a_refusal_starts_nothing(host, program, tmp_path):
    before, hosts = tree(host), []
    with pytest.raises(RuntimeError), run_limits.held(SimpleNamespace(parameters=ASKED), hosts, tmp_path, {}, 60):
        raise RuntimeError
    assert tree(host) == before
    run = SimpleNamespace(parameters={"cpu_power_limit_w": 900})
    words = "cpu_power_limit_w: 900 W on intel-rapl:0: .* at most 205 W"
    with pytest.raises(StudyError, match=words), run_limits.held(run, hosts, tmp_path, {}, 60):
        pytest.fail("it was not refused")
    assert tree(host) == before
    with run_limits.held(SimpleNamespace(parameters={"cpu_governor": UNCHANGED}), hosts, tmp_path, {}, 60):
        assert tree(host) == before


@pytest.mark.parametrize("killed", ["launch", "holder", "all"])
def test_limits_are_put_back_after_sigkill(host, program, tmp_path, killed):
    """Of the launch: its holder does it. Of the holder: its second process. Of all three: the next run."""
    before = tree(host)
    code = (
        "import sys, time\n" + STEPS.format(scripts=str(ROOT / "scripts")) + "from types import SimpleNamespace\n"
        "from study.launch import run_limits\n"
        f"run_limits.PROGRAM = {str(program)!r}\n"
        f"with run_limits.held(SimpleNamespace(parameters={ASKED!r}), [], Path({str(tmp_path)!r}), {{}}, 60):\n"
        "    print('set', flush=True)\n"
        "    time.sleep(60)\n"
    )
    launch = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert launch.stdout.readline() == b"set\n"
    (first,) = children(launch.pid)
    (second,) = children(first)
    assert of_package(host) == "90000000"
    for process in {"launch": [launch.pid], "holder": [first], "all": [second, first, launch.pid]}[killed]:
        os.kill(process, signal.SIGKILL)
    if killed == "all":
        launch.wait(10)
        time.sleep(0.05)
        assert of_package(host) == "90000000"
        assert [each.restored for each in holder.restore_abandoned(Place(host))] == [True] * 3
    wait_for(lambda: tree(host) == before, seconds=10)
    launch.kill()
    launch.wait(10)


SUPERVISED = """
from study.launch import supervision
until = supervision.Limits({limit_s}, 60, lambda: 0, lambda now: {at_walltime})
def supervised():
    return supervision.execute(["sleep", "60"], dict(os.environ), Path({log!r}), [], until)
"""


@pytest.mark.parametrize(
    ("number", "limit_s", "at_walltime", "code"),
    [
        (None, 0.2, False, 0),  # the run's own time limit
        (signal.SIGTERM, 60, True, 0),  # of the batch system, at the walltime: the run is recorded
        (signal.SIGTERM, 60, False, 128 + signal.SIGTERM),  # of a cancelled job
        (signal.SIGHUP, 60, False, 128 + signal.SIGHUP),
    ],
    ids=["time limit", "walltime", "SIGTERM", "SIGHUP"],
)
def test_limits_are_put_back_at_the_walltime_and_after_signals(
    host, program, tmp_path, number, limit_s, at_walltime, code
):
    """The launch holds limits around `supervision.execute`, as here; whatever ends that, they are put back first."""
    before = tree(host)
    text = (
        "import os, sys\n" + STEPS.format(scripts=str(ROOT / "scripts")) + "from types import SimpleNamespace\n"
        "from study.launch import run_limits\n"
        + SUPERVISED.format(limit_s=limit_s, at_walltime=at_walltime, log=str(tmp_path / "log"))
        + f"run_limits.PROGRAM = {str(program)!r}\n"
        f"with run_limits.held(SimpleNamespace(parameters={ASKED!r}), [], Path({str(tmp_path)!r}), {{}}, 60):\n"
        "    supervised()\n"
    )
    launch = subprocess.Popen([sys.executable, "-c", text])
    # The log is opened once the command has started: a signal before that ends the launch without a run to record.
    is_started = (tmp_path / "log").exists
    if number:
        wait_for(
            lambda: of_package(host) == "90000000" and handles(launch.pid, number) and is_started(), launch, seconds=20
        )
        launch.send_signal(number)
    assert launch.wait(30) == code
    assert tree(host) == before
    settings = json.loads((tmp_path / run_limits.FILE).read_text())["settings"]
    assert [(each["held"], each["restored"]) for each in settings] == [(True, True)] * 3


def handles(process, number):
    """Whether a process has a handler for a signal."""
    handled = Path(f"/proc/{process}/status").read_text().split("SigCgt:")[1].split()[0]
    return bool(int(handled, 16) >> (number - 1) & 1)


def test_a_limit_that_something_else_changes_meanwhile_is_told_and_put_back(host, program, tmp_path, capsys):
    before = tree(host)
    with run_limits.held(SimpleNamespace(parameters=ASKED), [], tmp_path, {}, 60):
        (host / ZONE.format(1) / "constraint_0_power_limit_uw").write_text("150000000\n")
    assert tree(host) == before
    found = {each["device"]: each for each in json.loads((tmp_path / run_limits.FILE).read_text())["settings"]}
    told = {name: (found[name]["at_end"], found[name]["held"]) for name in ("intel-rapl:0", "intel-rapl:1")}
    assert told == {"intel-rapl:0": (90, True), "intel-rapl:1": (150, False)}
    assert "intel-rapl:1 was 90, and 150.0 at the end of the run: something else changed it" in capsys.readouterr().err


def test_a_gpu_that_is_lost_keeps_nothing_from_being_put_back(host):
    nvml = FakeNvml()
    place = Place(host, {"CUDA_VISIBLE_DEVICES": "0,1"}, nvml)
    made = holder._set({"gpu_power_limit_w": 200, "cpu_power_limit_w": 90}, place)
    nvml.gpus[1].limit_mw = 300_000
    lost = nvml.gpus.pop(0)
    at_end = holder._at_end(made, place)
    assert [at_end[each.limit, each.device]["held"] for each in made] == [None, False, True, True]
    restored = {(each.limit, each.device): each.restored for each in holder.restore_left(place)}
    assert restored == {(each.limit, each.device): each.device != lost.uuid for each in made}


def test_another_host_sets_its_own(host, program, tmp_path, monkeypatch):
    """A shell in place of ssh. Hosts that are one machine, as in a laboratory, set their limits once."""
    monkeypatch.setattr(run_limits.remote, "SSH", ("sh", "-c", 'echo Welcome to "$1"; exec sh -c "$2"', "ssh"))
    before, other = tree(host), {"boot_id": "another"}
    hosts = [SimpleNamespace(name=name, **other) for name in ("node1", "node1-again")]
    with run_limits.held(SimpleNamespace(parameters={"cpu_power_limit_w": 90}), hosts, tmp_path, {}, 60):
        assert of_package(host) == "90000000"
    assert tree(host) == before
    settings = json.loads((tmp_path / run_limits.FILE).read_text())["settings"]
    assert {(each["host"], each["restored"]) for each in settings} == {("node1", True)}


def test_a_host_that_hears_nothing_more_puts_everything_back(host, program):
    before = tree(host)
    held = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    held.stdin.write(json.dumps({"asked": {"cpu_power_limit_w": 90}, "silence_s": 0.2}).encode() + b"\n")
    held.stdin.flush()
    assert "settings" in json.loads(held.stdout.readline())
    assert held.wait(10) == 0
    assert tree(host) == before


def children(process):
    return [int(each) for each in open(f"/proc/{process}/task/{process}/children").read().split()]
