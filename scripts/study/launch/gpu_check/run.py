"""The check's command line: each part in a process of its own, so that one that crashes leaves the others' results."""

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.core.wording import signal_in_words
from study.instruments.power.readings import Unavailable
from study.instruments.power.sensors import nvml as sensor
from study.launch.gpu_check import children, report, results
from study.launch.gpu_check.context import DEFAULT_MINUTES, Context
from study.launch.gpu_check.mapping import ORDER
from study.launch.gpu_check.results import FAIL, NOT_POSSIBLE, NotPossible, Row, Rows
from study.launch.gpu_check.torch_work import Matmul

NO_GPU, INTERRUPTED = 2, 130
RAN = "the part ran to its end"
FOLDER = Path("results", "gpu_check")


@dataclass(frozen=True)
class Part:
    """A part: its module's function ``check`` takes a `Context`. limit_s: at the default of --minutes."""

    module: str
    limit_s: float
    says: str


PARTS = {
    "calls": Part("calls", 60, "every NVML call"),
    "meters": Part("meters", 420, "energy counter, power, updates, averaging window"),
    "mapping": Part("mapping", 600, "CUDA_VISIBLE_DEVICES, MIG, two processes on one GPU"),
    "limits": Part("limit_checks", 240, "power limit and clock rate"),
    "benchmarks": Part("benchmarks", 600, "the paper's benchmarks at full width"),
    "study": Part("small_study", 1200, "a small paired study in interleaved blocks"),
    "emulated": Part("emulated", 1200, "the learning-rate limit at the paper's size, by emulated ranks"),
}
ON_CPU = ("study", "emulated")  # parts that can be tried without a GPU
LEAST_LIMIT_S = 120.0
END_S = 90.0  # for a part to end what it has started


def main(arguments: argparse.Namespace) -> None:
    """Do what the command line says. arguments: only, minutes, output, cpu, inside."""
    if arguments.inside in (children.DEVICES, children.HOLD):
        children.serve(arguments.inside)
        return
    nvml, why = _nvml()
    if arguments.inside:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that a study's runs end too
        _inside(arguments.inside, nvml, Path(arguments.output), arguments.minutes, arguments.cpu)
        return
    parts = _chosen(arguments.only)
    folder = _folder(arguments.output)
    rows: list[Row] = []
    is_interrupted = False
    for name in parts:
        try:
            rows += _of_part(name, folder, arguments, why)
        except KeyboardInterrupt:  # what there is, is reported
            rows += [*results.read(_file(folder, name)), Row(name, RAN, FAIL, reason="it was interrupted")]
            is_interrupted = True
            break
    report.write(folder, rows, report.facts(nvml))
    print(f"{report.summary(rows)}; the report is {folder / 'report.md'}", flush=True)
    if is_interrupted:
        sys.exit(INTERRUPTED)
    if any(row.status == FAIL for row in rows):
        sys.exit(1)
    if why and not arguments.cpu:
        print(f"no GPU: {why}", file=sys.stderr)
        sys.exit(NO_GPU)


def _nvml() -> tuple[Any, str | None]:
    """(the pynvml module, why there is no GPU); the module is None with a reason."""
    try:
        nvml = sensor.library()
        nvml.nvmlInit()
        if nvml.nvmlDeviceGetCount():
            return nvml, None
        return None, "NVML: the driver sees no GPU"
    except Unavailable as error:
        return None, str(error)
    except Exception as error:  # of NVML without its library
        return None, f"NVML: {error}"


def _of_part(name: str, folder: Path, arguments: argparse.Namespace, why: str | None) -> list[Row]:
    """The rows of a part; one that there is no GPU for what needs one."""
    if (name in ON_CPU) if arguments.cpu else not why:
        return _in_process(name, folder, arguments)
    reason = f"no GPU: {why}" if why else "--cpu: only the studies run on a CPU"
    return [Row(name, PARTS[name].says, NOT_POSSIBLE, reason=reason)]


def _chosen(only: str | None) -> list[str]:
    names = [name.strip() for name in only.split(",")] if only is not None else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise StudyError(f"--only: there is no part '{unknown[0]}'; the parts are {', '.join(PARTS)}")
    return list(dict.fromkeys(names))


def _folder(given: str | None) -> Path:
    folder = Path(given) if given else FOLDER / time.strftime("%Y-%m-%dT%H-%M-%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"--output: {folder} cannot be made ({error.strerror}); name a folder that you may write"
        ) from None
    if any(folder.iterdir()):
        raise StudyError(f"--output: {folder} is not empty; name a new folder")
    return folder


def _in_process(name: str, folder: Path, arguments: argparse.Namespace) -> list[Row]:
    """The rows of a part, with one more if its process crashed or took too long."""
    print(f"== {name}: {PARTS[name].says}", flush=True)
    minutes = arguments.minutes
    line = [sys.executable, children.PROGRAM, "--inside", name, "--minutes", str(minutes), "--output", str(folder),
            *(["--cpu"] if arguments.cpu else [])]  # fmt: skip
    limit_s = max(LEAST_LIMIT_S, PARTS[name].limit_s * minutes / DEFAULT_MINUTES)
    process = subprocess.Popen(line, env={**os.environ, **ORDER})
    why = None
    try:
        status = process.wait(limit_s)
        if status:
            why = (
                f"{signal_in_words(-status)} ended its process"
                if status < 0
                else f"its process ended with code {status}"
            )
    except subprocess.TimeoutExpired:
        process.terminate()
        why = f"it did not end within {limit_s:g} s"
    finally:
        _end(process)
    found = results.read(_file(folder, name))
    rows = [*found, *([Row(name, RAN, FAIL, reason=why)] if why else [])]
    print(f"   {report.summary(rows)}", flush=True)
    return rows


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _file(folder: Path, name: str) -> Path:
    return folder / f"part_{name}.jsonl"


def _inside(name: str, nvml: Any, folder: Path, minutes: float, on_cpu: bool) -> None:
    """Be the process of a part."""
    variables = dict(os.environ)
    context = Context(
        rows=Rows(name, _file(folder, name)),
        output=folder,
        nvml=nvml,
        work=Matmul(),
        shown=children.shown,
        holding=partial(children.holding, variables),
        limited=partial(children.limited, variables),
        variables=variables,
        minutes=minutes,
        say=lambda text: print(f"   {text}", flush=True),
        kind="cpu" if on_cpu else "cuda",
    )
    run_part(name, context)


def run_part(name: str, context: Context) -> None:
    """Run a part in this process; what it raises becomes a row."""
    try:
        importlib.import_module(f"study.launch.gpu_check.{PARTS[name].module}").check(context)
    except NotPossible as why:
        context.rows.not_possible("all further checks of this part", why)
    except Exception as error:  # also of a driver, a framework or an import
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        context.rows.add(RAN, FAIL, reason=f"{type(error).__name__} at {where}: {error}")
