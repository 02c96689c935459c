"""The files of a run that is given by a command, history.csv and metrics.json, from the measures of its processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core.files import read_json, write_json
from study.experiment import metric_names
from study.experiment.definition import RunDefinition
from study.training import history, program
from study.training.history import History
from study.workloads.command import code_files, reading, samples
from study.workloads.command.events import LEARNING_RATES

NO_EVENTS = "the program wrote no events (docs/commands.md)"
UNCOUNTED_READS = dict.fromkeys(("shared_read_mb", "storage_read_mb", "staged_mb"))  # by us, of a program of others
UNKNOWN_EPOCHS = "it resumed, and the epochs of an earlier attempt are not known"
NO_EPOCHS = "the program reported no epochs (docs/commands.md)"


def write_run_files(folder: Path, run: RunDefinition, files: Mapping[str, Any]) -> None:
    """Write history.csv and metrics.json; nothing if a process left no measures, because it failed or was killed.

    files: in the program's folder, that the run wrote and used.
    """
    ranks = folder / "ranks"
    paths = sorted(ranks.glob("program-*.json"))
    processes = [read_json(path) for path in paths]
    if sum(len(each["ranks"]) for each in processes) != run.ranks:
        return
    reports = {int(rank): each for part in processes for rank, each in part["told"].items()}
    sizes = _collect_sizes(reports)
    own_rank = min((rank for rank, each in reports.items() if each["epochs"]), default=0)
    is_resumed = any(part["is_resumed"] for part in processes if str(own_rank) in part["told"])
    epochs, resumed_after = _add_earlier_epochs(folder, run, own_rank, reports[own_rank]["epochs"], is_resumed)
    test_metrics = collect_test_metrics(reports, own_rank)
    names, refused = _list_metric_names(epochs, test_metrics)
    _write_history(folder / "history.csv", epochs, names)
    write_json(
        folder / "metrics.json",
        {
            "workload": _describe_workload(run, sizes),
            "resumed_after_epoch": resumed_after,
            "test": {name: test_metrics.get(name) for name in names},
            "parameters": _get_first(sizes, "model_parameters"),
            "program": {
                **_summarize_program(processes, reports, epochs, refused, resumed_after),
                "hidden_exit": code_files.find_hidden_exit_code(run.benchmark),
                "rank": own_rank if epochs else None,
                "files": files,
                "sizes": sizes,
            },
            "ranks": [
                {**each, "final_weights_crc32": None, **UNCOUNTED_READS} for part in processes for each in part["ranks"]
            ],
        },
    )


def _summarize_program(
    processes: list[dict[str, Any]],
    reports: dict[int, Any],
    epochs: list[Any],
    refused: list[str],
    resumed_after: int | None,
) -> dict[str, Any]:
    """The entry ``program`` of ``metrics.json``. reason: why results of training are empty."""
    output = reading.merge([each["output"] for each in processes])
    events = sum(each["events"] for each in reports.values())
    nothing = NO_EPOCHS if events else NO_EVENTS
    reasons = [] if epochs else [nothing if resumed_after is None else UNKNOWN_EPOCHS]
    reasons += refused
    return {
        "has_epochs": bool(epochs),
        "epochs": len(epochs) or None,
        "cpu_s": sum(each["cpu_s"] for each in processes),
        "processes": sum(each["processes"] for each in processes),
        "events": events,
        "reason": "; ".join(reasons) or None,
        "metrics": output["values"],
        "output": output,
        "is_resumed": any(each["is_resumed"] for each in processes),
        "runs_left": max((each["runs_left"] for each in reports.values()), default=0),
        "trained": any(each["trained"] for each in reports.values()),
        "is_aborted": any(each["is_aborted"] for each in reports.values()),
        "memory_kills": max(each["memory_kills"] for each in processes),
        "output_bytes": sum(each["output_bytes"] for each in processes),
        "words": processes[0]["words"],
        "variables": processes[0]["variables"],
    }


def _describe_workload(run: RunDefinition, sizes: dict[str, list[int]]) -> dict[str, Any]:
    """The entry ``workload`` of ``metrics.json``: numbers of samples, as reported or by the benchmark's file."""
    epoch = samples.count_epoch(run.benchmark, run.parameters, run.ranks, run.derived.batch_size_per_rank, sizes)
    return {
        "train_samples": epoch.train_samples,
        "test_samples": _get_first(sizes, "eval_samples"),
        "features": None,
        "samples_per_rank": epoch.samples_per_rank,
    }


def collect_test_metrics(reports: dict[int, Any], own_rank: int) -> dict[str, Any]:
    """The metrics of the test set: each of the rank whose epochs count, else of the first rank that reported it."""
    metrics: dict[str, Any] = {}
    for rank in (own_rank, *sorted(reports)):
        for name, value in reports[rank]["test"].items():
            metrics.setdefault(name, value)
    return metrics


