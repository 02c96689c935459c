"""Run a study on this host in a folder of its own, whose configuration goes before the repository's."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.commands.workflow import list_profile_options
from study.contrib.gpu_check.meters import RATE_HZ
from study.contrib.gpu_check.verdicts import CannotCheck
from study.core import commands
from study.core.errors import StudyError
from study.core.files import write_text
from study.core.paths import ROOT, SCRIPTS, locate_study
from study.records.tidy import read_runs

MACHINE = "gpu_host"  # in the results
RUN_LIMIT_S = 600
END_S = 60.0  # for Snakemake to end its run


def write_machine(folder: Path, gpus: int) -> None:
    """Write the machine's file, with a rank on each of ``gpus`` GPUs, and the configuration. JSON is YAML."""
    machine = {
        "base": "local",
        "description": f"{platform.node()}, described by the check of its GPUs",
        "launcher": "processes",
        "ranks_per_node": gpus,
        "cores_per_rank": max(1, len(os.sched_getaffinity(0)) // gpus),
        "gpus_per_rank": 1,
        "power_sensors": ["nvml"],
        "sampling_hz": RATE_HZ,
        "repeat_disturbed": 0,
        "time_limit_s": RUN_LIMIT_S,
    }
    config = {"machine": MACHINE, "data_dir": "data", "results_dir": "results"}
    for name, content in {"config": config, f"machines/{MACHINE}": machine}.items():
        write_text(folder / "config" / f"{name}.yaml", json.dumps(content, indent=1) + "\n")


def run_study(folder: Path, name: str, content: Mapping[str, Any], limit_s: float) -> list[tuple[dict[str, Any], Path]]:
    """(row of runs.csv, folder) of each run of a study, also of failed ones; what Snakemake prints is in a log there.

    Raises:
        CannotCheck: it did not end within ``limit_s`` seconds.
        StudyError: Snakemake failed.
    """
    write_text(folder / "config" / "studies" / f"{name}.yaml", json.dumps(content, indent=1) + "\n")
    snakefile = str(ROOT / "Snakefile")
    line = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        snakefile,
        *list_profile_options("local"),
        "--config",
        f"study={name}",
    ]
    own = str(Path(sys.executable).parent)  # the rules start `python`
    variables = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PATH": os.pathsep.join([own, os.environ.get("PATH", "")])}
    path = folder / f"{name}.log"
    with open(path, "wb") as log:
        process = subprocess.Popen(
            line, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            has_ended = commands.wait_for_end(process, limit_s)
        finally:
            _end(process)
    if not has_ended:
        raise CannotCheck(f"study {name} did not end in time; see {path}")
    results = folder / "results" / MACHINE
    runs = Path(locate_study(results, name)) / "runs.csv"
    if process.returncode or not runs.is_file():
        raise StudyError(f"study {name}: Snakemake ended with code {process.returncode}: {_find_reason(path)}")
    return [(row, results / Path(str(row["record"])).parent) for row in read_runs(runs).to_dict("records")]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End Snakemake and its runs as Ctrl-C does."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            commands.wait_for_end(process, END_S)


def _find_reason(log: Path) -> str:
    """The line after the last ``Error in ...:`` of Snakemake's log, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    headings = [number for number, line in enumerate(lines[:-1]) if re.match(r"\w*Error in .*:$", line)]
    return lines[headings[-1] + 1] if headings else (lines or ["it printed nothing"])[-1]
