"""Load one file with one loader and print, as JSON, time, peak memory (after it, and before it) and CRC-32."""

import argparse
import json
import time
import zlib

from study.core.errors import exit_with_message
from study.data.loaders import MEASURED, import_for, load, touch
from study.instruments.memory import peak_memory_mb


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=MEASURED)
    parser.add_argument("path", help="the file, or the matrix in the format of this name")
    parser.add_argument("sidecar", help="the converted file's")
    parser.add_argument("form", type=json.loads, help="the file's form in the benchmark's YAML, as JSON")
    arguments = parser.parse_args()
    import_for(arguments.loader)
    imported = peak_memory_mb()
    begun = time.perf_counter()
    matrix = load(arguments.loader, arguments.path, arguments.sidecar, arguments.form)
    if arguments.loader == "mapped":
        touch(matrix)
    seconds = time.perf_counter() - begun
    peak = peak_memory_mb()
    # The arrays may differ in memory order, which is no difference to who uses them.
    checksum = 0
    for row in matrix:
        checksum = zlib.crc32(row.tobytes(), checksum)
    found = {"load_s": seconds, "peak_memory_mb": peak, "imported_memory_mb": imported, "crc32": checksum}
    print(json.dumps(found))


if __name__ == "__main__":
    exit_with_message(main)
