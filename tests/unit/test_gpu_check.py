"""The check of GPUs on stand-ins: healthy ones pass, and each injected fault fails the right check."""

import contextlib
import csv
import functools
import importlib.util
import json
import math
import re
import subprocess
import sys
import time
import zipfile
from types import SimpleNamespace

import gpu_check
import pack_wheels
import pytest
from fake_nvml import FakeNvml, NVMLError

from study.core.paths import SCRIPTS
from study.instruments.power import gpus
from study.launch.gpu_check import benchmarks, calls, context, project_study, report, results, run, torch_work
from study.launch.gpu_check.results import FAIL, NOT_POSSIBLE, PASS
from study.machines import machine_lock
from study.machines.limits import Place, holder

PARTS = ("calls", "meters", "mapping", "limits")


class Host:
    """A stand-in for a host: NVML's stand-in, CUDA's order of its GPUs, work, and other processes."""

    def __init__(self, folder, number=2, **options):
        self.nvml = FakeNvml(number, **options)
        self.kind = "cpu"
        self.folder, self.cuda_order = folder, list(range(number))
        self.nvml.nvmlDeviceGetPciInfo = lambda gpu: SimpleNamespace(domain=0, bus=self._number(gpu), device=0)

    def _number(self, gpu):
        return self.nvml.gpus.index(gpu)

    def prepare(self, index):
        """Nothing to do."""

    def start(self, index):
        """As CUDA numbers GPUs, which is NVML's order unless that fault is injected."""
        self.nvml.gpus[self.cuda_order[index]].set_load(1.0)

    def stop(self):
        for gpu in self.nvml.gpus:
            gpu.set_load(0.0)

    def shown(self, variables):
        """What PyTorch shows; in CUDA's order where GPUs are given by number."""
        entries = variables.get("CUDA_VISIBLE_DEVICES")
        by_number = entries is None or all(each.isdigit() for each in entries.split(","))
        if by_number:
            numbers = range(len(self.cuda_order)) if entries is None else map(int, entries.split(","))
            found = [self.nvml.gpus[self.cuda_order[number]] for number in numbers]
        else:
            uuids = gpus.visible(variables, self.nvml)
            found = [gpu for uuid in uuids for gpu in self.nvml.gpus if gpu.uuid == uuid]
        return [context.ShownDevice(gpu.name, gpu.uuid[4:], (0, self._number(gpu), 0)) for gpu in found]

    @contextlib.contextmanager
    def holding(self, uuid, number):
        (gpu,) = [gpu for gpu in self.nvml.gpus if gpu.uuid == uuid]
        gpu.processes = list(range(100, 100 + number))
        yield gpu.processes
        gpu.processes = []

    @contextlib.contextmanager
    def limited(self, uuid, asked):
        place = Place(variables={"CUDA_VISIBLE_DEVICES": uuid}, nvml=self.nvml)
        settings = [vars(each) for each in holder._set(asked, place)]
        try:
            yield settings
        finally:
            for setting, restored in zip(settings, holder.restore_left(place), strict=True):
                setting |= vars(restored)

    def rows(self, *parts, minutes=1.0):
        found = []
        for name in parts or PARTS:
            of_part = context.Context(
                rows=results.Rows(name), output=self.folder, nvml=self.nvml, work=self, shown=self.shown,
                holding=self.holding, limited=self.limited, clock=self.nvml.clock, variables={}, minutes=minutes,
                say=lambda text: None, kind=self.kind,
            )  # fmt: skip
            run.run_part(name, of_part)
            found += of_part.rows
        return found


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a `Host`."""
    monkeypatch.setenv(machine_lock.VARIABLE, str(tmp_path / "locks"))
    return lambda *arguments, **options: Host(tmp_path, *arguments, **options)


def failed(rows):
    return {row.check: row.reason for row in rows if row.status == FAIL}


def test_healthy_gpus_pass_every_check(make, tmp_path):
    rows = make().rows(minutes=10)
    assert failed(rows) == {}
    assert [(row.check, row.reason) for row in rows if row.status == NOT_POSSIBLE] == []
    assert len(rows) > 60
    found = {row.check: row for row in rows if row.part == "meters"}
    assert float(found["update period, energy_counter_mj"].value) == pytest.approx(0.1, abs=0.01)
    assert float(found["averaging window, average_power_mw"].value) == pytest.approx(1.0, abs=0.15)
    assert float(found["averaging window, instantaneous_power_mw"].value) < 0.1
    assert 1 <= int(found["counter resolution"].value) < 10
    with open(tmp_path / "samples_alternating.csv", newline="") as file:
        samples = list(csv.DictReader(file))
    assert len(samples) > 600 and {row["load"] for row in samples} == {"0", "1"}


def stuck_counter(host):
    host.nvml.stuck_counter = 123_456


def counter_in_joules(host):
    host.nvml.counter_unit = 1.0


def counter_in_microjoules(host):
    host.nvml.counter_unit = 1e6


def half_power(host):
    host.nvml.power_factor = 0.5


def power_ten_times(host):
    host.nvml.power_factor = 10.0


def stuck_power(host):
    host.nvml.stuck_power_mw = 90_000


def lost(host):
    host.nvml.gpus[1].is_lost = True


def mig(host):
    host.nvml.gpus[1].mig = True


def other_order(host):
    host.cuda_order.reverse()


def long_window(host):
    for gpu in host.nvml.gpus:
        gpu.window_s = 2.5


def slow_updates(host):
    for gpu in host.nvml.gpus:
        gpu.update_s = 1.5


@pytest.mark.parametrize(
    ("fault", "part", "check", "words"),
    [
        (stuck_counter, "meters", "energy counter against 10 Hz power, full", "stood still"),
        (stuck_counter, "meters", "counter resolution", "did not move"),
        (counter_in_joules, "meters", "energy counter against 10 Hz power, idle", "counts of 1 J, not of 1 mJ"),
        (counter_in_microjoules, "meters", "energy counter against 10 Hz power, full", "counts of 1 uJ"),
        (half_power, "meters", "energy counter against 10 Hz power, alternating", "shows 2 times the power's energy"),
        (power_ten_times, "calls", "nvmlDeviceGetPowerUsage", "within 1.1 x the limit"),
        (stuck_power, "meters", "energy counter against 10 Hz power, alternating", "power stood still at 90 W"),
        (stuck_power, "meters", "power_w follows the load", "90 W idle, 90 W at full load"),
        (stuck_power, "meters", "averaging window, average_power_mw", "stayed at"),
        (stuck_power, "mapping", "work on CUDA's GPU 0 draws power there", "did not rise"),
        (lost, "calls", "nvmlDeviceGetHandleByIndex", "return code 15: GPU is lost"),
        (lost, "calls", "the project's NVML sensor", "GPU is lost"),
        (lost, "mapping", "every GPU is whole and has a UUID", "GPU 1 is in MIG mode, is lost"),
        (mig, "calls", "nvmlDeviceGetMigMode", "of all instances together"),
        (mig, "mapping", "every GPU is whole and has a UUID", "GPU 1 is in MIG mode"),
        (other_order, "mapping", "CUDA_VISIBLE_DEVICES, by number", "PyTorch shows GPU-00000001"),
        (other_order, "mapping", "CUDA_VISIBLE_DEVICES, reordered, by number", "PyTorch shows GPU-00000000"),
        (other_order, "mapping", "work on CUDA's GPU 0 draws power there", "did not rise here"),
        (long_window, "meters", "averaging window, shown_power_mw", "a mean over at most 1 s"),
        (slow_updates, "meters", "update period, energy_counter_mj", "slower"),
    ],
)
def test_an_injected_fault_fails_the_right_check(make, fault, part, check, words):
    host = make()
    fault(host)
    assert words in failed(host.rows(part)).get(check, "not failed")


def test_a_first_gpu_in_mig_mode_is_not_measured(make):
    host = make(1)
    host.nvml.gpus[0].mig = True
    (row,) = host.rows("meters")
    assert row.status == NOT_POSSIBLE and "MIG" in row.reason


def test_limits_without_permission_are_not_possible_and_nothing_changes(make):
    host = make(is_root=False)
    rows = host.rows("limits")
    assert [row.status for row in rows] == [NOT_POSSIBLE] * 2
    assert all("no permission; only root may" in row.reason for row in rows)
    assert [(gpu.limit_mw, gpu.locked) for gpu in host.nvml.gpus] == [(300_000, None)] * 2


def test_a_limit_that_has_no_effect_or_is_not_put_back_fails(make):
    host = make()
    host.nvml.nvmlDeviceSetPowerManagementLimit = lambda gpu, milliwatts: vars(gpu).update(limit_mw=milliwatts)
    for gpu in host.nvml.gpus:
        gpu._change = lambda gpu=gpu, **values: vars(gpu).update(history=[(host.nvml.clock.seconds, 0.0, 280.0)])
    assert "mean power under load is 280 W" in failed(host.rows("limits"))["gpu_power_limit_w holds under load"]

    host = make()
    host.nvml.nvmlDeviceResetGpuLockedClocks = lambda gpu: (_ for _ in ()).throw(NVMLError(999))
    assert "error 999" in failed(host.rows("limits"))["gpu_clock_mhz is put back"]


def test_every_nvml_function_of_the_project_is_among_the_calls():
    """Those that set something, and what they need, are called by the part on limits."""
    of_project = set()
    for folder in ("instruments", "machines"):
        for path in (SCRIPTS / "study" / folder).rglob("*.py"):
            of_project |= set(re.findall(r"\bnvml(?:Device|Init|System)\w*", path.read_text()))
    ours = "".join(path.read_text() for path in (SCRIPTS / "study" / "launch" / "gpu_check").glob("*.py"))
    setting = {name for name in of_project if re.search("Set|Reset", name)}
    assert len(of_project) > 15 and len(setting) == 3
    assert [name for name in of_project - setting - {"nvmlDeviceGetCount_v2"} if name not in ours] == []


def test_a_call_that_a_gpu_lacks_is_not_possible(make):
    host = make(1)
    host.nvml.nvmlDeviceGetUtilizationRates = lambda gpu: (_ for _ in ()).throw(NVMLError(3))
    rows = [row for row in host.rows("calls") if "Utilization" in row.check]
    assert [(row.status, row.reason) for row in rows] == [(NOT_POSSIBLE, "return code 3: Not Supported")]


def test_a_part_that_raises_is_a_row_that_failed(make, monkeypatch):
    monkeypatch.setattr(calls, "check", lambda context: 1 / 0)
    (row,) = make().rows("calls")
    assert row.status == FAIL and "ZeroDivisionError at test_gpu_check.py" in row.reason


def test_rows_of_a_killed_part_are_kept(tmp_path):
    rows = results.Rows("calls", tmp_path / "part.jsonl")
    rows.judge("one", None, 1.23456, unit="W")
    with open(tmp_path / "part.jsonl", "a") as file:
        file.write('{"part": "ca')
    assert results.read(tmp_path / "part.jsonl") == list(rows)
    assert (rows[0].value, rows[0].status) == ("1.235", PASS)


def test_the_report_lists_every_row(tmp_path):
    rows = results.Rows("calls")
    rows.judge("one", "a|b <i>", device="GPU-1")
    rows.not_possible("two", "no reason")
    report.write(tmp_path, rows, report.facts(FakeNvml()))
    text = (tmp_path / "report.md").read_text()
    assert "0 pass, 1 fail, 1 not possible." in text and "| one | GPU-1 | fail |" in text and "a\\|b" in text
    assert "&lt;i&gt;" in (tmp_path / "report.html").read_text()
    with open(tmp_path / "results.csv", newline="") as file:
        assert [row["status"] for row in csv.DictReader(file)] == [FAIL, NOT_POSSIBLE]


BARE = """
import importlib.abc, json, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in {{"torch", "numpy", "pynvml", "study", "gpu_check"}}:
            return None
        raise ImportError(f"{{name}} is not here")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, {scripts!r})
