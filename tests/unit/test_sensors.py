"""Each sensor against made-up counters that behave as the real ones do: they wrap, nest, fail and refresh."""

from types import SimpleNamespace

import pytest
from fake_nvml import FakeNvml

from study.instruments import gpus
from study.instruments.power import sensors
from study.instruments.power.readings import Counter, Reading, Unavailable
from study.instruments.power.sensors import amdsmi, cray, nvml, occ, rapl


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def by_name(devices):
    return {device.name: device for device in devices}


def test_a_counter_that_wraps_keeps_growing():
    raw = iter([90, 95, 3, 3])
    counter = Counter(lambda: next(raw), unit=0.5, largest=99)
    assert [counter.total() for _ in range(3)] == [2.5, 6.5, 6.5]  # 5 and then 8 more: 96 to 99, 0 to 3


def test_a_counter_that_should_not_go_back_shows_it():
    raw = iter([10, 13, 9, 11])
    counter = Counter(lambda: next(raw), unit=1)
    assert [counter.total() for _ in range(3)] == [3, -1, 1]


RAPL = {
    "intel-rapl:0/name": "package-0", "intel-rapl:0/energy_uj": 65_530_000_000,
    "intel-rapl:0/max_energy_range_uj": 65_532_610_987,
    "intel-rapl:0:0/name": "core", "intel-rapl:0:0/energy_uj": 5, "intel-rapl:0:0/max_energy_range_uj": 65_532_610_987,
    "intel-rapl:0:1/name": "dram", "intel-rapl:0:1/energy_uj": 0, "intel-rapl:0:1/max_energy_range_uj": 65_532_610_987,
    "intel-rapl:1/name": "psys", "intel-rapl:1/energy_uj": 7, "intel-rapl:1/max_energy_range_uj": 65_532_610_987,
}  # fmt: skip


def test_rapl_counts_no_joule_twice(tmp_path):
    """Cores lie within the package and psys holds everything: only package and DRAM are read."""
    write(tmp_path, RAPL)
    devices = by_name(rapl.find(tmp_path))
    assert {name: device.kind for name, device in devices.items()} == {"package-0": "cpu", "package-0-dram": "memory"}
    write(tmp_path, {"intel-rapl:0/energy_uj": 65_532_000_000, "intel-rapl:0:1/energy_uj": 500_000})
    assert devices["package-0"].read().energy_j == pytest.approx(2.0)
    assert devices["package-0-dram"].read().energy_j == pytest.approx(0.5)
    write(tmp_path, {"intel-rapl:0/energy_uj": 4_389_012})  # over the largest value and on from 0
    assert devices["package-0"].read().energy_j == pytest.approx(2.0 + 5.0)


CRAY = {"energy": "100 J 17 us", "power": "200 W 17 us", "cpu_energy": "40 J 17 us", "cpu_power": "80 W 17 us",
        "memory_energy": "10 J 17 us", "memory_power": "20 W 17 us", "freshness": "5", "generation": "1"}  # fmt: skip


def test_cray_reads_what_the_node_has(tmp_path):
    write(tmp_path, CRAY)
    devices = by_name(cray.find(tmp_path))
    assert list(devices) == ["node", "cpu", "memory"]
    write(tmp_path, {"energy": "150 J 18 us", "power": "210 W 18 us", "freshness": "6"})
    reading = devices["node"].read()
    assert (reading.energy_j, reading.power_w, reading.freshness) == (50, 210, 6)


def test_cray_power_and_energy_are_of_one_refresh(tmp_path, monkeypatch):
    write(tmp_path, CRAY)
    (node, *_) = cray.find(tmp_path)
    real, seen = cray._read_value, []

    def refreshed_in_between(file):
        if file.name == "energy" and not seen:
            seen.append(file)
            value = real(file)
            write(tmp_path, {"energy": "160 J", "power": "260 W", "freshness": "6"})
            return value
        return real(file)

    monkeypatch.setattr(cray, "_read_value", refreshed_in_between)
    reading = node.read()
    assert (reading.power_w, reading.energy_j, reading.freshness) == (260, 60, 6)


