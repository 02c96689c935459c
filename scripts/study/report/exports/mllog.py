"""A run as lines ``:::MLLOG {json}`` in MLPerf's logging format, from what rank 0 logged.

The keys are those that a command may write (`study.workloads.command.events`), so what this writes can be read by it.
Times are in ms since 1970 by the launching host's clock. Fields of a submission to MLPerf are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from study.communication import roles
from study.core import checked, fields
from study.core.csv_columns import read_columns
from study.core.csv_files import FINITE, NUMBER, WHOLE
from study.core.errors import StudyError
from study.core.files import write_text
from study.core.wording import counted
from study.experiment import applicable
from study.experiment.definition import RunDefinition
from study.experiment.identity import filled
from study.instruments import phases
from study.machines.process_roles import PARAMETER_SERVER
from study.records.record import read_record
from study.report.exports import kinds
from study.report.trace import edges_of_run
from study.workloads import command

MARK = ":::MLLOG "
START, STOP, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
OF_PHASES = {"load": "init", "preprocess": "preprocess", "broadcast": "broadcast", "train": "run", "evaluate": "eval"}
TIMES = {"epoch": WHOLE, "time_s": FINITE, "begin_wall_ns": WHOLE, "begin_monotonic_ns": WHOLE}  # of history.csv
STATS = "learning_rate"  # of the declared columns of history.csv, the one that is told beside the metrics
VALIDATION = "val_"
Line = tuple[int, str, str, Any, dict[str, Any]]  # time in ns, event type, key, value, metadata


@kinds.of_run("mllog", title="lines `:::MLLOG {json}` of each run, for readers of MLPerf's logs", file="mllog.txt")
def write(folder: Path, path: Path) -> kinds.Written:
    """Write the log of a run's directory, finished or not.

    Raises:
        StudyError: the folder is no run's, or a file of the run is damaged.
    """
    every, absent = edges_of_run(folder), dict[str, str]()
    edges = [each for each in every if each["rank"] == 0]
    if not edges:
        raise StudyError(f"{folder}: rank 0 has begun no phase, or this is no run's directory; give one with run.yaml")
    zero_ns = phases.zeros_ns(edges)[edges[0]["host"]]
    run = RunDefinition.read(folder / "run.yaml") if (folder / "run.yaml").is_file() else None
    lines = [
        *(_definition(run, zero_ns + edges[0]["monotonic_ns"]) if run else ()),
        *_of_phases(edges, zero_ns, _status(folder, absent)),
        *_of_results(folder, zero_ns + edges[-1]["monotonic_ns"], absent),
    ]
    if run and run.ranks_together < run.ranks and len({each["host"] for each in every}) > 1:
        absent["epochs"] = "those of an ensemble may be of a rank on another host, whose clock differs"
    else:
        lines += _of_epochs(folder, zero_ns, absent)
    lines.sort(key=lambda line: line[0])  # stable: what belongs to one moment stays in its order
    write_text(path, "".join(_text(line) for line in lines))
    return kinds.Written(counted(len(lines), "line"), absent)


def _text(line: Line) -> str:
    at_ns, kind, key, value, metadata = line
    entry = {
        "namespace": "",
        "time_ms": round(at_ns / 1e6),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f"{MARK}{json.dumps(entry, allow_nan=False)}\n"


def _status(folder: Path, absent: dict[str, str]) -> str | None:
    """``success`` of a run that came to its end and passed its checks, else ``aborted``; None while it goes on."""
    if (folder / "record.json").is_file():
        status = read_record(folder / "record.json")["status"]
    elif (folder / "outcome.json").is_file():
        status = checked.load_json(folder / "outcome.json", "outcome")["status"]
    else:
        absent["status of run_stop"] = "the run has no outcome.json: it is still running, or was killed with its launch"
        return None
    return "success" if status == "ok" else "aborted"


def _definition(run: RunDefinition, begin_ns: int) -> Iterator[Line]:
    """What the run was asked for, at its begin. A command has an optimizer of its own, and perhaps no batch size."""
    lacking = applicable.lacking(filled(run.parameters), run.benchmark)
    told = {
        "seed": run.derived.seed,
        "global_batch_size": None if "batch_size" in lacking else _global_batch_size(run),
        "opt_name": None if command.is_command(run.benchmark) else run.benchmark.get("optimizer"),
    }
    for key, value in told.items():
        if value is not None:
            yield begin_ns, POINT, key, value, {}


def _global_batch_size(run: RunDefinition) -> int:
    """The samples of one weight update. A parameter server applies the gradients of its workers one by one."""
    ranks = run.ranks_together * run.emulated_ranks if roles.strategy_of(run) != PARAMETER_SERVER else 1
    return run.derived.batch_size_per_rank * ranks * int(run.parameters.get("backward_passes_per_step", 1))


def _of_phases(edges: list[dict[str, Any]], zero_ns: int, status: str | None) -> Iterator[Line]:
    """A phase that rank 0 never ended has a start and no stop."""
    for edge in edges:
        if (name := OF_PHASES.get(edge["phase"])) is None:
            continue
        is_start = edge["edge"] == "begin"
        told = {"status": status} if name == "run" and not is_start and status else {}
        key = f"{name}_{'start' if is_start else 'stop'}"
        yield zero_ns + edge["monotonic_ns"], START if is_start else STOP, key, None, told


def _of_epochs(folder: Path, zero_ns: int, absent: dict[str, str]) -> Iterator[Line]:
    """Epochs and their metrics; those of the validation are told at the end of the epoch."""
    path = folder / "history.csv"
    if not path.is_file() or not path.stat().st_size:
        absent["epochs"] = "history.csv is missing or empty: the run failed, is still running, or reports no epochs"
        return
    found = read_columns(path, {}, others=lambda name: TIMES.get(name, NUMBER))
    begin = "begin_monotonic_ns" if "begin_monotonic_ns" in found else "begin_wall_ns"
    if not {"epoch", "time_s", begin} <= set(found):
        absent["epochs"] = "history.csv has no times at which epochs began: it is of an older version"
        return
    declared = fields.columns(fields.OF_EPOCHS)
    metrics = [name for name in found if name == STATS or name not in declared]
    for place in range(found.rows):
        since = int(found[begin][place]) + (zero_ns if begin == "begin_monotonic_ns" else 0)
        until, number = since + round(found["time_s"][place] * 1e9), {"epoch_num": int(found["epoch"][place])}
        yield since, START, "epoch_start", None, number
        yield until, STOP, "epoch_stop", None, number
        told = {name: value for name in metrics if (value := _finite(found[name][place])) is not None}
        if own := {name: value for name, value in told.items() if not name.startswith(VALIDATION)}:
            yield until, POINT, "tracked_stats", own, number
        for name in told:
            if name not in own:
                yield until, POINT, f"eval_{name.removeprefix(VALIDATION)}", told[name], number


def _of_results(folder: Path, end_ns: int, absent: dict[str, str]) -> Iterator[Line]:
    """The sizes of the sets, and the metrics of the test set, which are known at the end."""
    path = folder / "metrics.json"
    if not path.is_file():
        absent["sizes and metrics of the test set"] = "metrics.json is missing: the run failed, or is still running"
        return
    metrics = checked.load_json(path, "metrics")
    sizes = {
        "train_samples": metrics["workload"].get("train_samples"),
        "eval_samples": metrics["workload"].get("test_samples"),
        "model_parameters": metrics.get("parameters"),
    }
    tested = {f"eval_{name}": value for name, value in metrics["test"].items()}
    for key, value in {**sizes, **tested}.items():
        if value is not None:
            yield end_ns, POINT, key, value, {"set": "test"} if key in tested else {}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float | np.number) and math.isfinite(value) else None
