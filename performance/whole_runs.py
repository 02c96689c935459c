"""Runs of one epoch, launched as the study launches them: how long they take, and what they read."""

import json
import sys
from functools import partial
from pathlib import Path
from unittest import mock

from ratios import SEED, alternate, compared, faster

from study.core import configuration
from study.data import feature_scaling
from study.data.conversion import convert
from study.data.loaders import map_matrix
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.instruments import phases
from study.launch import launch
from study.machines import launchers, machine
from study.workloads.synthetic import generate

RANKS_ON_TWO_NODES = 3  # two on the first


def run_ratios(folder):
    """A run of one epoch from the start of the launcher to its end: how long it takes, and how much is not training."""
    runs = {loader: one_epoch(folder, loader) for loader in ("read_csv", "mapped")}
    found = alternate("one epoch", 2, {loader: partial(launched, run, folder / "run") for loader, run in runs.items()})
    seconds = {loader: [record["runtime_s"] for record in records] for loader, records in found.items()}
    name = "P1B2, 600 rows, one epoch, 2 ranks"
    yield faster(f"{name}: mapped", seconds["mapped"], "read_csv", seconds["read_csv"])
    for loader, records in found.items():
        outside = [record["runtime_s"] - record["train_s"] for record in records]
        yield compared(f"{name}: outside training, {loader}", outside, "the run", seconds[loader], "share")


def staging_ratios(folder):
    """Each way of the files to ranks on two nodes, which are two names of this host: time, and what is read."""
    two_nodes = {"ranks_per_node": 2, "node_storage": str(folder)}
    point = {"gpus": RANKS_ON_TWO_NODES, "batch_size": 540}  # an epoch of one step: it is not what is measured
    ways = ("none", "local_copy", "node_broadcast", "job_broadcast")
    runs = {way: one_epoch(folder, "read_csv", two_nodes, staging=way, **point) for way in ways}
    with mock.patch.object(launchers.Horovodrun, "line", _on_two_nodes):
        found = alternate("staging", 2, {way: partial(launched, run, folder / "run") for way, run in runs.items()})
    seconds = {way: [record["load_s"] for record in records] for way, records in found.items()}
    read = {way: [record["shared_read_mb"] for record in records] for way, records in found.items()}
    files_mb = sum(path.stat().st_size for path in map(Path, _paths(runs["none"]))) / 1e6
    for way in ways:
        name = f"P1B2, 600 rows, {RANKS_ON_TWO_NODES} ranks on 2 nodes: {way}"
        if way != "none":
            yield compared(f"{name}, loading", seconds[way], "none", seconds["none"], "times as long")
        yield compared(f"{name}, read of the shared files", read[way], "their size", [files_mb] * 2, "times")


def _on_two_nodes(launcher, ranks, machine):
    """The ranks of one node by this host's name, those of the other by its address."""
    hosts = f"localhost:{machine['ranks_per_node']},127.0.0.1:{ranks - machine['ranks_per_node']}"
    return [sys.executable, launchers.HOROVODRUN, "--gloo", "-np", str(ranks), "-H", hosts]


def _paths(run):
    return [paths["path"] for paths in run.data.values()]


def one_epoch(folder, loader, machine_changes=(), **changes):
    """The definition of a run, its files made where they are not there."""
    spec = configuration.load_named("benchmarks", "p1b2")
    shape = {"train_samples": 600, "test_samples": 200, "features": spec["workload"]["features"], "seed": SEED}
    point = {"benchmark": "p1b2", "scaling": "weak", "epochs": 1, "gpus": 2, "loader": loader, **changes}
    run, paths = planned(folder, {"p1b2": {"source": "synthetic", **shape}}, point)
    on = machine.load("local") | dict(machine_changes)
    matrices = {file: map_matrix(path) for file, path in paths.items()}
    scaler = feature_scaling.min_max(*(matrix[:, 1:] for matrix in matrices.values()))
    for file, matrix in matrices.items():
        numbers, codes = run.dataset.scaled(folder, file)
        feature_scaling.prepare(matrix[:, 1:], scaler, numbers)
        feature_scaling.save_codes(matrix[:, :1], codes)
    return inputs.define(run, on, str(folder))


def planned(folder, datasets, point):
    """The run of one point, and {file: its converted matrix}, made where they are not there."""
    study = {"description": "", "datasets": datasets, "runs": [point], "tables": []}
    (run,) = expansion.expand("bench", study, "bench").runs
    dataset, paths = run.dataset, {}
    for file, form in run.spec.get("files", {}).items():
        raw, matrix = Path(dataset.raw(folder, file)), Path(dataset.converted(folder, file))
        if not raw.exists():
            generate(raw, dataset.benchmark, run.spec, dataset.definition, file)
        if not matrix.exists():
            convert(raw, matrix, matrix.with_suffix(".json"), Form.of(form))
        paths[file] = matrix
    return run, paths


def launched(run, folder):
    """Launch a run; its runtime, rank 0's time in training, the slowest load, and what all ranks read."""
    launch.launch(run, folder, time_limit_s=600)
    outcome = json.loads((folder / "outcome.json").read_text())
    if outcome["status"] != "ok":
        raise SystemExit(f"error: {folder}: {outcome['failure']['message']}")
    times = phases.compute_durations(phases.read_edges(folder / "phases.jsonl"))
    ranks = json.loads((folder / "metrics.json").read_text())["ranks"]
    return {
        "runtime_s": outcome["runtime_s"],
        "train_s": times["train"][0],
        "phases_s": sum(times[phase][0] for phase in phases.PHASES if phase != "startup"),
        "load_s": max(times["load"].values()),
        "shared_read_mb": sum(rank["shared_read_mb"] for rank in ranks),
    }
