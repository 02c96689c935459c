"""What slows down the GPUs of a run, besides the run: throttling, and processes of others on them.

The host's sampler asks NVML at the end of each row of ``background.csv``. A GPU is the run's while a process of the run
has it. Reference: NVML's nvmlDeviceGetCurrentClocksThrottleReasons and nvmlDeviceGetComputeRunningProcesses.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors.nvml import handles, library, uuid_of

# NVML's bits of the reasons why a clock is lower than asked for. Idling and clocks that somebody set are none of these.
SLOWED = {0x08: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
          0x80: "power brake"}  # fmt: skip
POWER_CAP = 0x04  # the run's own power reaches the GPU's limit
# Before a run's first kernel, and without a GPU. Also in a container, to which the driver may show no process, and
# under MPS, whose server NVML may show in place of its clients.
UNUSED = "NVML: no process of the run was on a GPU"
OWN, OTHERS = "own", "others"  # whose processes a GPU has
Own = Callable[[int], bool | None]  # of a process id: whether it is the run's; None if this host does not know it


class Moment(NamedTuple):
    """The run's GPUs at one moment; None for what NVML does not tell, with the reason.

    slowed: whether one of them is, by `SLOWED`. capped: by its power limit. shared: whether a process of others has one
    of them. clock_mhz: of the slowest. All are None if the run has none at this moment. users: ``GPU-1 own, GPU-2
    others``, of each GPU with a process; `OWN` if one of them is the run's; without GPUs of which this is not known.
    """

    slowed: bool | None = None
    capped: bool | None = None
    shared: bool | None = None
    clock_mhz: float | None = None
    reason: str = ""
    users: str = ""


class Gpus:
    """The GPUs of this host.

    Args:
        given: (name, NVML's handle) of each.
        nvml: the pynvml module or a replacement for it.
        reason: why there are none.
    """

    def __init__(self, given: Iterable[tuple[str, Any]], nvml: Any, reason: str = "") -> None:
        self._gpus, self._nvml, self._reason = list(given), nvml, reason
        self._uuids = {name: self._uuid(handle) for name, handle in self._gpus}

    def _uuid(self, handle: Any) -> str | None:
        try:
            return uuid_of(self._nvml, handle)
        except self._nvml.NVMLError:  # of a GPU that is lost
            return None

    def now(self, own: Own) -> Moment:
        """The state of those that the run has."""
        if self._reason:
            return Moment(reason=self._reason)
        used, shared, users, why = [], False, dict[str, str](), ""
        for name, handle in self._gpus:
            try:
                ids = [each.pid for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
            except (self._nvml.NVMLError, AttributeError) as error:
                why = why or f"NVML: {name}: processes: {error}"
                continue
            whose = [own(pid) for pid in ids]
            if None in whose:
                why = why or f"NVML: {name}: process {ids[whose.index(None)]} is not known here (a container?)"
            if any(whose):
                used.append((name, handle))
                shared = shared or not all(whose)
            if (uuid := self._uuids[name]) and (any(whose) or (whose and None not in whose)):
                users[uuid] = OWN if any(whose) else OTHERS
        state = Moment(reason=why) if why else self._state(used, shared) if used else Moment(reason=UNUSED)
        return state._replace(users=", ".join(f"{uuid} {whose}" for uuid, whose in users.items()))

    def _state(self, used: list[tuple[str, Any]], shared: bool) -> Moment:
        clocks, _ = self._asked(used, "nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        reasons, why = self._asked(used, "nvmlDeviceGetCurrentClocksThrottleReasons")
        if why:
            return Moment(None, None, shared, min(clocks, default=None), why)
        slowed = any(each & bit for each in reasons for bit in SLOWED)
        return Moment(slowed, any(each & POWER_CAP for each in reasons), shared, min(clocks, default=None))

    def _asked(self, used: list[tuple[str, Any]], function: str, *arguments: Any) -> tuple[list[Any], str]:
        """(what NVML's function tells of each GPU, why it does not of one)."""
        found, why = [], ""
        for name, handle in used:
            try:
                found.append(getattr(self._nvml, function)(handle, *arguments))
            except (self._nvml.NVMLError, AttributeError) as error:
                why = f"NVML: {name}: {function}: {error}"
        return found, why


def find(is_asked: bool, nvml: Any = None) -> Gpus:
    """The GPUs that NVML shows on this host. is_asked: whether the machine's ``power_sensors`` have nvml."""
    if not is_asked:
        return Gpus([], None, "power_sensors of the machine's file lacks nvml")
    try:
        nvml = nvml or library()
        there = [(name, handle) for name, handle, failed in handles(nvml) if failed is None]
    except Unavailable as error:
        return Gpus([], None, str(error))
    except nvml.NVMLError as error:
        return Gpus([], None, f"NVML: {error}")
    return Gpus(there, nvml, "" if there else "NVML: the driver sees no GPU")
