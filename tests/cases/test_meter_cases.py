"""Meters and clocks: one counter that is listed twice, parts that cannot be read, gaps, and clocks that were set."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import run_files  # noqa: E402
import test_target_quality as quality  # noqa: E402
from examples import expand  # noqa: E402
from test_sensors import FakeNvml, write  # noqa: E402

from study.instruments.power import gpus  # noqa: E402
from study.instruments.power.energy import between  # noqa: E402
from study.instruments.power.readings import Unavailable  # noqa: E402
from study.instruments.power.sensors import cray, nvml, occ, rapl  # noqa: E402
from study.instruments.power.series import Series  # noqa: E402
from study.records.record import make_record  # noqa: E402
from study.records.targets import to_target  # noqa: E402


def zones(root, **values):
    for zone, (name, value) in values.items():
        folder = "intel-rapl" + zone.replace("m", "-mmio").replace("_", ":")
        write(
            root, {f"{folder}/name": name, f"{folder}/energy_uj": value, f"{folder}/max_energy_range_uj": 65532610987}
        )


def joules(root, first, last):
    zones(root, **first)
    devices = rapl.find(root)
    zones(root, **last)
    return sum(device.read().energy_j for device in devices if device.kind == "cpu")


DIES = ("package-0-die-0", "package-0-die-1")


@pytest.mark.case("rapl-die-mirror", source="mlco2/codecarbon #1274", right="1360 J")
def test_zones_that_mirror_one_counter(ours, tmp_path):
    start, end = 10_359_908_363, 10_359_908_363 + 1_360_000_000
    found = joules(
        tmp_path, {"_0": (DIES[0], start), "_1": (DIES[1], start)}, {"_0": (DIES[0], end), "_1": (DIES[1], end)}
    )
    ours(f"{found:g} J")
    assert found == pytest.approx(1360)


@pytest.mark.case("rapl-own-dies", source="our own", right="the sum of both dies")
@pytest.mark.parametrize("second", [5_000_000_000, 10_000_000_000])
def test_dies_with_counters_of_their_own_add_up(tmp_path, second):
    first, last = {"_0": (DIES[0], 10_000_000_000), "_1": (DIES[1], second)}, {}
    last = {"_0": (DIES[0], 10_060_000_000), "_1": (DIES[1], second + 40_000_000)}
    assert joules(tmp_path, first, last) == pytest.approx(100)


@pytest.mark.case("rapl-two-packages", source="our own", right="packages that are alike add up")
def test_packages_that_are_alike_add_up(tmp_path):
    first = {"_0": ("package-0", 7_000_000), "_1": ("package-1", 7_000_000)}
    assert joules(tmp_path, first, {"_0": ("package-0", 57_000_000), "_1": ("package-1", 57_000_000)}) == pytest.approx(
        100
    )


@pytest.mark.case("rapl-mmio", source="our own", right="a package that two drivers list counts once")
def test_two_drivers_of_one_package(tmp_path):
    first = {"_0": ("package-0", 7_000_000), "m_0": ("package-0", 1_000_000)}
    assert joules(
        tmp_path, first, {"_0": ("package-0", 57_000_000), "m_0": ("package-0", 51_000_000)}
    ) == pytest.approx(50)


@pytest.mark.case("rapl-psys", source="intel/powertelemetry #3", right="psys is not added to the packages")
def test_psys_between_packages(tmp_path):
    first = {"_0": ("package-0", 0), "_1": ("psys", 0), "_2": ("package-1", 5_000_000)}
    last = {"_0": ("package-0", 30_000_000), "_1": ("psys", 90_000_000), "_2": ("package-1", 25_000_000)}
    assert joules(tmp_path, first, last) == pytest.approx(50)


@pytest.mark.case(
    "rapl-links", source="home-assistant/operating-system #4931", right="a reason that names RAPL and zone"
)
def test_links_that_lead_nowhere(tmp_path):
    os.symlink(tmp_path / "none", tmp_path / "intel-rapl:0")
    with pytest.raises(Unavailable, match="RAPL: intel-rapl:0: the link .* leads nowhere"):
        rapl.find(tmp_path)


@pytest.mark.case("rapl-dram", source="joular/powerjoular #66", right="cpu is read, memory is missing with the reason")
def test_one_zone_that_cannot_be_read(tmp_path):
    zones(tmp_path, _0=("package-0", 4), _0_0=("dram", ""))
    found = rapl.find(tmp_path)
    assert [device.kind for device in found] == ["cpu"]
    assert [(part.kind, part.part) for part in found.missing] == [("memory", "package-0-dram")]


@pytest.mark.case("cray-ex", source="ROCm/omnistat PR #190", right="accel0 to accel3 add up")
def test_accelerators_of_cray_ex(tmp_path):
    files = {f"accel{number}_{what}": 100 + number for number in range(4) for what in ("energy", "power")}
    write(tmp_path, {"energy": 1, "power": 1, "freshness": 1, **files})
    found = [device for device in cray.find(tmp_path) if device.kind == "gpu"]
    assert sum(device.read().power_w for device in found) == 406


@pytest.mark.case("power9", source="Linux, ibmpowernv.rst", right="node 430 W, cpu 150 + 95 W")
def test_host_driver_of_power9(tmp_path):
    labels = [("Chip 0 ", 150), ("Chip 0 Vdd", 110), ("Chip 8 ", 95), ("System", 430), ("APSS 15 ", 430)]
    write(tmp_path, {"hwmon0/name": "ibmpowernv"})
    for number, (label, watts) in enumerate(labels, 1):
        write(tmp_path, {f"hwmon0/power{number}_label": label, f"hwmon0/power{number}_input": watts * 10**6})
    found = sorted((device.kind, device.read().power_w) for device in occ.find(tmp_path))
    assert found == [("cpu", 95), ("cpu", 150), ("node", 430)]


class Gpus(FakeNvml):
    """GPU 0 is in MIG mode; GPU 2 is lost."""

    def nvmlDeviceGetMigMode(self, handle):
        return (1, 1) if handle == 0 else (0, 0)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 2:
            raise self.NVMLError("GPU is lost")
        return index


@pytest.mark.case("mig", source="guilbaults/slurm-job-exporter PR #55", right="no rank owns a GPU in MIG mode")
@pytest.mark.parametrize("shown", ["0", "GPU-0", "MIG-5e1b"])
def test_a_gpu_in_mig_mode(shown):
    assert gpus.visible({"CUDA_VISIBLE_DEVICES": shown}, Gpus({}, count=2)) == [None]
    assert gpus.visible({}, Gpus({}, count=2)) == [None, "GPU-1"]


@pytest.mark.case("nodevfiles", source="ray-project/ray PR #7014", right="no GPU; [0] of 0,7,1")
def test_no_device_files():
    found = [
        gpus.visible({"CUDA_VISIBLE_DEVICES": text}, FakeNvml({}, count=2)) for text in ("NoDevFiles", "none", "0,7,1")
    ]
    assert found == [[], [], ["GPU-0"]]


@pytest.mark.case("lost-gpu", source="wookayin/gpustat #125", right="the other GPUs are read, the lost one is named")
def test_one_gpu_is_lost():
    found = nvml.find(Gpus({83: (0, 3, 10)}, count=4))
    assert [device.name for device in found] == ["GPU-0", "GPU-1", "GPU-3"]
    assert found.missing[0].why == "NVML: GPU 2: GPU is lost"


@pytest.mark.case("module", source="ml-energy/zeus PR #172", right="the GPU's power, not the module's counter")
def test_a_counter_of_a_module():
    class Superchip(FakeNvml):
        def nvmlDeviceGetFieldValues(self, handle, fields):
            return super().nvmlDeviceGetFieldValues(
                handle, [each[0] if isinstance(each, tuple) else each for each in fields]
            )

    (device,) = nvml.find(Superchip({83: (0, 3, 10), 186: (0, 1, 585_000)}))
    assert (device.read().energy_j, device.read().power_w) == (None, 585)


def series(seconds, power, energy=None):
    nothing = np.full(len(seconds), np.nan)
    return Series("n1", "nvml", "gpu", "GPU-a", seconds, power, nothing if energy is None else energy, nothing)


@pytest.mark.case("no-power", source="HazyResearch/intelligence-per-watt #40", right="neither power nor energy")
def test_a_gpu_that_reports_nothing():
    seconds = np.arange(0, 20, 0.1)
    found = between(series(seconds, np.full(200, np.nan)), 1, 18, 10)
    assert (found.best_j, found.reason) == (None, "nvml: GPU-a reports neither power nor energy")


@pytest.mark.case("stalls", source="mlco2/codecarbon #35", right="no energy of power alone; 26,020 J with a counter")
def test_a_sampler_that_stalls():
    seconds = np.round(np.arange(0, 120, 0.1), 1)
    burst = sum((seconds > 10 + 11 * each) & (seconds < 19 + 11 * each) for each in range(9)).astype(bool)
    power = np.where(burst, 300.0, 100.0)
    energy = np.concatenate([[0], np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(seconds))])
    assert between(series(seconds[~burst], power[~burst]), 10, 110, 10).best_j is None
    found = between(series(seconds[~burst], power[~burst], energy[~burst]), 10, 110, 10).best_j
    assert found == pytest.approx(26_020, rel=1e-3)


@pytest.mark.case("clock-step", source="KDAB/Charm #101", right="11.75 s, or empty with the reason")
@pytest.mark.parametrize("step_s", [0, -30, 30, 3600])
def test_a_clock_that_is_set_before_the_first_rank(tmp_path, step_s):
    (run,) = expand(gpus=1)
    facts = {"times": [0.75] * 4, "validation": quality.LEARNT, "more_edges": quality.TRAIN}
    folder = run_files.make_run(tmp_path, run, started=quality.STARTED - step_s * 10**9, **facts)
    found = to_target(folder, make_record(folder), quality.ACCURACY)
    assert found["launch_to_target_s"] == (None if step_s else pytest.approx(11.75))
    assert ("a clock was set" in (found["target_reason"] or "")) == bool(step_s)
