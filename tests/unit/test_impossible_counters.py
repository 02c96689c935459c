"""Counters and sensors that tell what cannot be: backwards, huge, negative, no number, missing. Each is unknown.

Those of `study.instruments.background` are in test_background.py.
"""

import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_nvml import FakeNvml  # noqa: E402
from test_sensors import FakeAmdSmi, write  # noqa: E402

from study.instruments import counters  # noqa: E402
from study.instruments.power import sampler  # noqa: E402
from study.instruments.power.energy import compute_energy  # noqa: E402
from study.instruments.power.sensors import amdsmi, cray, nvml, occ, rapl  # noqa: E402
from study.instruments.power.telemetry import Series  # noqa: E402
from study.training import process_tree  # noqa: E402

HUGE = 2**64 - 1
FORMS = {"backwards": -(10**9), "huge": HUGE, "wrapped": 2**63, "negative": -7, "no number": "nan", "missing": ""}


def bad(form, usual):
    """The value of a counter whose last one was ``usual``."""
    return usual + FORMS[form] if form == "backwards" else FORMS[form]


# Power sensors: 100 W for 20 s. In the middle, a counter or a power tells once or from then on what cannot be.


class Rapl:
    kind = "cpu"

    def __init__(self, folder):
        self.folder = folder

    def set(self, energy, power):
        write(self.folder, {"intel-rapl:0/name": "package-0", "intel-rapl:0/energy_uj": energy,
                            "intel-rapl:0/max_energy_range_uj": 65_532_610_987})  # fmt: skip

    def find(self):
        return rapl.find(self.folder)


class Occ(Rapl):
    def set(self, energy, power):
        write(self.folder, {"hwmon0/name": "occ", "hwmon0/power1_label": "proc", "hwmon0/energy1_label": "proc",
                            "hwmon0/power1_input": power, "hwmon0/energy1_input": energy})  # fmt: skip

    def find(self):
        return occ.find(self.folder)


class Cray(Rapl):
    kind = "node"

    def set(self, energy, power):
        joules, watts = (each // 10**6 if isinstance(each, int) else each for each in (energy, power))
        write(self.folder, {"energy": f"{joules} J", "power": f"{watts} W"})

    def find(self):
        return cray.find(self.folder)


class Amd(Rapl):
    kind = "gpu"

    class Smi(FakeAmdSmi):
        energy = power = 0

        def amdsmi_get_energy_count(self, handle):
            return {"energy_accumulator": self.energy, "counter_resolution": 1.0, "timestamp": 1}

        def amdsmi_get_power_info(self, handle):
            return {"current_socket_power": self.power, "average_socket_power": "N/A"}

    def __init__(self, folder):
        self.smi = self.Smi()

    def set(self, energy, power):
        self.smi.energy = energy if isinstance(energy, int) else float(energy or "nan") if energy else "N/A"
        self.smi.power = power // 10**6 if isinstance(power, int) else float(power) if power else "N/A"

    def find(self):
        return amdsmi.find(self.smi)[:1]


class Nvidia(Rapl):
    kind = "gpu"

    def __init__(self, folder):
        self.nvml = FakeNvml(1)
        self.nvml.stuck_power_mw = 100_000
        self.fields = {}
        self.nvml.nvmlDeviceGetFieldValues = self.read_fields

    def read_fields(self, handle, ids):
        return [self.make_value(each, self.fields.get(each)) for each in ids]

    def make_value(self, field, value):
        code = self.nvml.NVML_SUCCESS if isinstance(value, int) else 1
        union = types.SimpleNamespace(uiVal=value, ulVal=value, ullVal=value)
        return types.SimpleNamespace(fieldId=field, value=union, nvmlReturn=code, valueType=3)

    def set(self, energy, power):
        milli = [each // 1000 if isinstance(each, int) else each for each in (energy, power)]
        self.fields = dict(zip(nvml.FIELDS, [milli[0], None, milli[1]], strict=True))

    def find(self):
        return nvml.find(self.nvml)


SENSORS = (Rapl, Occ, Cray, Amd, Nvidia)
SECONDS = np.arange(0, 20.1, 0.25)


def measure(sensor, energy=None, power=None, is_lasting=False):
    """The energy of a sensor's readings, as the sampler writes them. energy, power: from 10 s on, None for right."""
    start, watts = 10**10, 100 * 10**6
    sensor.set(start, watts)
    (device,), rows = sensor.find(), []
    for second in SECONDS:
        right = start + round(second * watts)
        is_wrong = second >= 10 if is_lasting else second == 10
        values = (right if energy is None else bad(energy, right), watts if power is None else bad(power, watts))
        sensor.set(*values if is_wrong else (right, watts))
        if row := sampler._read_row(device, "n1"):
            named = dict(zip(sampler.COLUMNS, row, strict=True))
            rows.append((second, *(np.nan if named[each] == "" else named[each] for each in ("power_w", "energy_j"))))
    seconds, powers, joules = np.array(rows).T
    nothing = np.full(len(rows), np.nan)
    return compute_energy(Series("n1", device.sensor, device.kind, "d", seconds, powers, joules, nothing), 1, 19, 4)


@pytest.mark.parametrize("kind", SENSORS)
def test_a_sensor_that_is_right(tmp_path, kind):
    assert measure(kind(tmp_path)).best_j == pytest.approx(1800, rel=0.01)


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "quantity"), [(each, what) for each in SENSORS for what in ("energy", "power")
                                                if (each, what) != (Rapl, "power")])  # fmt: skip
