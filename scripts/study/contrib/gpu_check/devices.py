"""Whether each rank of a run of benchmark ``gpu_load`` was on the GPU that this project takes for its own."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.contrib.gpu_check.meters import Gpu
from study.contrib.gpu_check.verdicts import CannotCheck, Verdicts
from study.core.files import read_json
from study.instruments import gpus
from study.instruments.power import counted_devices
from study.instruments.power.sensors import nvml as sensor
from study.instruments.power.telemetry import Series, read_series

MILLI = 1e-3
STEADY_S = 1.0  # at the end of a rank's turn and before it, when sensors have settled


@dataclass(frozen=True)
class RankLoad:
    """A rank's load.

    gpu: UUID of the GPU that the record takes for the rank's own, or None with the reason. used: UUID of the GPU that
    PyTorch used, None if it does not tell it. windows: see `Gpu`.
    """

    gpu: str | None
    reason: str | None
    used: str | None
    windows: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class LoadRun:
    """A run of benchmark ``gpu_load``. series: the readings of every GPU of the host, by UUID."""

    folder: Path
    loads: Sequence[RankLoad]
    series: Mapping[str, Series]

    def select_gpus(self, limits_w: Mapping[str, float]) -> list[Gpu]:
        """The ranks' GPUs that are known and were read. limits_w: power limits by UUID."""
        return [
            Gpu(self.series[each.gpu], each.windows, limits_w.get(each.gpu))
            for each in self.loads
            if each.gpu and each.gpu in self.series
        ]


def read_load_run(folder: Path) -> LoadRun:
    """The `LoadRun` in a run's directory; raises `CannotCheck` if it has no telemetry."""
    path = folder / "telemetry.csv"
    if not path.exists():
        raise CannotCheck("NVML was not read during the run: it has no telemetry.csv")
    loads = []
    for number, rank in enumerate(read_json(folder / "metrics.json")["ranks"]):
        written = read_json(folder / "program" / f"loads-{number}.json")
        loads.append(RankLoad(rank["gpu"], rank["gpu_reason"], written["uuid"], written["windows"]))
    series = {each.name: each for each in read_series(path) if each.sensor == "nvml"}
    return LoadRun(folder, loads, series)


def list_gpus(nvml: Any) -> list[str | None]:
    """The UUIDs of the GPUs that CUDA shows here, in its order; None for one that cannot be identified."""
    return list(gpus.list_visible_gpus(os.environ, nvml) or ())


def read_power_limits(nvml: Any) -> dict[str, float]:
    """{UUID: power limit in W} of the GPUs that tell it."""
    visible, limits_w = set(list_gpus(nvml)), {}
    for _, handle, error in sensor.list_handles(nvml):
        if error is None and (uuid := sensor.read_uuid(nvml, handle)) in visible:
            with contextlib.suppress(nvml.NVMLError):
                limits_w[uuid] = nvml.nvmlDeviceGetPowerManagementLimit(handle) * MILLI
    return limits_w


def judge_devices(verdicts: Verdicts, run: LoadRun, nvml: Any) -> None:
    """Whether NVML reads every GPU, and PyTorch, power and NVML's processes name the same GPU for each rank."""
    unread = "; ".join(part.why for part in getattr(sensor.find(nvml), "missing", ()))
    verdicts.judge("NVML reads every GPU of the host", unread or None, f"{len(run.series)} GPUs read")
    own = counted_devices.GpuUsers(run.folder, {}, {}).own
    for rank, load in enumerate(run.loads):
        verdicts.gpu = load.gpu or ""
        check = f"rank {rank}: PyTorch used the rank's GPU"
        if load.gpu is None:
            verdicts.leave_unchecked(check, load.reason or "the record tells no GPU of the rank")
            continue
        if load.used is None:
            verdicts.leave_unchecked(check, "PyTorch saw no GPU, or is too old to tell UUIDs", load.gpu)
        else:
            problem = None if load.used == load.gpu else f"PyTorch used {load.used}, this project takes {load.gpu}"
            verdicts.judge(check, problem, load.used, load.gpu)
        _judge_place_of_power(verdicts, f"rank {rank}: power rises on its GPU", run, load)
        check = f"rank {rank}: NVML shows its process there"
        if own:
            problem = None if load.gpu in own else f"NVML shows processes of the run on {', '.join(sorted(own))} only"
            verdicts.judge(check, problem)
        else:
            verdicts.leave_unchecked(check, "NVML shows no process, as in many containers")


def _judge_place_of_power(verdicts: Verdicts, check: str, run: LoadRun, load: RankLoad) -> None:
    """While only this rank works, the power of its GPU rises, and that of no other one more."""
    expected, (begin, end) = "rises most of all GPUs", load.windows["turn"]
    rises = {}
    for uuid, series in run.series.items():
        gpu = Gpu(series, load.windows, None)
        (_, before), (_, after) = (gpu.select("power_w", edge - STEADY_S, edge) for edge in (begin, end))
        if len(before) and len(after):
            rises[uuid] = float(after.mean() - before.mean())
    if load.gpu not in rises:
        verdicts.leave_unchecked(check, "its power cannot be read", expected)
        return
    highest = max(rises, key=lambda uuid: rises[uuid])
    problem = None if highest == load.gpu else f"it rose most on {highest}"
    if rises[load.gpu] <= 0:
        problem = "it did not rise"
    verdicts.judge(check, problem, f"{rises[load.gpu]:.4g} W", expected)
