"""Part 2: which GPU CUDA_VISIBLE_DEVICES shows, by this project, by PyTorch, and by where work draws power."""

from collections.abc import Mapping, Sequence
from typing import Any

from study.instruments.power import gpus
from study.instruments.power.sensors import nvml as sensor
from study.launch.gpu_check.calls import code
from study.launch.gpu_check.context import Context, ShownDevice
from study.launch.gpu_check.results import NotPossible

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as the launch sets it
SETTLE_S = 2.0
PROCESSES = 2
SHORT = 12  # characters of a UUID that is cut
Pci = tuple[int, int, int]


def check(context: Context) -> None:
    """The settings of the variable, then the work's place, then two processes on one GPU."""
    shown = context.uuids()
    if not shown:
        raise NotPossible("CUDA_VISIBLE_DEVICES shows no GPU of NVML's")
    _mig(context, shown)
    known = [uuid for uuid in shown if uuid]
    if not known:
        raise NotPossible("every GPU is in MIG mode, is lost, or cannot be identified")
    for name, value in _settings(context, known).items():
        context.say(f"mapping: {name}")
        _compare(context, name, value)
    _work_is_where_it_should_be(context, shown)
    _shared(context, known[0])


def _mig(context: Context, shown: Sequence[str | None]) -> None:
    unknown = [str(number) for number, uuid in enumerate(shown) if uuid is None]
    problem = f"GPU {', '.join(unknown)} is in MIG mode, is lost, or cannot be identified: no power is told for it"
    context.rows.judge(
        "every GPU is whole and has a UUID", problem if unknown else None, len(shown) - len(unknown), unit="GPUs"
    )


def _settings(context: Context, known: Sequence[str]) -> dict[str, str | None]:
    """{check: value of the variable}, None to leave it out; names are the host's, of the GPUs of this job."""
    indices = _indices(context)
    numbers = [str(indices[uuid]) for uuid in known]
    found: dict[str, str | None] = {"as in this process": context.variables.get(VARIABLE)}
    found["by number"] = numbers[0]
    found["by UUID"] = known[0]
    found["by shortened UUID"] = known[0][:SHORT]
    found["hidden"] = "-1"
    if len(known) > 1:
        found["another one, by number"] = numbers[1]
        found["reordered, by number"] = ",".join(reversed(numbers))
        found["reordered, by UUID"] = ",".join(reversed(known))
    else:
        context.rows.not_possible("CUDA_VISIBLE_DEVICES, reordered", "this job has one GPU only")
    return found


def _indices(context: Context) -> dict[str, int]:
    """{UUID: NVML's number}, as the project's mapping counts, of GPUs that are not lost."""
    return {
        sensor.uuid_of(context.nvml, handle): number
        for number, (_, handle, error) in enumerate(sensor.handles(context.nvml))
        if error is None
    }


def _compare(context: Context, name: str, value: str | None) -> None:
    """PyTorch's GPUs, in order, and the project's."""
    check_name = f"{VARIABLE}, {name}"
    variables = {key: each for key, each in context.variables.items() if key != VARIABLE} | ORDER
    variables |= {} if value is None else {VARIABLE: value}
    expected = list(gpus.visible(variables, context.nvml) or ())
    about = {"unit": "UUID", "expected": _joined(expected)}
    try:
        found = [_uuid(context, device) for device in context.shown(variables)]
    except NotPossible as why:
        context.rows.not_possible(check_name, why, **about)
        return
    problem = None if found == expected else f"PyTorch shows {_joined(found)}, this project takes {_joined(expected)}"
    context.rows.judge(check_name, problem, _joined(found), **about)


def _joined(uuids: Sequence[str | None]) -> str:
    return " ".join(uuid or "unknown" for uuid in uuids) or "none"


