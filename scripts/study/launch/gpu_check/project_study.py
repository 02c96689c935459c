"""A study of this project, run by its own workflow in the check's folder: its results are those of any machine."""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study.core.files import write_text
from study.core.paths import CONFIG, ROOT, SCRIPTS
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.results import NotPossible
from study.launch.gpu_check.torch_work import need

# Modules of the packages that a study needs beyond PyTorch and NumPy, see scripts/pack_wheels.py.
NEEDED = ("snakemake", "snakemake_executor_plugin_cluster_generic", "pandas", "scipy", "jsonschema", "fastjsonschema",
          "yaml", "tqdm", "click", "jinja2", "tabulate", "itables", "pooch", "psutil")  # fmt: skip
DRAWS = "matplotlib"
FOLDER = "study"  # in the check's; the workflow is started there
END_S = 60.0  # for Snakemake to end its run
SNAKEFILE = """configfile: "config/config.yaml"


module scaling:
    snakefile:
        {snakefile}
    config:
        config


use rule * from scaling
"""
Content = dict[str, Any]


def machine_name() -> str:
    """Of this host, as results are named."""
    return "gpu_" + re.sub(r"[^A-Za-z0-9_]", "_", platform.node() or "host")


def require(context: Context) -> None:
    """Raise `NotPossible` without PyTorch or the packages that a study needs."""
    need(context.kind)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise NotPossible(f"this Python lacks {', '.join(missing)}; scripts/pack_wheels.py packs what is needed")


def run(context: Context, name: str, change: Callable[[Content], None]) -> Path:
    """Run a study of config/studies, as ``change`` alters its content; returns the folder of its results.

    Raises:
        NotPossible: what it needs is not here.
    """
    require(context)
    folder = (context.output / FOLDER).resolve()
    from study.core import checked  # needs packages that `require` asks for

    content = checked.load(CONFIG / "studies" / f"{name}.yaml", {"type": "object"})
    change(content)
    if importlib.util.find_spec(DRAWS) is None:
        content["figures"] = []
        context.rows.not_possible("figures of the study", f"this Python lacks {DRAWS}")
    _write(folder, name, content, context.kind)
    context.say(f"study {name}: it runs in {folder}; what it prints is in {name}.log there")
    status = _started(folder, name)
    results = folder / "results" / machine_name() / "studies" / name
    whole = status == 0 and (results / "report.html").is_file()
    why = None if whole else f"Snakemake ended with code {status}: {_reason(folder / f'{name}.log')}"
    context.rows.judge(f"study {name} runs to its report", why, results.relative_to(context.output.resolve()))
    return results


def _write(folder: Path, name: str, content: Content, kind: str) -> None:
    """The files of a folder that uses the workflow as a module. JSON is YAML."""
    machine = {
        "base": "local",
        "description": f"{platform.node()}, ranks started as processes, described by the GPU check",
        "launcher": "processes",
        "ranks_per_node": 1,
        "cores_per_rank": len(os.sched_getaffinity(0)),
        "gpus_per_rank": int(kind != "cpu"),
    }
    config = {"study": name, "machine": machine_name(), "data_dir": "data", "results_dir": "results"}
    write_text(folder / "Snakefile", SNAKEFILE.format(snakefile=json.dumps(str(ROOT / "Snakefile"))))
    for path, each in (
        ("config.yaml", config),
        (f"machines/{machine_name()}.yaml", machine),
        (f"studies/{name}.yaml", content),
    ):
        write_text(folder / "config" / path, json.dumps(each, indent=1) + "\n")


def _started(folder: Path, name: str) -> int:
    """Snakemake's exit code; it ends with this process."""
    profiles = ROOT / "profiles"
    line = [sys.executable, "-m", "snakemake", "--profile", str(profiles / "local"), "--workflow-profile",
            str(profiles / "default"), "--scheduler", "greedy"]  # fmt: skip
    own = str(Path(sys.executable).parent)  # the rules start `python`
    variables = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PATH": os.pathsep.join([own, os.environ.get("PATH", "")])}
    with open(folder / f"{name}.log", "wb") as log:
        process = subprocess.Popen(line, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            return process.wait()
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _reason(log: Path) -> str:
    """The line of a log that tells most."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "it printed nothing"
    number = max((number for number, line in enumerate(lines) if re.match(r"(error|\w*Error)\b", line)), default=-1)
    is_heading = 0 <= number < len(lines) - 1 and lines[number].endswith(":")
    return lines[number + is_heading][:300]


def has_compiler() -> bool:
    """Whether torch.compile finds a C++ compiler."""
    return any(shutil.which(each) for each in (os.environ.get("CXX", "g++"), "g++", "c++", "clang++"))
