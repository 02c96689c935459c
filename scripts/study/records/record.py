"""One record of a run, made from its directory; can be made again without training again."""

from pathlib import Path

import pandas as pd
import yaml

from study.core import configuration
from study.core.errors import StudyError
from study.core.files import number_or_none, read_json, sha256
from study.instruments import phases, profiler
from study.instruments.power import summary

SCHEMA_VERSION = 6


def make_record(folder):
    """The run record of a run's directory, as a dict that fits ``config/schemas/record.schema.yaml``.

    Times are seconds. A phase that took N ranks different times has the slowest, the fastest and rank 0's.
    Raises `StudyError` where a file of the run is missing or is not the one the run wrote.
    """
    folder = Path(folder)
    outcome = read_json(folder / "outcome.json")
    configuration.check(outcome, "outcome", str(folder / "outcome.json"))
    verify(folder, outcome["files"])
    run = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8"))
    provenance = read_json(folder / "provenance.json")
    ok = outcome["status"] == "ok"
    history = pd.read_csv(folder / "history.csv") if ok else None
    metrics = read_json(folder / "metrics.json") if ok else None
    if ok:
        _check_history(history, run, folder)
    record = {
        "schema_version": SCHEMA_VERSION,
        "machine": run["machine"]["name"],
        "parameters": run["parameters"],
        "derived": run["derived"],
        "benchmark": {key: run["benchmark"][key] for key in ("learning_rate", "optimizer", "loss")},
        "workload": metrics["workload"] if ok else None,
        "data_mb": _data_mb(run, provenance),
        "status": outcome["status"],
        "failure": outcome["failure"],
        "runtime_s": outcome["runtime_s"],
        "resumed_after_epoch": metrics["resumed_after_epoch"] if ok else None,
        "phases": _phase_times(folder),
        "training": _training(run, history, metrics) if ok else None,
        "quality": _quality(history, metrics) if ok else None,
        "reading": _reading(metrics) if ok else None,
        "memory": {"peak_memory_mb": max(rank["peak_memory_mb"] for rank in metrics["ranks"])} if ok else None,
        "power": summary.summarize(folder, run, phases.read(folder / "phases.jsonl")),
        "communication": _communication(folder, run),
        "profile": profiler.summarize(folder / "profile.pstats") if (folder / "profile.pstats").exists() else None,
        "model": {"parameters": metrics["parameters"], "ranks_agree": _ranks_agree(metrics)} if ok else None,
        "provenance": {
            "training_code": provenance["training_code"],
            "git_commit": provenance["git"]["commit"],
            "git_dirty": provenance["git"]["dirty"],
            "packages": provenance["packages"],
            "host": provenance["host"]["name"],
            "oversubscribed": _oversubscribed(run, provenance),
            "started_wall_ns": outcome["started_wall_ns"],
        },
        "files": outcome["files"],
    }
    configuration.check(record, "record", f"the record of {folder}")
    return record


def read_record(path):
    """Read a record back, checked against the schema and for its version."""
    record = read_json(path)
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        raise StudyError(f"{path}: a record of schema version {version}, this code reads {SCHEMA_VERSION}; delete it")
    configuration.check(record, "record", str(path))
    return record


def verify(folder, files):
    """Raise `StudyError` where a run's file is missing or no longer has the checksum in ``files``."""
    for name, known in files.items():
        path = folder / name
        if not path.exists():
            raise StudyError(f"{path}: is missing, but the run wrote it; restore it or delete {folder} to run again")
        if sha256(path) != known:
            raise StudyError(f"{path}: was changed after the run; restore it or delete {folder} to run again")


def _check_history(history, run, folder):
    expected = list(range(1, run["derived"]["epochs_per_rank"] + 1))
    if list(history["epoch"]) != expected:
        raise StudyError(
            f"{folder / 'history.csv'}: epochs {list(history['epoch'])}, expected 1 to {expected[-1]}; "
            f"delete {folder} to run again"
        )


def _communication(folder, run):
    """What the timeline told (scripts/read_timeline.py); None for a run that was not traced."""
    return read_json(folder / "communication.json") if run["parameters"]["trace"] else None


def _data_mb(run, provenance):
    """Size (MB) of each file of the dataset by its name in the benchmark's YAML."""
    return {file: provenance["data"][file]["source"]["bytes"] / 1e6 for file in run["data"]}


def _phase_times(folder):
    times = phases.durations(phases.read(folder / "phases.jsonl"))
    return {
        phase: {
            "slowest_s": max(times[phase].values()),
            "fastest_s": min(times[phase].values()),
            "rank_0_s": times[phase].get(0),
        }
        for phase in (*phases.PHASES, *phases.PARTS)
        if phase in times
    }


def _training(run, history, metrics):
    """Time per epoch and throughput, from rank 0's epochs.

    ``time_per_epoch_s``: the mean over all epochs, the first included, as the paper's tables have it.
    ``time_per_epoch_steady_s``: the median without the first, which builds the graph; None with one epoch.
    """
    times = history["time_s"]
    samples = metrics["workload"]["samples_per_rank"] * run["parameters"]["gpus"]
    return {
        "time_per_epoch_s": times.mean(),
        "time_per_epoch_steady_s": times[1:].median() if len(times) > 1 else None,
        "throughput_samples_per_s": samples * len(times) / times.sum(),
        "learning_rate_used": history["learning_rate"].iloc[-1],
    }


def _quality(history, metrics):
    """Loss and metrics of rank 0's last epoch, of its validation, and of the evaluation on the test set.

    A value that is not finite becomes None.
    """
    last = history.iloc[-1]
    values = {}
    for name, tested in metrics["test"].items():
        values |= {name: last[name], f"validation_{name}": last[f"val_{name}"], f"test_{name}": tested}
    return {name: number_or_none(value) for name, value in values.items()}


def _reading(metrics):
    """What all ranks together read of the files on the shared file system, in MB; None where it was not counted."""
    return {name: _sum([rank[f"{name}_read_mb"] for rank in metrics["ranks"]]) for name in ("shared", "storage")}


def _sum(values):
    return None if None in values else sum(values)


def _ranks_agree(metrics):
    return len({rank["final_weights_crc32"] for rank in metrics["ranks"]}) == 1


def _oversubscribed(run, provenance):
    """Whether the ranks of a node had fewer cores than the machine's file gives them."""
    ranks = min(run["parameters"]["gpus"], run["machine"]["ranks_per_node"])
    return ranks * run["machine"]["cores_per_rank"] > provenance["host"]["cores_allowed"]