sys.argv = ["gpu_check.py"]
{then}
"""


def bare(then):
    """A Python with nothing but the standard library, PyTorch, NumPy and nvidia-ml-py."""
    code = BARE.format(scripts=str(SCRIPTS), then=then)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_a_bare_python_without_a_gpu_gets_a_report_of_what_is_not_possible(tmp_path):
    """A stand-in for NVML without a driver, so that this also holds where there is a GPU."""
    done = bare(
        "import types\nnvml = types.ModuleType('pynvml')\nnvml.NVMLError = type('NVMLError', (Exception,), {})\n"
        "def begin(): raise nvml.NVMLError('NVML Shared Library Not Found')\n"
        "nvml.nvmlInit = begin\nsys.modules['pynvml'] = nvml\n"
        "import importlib\nfrom study.launch.gpu_check import run\n"
        "for part in run.PARTS.values(): importlib.import_module(f'study.launch.gpu_check.{part.module}')\n"
        f"import gpu_check\nsys.argv += ['--output', {str(tmp_path / 'out')!r}]\ngpu_check.main()"
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == "no GPU: NVML: NVML Shared Library Not Found\n"
    with open(tmp_path / "out" / "results.csv", newline="") as file:
        found = [(row["part"], row["status"], row["reason"]) for row in csv.DictReader(file)]
    assert found == [(part, NOT_POSSIBLE, done.stderr.strip()) for part in run.PARTS]


def test_the_help_names_every_part():
    assert ", ".join(run.PARTS) in re.sub(r'"\s+"', "", (SCRIPTS / "gpu_check.py").read_text())


def test_make_starts_it_with_a_python():
    # Inside another make, which `make test` is, this one would also print its folder.
    line = ["make", "--no-print-directory", "-n", "gpu", "ONLY=calls"]
    done = subprocess.run(line, cwd=SCRIPTS.parent, capture_output=True, text=True)
    assert re.fullmatch(r"(\.venv/bin/)?python scripts/gpu_check\.py --only 'calls' *\n", done.stdout), done.stdout


def test_a_command_line_that_cannot_be_followed_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run.sensor, "library", FakeNvml)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "results.csv").write_text("")
    for line, words in (
        (["--only", "calls,nothing"], "no part 'nothing'"),
        (["--output", str(tmp_path / "old")], "not empty"),
    ):
        monkeypatch.setattr(sys, "argv", ["gpu_check.py", *line])
        with pytest.raises(Exception, match=words):
            gpu_check.main()


def test_a_part_s_process_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    """The processes end at once, since they find no GPU or no such program."""
    monkeypatch.setattr(run.sensor, "library", FakeNvml)
    monkeypatch.setattr(run.children, "PROGRAM", str(tmp_path / "nothing.py"))
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--only", "calls,emulated", "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        gpu_check.main()
    assert ended.value.code == 1
    with open(tmp_path / "out" / "results.csv", newline="") as file:
        assert [(row["part"], row["reason"]) for row in csv.DictReader(file)] == [
            (part, "its process ended with code 2") for part in ("calls", "emulated")
        ]
    assert "2 fail" in capsys.readouterr().out


class Running:
    """A clock of the stand-in that goes on by itself, for what really trains."""

    seconds = property(lambda self: time.monotonic())
    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


def trains(test):
    without = pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make setup WITH=pytorch"
    )
    return pytest.mark.slow(without(test))


@trains
def test_benchmarks_are_trained_and_told_beside_the_published_time(make, monkeypatch, tmp_path):
    """On CPU cores, small; power is that of a stand-in for a GPU."""
    small = functools.partial(benchmarks.trainer_of, sizes={"train_samples": 40, "features": 300})
    monkeypatch.setattr(benchmarks, "trainer_of", small)
    monkeypatch.setattr(benchmarks, "BUDGET_S", 3.0)
    host = make(1, clock=Running())
    host.start(0)
    rows = host.rows("benchmarks")
    assert failed(rows) == {}
    times = [row for row in rows if "time per epoch" in row.check]
    assert [row.check.split(",")[0] for row in times] == list(benchmarks.BENCHMARKS)
    assert all(row.status == PASS and float(row.value) > 0 for row in times)
    assert "published 10.3 s (one V100 of Summit, icpp2019, Table 2)" in times[0].expected
    assert any("published 224.2 W" in row.expected for row in rows)
    assert "published" not in times[1].expected
    with open(tmp_path / "samples_benchmark_epochs.csv", newline="") as file:
        assert {row["benchmark"] for row in csv.DictReader(file)} == set(benchmarks.BENCHMARKS)


def test_samples_have_the_shapes_of_the_benchmarks_own():
    shapes = {name: benchmarks._data(name, 3, 50, 10).train.shape for name in benchmarks.BENCHMARKS}
    assert shapes == {"nt3": (50, 1), "p1b1": (50,), "p1b2": (50,), "p1b3": (51,)}  # with the concentration


def test_an_epoch_whose_loss_or_energy_cannot_be_right_fails(make):
    host = make(1)
    of_part = SimpleNamespace(rows=results.Rows("benchmarks"))
    epochs = [{"time_s": 2.0, "loss": math.nan}]
    readings = [{"time_s": each, "energy_j": 5.0, "power_w": 0.0, "utilization_pct": None} for each in (0.0, 1.0)]
    benchmarks._tell(of_part, host.nvml.gpus[0].uuid, "nt3", epochs, readings)
    found = {row.check.split(", ")[1]: (row.status, row.reason) for row in of_part.rows}
    assert found == {
        "time per epoch": (FAIL, "the loss is not finite"),
        "mean power": (FAIL, "it was 0 while training"),
        "mean utilisation": (NOT_POSSIBLE, "no reading in the measured epochs"),
        "energy per epoch": (FAIL, "the counter stood still"),
    }


def test_a_benchmark_that_fails_leaves_the_others(make, monkeypatch):
    def trainer_of(name, kind):
        if name == "nt3":
            raise RuntimeError("CUDA out of memory")
        raise MemoryError if name == "p1b3" else results.NotPossible("a package is not here")

    monkeypatch.setattr(benchmarks, "trainer_of", trainer_of)
    monkeypatch.setattr(benchmarks, "need", lambda kind: None)
    rows = make(1).rows("benchmarks")
    assert [row.status for row in rows] == [FAIL, NOT_POSSIBLE, NOT_POSSIBLE, NOT_POSSIBLE]
    assert rows[0].reason == "RuntimeError: CUDA out of memory"


RUNS = "record,status,failure_message\nruns/a,ok,\nruns/b,{status},{why}\n"
TUNING = (
    "arm,blocks,throughput_ratio,throughput_ratio_low,throughput_ratio_high,failures\n"
    "mixed_bfloat16,3,2.0,1.8,2.2,\ncompiled,2,,,,no compiler\n"
)


@pytest.fixture
def studies(monkeypatch):
    """Snakemake's place is taken: it writes what a study leaves, with runs of this status."""

    def made(status="ok", why="", code=0):
        def started(folder, name):
            (folder / f"{name}.log").write_text("StudyError in file x, line 1:\nthe reason\n  File x\n")
            results = folder / "results" / project_study.machine_name() / "studies" / name
            (results / "tables").mkdir(parents=True)
            (results / "runs.csv").write_text(RUNS.format(status=status, why=why))
            (results / "tables" / "tuning.csv").write_text(TUNING)
            finding = {"title": "It is so", "verdict": "yes"}
            (results / "findings.json").write_text(json.dumps({"findings": [finding]}))
            (results / "report.html").write_text("")
            return code

        monkeypatch.setattr(project_study, "_started", started)

    monkeypatch.setattr(project_study, "need", lambda kind: None)  # PyTorch
    return made


