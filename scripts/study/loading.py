"""Time the loaders on a dataset's files: paired, alternating, each load in a new process, warm page cache."""

import json
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

from study import code_version, configuration, provenance
from study.files import write_json
from study.loaders import CONVERTED

LOAD_FILE = configuration.ROOT / "scripts" / "load_file.py"


def measure(files, loaders, repeats, labels, output):
    """Load each file with each loader ``repeats`` times and write all samples to ``output``.

    files: {split: {"csv": path, "npy": path, "sidecar": path}}. labels: what to put beside the samples
    (machine, benchmark, dataset). A load that fails is a sample with its message, not an error.
    """
    samples = []
    for paths in files.values():
        for kind in ("csv", "npy"):
            _warm(paths[kind])
    with tqdm(total=repeats * len(files) * len(loaders), unit="load", mininterval=1) as progress:
        for repeat in range(1, repeats + 1):
            for split, paths in files.items():
                for loader in loaders:
                    progress.set_description(f"{loader}, {split}")
                    result = load_in_new_process(loader, paths["npy" if loader in CONVERTED else "csv"])
                    samples.append({"repeat": repeat, "split": split, "loader": loader, **result})
                    progress.update()
    splits = {
        split: {
            "shape": json.loads(Path(paths["sidecar"]).read_text(encoding="utf-8"))["shape"],
            "csv_mb": Path(paths["csv"]).stat().st_size / 1e6,
        }
        for split, paths in files.items()
    }
    result = {
        "schema_version": 1,
        **labels,
        "loading_code": code_version.loading_code(),
        "page_cache": "warm",
        "splits": splits,
        "samples": samples,
        "provenance": provenance.collect(),
    }
    configuration.check(result, "loading", str(output))
    write_json(output, result)


def load_in_new_process(loader, path):
    """One load: status, seconds, peak memory of the process (MB) and the array's CRC-32."""
    line = [sys.executable, str(LOAD_FILE), loader, str(path)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode == 0:
        return {"status": "ok", "message": None, **json.loads(done.stdout)}
    message = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:500]
    return {
        "status": "failed",
        "message": f"exit code {done.returncode}: {message}",
        "load_s": None,
        "peak_memory_mb": None,
        "crc32": None,
    }


def _warm(path):
    with open(path, "rb") as handle:
        while handle.read(1 << 24):
            pass
