"""Meters and clocks: one counter that is listed twice, parts that cannot be read, gaps, and clocks that were set."""

import builtins
import dataclasses
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from fake_nvml import FakeNvml  # noqa: E402
from test_sensors import write  # noqa: E402

from study.core import provenance  # noqa: E402
from study.instruments import gpus  # noqa: E402
from study.instruments.power import counted_devices, sensors, summary, telemetry  # noqa: E402
from study.instruments.power.energy import compute_energy  # noqa: E402
from study.instruments.power.readings import Unavailable  # noqa: E402
from study.instruments.power.sensors import cray, nvml, occ, rapl  # noqa: E402
from study.instruments.power.telemetry import Series  # noqa: E402


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
def test_zones_that_mirror_one_counter(tmp_path):
    start, end = 10_359_908_363, 10_359_908_363 + 1_360_000_000
    found = joules(
        tmp_path, {"_0": (DIES[0], start), "_1": (DIES[1], start)}, {"_0": (DIES[0], end), "_1": (DIES[1], end)}
    )
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


@pytest.mark.case("power9", source="Linux, ibmpowernv.rst", right="node 430 W, cpu 150 + 95 W")
def test_host_driver_of_power9(tmp_path):
    labels = [("Chip 0 ", 150), ("Chip 0 Vdd", 110), ("Chip 8 ", 95), ("System", 430), ("APSS 15 ", 430)]
    write(tmp_path, {"hwmon0/name": "ibmpowernv"})
    for number, (label, watts) in enumerate(labels, 1):
        write(tmp_path, {f"hwmon0/power{number}_label": label, f"hwmon0/power{number}_input": watts * 10**6})
    found = sorted((device.kind, device.read().power_w) for device in occ.find(tmp_path))
    assert found == [("cpu", 95), ("cpu", 150), ("node", 430)]


@pytest.mark.case("rapl-range", source="mlco2/codecarbon #1309", right="no zone whose counter wraps nobody knows where")
@pytest.mark.parametrize("largest", [0, 60_000, 9_000_000_000])
def test_a_counter_that_wraps_nobody_knows_where(tmp_path, largest):
    zones(tmp_path, _0=(DIES[0], 10_000_000_000), _1=(DIES[1], 5_000_000_000))
    for zone in "01":
        write(tmp_path, {f"intel-rapl:{zone}/max_energy_range_uj": largest})
    with pytest.raises(Unavailable, match=f"max_energy_range_uj is {largest}: where its counter, .* wraps is unknown"):
        rapl.find(tmp_path)


@pytest.mark.case("rapl-goes-back", source="sustainable-computing-io/kepler PR #53", right="no energy; a wrap is right")
@pytest.mark.parametrize(("then", "right"), [(-1_000, None), (10_000_000, 2_000)])
def test_a_counter_that_goes_back_once(tmp_path, then, right):
    """20 s of 100 W in steps of 0.1 s; after 10 s the counter goes back by 1 mJ, or goes on. It wraps after 5 s."""
    largest, seconds = 65_532_610_987, np.round(np.arange(0, 20.05, 0.1), 1)
    raw = (largest - 500_000_000 + np.cumsum([0, *[then if at == 10 else 10_000_000 for at in seconds[1:]]])) % (
        largest + 1
    )
    zones(tmp_path, _0=("package-0", raw[0]))
    (device,), read = rapl.find(tmp_path), []
    for value in raw:
        zones(tmp_path, _0=("package-0", value))
        read.append(device.read().energy_j)
    nothing = np.full(len(seconds), np.nan)
    found = compute_energy(
        Series("n1", "rapl", "cpu", "package-0", seconds, nothing, np.array(read), nothing), 0, 20, 10
    )
    assert found.best_j == (None if right is None else pytest.approx(right))
    assert right or "rose by more than 5,000 W" in found.reason


@pytest.mark.case("cray-zero", source="HPE docs-csm, pm_counters", right="the accelerators' own counters, 406 W")
def test_accelerators_beside_a_counter_of_all_that_holds_nothing(tmp_path):
    files = {f"accel{number}_{what}": 100 + number for number in range(4) for what in ("energy", "power")}
    write(tmp_path, {"energy": 1, "power": 1, "freshness": 1, "accel_energy": 0, "accel_power": 0, **files})
    assert sum(device.read().power_w for device in cray.find(tmp_path) if device.kind == "gpu") == 406


@pytest.mark.case("cray-empty", source="our own", right="files that can be read are read")
@pytest.mark.parametrize("empty", ["power", "freshness"])
def test_one_file_of_a_cray_node_is_empty(tmp_path, empty):
    write(tmp_path, {"energy": "7 J 1 us", "power": "9 W 1 us", "freshness": 1, empty: ""})
    (node,) = cray.find(tmp_path)
    write(tmp_path, {"energy": "10 J 2 us"})
    assert node.read().energy_j == 3


