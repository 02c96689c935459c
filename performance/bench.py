"""`make bench`: what this project's own ways gain or cost, each as a ratio of medians over paired, alternating runs.

The files have the paper's sizes (1.6 GB, synthetic, in data/benchmarks/). Writes results.csv and results.md here.
A part's lines replace those of before when it ends. Each can be run alone: --only loading.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from datetime import date
from functools import partial
from pathlib import Path

import command_runs
import numpy as np
import pandas as pd
import planning
import psutil
import records
import sampling
import small_runs
import start
import whole_runs
from peers import PEERS
from ratios import SEED, Ratio, alternate, compute_ratio, compute_speedup

from study.core import configuration, provenance
from study.data import feature_scaling, loader_timing, page_cache
from study.data.loaders import map_matrix
from study.experiment import expansion
from study.machines import machine
from study.workloads.synthetic import generate_file

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

TITLES = {"nt3": "NT3", "p1b1": "P1B1", "p1b2": "P1B2"}
FILES = {"nt3": "train", "p1b1": "train", "p1b2": "train", "p1b3": "response"}  # P1B3's long, narrow file
LOADERS = ("read_csv", "chunked", "parallel", "mapped")
PAIRS = 2
PEER_ROUNDS = 3
NOT_OF_WIDE = {"pyarrow", "pandas_pyarrow"}  # take about three minutes, 13 and 21 GB for NT3's 60,484 columns
FEW_FEATURES = 6_000
EPOCH_PAIRS = 5
RANKS = 4


def main():
    """Read the command line, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "benchmarks", help="for the files")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            begun, rows = time.monotonic(), []
            for ratio in part(arguments.folder):
                rows.append({"part": name, **dataclasses.asdict(ratio), "measured": str(date.today())})
                print(_format_line(rows[-1]), flush=True)
            _write_results(pd.DataFrame(rows), name)
            print(f"part {name} took {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def measure_loading(folder):
    """Measure loading from the CSV, conversion, and loading from the converted file."""
    for benchmark, title in {**TITLES, "p1b3": "P1B3's responses"}.items():
        source, matrix = _make_csv(folder, benchmark), _make_matrix(folder, benchmark)
        measures = {loader: partial(_time_loading, loader, benchmark, source, matrix) for loader in LOADERS}
        measures["conversion"] = partial(
            _run_child, "convert", source, folder / "scratch.npy", benchmark, FILES[benchmark]
        )
        samples = alternate(title, PAIRS, measures)
        if len({sample["crc32"] for loader in LOADERS for sample in samples[loader]}) != 1:
            raise SystemExit(f"error: the loaders' arrays of {source} differ")
        seconds = {
            name: [s.get("load_s", s.get("seconds")) for s in loader_samples]
            for name, loader_samples in samples.items()
        }
        for name, label, baseline in (
            ("parallel", "CSV by parallel", "read_csv"),
            ("parallel", "CSV by parallel", "chunked"),
            ("conversion", "conversion", "read_csv"),
            ("mapped", "mapped, all pages touched", "read_csv"),
        ):
            yield compute_speedup(f"{title}: {label}", seconds[name], baseline, seconds[baseline])
        peaks = [sample["peak_memory_mb"] - sample["imported_memory_mb"] for sample in samples["parallel"]]
        size_mb = matrix.stat().st_size / 1e6
        yield compute_ratio(f"{title}: memory that parallel adds", peaks, "the matrix", [size_mb] * len(peaks), "times")


def _time_loading(loader, benchmark, source, matrix):
    """Time a loader from a warm page cache; returns a sample of `study.data.loader_timing`."""
    path = matrix if loader == "mapped" else source
    page_cache.warm_file(path)
    form = configuration.load_named("benchmarks", benchmark)["files"][FILES[benchmark]]
    sample = loader_timing.load_in_new_process(loader, path, matrix.with_suffix(".json"), form)
    if sample["status"] != "ok":
        raise SystemExit(f"error: {loader} of {source}: {sample['message']}")
    return sample


def measure_peers(folder):
    """Measure `parallel` against other libraries; imports are not counted."""
    of_wide = [name for name in PEERS if name not in NOT_OF_WIDE]
    for title, smaller, peers in (
        ("NT3", {}, of_wide),
        (f"NT3, {FEW_FEATURES} features", {"features": FEW_FEATURES}, list(PEERS)),
    ):
        source, matrix = _make_csv(folder, "nt3", **smaller), _make_matrix(folder, "nt3", **smaller)
        measures = {name: partial(_run_child, "measure_peer", name, source) for name in peers}
        for loader in ("numpy", "dask", "parallel"):
            measures[loader] = partial(_time_loading, loader, "nt3", source, matrix)
        samples = alternate(f"{title}, peers", PEER_ROUNDS, measures)
        seconds = {name: [sample["load_s"] for sample in library_samples] for name, library_samples in samples.items()}
        yield compute_ratio(f"{title}: CSV by parallel", seconds["parallel"], "1 s", [1.0] * PEER_ROUNDS, "s")
        for name in [*peers, "numpy", "dask"]:
            yield compute_speedup(f"{title}: CSV by parallel", seconds["parallel"], name, seconds[name])


def measure_copies(folder):
    """Measure what touching the mapped data costs beside copying the same bytes."""
    for benchmark, title in TITLES.items():
        times = _run_child("time_copies", _make_matrix(folder, benchmark), 9)
        name = f"{title}: mapping the file and"
        yield compute_ratio(f"{name} touching all pages", times["touched"], "memcpy", times["memcpy"], "times as long")
        yield compute_ratio(f"{name} copying it", times["copied"], "memcpy", times["memcpy"], "times as long")


def measure_memory(folder):
    """Measure the memory of several ranks on a node, beyond what each has without data."""
    matrix = _make_matrix(folder, "nt3")
    size_mb = matrix.stat().st_size / 1e6
    used = alternate("memory", 1, {how: partial(_measure_held_mb, how, matrix) for how in ("nothing", "mapped", "npy")})
    for how in ("mapped", "npy"):
        data = [total - without for total, without in zip(used[how], used["nothing"], strict=True)]
        yield compute_ratio(f"NT3: data of {RANKS} ranks in memory, {how}", data, "one copy", [size_mb], "times")


def measure_pipeline(folder):
    """Measure batches gathered from the mapped file against the array handed to Keras."""
    matrix = folder / "p1b2.scaled.npy"
    if not matrix.exists():
        numbers = map_matrix(_make_matrix(folder, "p1b2"))[:, 1:]
        feature_scaling.write_scaled(numbers, feature_scaling.fit_min_max(numbers), matrix)
    samples_by_way = alternate(
        "pipeline",
        PAIRS,
        {how: partial(_run_child, "time_training", how, matrix, 900, 4) for how in ("array", "mapped")},
    )
    times = {how: [np.median(sample["epoch_s"]) for sample in samples] for how, samples in samples_by_way.items()}
    peaks = {how: [sample["peak_memory_mb"] for sample in samples] for how, samples in samples_by_way.items()}
    yield compute_ratio(
        "P1B2: epoch from the mapped file", times["mapped"], "array to Keras", times["array"], "times as long"
    )
    yield compute_ratio(
        "P1B2: peak memory from the mapped file", peaks["mapped"], "array to Keras", peaks["array"], "times"
    )


def measure_keras_loop(_):
    """Measure our loop against Keras alone: NT3 at the prostate files' shape, one process, without Horovod."""
    samples = alternate(
        "NT3",
        EPOCH_PAIRS,
        {how: partial(_run_child, "time_nt3_epochs", how, 82, 12_533, 3) for how in ("keras", "ours")},
    )
    epochs_s = {how: [np.median(sample["epoch_s"]) for sample in each] for how, each in samples.items()}
    yield compute_ratio(
        "NT3, 82 x 12,533: epoch of our loop", epochs_s["ours"], "Keras alone", epochs_s["keras"], "times as long"
    )
    yield compute_ratio("NT3, 82 x 12,533: epoch of our loop", epochs_s["ours"], "1 s", [1.0] * EPOCH_PAIRS, "s")
    first_epochs_s = {how: [sample["first_epoch_s"] for sample in each] for how, each in samples.items()}
    name = "NT3, 82 x 12,533: first epoch of our loop"
    yield compute_ratio(name, first_epochs_s["ours"], "Keras alone", first_epochs_s["keras"], "times as long")
    yield compute_ratio(name, first_epochs_s["ours"], "1 s", [1.0] * EPOCH_PAIRS, "s")


def measure_pytorch_loop(folder):
    """Measure our loop of PyTorch against a plain one, and what a timeline costs."""
    kinds = {how: partial(_run_child, "time_pytorch_epochs", how, 82, 3_000, 4) for how in ("plain", "ours")}
    samples = alternate("NT3 with PyTorch", EPOCH_PAIRS, kinds)
    epochs_s = {how: [np.median(sample["epoch_s"]) for sample in each] for how, each in samples.items()}
    name = "NT3 with PyTorch, 82 x 3,000: epoch of our loop"
    yield compute_ratio(name, epochs_s["ours"], "a plain loop", epochs_s["plain"], "times as long")
    yield from measure_timeline(folder)


def measure_timeline(folder):
    """Measure what DistributedDataParallel's timeline costs: time per epoch on two ranks with it and without."""
    on = machine.load("local")
    keys = {"loader": "npy", "framework": "pytorch", "strategy": "ddp"}
    runs = {
        how: small_runs.define_run("nt3", folder, on, small_runs.NT3, trace=how == "with", **keys)
        for how in ("without", "with")
    }
    measures = {how: partial(_time_steady_epoch, run, folder / "run") for how, run in runs.items()}
    epochs_s = alternate("timeline of PyTorch", EPOCH_PAIRS, measures)
    name = "NT3 with PyTorch on DDP, 2 ranks: epoch with a timeline"
    yield compute_ratio(name, epochs_s["with"], "without", epochs_s["without"], "times as long")


def _time_steady_epoch(run, folder):
    """Launch a run; returns its seconds per epoch without the first."""
    return small_runs.record_run(run, folder)["training"]["time_per_epoch_steady_s"]


def measure_sampling(_):
    """Measure training with the power sampler running beside it and stopped."""
    cost = sampling.measure_cost("local", rate_hz=10, pairs=30, seconds=0.5)
    yield Ratio("training with power sampled at 10 Hz", "without", cost.ratio, cost.low, cost.high, "times as long")
    yield Ratio("CPU time of the power sampler", "one core", *[cost.cpu_share] * 3, "share")


PARTS = {
    "loading": measure_loading, "peers": measure_peers, "copy": measure_copies, "memory": measure_memory,
    "pipeline": measure_pipeline, "run": whole_runs.measure_runs, "staging": whole_runs.measure_staging,
    "original": measure_keras_loop, "pytorch": measure_pytorch_loop, "planning": planning.measure_planning,
    "records": records.measure_records, "start": start.measure_start, "command": command_runs.measure_commands,
    "sampling": measure_sampling,
}  # fmt: skip


def _make_csv(folder, benchmark, **smaller):
    """Make a file of the paper's size, as in the study `loading`, or with fewer ``features``, if it is missing."""
    path = folder / f"{'-'.join([benchmark, *map(str, smaller.values())])}.csv"
    if not path.exists():
        datasets = {entry.dataset.benchmark: entry.dataset for entry in expansion.load_study("loading").loading}
        dataset = datasets[benchmark]
        generate_file(path, benchmark, dataset.spec, dataset.definition | {"seed": SEED} | smaller, FILES[benchmark])
    return path


def _make_matrix(folder, benchmark, **smaller):
    """Make the converted file of `_make_csv`, if it is missing."""
    source = _make_csv(folder, benchmark, **smaller)
    path = source.with_suffix(".npy")
    if not path.exists():
        _run_child("convert", source, path, benchmark, FILES[benchmark])
    return path


def _run_child(*arguments):
    """Run a function of child.py in a process of its own; returns what it prints."""
    process = subprocess.run(_make_command(arguments), capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, arguments))}: {process.stderr.strip()[-1000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def _make_command(arguments):
    """Make the command line of a function of child.py with its arguments."""
    return [sys.executable, str(HERE / "child.py"), *map(str, arguments)]


def _measure_held_mb(how, matrix):
    """Measure the memory (MB) of several processes that hold a matrix each, shared pages counted once."""
    ranks = [
        subprocess.Popen(
            _make_command(("hold_matrix", how, matrix)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(RANKS)
    ]
    try:
        for rank in ranks:
            if not rank.stdout.readline():
                raise SystemExit(f"error: a process that should hold the matrix ({how}) ended")
        return sum(psutil.Process(rank.pid).memory_full_info().pss for rank in ranks) / 1e6
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def _format_line(row):
    """Format a row of the results as a line of text."""
    spread = f"{row['low']:.3g} to {row['high']:.3g}"
    return f"{row['name']}: {row['ratio']:.3g} {row['unit']} (against {row['baseline']}; {spread})"


def _write_results(rows, part):
    """Replace the lines of a part in the results."""
    path = HERE / "results.csv"
    if path.exists():
        before = pd.read_csv(path)
        rows = pd.concat([before[before["part"] != part], rows])
        rows = rows.sort_values("part", key=lambda names: names.map(list(PARTS).index), kind="stable")
    rows.to_csv(path, index=False, float_format="%.4g")
    facts = provenance.collect_provenance()
    host = facts["host"]
    (HERE / "results.md").write_text(
        f"# Measurements of this project's code\n\nBy `make bench`, last on {date.today()}: {host['cpu']}, "
        f"{host['cores_allowed']} cores, {host['memory_mb'] / 1000:.0f} GB, {host['system']}, "
        f"TensorFlow {facts['packages']['tensorflow']}, {facts['table_parser']} parser of tables; load "
        f"{host['load_average_before']:.1f} at the end; commit {facts['git']['commit']}.\n\nA ratio is of medians over "
        "paired, alternating runs; low and high are the smallest and the largest ratio of a pair (for sampling: its 95 "
        "% interval). Files have the paper's sizes and are in the page cache.\n\n"
        + rows.to_markdown(index=False, floatfmt=".3g")
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
