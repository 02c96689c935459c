"""Time the loaders on a dataset's files: paired, interleaved, one new process per load, page cache warm or cold."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from study.core import code_version, environment, free_space, isolation, provenance, validation
from study.core.errors import StudyError
from study.core.files import AnyPath, write_sealed
from study.core.paths import ROOT
from study.data import page_cache
from study.data.loaders import LOADERS, describe_source, read_sidecar
from study.data.tabular import find_paper_size

LOAD_FILE = ROOT / "scripts" / "load_file.py"
SCHEMA_VERSION = 2
LIMIT_S = 3600  # of one load
FAILED = {"status": "failed", "load_s": None, "peak_memory_mb": None, "imported_memory_mb": None,
          "crc32": None}  # fmt: skip


def measure_loading(
    files: Mapping[str, Mapping[str, Any]],
    loaders: Sequence[str],
    page_caches: Sequence[str],
    repeats: int,
    labels: Mapping[str, str],
    output: AnyPath,
    timed_alone: Mapping[str, Any] | None = None,
) -> None:
    """Load each file with each loader ``repeats`` times and write all samples to ``output``.

    files: {file: {"raw": path, "npy": path, "sidecar": path, "form": dict}}. page_caches: warm, cold or both. If the
    machine cannot drop a file's pages, there are no cold samples and ``cold_reason`` gives the reason. labels: columns
    that are the same for all samples (machine, benchmark, dataset). timed_alone: for the provenance, the lock under
    which they are loaded. A load that fails is a sample with its message, not an error.
    """
    reason = _find_cold_obstacle(files) if "cold" in page_caches else None
    caches = [cache for cache in page_caches if cache == "warm" or reason is None]
    points = [
        (repeat, file, cache, loader)
        for repeat in range(1, repeats + 1)
        for file in files
        for cache in caches
        for loader in loaders
    ]
    samples = []
    with tqdm(points, unit="load") as progress:
        for repeat, file, cache, loader in progress:
            progress.set_description(f"{loader}, {file}, {cache}")
            sample = _time_load(loader, files[file], cache)
            samples.append({"repeat": repeat, "file": file, "page_cache": cache, "loader": loader, **sample})
    variables = environment.build_measuring_environment(os.environ)
    result = {
        "schema_version": SCHEMA_VERSION,
        **labels,
        "loading_code": code_version.digest_loading_code(),
        "cold_reason": reason,
        "files": {file: _describe_file(paths) for file, paths in files.items()},
        "samples": samples,
        "provenance": {
            **provenance.collect_provenance(variables),
            "steering": environment.collect_steering(variables),
            "isolation": isolation.find_problems(variables),
            "timed_alone": timed_alone,
            "data": {file: describe_source(paths["sidecar"]) for file, paths in files.items()},
        },
    }
    validation.validate(result, "loading", str(output))
    write_sealed(output, result)


def _find_cold_obstacle(files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why cold loads cannot be measured here, or None."""
    return next((reason for paths in files.values() if (reason := page_cache.drop_file(paths["raw"]))), None)


def _time_load(loader: str, paths: Mapping[str, Any], cache: str) -> dict[str, Any]:
    """One sample of a loader."""
    path = paths["npy" if LOADERS[loader].reads in ("converted", "scaled") else "raw"]
    if cache == "warm":
        page_cache.warm_file(path)
    elif (reason := page_cache.drop_file(path)) is not None:
        return {**FAILED, "message": reason}
    return load_in_new_process(loader, path, paths["sidecar"], paths["form"])


def _describe_file(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Split, shape and size of a file for the result."""
    sidecar = read_sidecar(paths["sidecar"])
    size = Path(paths["raw"]).stat().st_size
    return {"split": find_paper_size(paths["form"]), "shape": sidecar["shape"], "size_mb": size / 1e6}


def load_in_new_process(loader: str, path: AnyPath, sidecar: AnyPath, form: dict[str, Any]) -> dict[str, Any]:
    """One load in a new process: status, seconds, peak memory (MB) and the array's CRC-32."""
    return _run_in_new_process(LOAD_FILE, loader, path, sidecar, json.dumps(form))


def _run_in_new_process(script: Path, *arguments: AnyPath) -> dict[str, Any]:
    """The JSON that a script prints in a new process, or its failure; raises `StudyError` for want of space."""
    line = [sys.executable, str(script), *map(str, arguments)]
    variables = environment.build_measuring_environment(
        os.environ
    )  # OMP_NUM_THREADS, for example, sizes Arrow's thread pool
    try:
        completed = subprocess.run(
            line, capture_output=True, text=True, errors="replace", env=variables, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return {**FAILED, "message": f"it did not end within {LIMIT_S} s, and was ended"}
    if completed.returncode == 0:
        return {"status": "ok", "message": None, **json.loads(completed.stdout)}
    if no_space := free_space.find_message(completed.stderr.splitlines()):
        raise StudyError(f"{no_space}; {free_space.REMEDY}")
    message = (completed.stderr.strip().splitlines() or ["no error message"])[-1][:500]
    return {**FAILED, "message": f"exit code {completed.returncode}: {message}"}
