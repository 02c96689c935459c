"""Load one file with one loader; print time, peak memory (before and after) and CRC-32 as JSON."""

import argparse
import json
import time
import zlib

from study.core.errors import exit_with_message
from study.data.loaders import LOADERS, import_for, load, touch
from study.instruments.counters import read_peak_memory_mb


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=list(LOADERS))
    parser.add_argument("path", help="the file, or the matrix in the format of this name")
    parser.add_argument("sidecar", help="the converted file's")
    parser.add_argument("form", type=json.loads, help="the file's form in the benchmark's YAML, as JSON")
    arguments = parser.parse_args()
    import_for(arguments.loader)
    imported = read_peak_memory_mb()
    begun = time.perf_counter()
    matrix = load(arguments.loader, arguments.path, arguments.sidecar, arguments.form)
    if LOADERS[arguments.loader].is_mapped:
        touch(matrix)
    seconds = time.perf_counter() - begun
    peak = read_peak_memory_mb()
    # Row by row: arrays that differ only in memory order have the same checksum.
    checksum = 0
    for row in matrix:
        checksum = zlib.crc32(row.tobytes(), checksum)
    found = {"load_s": seconds, "peak_memory_mb": peak, "imported_memory_mb": imported, "crc32": checksum}
    print(json.dumps(found))


if __name__ == "__main__":
    exit_with_message(main)