def _collect_sizes(reports: dict[int, Any]) -> dict[str, list[int]]:
    """{name: the size that each rank reported} of the names that some rank reported."""
    names = {name: None for each in reports.values() for name in each["sizes"]}
    return {name: [each["sizes"][name] for each in reports.values() if each["sizes"].get(name)] for name in names}


def _get_first(sizes: dict[str, list[int]], name: str) -> int | None:
    """A size as the first rank reported it; None if none did, or if it is 0."""
    return next(iter(sizes.get(name, ())), None)


def _add_earlier_epochs(
    folder: Path, run: RunDefinition, rank: int, epochs: list[Any], is_resumed: bool
) -> tuple[list[dict[str, Any]], int | None]:
    """(A rank's epochs with those of earlier attempts, the epoch after which it resumed or None).

    No epochs if those of an earlier attempt are not known, which was killed before they were read.
    """
    if not is_resumed:
        return epochs, None
    path = program.locate_earlier_epochs(folder, rank)
    earlier_attempts = read_json(path) if path.exists() else []
    attempts = [
        *(earlier_attempts[:-1] if epochs else earlier_attempts),
        epochs,
    ]  # the last one in the file is this one, if it told an epoch
    return join_attempts(attempts, run.derived.epochs_per_rank) if any(attempts) else ([], 0)


def join_attempts(attempts: list[list[dict[str, Any]]], whole: int) -> tuple[list[dict[str, Any]], int]:
    """(Each epoch once, of the last attempt that trained it; the epoch after which the last attempt resumed).

    An attempt begins at the number that it reported for its first epoch; without numbers, the first one at the begin,
    and each other so that it ends where the next one resumed, the last one at the end. No epochs if one is not known.

    Args:
        attempts: the epochs of each; the last one is the one that came to the run's end.
        whole: epochs of the run.
    """
    first = attempts[0][0]["number"] if len(attempts) > 1 and attempts[0] else None
    epochs_by_position: dict[int, dict[str, Any]] = {}
    end, resumed_after = whole, 0
    for place in reversed(range(len(attempts))):
        epochs = attempts[place]
        number = epochs[0]["number"] if epochs else None
        is_first = place == 0 and len(attempts) > 1
        begin = 0 if is_first else max(0, end - len(epochs))
        if number is not None and first is not None:
            begin = max(0, number - first)
        for position, epoch in enumerate(epochs, begin):
            if place == len(attempts) - 1 or position < resumed_after:
                epochs_by_position.setdefault(position, epoch)
        resumed_after = begin if place == len(attempts) - 1 else resumed_after
        end = begin
    is_whole = (
        sorted(epochs_by_position) == list(range(len(epochs_by_position))) and len(epochs_by_position) >= resumed_after
    )
    return (
        [epochs_by_position[position] for position in sorted(epochs_by_position)] if is_whole else []
    ), resumed_after


def _list_metric_names(epochs: list[dict[str, Any]], test_metrics: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(Names of the metrics that become columns, in the order reported; messages about the others)."""
    epoch_names = [name.removeprefix("val_") for each in epochs for name in each["metrics"]]
    names = [name for name in dict.fromkeys([*epoch_names, *test_metrics]) if name not in LEARNING_RATES]
    spellings: dict[str, str] = {}
    refusals = {name: metric_names.explain_refusal(name) or _refuse_other_spelling(name, spellings) for name in names}
    return [name for name in names if not refusals[name]], [
        f"metric {json.dumps(name[:60])} {why}: give it another name" for name, why in refusals.items() if why
    ]


def _refuse_other_spelling(name: str, spellings: dict[str, str]) -> str | None:
    """Why a metric's name that differs from an earlier one in its case only is refused, or None."""
    other = spellings.setdefault(name.lower(), name)
    return None if other == name else f"differs from {other} in its case only"


def _write_history(path: Path, epochs: list[dict[str, Any]], names: list[str]) -> None:
    """Write history.csv with the metrics ``names`` of the epochs."""
    columns = ["epoch", *names, *(f"val_{name}" for name in names), "time_s", "learning_rate", "steps_s",
               "begin_wall_ns", "begin_monotonic_ns"]  # fmt: skip
    rows: History = []
    for number, each in enumerate(epochs, 1):
        metrics, (wall, monotonic) = each["metrics"], each["begin"]
        seconds = (each["end"][1] - monotonic) / 1e9
        rate = next((metrics[name] for name in LEARNING_RATES if name in metrics), None)
        rows.append(metrics | {"epoch": number, "time_s": seconds, "learning_rate": rate,
                               "steps_s": max(0.0, seconds - each["eval_ns"] / 1e9),
                               "begin_wall_ns": wall, "begin_monotonic_ns": monotonic})  # fmt: skip
    history.write_history(path, rows, columns)
