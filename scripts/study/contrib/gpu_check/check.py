"""The check of a host's GPUs, from the study's start to the report."""

import importlib.util
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.contrib.gpu_check import devices, meters, study_runs
from study.contrib.gpu_check.verdicts import NOT_OK, CannotCheck, Verdicts, summarize, write_markdown
from study.core import provenance, validation
from study.core.files import write_text
from study.core.paths import CONFIG
from study.instruments.power.sensors import nvml as sensor

NO_GPU = 2  # exit code
FOLDER = Path("results", "gpu_check")
LOAD = "gpu_load"
Runs = list[tuple[dict[str, Any], Path]]


def check_gpus(output: str | None, minutes: float) -> None:
    """Check the GPUs, write the report into the folder ``output`` and print what is not ok.

    Exits with code 2 and a line if there is no GPU, and with code 1 if a check is not ok. minutes: the longest time.
    """
    nvml, uuids = _find_gpus()
    folder = Path(output or FOLDER / time.strftime("%Y-%m-%dT%H-%M-%S")).resolve()
    folder.mkdir(parents=True)
    verdicts = Verdicts()
    try:
        _judge_all(verdicts, nvml, uuids, folder, time.monotonic() + 60 * minutes)
    finally:  # also of an interrupted check
        write_text(folder / "report.md", write_markdown(verdicts, _collect_facts(nvml)))
        wrong = [each for each in verdicts if each.verdict == NOT_OK]
        for each in wrong:
            print(f"not ok: {each.section}: {each.check} {each.gpu}: {each.reason}")
        print(f"{summarize(verdicts)}; the report is {folder / 'report.md'}", flush=True)
    if wrong:
        sys.exit(1)


def _find_gpus() -> tuple[Any, list[str | None]]:
    """(the pynvml module, UUIDs of the GPUs that CUDA shows); exits with a line if there is none."""
    try:
        nvml = sensor.import_library()
        nvml.nvmlInit()
        if uuids := devices.list_gpus(nvml):
            return nvml, uuids
        reason = "CUDA shows none; see CUDA_VISIBLE_DEVICES"
    except Exception as error:  # NVML's own, whose class is not there without its bindings
        reason = str(error)
    print(f"no GPU: {reason}", file=sys.stderr)
    sys.exit(NO_GPU)


def _judge_all(verdicts: Verdicts, nvml: Any, uuids: list[str | None], folder: Path, deadline: float) -> None:
    """All sections, of the runs of study ``gpu_check``."""
    limits_w = devices.read_power_limits(nvml)
    study_runs.write_machine(folder, len(uuids))
    content = validation.load_valid_yaml(CONFIG / "studies" / "gpu_check.yaml", {"type": "object"})
    for grid in content["runs"]:
        grid["gpus"] = len(uuids) if grid["benchmark"] == LOAD else sorted({1, len(uuids)})
    runs: Runs = []

    def run_study(name: str, content: Mapping[str, Any]) -> Runs:
        """The runs of a study that ended well."""
        if importlib.util.find_spec("torch") is None:
            raise CannotCheck("PyTorch is not installed: make setup WITH=pytorch")
        print(f"study {name} runs in {folder}", flush=True)
        all_runs = study_runs.run_study(folder, name, content, max(0.0, deadline - time.monotonic()))
        for row, path in all_runs:
            failed_checks = "; ".join(each for each in str(row["checks"]).split("; ") if " failed" in each)
            problem = failed_checks or None if row["status"] == "ok" else f"{row['status']}: {row['failure_message']}"
            verdicts.judge(f"{row['benchmark']} on {row['gpus']} GPUs, {path.name}", problem)
        return [each for each in all_runs if each[0]["status"] == "ok"]

    def judge_loads() -> None:
        loads = [path for row, path in runs if row["benchmark"] == LOAD]
        if not loads:
            raise CannotCheck("no run of it ended well")
        for path in loads:
            load_run = devices.read_load_run(path)
            devices.judge_devices(verdicts, load_run, nvml)
            for gpu in load_run.select_gpus(limits_w):
                meters.judge_meters(verdicts, gpu)

    verdicts.run_section("runs", lambda: runs.extend(run_study("gpu_check", content)))
    verdicts.run_section("devices and meters", judge_loads)


def _collect_facts(nvml: Any) -> dict[str, str]:
    """Versions, and the names of the GPUs."""
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
    except (nvml.NVMLError, AttributeError) as error:
        driver = str(error)
    facts = provenance.collect_provenance(framework="pytorch")
    return {
        "host": f"{facts['host']['name']}, {facts['host']['system']}",
        "GPUs": ", ".join(f"{gpu['name']} {gpu['uuid']}" for gpu in facts["gpus"]["found"]) or facts["gpus"]["reason"],
        "driver": driver.decode() if isinstance(driver, bytes) else driver,
        "PyTorch": facts["packages"]["torch"] or "not installed",
    }