@pytest.mark.case("mig", source="guilbaults/slurm-job-exporter PR #55", right="no rank owns a GPU in MIG mode")
@pytest.mark.parametrize("shown", ["0", "GPU-00000000", "MIG-5e1b"])
def test_a_gpu_in_mig_mode(shown):
    fake = FakeNvml(2)
    fake.gpus[0].mig = True
    assert gpus.list_visible_gpus({"CUDA_VISIBLE_DEVICES": shown}, fake) == [None]
    assert gpus.list_visible_gpus({}, fake) == [None, "GPU-00000001-aaaa"]


@pytest.mark.case("nodevfiles", source="ray-project/ray PR #7014", right="no GPU; [0] of 0,7,1")
def test_no_device_files():
    found = [
        gpus.list_visible_gpus({"CUDA_VISIBLE_DEVICES": text}, FakeNvml(2)) for text in ("NoDevFiles", "none", "0,7,1")
    ]
    assert found == [[], [], ["GPU-00000000-aaaa"]]


@pytest.mark.case("lost-gpu", source="wookayin/gpustat #125", right="the other GPUs are read, the lost one is named")
def test_one_gpu_is_lost():
    fake = FakeNvml(4)
    fake.gpus[2].is_lost = True
    found = nvml.find(fake)
    assert [device.name for device in found] == [f"GPU-0000000{index}-aaaa" for index in (0, 1, 3)]
    assert found.missing[0].why == "NVML: GPU 2: GPU is lost"


@pytest.mark.case("old-bindings", source="our own", right="power without the counter; other sensors are read")
def test_bindings_that_lack_a_function(tmp_path, monkeypatch):
    for name in ("nvmlDeviceGetFieldValues", "nvmlDeviceGetClockInfo", "nvmlDeviceGetMigMode"):
        monkeypatch.delattr(FakeNvml, name)
    (device,) = nvml.find(FakeNvml(1))
    assert (device.read().power_w, device.read().energy_j, device.read().clock_mhz) == (60, None, None)
    assert gpus.list_visible_gpus({}, FakeNvml(1)) == ["GPU-00000000-aaaa"]


