"""A run's directory, made up file by file, for tests of what comes after training."""

import cProfile
import gzip
import json

import pandas as pd
import timelines
from examples import define

from study.core.files import read_json, sha256, to_finite_or_none, write_json, write_sealed
from study.instruments.timeline import read_communication
from study.records.record import make_record

EPOCHS_NS = timelines.epoch_edges_ns()[0]


def make_run(
    root,
    run,
    status="ok",
    kind="oom",
    times=None,
    accuracy=0.9,
    runtime=20.0,
    load=(2.0, 3.0),
    machine="local",
    loss=0.5,
    resumed=None,
    started=1,
    session="s",
    validation=None,
    more_edges=(),
    clock_set_s=0,
    train=None,
    host="n1",
):
    """Make the directory of one run below ``root``, file by file; returns its path.

    validation: val_accuracy by epoch. more_edges: of phases, (phase, edge, rank, seconds since `EPOCHS_NS`).
    clock_set_s: by how much the wall clock is set before the ends of ``more_edges``.
    host: of the ranks; n1 is the launching one.
    """
    folder = root / machine / "runs" / run.directory
    folder.mkdir(parents=True)
    define(run, machine).write(folder / "run.yaml")
    shape = run.dataset.shape or {"test_samples": 1000, "features": run.spec["workload"]["features"]}
    provenance = {
        "training_code": "c0de",
        "loader_sensor_code": "c0de",
        "data": {file: {"source": {"bytes": 5_000_000}} for file in run.dataset.file_keys},
        "git": {"commit": "abc", "dirty": False},
        "packages": {"tensorflow": "2"},
        "host": {"name": "n1", "cores_allowed": 2, "physical_cores_allowed": None, "cpu_quota_cores": None},
        "session": session,
        "steering": {"OMP_NUM_THREADS": "1"},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance))
    began = EPOCHS_NS - 100 * 10**9  # the host: its monotonic clock is 0
    edges = [
        {"phase": "load", "edge": e, "rank": r, "host": host, "wall_ns": began + int(t * 1e9),
         "monotonic_ns": int(t * 1e9)}
        for r, seconds in enumerate(load)
        for e, t in (("begin", 1), ("end", 1 + seconds))
    ]  # fmt: skip
    edges += [
        {"phase": phase, "edge": e, "rank": r, "host": host,
         "wall_ns": EPOCHS_NS + int((t + clock_set_s * (e == "end")) * 1e9),
         "monotonic_ns": int((100 + t) * 1e9)} for phase, e, r, t in more_edges
    ]  # fmt: skip
    if train is not None:
        edges += [{**edges[e == "end"], "phase": "train", "edge": e, "wall_ns": began + t, "monotonic_ns": t}
                  for e, t in (("begin", 10**12), ("end", 10**12 + int(train * 1e9)))]  # fmt: skip
    absent = {"host": "n1", "devices": [], "reasons": {"rapl": "no power sensor here"}}
    (folder / "sensors.json").write_text(json.dumps([absent]))
    (folder / "phases.jsonl").write_text("".join(json.dumps(e) + "\n" for e in edges))
    if status == "ok":
        times = times or [1.0] * run.epochs_per_rank
        rows = [
            {"epoch": i + 1, "time_s": t, "loss": loss, "accuracy": accuracy, "val_loss": 0.6,
             "val_accuracy": validation[i] if validation else 0.8,
             "learning_rate": 0.002, "steps_s": t, "begin_wall_ns": EPOCHS_NS + i * 10**9,
             "begin_monotonic_ns": (100 + i) * 10**9} for i, t in enumerate(times)
        ]  # fmt: skip
        pd.DataFrame(rows).to_csv(folder / "history.csv", index=False)
        ranks = [{"rank": r, "peak_memory_mb": 100.0 + r, "shared_read_mb": 5.0, "storage_read_mb": None,
                  "final_weights_crc32": 7} for r in range(run.gpus)]  # fmt: skip
        tested = {"loss": to_finite_or_none(loss), "accuracy": 0.75}
        workload = {
            "train_samples": run.dataset.train_samples,
            "test_samples": shape["test_samples"],
            "features": shape["features"],
            "samples_per_rank": run.samples_per_rank,
        }
        metrics = {
            "test": tested,
            "workload": workload,
            "parameters": 12,
            "ranks": ranks,
            "resumed_after_epoch": resumed,
        }
        (folder / "metrics.json").write_text(json.dumps(metrics))
    if run["trace"]:
        (folder / "timeline.json.gz").write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
    if run["profile"]:
        recorder = cProfile.Profile()
        recorder.runcall(json.dumps, {})
        recorder.dump_stats(folder / "profile.pstats")
    why = {"kind": kind, "phase": "train", "rank": 0, "host": None, "message": "no memory", "log": []}
    failure = why if status != "ok" else None
    outcome = {"status": status, "failure": failure, "exit_code": 0, "workers_lost": None, "boot_id": None}
    outcome |= {"started_wall_ns": started, "started_monotonic_ns": max(0, started - began), "runtime_s": runtime}
    outcome["files"] = {path.name: sha256(path) for path in folder.iterdir()}
    (folder / "outcome.json").write_text(json.dumps(outcome))
    if run["trace"]:
        write_json(folder / "communication.json", read_communication(folder).summary)
    return folder


def resealed(folder, *names):
    """Changed files of a run have their checksums, as if it had ended with them."""
    outcome = read_json(folder / "outcome.json")
    outcome["files"] |= {name: sha256(folder / name) for name in names}
    write_sealed(folder / "outcome.json", outcome)


def make_recorded(root, run, **facts):
    """`make_run`, with the run's record."""
    folder = make_run(root, run, **facts)
    write_json(folder / "record.json", make_record(folder))
    return folder
