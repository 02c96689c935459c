"""A stand-in for NVML: GPUs that use power, count energy and refuse what the real ones refuse.

Not a recording: it follows NVML's API reference and what is published of its sensors. Power is read from a sensor that
is updated every 100 ms, as the average of the last second or at once; the counter is in mJ since the driver was loaded.
Time passes by a clock of the test's own. Faults can be injected, each by its attribute.
"""

from types import SimpleNamespace

TEXTS = {3: "Not Supported", 9: "Driver Not Loaded", 15: "GPU is lost"}
MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal"}


class Clock:
    """Time that passes only by waiting, and a little by each look at it."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        """Seconds."""
        self.seconds += 1e-5
        return self.seconds

    def sleep(self, seconds):
        """Let time pass."""
        self.seconds += max(0.0, seconds)


class NVMLError(Exception):
    """As pynvml's: ``value`` is the return code."""

    def __init__(self, value):
        super().__init__(TEXTS.get(value, f"error {value}"))
        self.value = value


class Gpu:
    """One GPU. Its load (0 to 1) is set by the test; power follows at once, up to the limit."""

    def __init__(self, uuid, clock, idle_w=60.0, full_w=280.0, update_s=0.1, window_s=1.0):
        self.uuid, self.clock, self.idle_w, self.full_w = uuid, clock, idle_w, full_w
        self.update_s, self.window_s, self.name = update_s, window_s, "Stand-in 100"
        self.limit_mw, self.rates = 300_000, [1410, 210]
        self.load, self.mig, self.is_lost, self.processes, self.throttled_by = 0.0, False, False, [], 0
        self.history = [(clock.seconds, 0.0, self.idle_w)]  # (moment, J until then, W from then on)

    def set_load(self, load):
        """From now on."""
        now = self.clock.seconds
        joules = self.joules(now)
        self.load = load
        power = self.idle_w + (self.full_w - self.idle_w) * load
        self.history.append((now, joules, min(power, self.limit_mw / 1000)))

    def joules(self, moment):
        """Energy since the beginning, exactly."""
        begun, joules, watts = next(each for each in reversed(self.history) if each[0] <= moment)
        return joules + watts * (moment - begun)

    def updated(self):
        """The moment of the sensor's last update."""
        first = self.history[0][0]
        return first + int((self.clock.seconds - first) / self.update_s) * self.update_s

    def watts(self, window_s):
        """Mean power of the window before the last update."""
        until = self.updated()
        since = max(self.history[0][0], until - window_s)
        return (self.joules(until) - self.joules(since)) / (until - since) if until > since else self.history[0][2]


class FakeNvml:
    """The pynvml module. Faults: see the attributes. number: of GPUs; None, without a driver."""

    NVML_SUCCESS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2, 0
    NVMLError = NVMLError

    def __init__(self, number=2, clock=None):
        self.clock = clock or Clock()
        self.gpus = [Gpu(f"GPU-0000000{index}-aaaa", self.clock) for index in range(number or 0)]
        self.has_driver, self.lacking = number is not None, ()  # lacking: fields that are not supported
        self.counter_unit = 1000.0  # counts per joule
        self.power_factor = 1.0  # what is shown, of the power that is used
        self.stuck_power_mw = self.stuck_counter = None

    def nvmlInit(self):
        """Raises without a driver."""
        if not self.has_driver:
            raise NVMLError(9)

    def nvmlSystemGetDriverVersion(self):
        """A version."""
        return "550.00"

    def nvmlDeviceGetCount(self):
        """All GPUs of the host."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        """Raises for a lost GPU."""
        if self.gpus[index].is_lost:
            raise NVMLError(15)
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu):
        """Bytes, as older bindings."""
        return gpu.uuid.encode()

    def nvmlDeviceGetName(self, gpu):
        """The name."""
        return gpu.name

    def nvmlDeviceGetMigMode(self, gpu):
        """(current, pending)."""
        return [int(gpu.mig)] * 2

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        """83, 185 and 186; a scope is not supported."""
        values = {83: (3, self._counter(gpu)), 185: (1, self._mw(gpu, gpu.window_s)), 186: (1, self._mw(gpu, 0.025))}
        found = []
        for field in fields:
            kind, value = values.get(field, (1, 0)) if isinstance(field, int) else (1, 0)
            code = 0 if field in values and field not in self.lacking else 3
            value = SimpleNamespace(**{MEMBERS[kind]: value})
            found.append(SimpleNamespace(fieldId=field, nvmlReturn=code, valueType=kind, value=value))
        return found

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        """As field 83."""
        return self._counter(gpu)

    def _counter(self, gpu):
        return self.stuck_counter or int(gpu.joules(gpu.updated()) * self.counter_unit)

    def _mw(self, gpu, window_s):
        return self.stuck_power_mw or int(gpu.watts(window_s) * 1000 * self.power_factor)

    def nvmlDeviceGetPowerUsage(self, gpu):
        """Milliwatts, averaged."""
        return self._mw(gpu, gpu.window_s)

    def nvmlDeviceGetMemoryInfo(self, gpu):
        """Bytes."""
        return SimpleNamespace(total=80_000_000_000, used=1_000_000_000, free=79_000_000_000)

    def nvmlDeviceGetUtilizationRates(self, gpu):
        """Percent."""
        return SimpleNamespace(gpu=round(100 * gpu.load), memory=0)

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        """MHz."""
        return gpu.rates[0] if gpu.load else gpu.rates[-1]

    def nvmlDeviceGetTemperature(self, gpu, kind):
        """Degrees."""
        return 40

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        """The bits that the test put there; a number as an error's code if it is negative."""
        if gpu.throttled_by < 0:
            raise NVMLError(-gpu.throttled_by)
        return gpu.throttled_by

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        """Those that the test put there."""
        return [SimpleNamespace(pid=pid, usedGpuMemory=1 << 20) for pid in gpu.processes]

    def nvmlDeviceGetPowerManagementLimit(self, gpu):
        """The limit that was set, mW."""
        return gpu.limit_mw