@pytest.mark.case("no-bindings", source="our own", right="the reason; RAPL is read, and the run goes on")
def test_nvml_s_bindings_are_not_installed(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "pynvml":
            raise ImportError("No module named 'pynvml'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    zones(tmp_path, _0=("package-0", 5))
    monkeypatch.setattr(rapl.find, "__defaults__", (tmp_path,))
    found, reasons = sensors.find_devices(["nvml", "rapl"])
    assert [device.name for device in found] == ["package-0"]
    assert reasons["nvml"].startswith("NVML: the Python package nvidia-ml-py cannot be imported")
    assert gpus.list_visible_gpus({}) is None
    assert provenance.find_gpus()["found"] == []


@pytest.mark.case("module-by-name", source="ml-energy/zeus PR #172", right="the GPU's power, 585 W, not 640 W")
@pytest.mark.parametrize(("name", "has_counter"), [("NVIDIA GH200 480GB", 0), (b"NVIDIA GB200", 0), ("NVIDIA B200", 1)])
def test_a_superchip_that_tells_no_scope(name, has_counter):
    fake = FakeNvml(1)
    fake.gpus[0].name, fake.stuck_power_mw = name, 585_000
    (device,) = nvml.find(fake)
    assert (device.read().energy_j is not None, device.read().power_w) == (bool(has_counter), 585)


@pytest.mark.case("module", source="ml-energy/zeus PR #172", right="the GPU's power, not the module's counter")
def test_a_counter_of_a_module():
    class Superchip(FakeNvml):
        def nvmlDeviceGetFieldValues(self, handle, fields):
            return super().nvmlDeviceGetFieldValues(
                handle, [each[0] if isinstance(each, tuple) else each for each in fields]
            )

    fake = Superchip(1)
    fake.stuck_power_mw = 585_000
    (device,) = nvml.find(fake)
    assert (device.read().energy_j, device.read().power_w) == (None, 585)


def series(seconds, power, energy=None):
    nothing = np.full(len(seconds), np.nan)
    return Series("n1", "nvml", "gpu", "GPU-a", seconds, power, nothing if energy is None else energy, nothing)


@pytest.mark.case("no-power", source="HazyResearch/intelligence-per-watt #40", right="neither power nor energy")
def test_a_gpu_that_reports_nothing():
    seconds = np.arange(0, 20, 0.1)
    found = compute_energy(series(seconds, np.full(200, np.nan)), 1, 18, 10)
    assert (found.best_j, found.reason) == (None, "nvml: GPU-a reports neither power nor energy")


@pytest.mark.case("stalls", source="mlco2/codecarbon #35", right="no energy of power alone; 26,020 J with a counter")
def test_a_sampler_that_stalls():
    seconds = np.round(np.arange(0, 120, 0.1), 1)
    burst = sum((seconds > 10 + 11 * each) & (seconds < 19 + 11 * each) for each in range(9)).astype(bool)
    power = np.where(burst, 300.0, 100.0)
    energy = np.concatenate([[0], np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(seconds))])
    assert compute_energy(series(seconds[~burst], power[~burst]), 10, 110, 10).best_j is None
    found = compute_energy(series(seconds[~burst], power[~burst], energy[~burst]), 10, 110, 10).best_j
    assert found == pytest.approx(26_020, rel=1e-3)


READ = np.round(np.arange(0, 120, 0.1), 1)


def busy(seconds, begin=20.0):
    """9 of 11 s at 300 W, the others at 100 W."""
    return np.where((np.asarray(seconds) - begin) % 11 < 9, 300.0, 100.0)


@pytest.mark.case("seldom", source="our own, as mlco2/codecarbon #35", right="no energy: read in idle moments only")
@pytest.mark.parametrize("each_s", [11.0, 5.5])
def test_power_that_is_read_once_in_each_stall(each_s):
    """10,000 J of 26,400 where each reading is of an idle moment; a counter beside it is right."""
    seconds = np.arange(8, 120, each_s)
    fine = np.arange(0, 120, 0.001)
    counted = np.interp(seconds, fine, np.cumsum(busy(fine)) * 0.001)
    found = compute_energy(series(seconds, busy(seconds)), 10, 110, 10)
    assert (found.best_j, found.reason) == (None, f"power was read every {each_s:.2g} s instead of every 0.1 s")
    begin, end = np.interp([10, 110], seconds, counted)
    assert compute_energy(series(seconds, busy(seconds), counted), 10, 110, 10).best_j == pytest.approx(end - begin)


@pytest.mark.case("gap-at-edge", source="our own", right="no energy: the power fell from 1,000 to 100 W in the gap")
@pytest.mark.parametrize("high", [lambda t: t < 19.5, lambda t: t > 100.5])
def test_a_gap_at_an_edge_of_the_window_in_which_power_changed(high):
    """9.4 of 100 s, which is less than a tenth: 14,275 J by the trapezoid, and 18,550 J are right."""
    edge = 10.05 if high(11) else 100.55
    seconds = READ[(edge > READ) | (edge + 9.4 < READ)]
    found = compute_energy(series(seconds, np.where(high(seconds), 1000.0, 100.0)), 10, 110, 10)
    assert found.best_j is None and "in which it changed: 30 % of the energy is uncertain" in found.reason


@pytest.mark.case("gaps-at-random", source="our own", right="within 12 %, or empty with the reason")
def test_energy_over_gaps_at_random_is_right_or_empty():
    random = np.random.default_rng(7)
    given = 0
    for _ in range(200):
        begin, levels = random.uniform(0, 11), random.uniform(20, 400, 2)
        power = lambda t, at=begin, of=levels: np.where((np.asarray(t) - at) % 11 < 9, *of)  # noqa: E731
        kept = np.ones(len(READ), bool)
        for first, length in zip(random.uniform(0, 120, 9), random.exponential(random.uniform(0.1, 3), 9), strict=True):
            kept &= (first > READ) | (first + length < READ)
        found = compute_energy(series(READ[kept], power(READ[kept])), 10, 110, 10)
        right = power(np.arange(10, 110, 0.001)).mean() * 100
        assert found.best_j is None or found.best_j == pytest.approx(right, rel=0.12), (begin, levels)
        assert found.best_j is not None or found.reason
        given += found.best_j is not None
    assert 20 < given < 190, "both happened"


def sampler_files(folder, **samplers):
    """samplers: of each rank (host, boot id, wall time of its boot in ns, and the seconds of its readings of 100 W)."""
    folder.mkdir()
    for number, (host, boot, booted_ns, seconds) in enumerate(samplers.values()):
        part = folder / f"telemetry-{number:05d}.csv"
        known = {"host": host, "boot_id": boot, "boot_wall_ns": booted_ns, "reasons": {}}
        part.with_suffix(".json").write_text(json.dumps(known))
        rows = [f"0,{round(at * 1e9)},{host},rapl,cpu,package-0,,,{100 * at:.6f},,,,," for at in seconds]
        part.write_text("\n".join([",".join(telemetry.COLUMNS), *rows]) + "\n")


def energy_of_ranks(tmp_path, **samplers):
    """(J, reason) of the processors in a run whose ranks are on the samplers' hosts, 20 s from load to evaluate."""
    sampler_files(tmp_path / "ranks", **samplers)
    telemetry.merge_telemetry(tmp_path / "ranks", tmp_path / "telemetry.csv", tmp_path / "sensors.json")
    (tmp_path / "metrics.json").write_text(json.dumps({"ranks": [{"gpu": None}] * len(samplers)}))
    machine = {"name": "m", "gpus_per_rank": 0, "power_sensors": ["rapl"], "sampling_hz": 10, "ranks_per_node": 1}
    edges = [{"phase": phase, "edge": edge, "rank": rank, "host": host, "wall_ns": 0, "monotonic_ns": at * 10**9}
             for rank, (host, *_) in enumerate(samplers.values())
             for phase, edge, at in (("load", "begin", 10), ("load", "end", 12), ("evaluate", "begin", 28),
                                     ("evaluate", "end", 30))]  # fmt: skip
    power = summary.summarize(tmp_path, machine, len(samplers), edges)
    return power["components"]["cpu"]["energy_j"], power["reason"]


ALL_RUN, TO_15_S = np.arange(9, 31.1, 0.1), np.arange(9, 15, 0.02)


@pytest.mark.case("boot-id", source="our own", right="hosts that are one machine have one meter: 2000 J; two: 4000 J")
@pytest.mark.parametrize(
    ("boots", "right"),
    [
        ((("a", 0), ("a", 0)), 2000),  # network namespaces
        ((("a", 5_000), ("b", 7_500)), 2000),  # containers with boot ids of their own: LXC, systemd-nspawn
        ((("a", 0), ("b", 40_000_000)), 4000),  # machines
        ((("a", 0), ("b", 10**15)), 4000),
    ],
)
def test_hosts_that_are_one_machine(tmp_path, boots, right):
    (first, second), readings = boots, ALL_RUN
    assert energy_of_ranks(tmp_path, a=("n1", *first, readings), b=("n2", *second, readings))[0] == pytest.approx(right)


@pytest.mark.case("two-samplers", source="our own", right="the meter counts once, by the sampler that reads to the end")
@pytest.mark.parametrize("order", [1, -1])
def test_two_samplers_of_one_host(tmp_path, order):
    both = [("n1", "a", 0, TO_15_S), ("n1", "a", 0, ALL_RUN)][::order]
    assert energy_of_ranks(tmp_path, a=both[0], b=both[1])[0] == pytest.approx(2000)


@pytest.mark.case("one-uuid", source="our own", right="a GPU that two hosts see counts once")
def test_a_gpu_that_two_hosts_see():
    """Of containers whose clock was set between the starts of their samplers, so that nothing else tells it."""
    both = [series(READ, busy(READ)), dataclasses.replace(series(READ, busy(READ)), host="n2")]
    assert [each.name for each in counted_devices.keep_each_once(both, {})] == ["GPU-a"]
    packages = [dataclasses.replace(each, sensor="rapl", kind="cpu", name="package-0") for each in both]
    assert len(counted_devices.keep_each_once(packages, {})) == 2


@pytest.mark.case("two-rates", source="our own", right="the faster one of two samplers that read to the end")
@pytest.mark.parametrize("order", [1, -1])
def test_two_samplers_of_different_rates(tmp_path, order):
    both = [("n1", "a", 0, np.arange(9, 31.9, 1.0)), ("n1", "a", 0, ALL_RUN)][::order]
    assert energy_of_ranks(tmp_path, a=both[0], b=both[1])[0] == pytest.approx(2000)
    rows = (tmp_path / "telemetry.csv").read_text().splitlines()
    assert len(rows) == 1 + len(ALL_RUN), "never readings of both"


@pytest.mark.case("one-of-four", source="our own", right="no sum of four GPUs, one of which was not read for long")
def test_one_device_of_four_that_stalls():
    devices = [series(READ, busy(READ)) for _ in range(3)]
    kept = READ[(READ < 40) | (READ > 70)]
    found = summary._sum_component([*devices, series(kept, busy(kept))], {"n1": (10.0, 110.0)}, 10, "gpu")
    assert (found["energy_j"], found["reason"]) == (None, "no reading of power for 30.2 of 100 s")
    whole = summary._sum_component([*devices, series(READ, busy(READ))], {"n1": (10.0, 110.0)}, 10, "gpu")
    assert whole["energy_j"] == pytest.approx(4 * busy(np.arange(10, 110, 0.001)).mean() * 100, rel=0.01)


@pytest.mark.case("one-name", source="our own", right="no energy: two machines that have one name")
def test_two_machines_of_one_name(tmp_path):
    found = energy_of_ranks(tmp_path, a=("localhost", "a", 0, ALL_RUN), b=("localhost", "b", 10**9, ALL_RUN))
    assert found == (None, "several machines are named localhost: whose readings are whose cannot be told; rename one")
