"""PyTorch's profile (Kineto), from its Chrome trace, as operations.

Without a GPU the operations are those of the CPU. With one they are its kernels and copies: the CPU only queues them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from study.core.errors import StudyError
from study.instruments.operations import COMMUNICATION, COMPUTE, COPIES, MARK, Operation

OF_GPU = {"kernel": COMPUTE, "gpu_memcpy": COPIES, "gpu_memset": COMPUTE}  # categories of Kineto
OF_CPU = ("cpu_op", "user_annotation")
COPYING = ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous", "Memcpy")
SENDING = ("gloo:", "nccl:", "mpi:", "c10d::")  # begins of names of the host's operations
SENDING_KERNELS = ("nccl",)
# Operations that contain others: their own time is that of the interpreter, or of waiting.
CONTAINERS = ("autograd::", "torch::", "torch.", "profiler::")


@dataclass(frozen=True)
class Trace:
    """device: ``gpu`` or ``cpu``. marks: begins (ns) of the operations `MARK`, in their order."""

    device: str
    operations: list[Operation]
    marks: list[int]


def parse_trace(trace: dict[str, Any]) -> Trace:
    """The operations of a Chrome trace as PyTorch's profiler exports it; times in ns of its own clock.

    Raises:
        StudyError: it is no such trace.
    """
    try:
        base = int(trace.get("baseTimeNanoseconds", 0))
        events = [each for each in trace["traceEvents"] if each.get("ph") == "X"]
        device = "gpu" if any(each.get("cat") in OF_GPU for each in events) else "cpu"
        parsed = [each for event in events if (each := _to_operation(event, base, device)) is not None]
        marks = sorted(
            base + _to_ns(each["ts"]) for each in events if each["name"] == MARK and each.get("cat") in OF_CPU
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StudyError(f"the profile of PyTorch is no Chrome trace of Kineto: {error!r}") from None
    return Trace(device, parsed, marks)


def _to_operation(event: dict[str, Any], base: int, device: str) -> Operation | None:
    """The operation of an event; None for one that is not of the device."""
    category, name = str(event.get("cat")), event["name"]
    if category not in (OF_GPU if device == "gpu" else OF_CPU) or name == MARK:
        return None
    kind = classify_kernel(name, category) if device == "gpu" else classify_operator(name)
    begin = base + _to_ns(event["ts"])
    # Lanes of the CPU are threads, those of a GPU its streams.
    return Operation(name, kind, f"{event['pid']} {event['tid']}", begin, begin + _to_ns(event.get("dur", 0)))


def classify_kernel(name: str, category: str) -> str:
    """The kind of something on a GPU. category: Kineto's."""
    return COMMUNICATION if any(each in name.lower() for each in SENDING_KERNELS) else OF_GPU[category]


def classify_operator(name: str) -> str:
    """The kind of an operation of the host by its own time; empty for one that only contains others."""
    if name.startswith(SENDING):
        return COMMUNICATION
    if name.startswith(COPYING):
        return COPIES
    return COMPUTE if "::" in name and not name.startswith(CONTAINERS) else ""


def _to_ns(microseconds: float) -> int:
    return round(float(microseconds) * 1000)
