"""Load one file with one loader; print time, peak memory (before and after) and CRC-32 as JSON.

load_file.py LOADER FILE SIDECAR FORM

FILE: or the matrix in the format of the loader's name. SIDECAR: the converted file's. FORM: the file's form in the
benchmark's YAML, as JSON.
"""

import json
import sys
import time
import zlib

from study.core.errors import exit_with_message
from study.data.loaders import LOADERS, import_modules, load_matrix, touch_pages
from study.instruments.counters import read_peak_memory_mb


def main() -> None:
    """Load the file and print time, memory and checksum."""
    loader, path, sidecar, form = sys.argv[1:]
    import_modules(loader)
    imported_mb = read_peak_memory_mb()
    begun = time.perf_counter()
    matrix = load_matrix(loader, path, sidecar, json.loads(form))
    if LOADERS[loader].is_mapped:
        touch_pages(matrix)
    seconds = time.perf_counter() - begun
    peak_mb = read_peak_memory_mb()
    # Row by row: arrays that differ only in memory order have the same checksum.
    checksum = 0
    for row in matrix:
        checksum = zlib.crc32(row.tobytes(), checksum)
    sample = {"load_s": seconds, "peak_memory_mb": peak_mb, "imported_memory_mb": imported_mb, "crc32": checksum}
    print(json.dumps(sample))


if __name__ == "__main__":
    exit_with_message(main)
