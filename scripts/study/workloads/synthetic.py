"""The ``synthetic`` source: files of any size with the form of a benchmark's real files."""

import hashlib
from pathlib import Path
from typing import Any

from tqdm import tqdm

from study import workloads
from study.core.files import AnyPath, write_aside, write_text
from study.data.images.codec import Codec
from study.workloads.images import ImageWorkload


def generate_file(
    path: AnyPath,
    benchmark: str,
    spec: dict[str, Any],
    definition: dict[str, Any],
    file: str,
    checksum: AnyPath | None = None,
    codec: Codec | None = None,
) -> None:
    """Write one synthetic file of a dataset; ``file`` is its key in the benchmark's ``files``.

    definition: the study's dataset (train_samples, test_samples, features, seed). The same definition gives the same
    bytes. checksum: where the file's SHA-256 is kept (sha256sum's format), None for nowhere. codec: for images.
    Memory: a block of rows, or for P1B3 its tables.
    """
    workload = workloads.load_workload(benchmark, spec)
    if isinstance(workload, ImageWorkload):
        workload.codec = codec
    blocks = workload.synthetic_blocks(file, definition, definition["seed"])
    progress = tqdm(unit="B", unit_scale=True, desc=f"writing {path}", mininterval=1)
    written = hashlib.sha256()
    with write_aside(path) as aside, open(aside, "wb") as handle, progress:
        for block in blocks:
            progress.update(handle.write(block))
            written.update(block)
    if checksum is not None:
        write_text(checksum, f"{written.hexdigest()}  {Path(path).name}\n")
