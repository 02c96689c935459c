"""The kinds of devices whose power is measured, the most power that one can draw, and what their counters can do.

Apart from the sensors: the sampler does not need it, so a limit that changes is no new version of the training code.
"""

# {kind: W}. What a device's power covers; node includes the others. Each limit is about three times the most that was
# on sale in 2025, so that no short peak reaches it; a broken reading is mostly far above.
KINDS = {
    "gpu": 5_000.0,  # AMD MI355X 1,400 W; also the three GPUs of 300 W that POWER9's sensor of a socket covers
    "cpu": 5_000.0,  # Xeon 6980P 500 W; also the sockets of a node, which Cray's counter covers
    "memory": 2_000.0,  # 32 DIMMs of 20 W
    "node": 50_000.0,  # DGX B200 14,300 W (docs.nvidia.com/dgx/dgxb200-user-guide)
}
# {(sensor, kind): W}: where one device stands for more than elsewhere.
OF_SENSORS = {
    # One counter for all accelerators of a node, such as the four GPUs of a GB200 NVL4 board of 5,400 W in all.
    ("cray", "gpu"): 15_000.0,
}
# {sensor: s}: the longest time between two updates of its counter, where that is known; elsewhere `SELDOM_S`. Between
# two readings a counter never rises by the energy of a longer time than theirs and this.
SELDOM_S, OF_COUNTERS_S = 1.0, {"rapl": 0.1}  # each 1 ms (Linux kernel, powercap); the rest is for late readings
# {sensor: J}: the least that a counter of this sensor can count before it wraps to 0: 2^32 units of 15.3 uJ on AMD.
WRAPS_J = {"rapl": 65_500.0}
# {sensor: s}: over how long its power may be a mean: the last second on some GPUs and drivers (NVML's reference,
# nvmlDeviceGetPowerUsage), so that its integral lags behind the counter; likewise AMD's averaged power.
LAG_S = {"nvml": 1.0, "amdsmi": 1.0}
# {sensor: W or J}: its units, where they are coarse: Cray's counters have whole watts and whole joules.
UNIT = {"cray": 1.0}


def most_w(sensor: str, kind: str) -> float:
    """The most power (W) that a device of this kind can draw, by what this sensor's devices cover."""
    return OF_SENSORS.get((sensor, kind), KINDS.get(kind, float("inf")))


def seldom_s(sensor: str) -> float:
    """The longest time (s) between two updates of a sensor's counter."""
    return OF_COUNTERS_S.get(sensor, SELDOM_S)


def wraps_s(sensor: str, kind: str) -> float:
    """The time (s) in which a counter may wrap unseen, at its device's most power; infinite if it does not wrap."""
    return WRAPS_J.get(sensor, float("inf")) / most_w(sensor, kind)


def lag_s(sensor: str) -> float:
    """By how much (s) a sensor's power may be behind its counter."""
    return LAG_S.get(sensor, 0.0)


def unit(sensor: str) -> float:
    """The unit (W, J) to which a sensor's readings are cut off; 0 if it is fine."""
    return UNIT.get(sensor, 0.0)