def test_the_study_s_arms_are_told_with_intervals_and_drawn(make, studies, tmp_path):
    studies()
    host = make(1)
    host.kind = "cuda"
    rows = {row.check: row for row in host.rows("study")}
    assert rows["study gpu_check runs to its report"].status == PASS
    assert rows["mixed_bfloat16: ratio of throughput"].value == "2 (95 % 1.8 to 2.2)"
    assert failed(rows.values()) == {"compiled: ratio of throughput": "no interval: no compiler"}
    assert rows["It is so"].value == "yes"
    (written,) = (tmp_path / "study" / "config" / "studies").iterdir()
    (grid,) = json.loads(written.read_text())["runs"]
    assert grid["tuning"]["power_limit"] == {"gpu_power_limit_w": 200.0} and grid["repeats"] == 3
    assert host.nvml.gpus[0].limit_mw == 300_000
    report.write(tmp_path, list(rows.values()), {})
    assert "mixed_bfloat16" in (tmp_path / "figure_1.svg").read_text()
    assert f"MACHINE={project_study.machine_name()}" in (tmp_path / "report.md").read_text()


def test_a_study_that_fails_is_told_with_its_reason(make, studies):
    studies("failed", "CUDA out of memory", code=1)
    host = make(1, is_root=False)
    host.kind = "cuda"
    rows = {row.check: row for row in host.rows("study")}
    assert "no permission" in rows["power_limit"].reason and rows["power_limit"].status == NOT_POSSIBLE
    told = failed(rows.values())
    assert told["study gpu_check runs to its report"] == "Snakemake ended with code 1: the reason"
    assert told["runs of the study that ended well"] == "1 failed; runs/b: CUDA out of memory"


