"""Time the loaders on a dataset's files: paired, alternating, each load in a new process, page cache warm or cold."""

import json
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from study import code_version, configuration, page_cache, provenance
from study.files import write_json
from study.loaders import CONVERTED, read_sidecar

LOAD_FILE = configuration.ROOT / "scripts" / "load_file.py"
SCHEMA_VERSION = 2


def measure(files, loaders, page_caches, repeats, labels, output):
    """Load each file with each loader ``repeats`` times and write all samples to ``output``.

    files: {file: {"raw": path, "npy": path, "sidecar": path, "form": dict}}. page_caches: warm, cold or both; where
    the machine does not let a file's pages be dropped there are no cold samples, and ``cold_reason`` says why.
    labels: what to put beside the samples (machine, benchmark, dataset). A load that fails is a sample with its
    message, not an error.
    """
    reason = _why_not_cold(files) if "cold" in page_caches else None
    caches = [cache for cache in page_caches if cache == "warm" or reason is None]
    points = [
        (repeat, file, cache, loader)
        for repeat in range(1, repeats + 1)
        for file in files
        for cache in caches
        for loader in loaders
    ]
    samples = []
    with tqdm(points, unit="load", mininterval=1) as progress:
        for repeat, file, cache, loader in progress:
            progress.set_description(f"{loader}, {file}, {cache}")
            sample = _load(loader, files[file], cache)
            samples.append({"repeat": repeat, "file": file, "page_cache": cache, "loader": loader, **sample})
    result = {
        "schema_version": SCHEMA_VERSION,
        **labels,
        "loading_code": code_version.loading_code(),
        "cold_reason": reason,
        "files": {file: _described(paths) for file, paths in files.items()},
        "samples": samples,
        "provenance": provenance.collect(),
    }
    configuration.check(result, "loading", str(output))
    write_json(output, result)


def _why_not_cold(files):
    """Why cold loads cannot be measured here, or None."""
    return next((reason for paths in files.values() if (reason := page_cache.drop(paths["raw"]))), None)


def _load(loader, paths, cache):
    path = paths["npy" if loader in CONVERTED else "raw"]
    reason = page_cache.drop(path) if cache == "cold" else page_cache.warm(path)
    if reason is not None:
        return _failed(reason)
    return load_in_new_process(loader, path, paths["sidecar"], paths["form"])


def _described(paths):
    return {
        "split": paths["form"].get("split"),
        "shape": read_sidecar(paths["sidecar"])["shape"],
        "size_mb": Path(paths["raw"]).stat().st_size / 1e6,
    }


def load_in_new_process(loader, path, sidecar, form):
    """One load: status, seconds, peak memory of the process (MB) and the array's CRC-32."""
    line = [sys.executable, str(LOAD_FILE), loader, str(path), str(sidecar), json.dumps(form)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode == 0:
        return {"status": "ok", "message": None, **json.loads(done.stdout)}
    message = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:500]
    return _failed(f"exit code {done.returncode}: {message}")


def _failed(message):
    return {"status": "failed", "message": message, "load_s": None, "peak_memory_mb": None,
            "imported_memory_mb": None, "crc32": None}  # fmt: skip