def test_an_energy_is_right_or_empty_with_its_reason(tmp_path, kind, quantity, form, is_lasting):
    found = measure(kind(tmp_path), **{quantity: form}, is_lasting=is_lasting)
    if found.best_j is None:
        assert found.reason
    else:
        assert found.best_j == pytest.approx(1800, rel=0.01), "one reading is missing, or the other quantity is right"
    if form in ("huge", "wrapped", "negative") and quantity == "power":
        assert found.best_j is None


BOUNDED = {"utilization_pct": (50, -1, 101), "memory_mb": (100, -1, 1e8), "clock_mhz": (1500, -1, HUGE),
           "temperature_c": (60, -273.2, 65535)}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, each) for name, values in BOUNDED.items() for each in values[1:]])
def test_what_no_device_can_have_is_no_reading(name, value):
    right = BOUNDED[name][0]
    assert [sampler._can_be(name, each) for each in (right, value, float("nan"), float("inf"), None)] == [
        True,
        *[False] * 4,
    ]


# The counters of a process


@pytest.fixture
def clock(monkeypatch):
    """Monotonic seconds, which are set."""
    at = types.SimpleNamespace(s=1000.0)
    monkeypatch.setattr(counters.time, "monotonic", lambda: at.s)
    return at


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["rchar", "read_bytes"])
def test_bytes_read(tmp_path, monkeypatch, clock, place, form):
    monkeypatch.setattr(counters, "IO_COUNTERS", tmp_path / "io")
    usual = {"rchar": 10**10, "read_bytes": 10**10}

    def set_to(**values):
        (tmp_path / "io").write_text("".join(f"{name}: {value}\n" for name, value in (usual | values).items()))

    set_to()
    reads = counters.ReadCounter()
    for values in ({name: value + 5000 for name, value in usual.items()}, {place: bad(form, usual[place])}):
        with reads.count():
            clock.s += 1
            set_to(**values)
        if values.keys() == usual.keys():
            assert reads.stored == 5000 and 4900 < reads.asked <= 5000
            set_to()
    assert (reads.asked, reads.stored) == (None, None)
    with reads.count():
        set_to()
    reads.add_mapped(tmp_path / "io")
    assert (reads.asked, reads.stored) == (None, None), "it stays unknown"


@pytest.mark.parametrize("way", ["sent", "received"])
@pytest.mark.parametrize("form", ["backwards", "huge", "wrapped", "negative"])
def test_tcp_bytes(monkeypatch, clock, way, form):
    sockets = {7: (10**10, 10**10), 8: (1, 1)}
    monkeypatch.setattr(counters, "_read_sockets", lambda: dict(sockets))
    traffic = counters.Traffic()
    traffic.begin()
    clock.s += 1
    sockets |= {7: (10**10 + 50, 10**10 + 60), 9: (5, 6)}
    found = traffic.end()
    assert (found["tcp_sent_bytes"], found["tcp_received_bytes"]) == (55, 66)
    other, place = ("received", 0) if way == "sent" else ("sent", 1)
    sockets[7] = tuple(bad(form, 10**10) if each == place else sockets[7][each] for each in (0, 1))
    found = traffic.end()
    assert found[f"tcp_{way}_bytes"] is None and found[f"tcp_{other}_bytes"] in (55, 66)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("form", ["backwards", "huge", "wrapped", "negative"])
def test_busy_cores(tmp_path, place, form):
    before = dict.fromkeys(range(2), (10**10, 10**11))
    after = dict.fromkeys(range(2), (10**10 + 50, 10**11 + 100))
    assert counters.compute_busy_share(before, after, tmp_path, most_ticks=100) == 0.5
    after[1] = tuple(bad(form, before[1][each]) if each == place else after[1][each] for each in (0, 1))
    assert counters.compute_busy_share(before, after, tmp_path, most_ticks=100) is None
    assert counters.compute_busy_share(before, {0: after[0]}, tmp_path, most_ticks=100) == 0.5, "a CPU went offline"


@pytest.mark.parametrize("text", ["-7", "0", str(HUGE), str(2**63), "nan", ""])
def test_peak_memory(tmp_path, monkeypatch, text):
    status = tmp_path / "status"
    for right, content in ((2.048, "Name: x\nVmHWM:\t  2000 kB\n"), (None, f"VmHWM: {text} kB\n"), (None, "Name: x\n")):
        status.write_text(content)
        assert counters.read_peak_memory_mb(status) == right
    assert counters.read_peak_memory_mb(tmp_path / "none") is None
    assert process_tree.read_peak_mb([os.getpid(), 2**22 + 1]) == counters.read_peak_memory_mb() > 10


@pytest.mark.parametrize(("now_ns", "right"), [(3 * 10**9, 1.0), (10**9, None), (HUGE, None), (None, 0.0)])
def test_processor_time_of_threads(tmp_path, monkeypatch, now_ns, right):
    monkeypatch.setattr(counters, "TASKS", tmp_path)
    write(tmp_path, {"5/schedstat": f"{2 * 10**9} 1 1\n"})
    before = counters.read_thread_cpu_s([5])
    if now_ns is None:
        (tmp_path / "5" / "schedstat").unlink()
    else:
        write(tmp_path, {"5/schedstat": f"{now_ns} 1 1\n"})
    assert counters.compute_cpu_s_since(before) == right