def test_a_study_without_its_packages_is_not_possible(make, studies, monkeypatch):
    monkeypatch.setattr(project_study, "NEEDED", ("json", "not_there"))
    for part in ("study", "emulated"):
        (row,) = make(1).rows(part)
        assert row.status == NOT_POSSIBLE and "lacks not_there; scripts/pack_wheels.py" in row.reason


def test_a_packed_wheel_lacks_test_suites_and_its_list_says_so(tmp_path):
    wheel, to = tmp_path / "a-1-py3-none-any.whl", tmp_path / "out" / "a-1-py3-none-any.whl"
    names = ["a/__init__.py", "a/tests/test_a.py", "a/solverdir/cbc", "a-1.dist-info/RECORD"]
    with zipfile.ZipFile(wheel, "w") as file:
        for name in names:
            file.writestr(name, "".join(f"{each},,\n" for each in names))
    pack_wheels.slim(wheel, to)
    with zipfile.ZipFile(to) as file:
        assert file.namelist() == ["a/__init__.py", "a-1.dist-info/RECORD"]
        assert file.read("a-1.dist-info/RECORD").decode() == "a/__init__.py,,\na-1.dist-info/RECORD,,\n"


def test_the_locked_versions_are_packed_but_for_numpy():
    assert set(pack_wheels.asked()) > {"snakemake", "pandas", "scipy"}
    locked = [each.split("==")[0] for each in pack_wheels.constraints()]
    assert "numpy" not in locked and set(pack_wheels.asked()) <= set(locked)
    importable = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml"}
    assert {importable.get(each, each.replace("-", "_")) for each in pack_wheels.asked()} == {
        *project_study.NEEDED, "pynvml"
    }  # fmt: skip


@trains
def test_work_runs_with_pytorch():
    """On CPU cores, small."""
    work = torch_work.Matmul("cpu", size=16)
    work.start(0)
    time.sleep(0.05)
    work.stop()
    work._operands[0] = None
    work._ended.clear()
    work._run(0)
    with pytest.raises(TypeError):
        work.stop()
    with pytest.raises(results.NotPossible):
        torch_work.Matmul(size=16).prepare(10_000)
