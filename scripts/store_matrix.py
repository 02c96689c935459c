"""Write a converted matrix in another format and print, as JSON, the time and the size.

store_matrix.py FORMAT MATRIX FILE
"""

import importlib
import json
import sys
import time
from pathlib import Path

from study.core.errors import exit_with_message
from study.data import formats, matrix_file


def main() -> None:
    """Store the matrix and print time and size."""
    format_name, source, path = sys.argv[1:]
    importlib.import_module(formats.FORMATS[format_name].module)  # imports do not count as storing
    matrix = matrix_file.read_matrix(source)
    begun = time.perf_counter()
    formats.FORMATS[format_name].write(matrix, path)
    seconds = time.perf_counter() - begun
    print(json.dumps({"store_s": seconds, "stored_mb": Path(path).stat().st_size / 1e6}))


if __name__ == "__main__":
    exit_with_message(main)
