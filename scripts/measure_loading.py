"""Time the loaders on one dataset and write every sample."""

import argparse
import json
import math
from pathlib import Path

from study.core import number_types
from study.core.errors import exit_with_message
from study.data.images.formats import FORMATS
from study.data.loader_timing import LIMIT_S, measure
from study.data.loaders import LOADERS
from study.machines import machine_lock


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", required=True, type=json.loads, help="{file: {raw, npy, sidecar, form}} as JSON")
    parser.add_argument("--loader", required=True, nargs="+", choices=[*LOADERS, *(set(FORMATS) - set(LOADERS))])
    parser.add_argument("--page-cache", required=True, nargs="+", choices=["warm", "cold"])
    parser.add_argument("--repeats", required=True, type=number_types.count)
    parser.add_argument(
        "--timed-alone", type=number_types.whole, choices=[0, 1], default=1, help="0: on a node of a batch job"
    )
    parser.add_argument("--machine", required=True)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    lock = machine_lock.alone if arguments.timed_alone else machine_lock.not_needed
    labels = {name: getattr(arguments, name) for name in ("machine", "benchmark", "dataset")}
    with lock(f"loaders, for {Path(arguments.output).resolve()}", longest_s(arguments)) as held:
        measure(arguments.files, arguments.loader, arguments.page_cache, arguments.repeats, labels, arguments.output,
                held and held.as_dict())  # fmt: skip


def longest_s(arguments: argparse.Namespace) -> float:
    """The longest time (s) of all loads, of which each has its limit."""
    counts = (len(each) for each in (arguments.files, arguments.loader, arguments.page_cache))
    return LIMIT_S * arguments.repeats * math.prod(counts)


if __name__ == "__main__":
    exit_with_message(main)
