"""Time the loaders on one dataset and write every sample."""

import argparse
import contextlib
import json
import math
import os
from pathlib import Path

from study.core import number_types
from study.core.errors import exit_with_message
from study.data.images.formats import FORMATS
from study.data.loader_timing import LIMIT_S, measure
from study.data.loaders import LOADERS
from study.experiment import conversions
from study.machines import machine, machine_lock, queues


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--files", required=True, type=json.loads, help="{file: {raw, npy, sidecar, form, made}} as JSON"
    )
    parser.add_argument("--loader", required=True, nargs="+", choices=[*LOADERS, *(set(FORMATS) - set(LOADERS))])
    parser.add_argument("--page-cache", required=True, nargs="+", choices=["warm", "cold"])
    parser.add_argument("--repeats", required=True, type=number_types.count)
    parser.add_argument("--machine", required=True, help="in a batch job of this machine, its node is its own")
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    for paths in arguments.files.values():
        for sidecar in [f"{each}.json" for each in paths.get("folders", {}).values()] or [paths["sidecar"]]:
            conversions.check_file(sidecar, paths["made"])
    in_job = queues.read_job(os.environ, machine.load_if_declared(arguments.machine)) is not None
    lock = (
        contextlib.nullcontext()
        if in_job
        else machine_lock.hold_lock(f"loaders, for {Path(arguments.output).resolve()}", longest_s(arguments))
    )
    labels = {name: getattr(arguments, name) for name in ("machine", "benchmark", "dataset")}
    with lock as held:
        measure(arguments.files, arguments.loader, arguments.page_cache, arguments.repeats, labels, arguments.output,
                held and held.as_dict())  # fmt: skip


def longest_s(arguments: argparse.Namespace) -> float:
    """The longest time (s) of all loads, of which each has its limit."""
    counts = (len(each) for each in (arguments.files, arguments.loader, arguments.page_cache))
    return LIMIT_S * arguments.repeats * math.prod(counts)


if __name__ == "__main__":
    exit_with_message(main)
