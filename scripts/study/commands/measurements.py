"""Measurements beside the runs of a study: of a host's GPUs, of storage, and of loaders."""

import contextlib
import os
from pathlib import Path
from typing import Any

import click

from study.commands.options import (
    COUNT,
    JSON,
    SECONDS,
    StepOfLists,
    load_contrib,
    step,
    verb,
)


@verb(
    "gpu", "Does every measurement work on this machine's GPUs?", page="docs/gpu-check.md", reads_workflow=False,
    exit_codes="0 no check failed, 1 a check failed, 2 no GPU or wrong arguments",
)  # fmt: skip
@click.option("--minutes", type=SECONDS, default=10.0, help="its study is ended after so long")
@click.option("--output", metavar="PATH", help="a new folder; by default one in results/gpu_check with the time")
def gpu(minutes: float, output: str | None) -> None:
    """Check on this host's GPUs whether meters, device mapping, limits and training are right; writes a report.

    It needs PyTorch with CUDA: make setup WITH=pytorch.
    """
    load_contrib("gpu_check.check").check_gpus(output, minutes)


@step("measure_loading", StepOfLists)
@click.option("--files", type=JSON, required=True, help="{file: {raw, npy, sidecar, form, made}} as JSON")
@click.option("--loader", "loaders", multiple=True, required=True)
@click.option("--page-cache", "page_caches", type=click.Choice(["warm", "cold"]), multiple=True, required=True)
@click.option("--repeats", type=COUNT, required=True)
@click.option("--machine", required=True)
@click.option("--benchmark", required=True)
@click.option("--dataset", required=True)
@click.option("--output", required=True)
def measure_loading(
    files: dict[str, Any], loaders: tuple[str, ...], page_caches: tuple[str, ...], repeats: int, machine: str,
    benchmark: str, dataset: str, output: str,
) -> None:  # fmt: skip
    """Time the loaders on one dataset and write every sample. In a batch job of the machine, its node is its own."""
    from study.data import loader_timing
    from study.experiment import conversions
    from study.machines import machine_lock, queues
    from study.machines.machine import load_if_declared

    for file in files.values():
        conversions.check_converted_file(file["sidecar"], file["made"])
    labels = {"machine": machine, "benchmark": benchmark, "dataset": dataset}
    longest_s = loader_timing.LIMIT_S * repeats * len(files) * len(loaders) * len(page_caches)
    is_in_job = queues.read_job(os.environ, load_if_declared(machine)) is not None
    lock: Any = contextlib.nullcontext()
    if not is_in_job:
        lock = machine_lock.hold_lock(f"loaders, for {Path(output).resolve()}", longest_s)
    with lock as holder:
        loader_timing.measure_loading(files, loaders, page_caches, repeats, labels, output, holder and holder.as_dict())
