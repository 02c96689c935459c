"""Time the loaders on a dataset's files: paired, alternating, each load in a new process, page cache warm or cold."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from study.core import code_version, configuration, provenance
from study.data import page_cache
from study.data.formats import FORMATS
from study.core.files import write_json
from study.data.loaders import read_sidecar

LOAD_FILE = configuration.ROOT / "scripts" / "load_file.py"
STORE_MATRIX = configuration.ROOT / "scripts" / "store_matrix.py"
SCHEMA_VERSION = 2
NOT_STORED = {"store_s": None, "stored_mb": None}
FAILED = {"status": "failed", **NOT_STORED, "load_s": None, "peak_memory_mb": None, "imported_memory_mb": None,
          "crc32": None}  # fmt: skip


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
    with tempfile.TemporaryDirectory(dir=Path(output).parent) as scratch, tqdm(points, unit="load") as progress:
        for repeat, file, cache, loader in progress:
            progress.set_description(f"{loader}, {file}, {cache}")
            sample = _load(loader, files[file], cache, Path(scratch))
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


def _load(loader, paths, cache, scratch):
    """One sample; a matrix that is loaded from a format is stored in it first, in ``scratch``."""
    path, stored = paths["npy" if loader == "mapped" else "raw"], NOT_STORED
    try:
        if loader in FORMATS:
            path = scratch / f"matrix.{loader}"
            stored = _in_new_process(STORE_MATRIX, loader, paths["npy"], path)
            if stored["status"] != "ok":
                return {**FAILED, "message": stored["message"]}
        reason = page_cache.drop(path) if cache == "cold" else page_cache.warm(path)
        if reason is not None:
            return {**FAILED, "message": reason}
        return {**stored, **load_in_new_process(loader, path, paths["sidecar"], paths["form"])}
    finally:
        (scratch / f"matrix.{loader}").unlink(missing_ok=True)


def _described(paths):
    return {
        "split": paths["form"].get("split"),
        "shape": read_sidecar(paths["sidecar"])["shape"],
        "size_mb": Path(paths["raw"]).stat().st_size / 1e6,
    }


def load_in_new_process(loader, path, sidecar, form):
    """One load: status, seconds, peak memory of the process (MB) and the array's CRC-32."""
    return _in_new_process(LOAD_FILE, loader, path, sidecar, json.dumps(form))


def _in_new_process(script, *arguments):
    """What a script prints, or its failure."""
    done = subprocess.run([sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode == 0:
        return {"status": "ok", "message": None, **json.loads(done.stdout)}
    message = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:500]
    return {**FAILED, "message": f"exit code {done.returncode}: {message}"}