def test_occ_reads_whole_parts_only(tmp_path):
    write(tmp_path, {
        "hwmon0/name": "occ", "hwmon0/power1_label": "system", "hwmon0/power1_input": 900_000_000,
        "hwmon0/power2_label": "proc", "hwmon0/power2_input": 150_000_000,
        "hwmon0/power3_label": "vdd", "hwmon0/power3_input": 90_000_000,
        "hwmon1/name": "nvme",
    })  # fmt: skip
    devices = {device.kind: device for device in occ.find(tmp_path)}
    assert {kind: device.read().power_w for kind, device in devices.items()} == {"node": 900, "cpu": 150}
    with pytest.raises(Unavailable, match="POWER9: no chip"):
        occ.find(tmp_path / "none")


class FakeAmdSmi:
    """Stands in for ROCm's module ``amdsmi``: two modules of two dies, in another order than HIP's.

    As its reference says, a value that a GPU lacks is "N/A" or all ones, and what it does not support is an error.
    """

    class AmdSmiException(Exception):
        """The base of AMD SMI's errors."""

    AmdSmiClkType, AmdSmiMemoryType = SimpleNamespace(GFX=0), SimpleNamespace(VRAM=0)
    AmdSmiTemperatureType, AmdSmiTemperatureMetric = SimpleNamespace(HOTSPOT=1), SimpleNamespace(CURRENT=0)
    hip = (2, 3, 0, 1)

    def __init__(self):
        self.counts = [1000, 0, 2000, 0]

    def amdsmi_init(self):
        pass

    def amdsmi_get_processor_handles(self):
        return [0, 1, 2, 3]

    def amdsmi_get_gpu_enumeration_info(self, handle):
        return {"hip_id": self.hip[handle]}

    def amdsmi_get_gpu_device_bdf(self, handle):
        return f"0000:c{handle}:00.0"

    def amdsmi_get_energy_count(self, handle):
        return {"energy_accumulator": self.counts[handle], "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_power_info(self, handle):
        return {"current_socket_power": "N/A", "average_socket_power": 0xFFFFFFFF if handle % 2 else 90}

    def amdsmi_get_gpu_activity(self, handle):
        return {"gfx_activity": 40, "umc_activity": "N/A"}

    def amdsmi_get_clock_info(self, handle, kind):
        raise self.AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")

    def amdsmi_get_gpu_memory_usage(self, handle, kind):
        return 2_000_000

    def amdsmi_get_temp_metric(self, handle, kind, metric):
        return 55


def test_amd_gpus_of_two_dies_are_counted_once_and_named_as_hip_does():
    smi = FakeAmdSmi()
    found = amdsmi.find(smi)
    assert [device.name for device in found] == ["hip-2", "hip-0"] and not found.missing
    smi.counts[0] += 1_000_000
    assert found[0].read() == Reading(
        power_w=90,
        average_power_w=90,
        energy_j=pytest.approx(15.3),
        utilization_pct=40,
        memory_mb=2.0,
        temperature_c=55,
    )


def test_amd_gpus_by_older_bindings(monkeypatch):
    """Without HIP's numbers, with the counter's former name."""
    monkeypatch.delattr(FakeAmdSmi, "amdsmi_get_gpu_enumeration_info")
    smi = FakeAmdSmi()
    told = {"power": 7, "counter_resolution": 15.3}
    monkeypatch.setattr(smi, "amdsmi_get_energy_count", lambda handle: told, raising=False)
    found = amdsmi.find(smi)
    assert [device.name for device in found] == [f"0000:c{index}:00.0" for index in range(4)]
    told["power"] += 1_000_000
    assert found[0].read().energy_j == pytest.approx(15.3)


@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("others", ["as the first", "N/A", "error", "0"])
def test_partitions_of_an_amd_gpu_share_one_meter(monkeypatch, number, others):
    """Of MI300X in DPX or CPX: 500 W of the socket for ten seconds are 5,000 J, whatever the other partitions tell."""
    smi, count = FakeAmdSmi(), [1_000_000]

    def of_partition(handle, told):
        if handle == 0 or others == "as the first":
            return told
        if others == "error":
            raise smi.AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
        return told | dict.fromkeys(set(told) - {"counter_resolution"}, "N/A" if others == "N/A" else 0)

    for name, answer in {
        "amdsmi_get_processor_handles": lambda: list(range(number)),
        "amdsmi_get_gpu_enumeration_info": lambda handle: {"hip_id": handle},
        "amdsmi_get_gpu_device_bdf": lambda handle: f"0000:c1:00.{handle}",
        "amdsmi_get_power_info": lambda handle: of_partition(handle, {"current_socket_power": 500}),
        "amdsmi_get_energy_count": lambda handle: of_partition(
            handle, {"energy_accumulator": count[0], "counter_resolution": 15.3}
        ),
    }.items():
        monkeypatch.setattr(smi, name, answer, raising=False)
    found = amdsmi.find(smi)
    assert ([each.name for each in found], found.missing) == (["hip-0"], [])
    count[0] += round(5_000 / 15.3e-6)
    assert found[0].read().energy_j == pytest.approx(5_000)


def test_nvml_reads_counter_and_both_powers():
    """60 W for a second, then 280 W for half of one; the average is of the last second."""
    fake = FakeNvml()
    first, second = nvml.find(fake)
    assert (first.name, second.name) == ("GPU-00000000-aaaa", "GPU-00000001-aaaa")
    fake.clock.sleep(1)
    fake.gpus[0].set_load(1)
    fake.clock.sleep(0.55)
    reading = first.read()
    assert (reading.energy_j, reading.power_w, reading.average_power_w) == pytest.approx((200, 280, 170), rel=1e-3)
    assert (reading.utilization_pct, reading.memory_mb, reading.clock_mhz) == (100, 1000, 1410)


def test_single_fields_of_nvml_can_fail(monkeypatch):
    """The call succeeds, the field does not: its value must not be taken."""

    def refuse(*_):
        raise FakeNvml.NVMLError(3)

    fake = FakeNvml(1)
    fake.lacking = {83, 185, 186}
    monkeypatch.setattr(fake, "nvmlDeviceGetTemperature", refuse, raising=False)
    (gpu,) = nvml.find(fake)
    reading = gpu.read()
    assert (reading.energy_j, reading.average_power_w, reading.temperature_c) == (None, None, None)
    assert reading.power_w == 60, "an older driver's own way"


def test_a_counter_that_fails_later_leaves_the_power_of_that_reading():
    fake = FakeNvml(1)
    (gpu,) = nvml.find(fake)
    fake.lacking = {83}
    assert (gpu.read().energy_j, gpu.read().power_w) == (None, 60)


def test_the_model_is_labelled_as_what_it_is():
    (device,) = sensors.find_modelled({"idle_w": 40, "peak_w": 140}, utilization=lambda: 25.0)
    assert (device.sensor, device.read().power_w) == ("modelled", 65)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-00000001-aaaa", [1]),
        ("1,-1,0", [1]),
        ("", []),
        ("7", []),  # CUDA shows none from an invalid number on
        ("0,7,1", [0]),
        ("NoDevFiles", []),
        ("GPU-", [None]),  # short for several
        ("MIG-5c1", [None]),
    ],
)
def test_which_gpus_cuda_shows(shown, expected):
    variables, fake = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}, FakeNvml(3)
    assert gpus.list_visible_gpus(variables, fake) == [
        None if place is None else fake.gpus[place].uuid for place in expected
    ]


def test_without_nvml_no_gpu_can_be_told():
    assert gpus.list_visible_gpus({}, FakeNvml(None)) is None
