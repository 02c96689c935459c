"""Time the loaders on one dataset and write every sample."""

import argparse
import json

from study.core.errors import exit_with_message
from study.data.images.formats import FORMATS
from study.data.loader_timing import measure
from study.data.loaders import LOADERS


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", required=True, type=json.loads, help="{file: {raw, npy, sidecar, form}} as JSON")
    parser.add_argument("--loader", required=True, nargs="+", choices=[*LOADERS, *(set(FORMATS) - set(LOADERS))])
    parser.add_argument("--page-cache", required=True, nargs="+", choices=["warm", "cold"])
    parser.add_argument("--repeats", required=True, type=int)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    labels = {name: getattr(arguments, name) for name in ("machine", "benchmark", "dataset")}
    measure(arguments.files, arguments.loader, arguments.page_cache, arguments.repeats, labels, arguments.output)


if __name__ == "__main__":
    exit_with_message(main)