def _uuid(context: Context, device: ShownDevice) -> str:
    """A device's UUID in NVML's spelling, by its PCI address if PyTorch does not tell it; both must agree."""
    by_pci = _of_pci(context, device.pci) if device.pci else None
    told = f"GPU-{device.uuid.removeprefix('GPU-')}" if device.uuid else None
    if told and by_pci and told != by_pci:
        return f"{told} (but PCI address of {by_pci})"
    if not (told or by_pci):
        raise NotPossible("this PyTorch tells neither UUIDs nor PCI addresses, or NVML tells no PCI address")
    return told or by_pci or ""


def _of_pci(context: Context, pci: Pci) -> str | None:
    for _, handle, error in sensor.handles(context.nvml):
        if error is None and _pci(context.nvml, handle) == pci:
            return sensor.uuid_of(context.nvml, handle)
    return None


def _pci(nvml: Any, handle: Any) -> Pci | None:
    try:
        found = nvml.nvmlDeviceGetPciInfo(handle)
    except (nvml.NVMLError, AttributeError):
        return None
    return found.domain, found.bus, found.device


def _work_is_where_it_should_be(context: Context, shown: Sequence[str | None]) -> None:
    """Work on each of CUDA's GPUs raises the power of the one that the project takes for it, and of no other."""
    for number, uuid in enumerate(shown):
        if uuid is None:
            continue
        context.say(f"mapping: work on GPU {number} of CUDA's")
        check_name = f"work on CUDA's GPU {number} draws power there"
        try:
            context.work.prepare(number)
            rises = _rises(context, number)
        except NotPossible as why:
            context.rows.not_possible(check_name, why, device=uuid)
            continue
        most = max(rises, key=lambda each: rises[each], default="none")
        problem = None if most == uuid else f"power rose most on {most}, not here"
        if rises.get(uuid, 0) <= 0:
            problem = "power did not rise here"
        context.rows.judge(check_name, problem, rises.get(uuid, 0.0), device=uuid, unit="W", expected="rises most")


def _rises(context: Context, number: int) -> dict[str, float]:
    """{UUID: by how many watts its power rose} of all GPUs that have a power."""
    context.work.stop()
    context.clock.sleep(SETTLE_S)
    before = _powers(context)
    context.work.start(number)
    try:
        context.clock.sleep(SETTLE_S)
        after = _powers(context)
    finally:
        context.work.stop()
    return {uuid: after[uuid] - before[uuid] for uuid in before if uuid in after}


def _powers(context: Context) -> dict[str, float]:
    readings = {device.name: device.read().power_w for device in sensor.find(context.nvml)}
    return {uuid: power for uuid, power in readings.items() if power is not None}


def _shared(context: Context, uuid: str) -> None:
    """Two processes on one GPU: NVML lists both, and the GPU is read once."""
    context.say(f"mapping: {PROCESSES} processes on one GPU")
    check_name = f"{PROCESSES} processes on one GPU"
    about = {"device": uuid, "unit": "processes", "expected": f"{PROCESSES} more than before"}
    try:
        before = _processes(context, uuid)
        with context.holding(uuid, PROCESSES) as pids:
            among = _processes(context, uuid)
    except NotPossible as why:
        context.rows.not_possible(check_name, why, **about)
        return
    more = len(among - before)
    if not among:
        hidden = "NVML lists no process, as in a container with process numbers of its own"
        context.rows.not_possible(check_name, hidden, **about)
        return
    problem = None if more >= PROCESSES else f"NVML lists {more} more, of {', '.join(map(str, pids))}"
    context.rows.judge(check_name, problem, more, **about)
    names = [device.name for device in sensor.find(context.nvml)]
    twice = None if names.count(uuid) == 1 else f"the sensor lists it {names.count(uuid)} times"
    context.rows.judge("a shared GPU is read once", twice, names.count(uuid), device=uuid, expected="1")


def _processes(context: Context, uuid: str) -> set[int]:
    nvml = context.nvml
    try:
        return {each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(context.handle(uuid))}
    except (nvml.NVMLError, AttributeError) as error:
        raise NotPossible(f"nvmlDeviceGetComputeRunningProcesses: {code(error)}") from None


def variables_of(uuid: str) -> Mapping[str, str]:
    """Those by which a process uses one GPU."""
    return {VARIABLE: uuid, **ORDER}
