"""Other processes of the check: they see a GPU by their own variables, share one, or hold its limits."""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

from study.core import commands
from study.core.errors import StudyError
from study.core.paths import SCRIPTS
from study.launch.gpu_check.context import ShownDevice
from study.launch.gpu_check.mapping import variables_of
from study.launch.gpu_check.results import NotPossible
from study.launch.gpu_check.torch_work import Matmul, shown_devices
from study.machines.limits import holder

PROGRAM = str(SCRIPTS / "gpu_check.py")
HOLD_LIMITS = str(SCRIPTS / "hold_limits.py")
START_S = 120.0  # to import PyTorch from a slow file system, and to start CUDA
END_S = holder.TAKEN_S + 45.0
SMALL = 1024
DEVICES, HOLD = "devices", "hold"  # what such a process does
READY = "ready"


def serve(what: str) -> None:
    """Be such a process."""
    try:
        if what == DEVICES:
            print(json.dumps([vars(device) for device in shown_devices()]), flush=True)
            return
        Matmul(size=SMALL).prepare(0)
    except NotPossible as why:
        sys.exit(str(why))
    print(READY, flush=True)
    sys.stdin.read()  # until the process that started it closes it, or ends


def shown(variables: Mapping[str, str]) -> Sequence[ShownDevice]:
    """The GPUs that PyTorch shows to a process with these variables; raises `NotPossible`."""
    try:
        done = commands.run([sys.executable, PROGRAM, "--inside", DEVICES], START_S, dict(variables))
    except subprocess.TimeoutExpired:
        raise NotPossible(f"a process with PyTorch did not answer within {START_S:g} s") from None
    if done.returncode:
        raise NotPossible(f"a process with PyTorch failed: {_last(done.stderr)}")
    devices = json.loads(done.stdout.splitlines()[-1])
    return [ShownDevice(**{**each, "pci": each["pci"] and tuple(each["pci"])}) for each in devices]


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


@contextlib.contextmanager
def holding(variables: Mapping[str, str], uuid: str, number: int) -> Iterator[Sequence[int]]:
    """Keep processes that use a GPU while the block runs; yields their PIDs. Raises `NotPossible`."""
    line = [sys.executable, PROGRAM, "--inside", HOLD]
    processes = [commands.opened(line, {**variables, **variables_of(uuid)}, reads=True) for _ in range(number)]
    try:
        for process in processes:
            ready, _, _ = select.select([told := cast(IO[str], process.stdout)], [], [], START_S)
            if not ready or told.readline().strip() != READY:
                raise NotPossible(f"a second process could not use the GPU: {_last(commands.end(process))}")
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            commands.end(process)


@contextlib.contextmanager
def limited(variables: Mapping[str, str], uuid: str, asked: Mapping[str, Any]) -> Iterator[Sequence[dict[str, Any]]]:
    """Hold limits of one GPU by the process that holds those of runs: it puts them back whatever ends this one.

    Yields its settings, which have ``restored`` after the block. Raises `StudyError` where it refuses.
    """
    process = subprocess.Popen(
        [sys.executable, HOLD_LIMITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env=dict(variables),
    )  # fmt: skip
    given, told = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
    try:
        given.write(json.dumps({"asked": asked, "variables": variables_of(uuid)}) + "\n")
        given.flush()
        answer = _answer(told)
        if "refused" in answer:
            raise StudyError(answer["refused"])
        settings = answer["settings"]
        try:
            yield settings
        finally:
            given.close()
            for setting, restored in zip(settings, _answer(told).get("restored", []), strict=False):
                setting.update(restored)
    finally:
        with contextlib.suppress(OSError):
            given.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            print("warning: limits may hold; python scripts/hold_limits.py --restore puts them back", file=sys.stderr)


def _answer(told: IO[str]) -> dict[str, Any]:
    ready, _, _ = select.select([told], [], [], END_S)
    line = told.readline() if ready else ""
    return json.loads(line) if line else {"refused": "the process that holds limits did not answer"}
