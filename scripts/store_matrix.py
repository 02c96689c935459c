"""Write a converted matrix in another format and print, as JSON, the time and the size."""

import argparse
import importlib
import json
import time
from pathlib import Path

from study.core.errors import exit_with_message
from study.data import formats, matrix_file


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", choices=formats.FORMATS)
    parser.add_argument("matrix", help="the converted matrix")
    parser.add_argument("path", help="the file to write")
    arguments = parser.parse_args()
    importlib.import_module(formats.FORMATS[arguments.format].module)  # imports do not count as storing
    matrix = matrix_file.load(arguments.matrix)
    begun = time.perf_counter()
    formats.FORMATS[arguments.format].write(matrix, arguments.path)
    seconds = time.perf_counter() - begun
    print(json.dumps({"store_s": seconds, "stored_mb": Path(arguments.path).stat().st_size / 1e6}))


if __name__ == "__main__":
    exit_with_message(main)
