"""The program of benchmark ``gpu_load``: each rank uses its GPU by a fixed timetable, and writes when it did so.

First the ranks multiply matrices one after the other, then all of them are idle, work, and alternate between the two.
``loads-<rank>.json`` in the run's folder has the UUID of the GPU, and the windows in monotonic seconds.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SETTLE_S = 2.0  # longer than any sensor's averaging window
TURN_S = 4.0
HALF_S = 5.0  # of the alternating load
WAIT_S = 120.0  # for the other ranks: PyTorch may come from a slow file system
SIZE = {"cuda": 8192, "cpu": 256}  # of the matrices: on a GPU 1.1 TFLOP each time
AT_ONCE = 4  # multiplications between two looks at the clock
Window = tuple[float, float]


@dataclass(frozen=True)
class Timetable:
    """When a rank works, and the windows in which meters are judged; seconds since the start of all ranks."""

    busy: list[Window]
    windows: dict[str, Window]
    end_s: float


def plan_timetable(rank: int, ranks: int, seconds: float) -> Timetable:
    """Plan when a rank loads its GPU, and the windows in which meters are judged. seconds: length of each load.

    A window of a steady load begins when sensors have settled. The alternating load begins and ends idle, so that a
    sensor that lags behind shows all of it within the window.
    """
    turn = rank * (SETTLE_S + TURN_S) + SETTLE_S
    idle = ranks * (SETTLE_S + TURN_S) + SETTLE_S
    full = idle + seconds
    alternating = full + SETTLE_S + seconds + SETTLE_S
    half = min(HALF_S, seconds / 2)
    periods = max(1, round(seconds / (2 * half)))
    end = alternating + periods * 2 * half + SETTLE_S
    halves = [(alternating + (2 * n + 1) * half, alternating + (2 * n + 2) * half) for n in range(periods)]
    return Timetable(
        busy=[(turn, turn + TURN_S), (full, full + SETTLE_S + seconds), *halves],
        windows={
            "turn": (turn, turn + TURN_S),
            "idle": (idle, full),
            "step": (full, full + SETTLE_S + seconds),
            "full": (full + SETTLE_S, full + SETTLE_S + seconds),
            "alternating": (alternating, end),
        },
        end_s=end,
    )


def main() -> None:
    """Meet the other ranks, and work by the timetable. Arguments: the length of each load in seconds; cuda or cpu."""
    rank, ranks, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    folder = Path(os.environ["STUDY_RUN_FOLDER"])
    uuid, multiply = prepare_work(sys.argv[2], local_rank)
    multiply()  # the first time takes seconds
    timetable = plan_timetable(rank, ranks, float(sys.argv[1]))
    begin = wait_for_others(folder, rank, ranks)
    write_event("epoch_start")
    for busy_from, busy_until in timetable.busy:
        time.sleep(max(0.0, begin + busy_from - time.monotonic()))
        while time.monotonic() < begin + busy_until:
            multiply()
    time.sleep(max(0.0, begin + timetable.end_s - time.monotonic()))
    write_event("epoch_stop")
    windows = {name: [begin + edge for edge in window] for name, window in timetable.windows.items()}
    (folder / f"loads-{rank}.json").write_text(json.dumps({"uuid": uuid, "windows": windows}))


def prepare_work(kind: str, local_rank: int) -> tuple[str | None, Callable[[], None]]:
    """(UUID of the rank's GPU as PyTorch tells it, a function that uses it fully for a moment).

    The UUID is in NVML's spelling; None on the CPU, and if this PyTorch does not tell it. Exits if there is no GPU.
    """
    import torch

    if kind == "cuda" and not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} sees no GPU; install one that is built for CUDA and for this driver")
    device = torch.device(kind, local_rank if torch.cuda.device_count() > 1 else 0)
    operand = torch.randn(SIZE[kind], SIZE[kind], device=device)
    operand = operand.half() if kind == "cuda" else operand
    result = torch.empty_like(operand)

    def multiply() -> None:
        for _ in range(AT_ONCE):
            torch.mm(operand, operand, out=result)
        if kind == "cuda":
            torch.cuda.synchronize(device)

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None) if kind == "cuda" else None
    return (f"GPU-{str(uuid).removeprefix('GPU-')}" if uuid else None), multiply


def wait_for_others(folder: Path, rank: int, ranks: int) -> float:
    """The monotonic time at which all ranks of this host begin; exits if they do not come."""
    (folder / f"ready-{rank}").touch()
    start, deadline = folder / "start.json", time.monotonic() + WAIT_S
    while not start.exists():
        if time.monotonic() > deadline:
            sys.exit(f"not all {ranks} ranks were ready within {WAIT_S:g} s")
        if rank == 0 and all((folder / f"ready-{each}").exists() for each in range(ranks)):
            (folder / "start.tmp").write_text(json.dumps(time.monotonic() + 1.0))
            (folder / "start.tmp").rename(start)
        time.sleep(0.05)
    return float(json.loads(start.read_text()))


def write_event(key: str) -> None:
    """Tell the study what this rank does."""
    line = {"key": key, "time_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), "rank": int(os.environ["RANK"])}
    with open(os.environ["STUDY_EVENTS"], "a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
