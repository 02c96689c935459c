"""Runs of one epoch, launched as the study launches them: how long they take, and what they read."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from unittest import mock

from ratios import SEED, alternate, compute_ratio, compute_speedup

from study.core import configuration
from study.data import feature_scaling
from study.data.conversion import convert
from study.data.loaders import map_matrix
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.instruments import phases
from study.launch import launch
from study.machines import launchers, machine
from study.workloads.synthetic import generate_file

RANKS_ON_TWO_NODES = 3  # two on the first


def measure_runs(folder):
    """Measure runs of one epoch from the start of the launcher to its end, and the share that is not training."""
    runs = {loader: define_one_epoch(folder, loader) for loader in ("read_csv", "mapped")}
    records_by_loader = alternate(
        "one epoch", 2, {loader: partial(launch_run, run, folder / "run") for loader, run in runs.items()}
    )
    seconds = {loader: [record["runtime_s"] for record in records] for loader, records in records_by_loader.items()}
    name = "P1B2, 600 rows, one epoch, 2 ranks"
    yield compute_speedup(f"{name}: mapped", seconds["mapped"], "read_csv", seconds["read_csv"])
    for loader, records in records_by_loader.items():
        outside = [record["runtime_s"] - record["train_s"] for record in records]
        yield compute_ratio(f"{name}: outside training, {loader}", outside, "the run", seconds[loader], "share")


def measure_staging(folder):
    """Measure each way of staging to ranks on two nodes, two names of this host: load time, and megabytes read."""
    two_nodes = {"ranks_per_node": 2, "node_storage": str(folder)}
    point = {"gpus": RANKS_ON_TWO_NODES, "batch_size": 540}  # an epoch of one step: it is not what is measured
    ways = ("none", "local_copy")
    runs = {way: define_one_epoch(folder, "read_csv", two_nodes, staging=way, **point) for way in ways}
    with mock.patch.object(launchers.Horovodrun, "line", _make_two_node_line):
        records_by_way = alternate(
            "staging", 2, {way: partial(launch_run, run, folder / "run") for way, run in runs.items()}
        )
    seconds = {way: [record["load_s"] for record in records] for way, records in records_by_way.items()}
    read = {way: [record["shared_read_mb"] for record in records] for way, records in records_by_way.items()}
    files_mb = sum(path.stat().st_size for path in map(Path, _list_paths(runs["none"]))) / 1e6
    for way in ways:
        name = f"P1B2, 600 rows, {RANKS_ON_TWO_NODES} ranks on 2 nodes: {way}"
        if way != "none":
            yield compute_ratio(f"{name}, loading", seconds[way], "none", seconds["none"], "times as long")
        yield compute_ratio(f"{name}, read of the shared files", read[way], "their size", [files_mb] * 2, "times")


def _make_two_node_line(launcher, ranks, machine):
    """Make the launcher's line for two nodes: one is this host's name, the other its address."""
    hosts = f"localhost:{machine['ranks_per_node']},127.0.0.1:{ranks - machine['ranks_per_node']}"
    return [sys.executable, launchers.HOROVODRUN, "--gloo", "-np", str(ranks), "-H", hosts]


def _list_paths(run):
    """List the files that a run reads."""
    return [paths["path"] for paths in run.data.values()]


def define_one_epoch(folder, loader, machine_changes=(), **changes):
    """Define a run of P1B2 with one epoch, and make its missing files."""
    spec = configuration.load_named("benchmarks", "p1b2")
    shape = {"train_samples": 600, "test_samples": 200, "features": spec["workload"]["features"], "seed": SEED}
    point = {"benchmark": "p1b2", "scaling": "weak", "epochs": 1, "gpus": 2, "loader": loader, **changes}
    run, paths = plan_run(folder, {"p1b2": {"source": "synthetic", **shape}}, point)
    on = machine.load("local") | dict(machine_changes)
    matrices = {file: map_matrix(path) for file, path in paths.items()}
    scaler = feature_scaling.fit_min_max(*(matrix[:, 1:] for matrix in matrices.values()))
    for file, matrix in matrices.items():
        numbers, codes = run.dataset.locate_scaled(folder, file)
        feature_scaling.write_scaled(matrix[:, 1:], scaler, numbers)
        feature_scaling.save_codes(matrix[:, :1], codes)
    return inputs.define_run(run, on, str(folder))


def plan_run(folder, datasets, point):
    """Plan the run of one point, and make its missing files; returns it and {file: its converted matrix}."""
    study = {"description": "", "datasets": datasets, "runs": [point], "tables": []}
    (run,) = expansion.expand_study("bench", study, "bench").runs
    dataset, paths = run.dataset, {}
    for file, form in run.spec.get("files", {}).items():
        raw, matrix = Path(dataset.locate_raw(folder, file)), Path(dataset.locate_converted(folder, file))
        if not raw.exists():
            generate_file(raw, dataset.benchmark, run.spec, dataset.definition, file)
        if not matrix.exists():
            convert(raw, matrix, matrix.with_suffix(".json"), Form.from_spec(form))
        paths[file] = matrix
    return run, paths


def launch_run(run, folder):
    """Launch a run; returns runtime, rank 0's training time, the slowest load, and the MB that all ranks read."""
    shutil.rmtree(folder, ignore_errors=True)  # an outcome is never overwritten
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
