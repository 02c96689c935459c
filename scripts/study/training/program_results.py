"""The files of a run that is given by a command, from what its processes have left: history.csv and metrics.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from study.core.files import read_json, write_json
from study.experiment import metric_names
from study.experiment.definition import RunDefinition
from study.training import history, program
from study.training.history import History
from study.workloads import command
from study.workloads.command.events import LEARNING_RATES

NO_EVENTS = "the program wrote no events (docs/commands.md)"
NOT_COUNTED = dict.fromkeys(("shared_read_mb", "storage_read_mb", "staged_mb"))  # by us, of a program of others
NOT_KNOWN = "it resumed, and the epochs of an earlier attempt are not known"
NO_EPOCHS = "the program reported no epochs (docs/commands.md)"


def assemble(folder: Path, run: RunDefinition) -> None:
    """Write the run's files; nothing if a process has left none, because it failed or was killed."""
    ranks = folder / "ranks"
    paths = sorted(ranks.glob("program-*.json"))
    found = [read_json(path) for path in paths]
    if sum(len(each["ranks"]) for each in found) != run.ranks:
        return
    told = {int(rank): each for part in found for rank, each in part["told"].items()}
    own = min((rank for rank, each in told.items() if each["epochs"]), default=0)
    is_resumed = any(part["is_resumed"] for part in found if str(own) in part["told"])
    epochs, resumed_after = _with_earlier(folder, run, own, told[own]["epochs"], is_resumed)
    tested = of_test_set(told, own)
    names, refused = _names(epochs, tested)
    _write_history(folder / "history.csv", epochs, names)
    write_json(
        folder / "metrics.json",
        {
            "workload": _workload(run, told),
            "resumed_after_epoch": resumed_after,
            "test": {name: tested.get(name) for name in names},
            "parameters": _size("model_parameters", told),
            "program": {
                **_program(found, told, epochs, refused, resumed_after, _by_epochs(run)),
                "rank": own if epochs else None,
            },
            "ranks": [{**each, "final_weights_crc32": None, **NOT_COUNTED} for part in found for each in part["ranks"]],
        },
    )


def _by_epochs(run: RunDefinition) -> list[str]:
    """The columns that a program's epochs give. Without its batch size, nobody knows how many steps they have."""
    knows_steps = command.knows_batch(run.benchmark, run["batch_size"])
    return [name for name in command.OF_TRAINING if knows_steps or name != "time_per_step_s"]


def _program(
    found: list[dict[str, Any]],
    told: dict[int, Any],
    epochs: list[Any],
    refused: list[str],
    resumed_after: int | None,
    by_epochs: list[str],
) -> dict[str, Any]:
    """What is of a command only. reason: why the results of training are empty, or a pattern's value is."""
    patterns = found[0]["patterns"]
    events = sum(each["events"] for each in told.values())
    nothing = NO_EPOCHS if events else NO_EVENTS
    reasons = [] if epochs else [nothing if resumed_after is None else NOT_KNOWN]
    whys = {name: "its pattern found no number" for name, value in patterns.items() if value is None}
    reasons += [f"metrics.{name}: {why}" for name, why in {**whys, **found[0]["pattern_faults"]}.items()]
    if epochs:
        unused = [name for name in by_epochs if patterns.get(name) is not None]
        reasons += [f"metrics.{name}: the program's epochs give it, not its pattern" for name in unused]
    reasons += refused
    if left := max((each.get("runs_left", 0) for each in told.values()), default=0):
        again = "once" if left == 1 else f"{left} times"
        reasons.append(
            f"a rank began its run again {again}, without run_stop: if the program was started again after an error, "
            "as torchrun does with --max-restarts, its runtime, energy and processor time are of all attempts"
        )
    return {
        "has_epochs": bool(epochs),
        "epochs": len(epochs) or None,
        "cpu_s": sum(each["cpu_s"] for each in found),
        "events": events,
        "reason": "; ".join(reasons) or None,
        "metrics": patterns,
        "output_bytes": sum(each["output_bytes"] for each in found),
        "words": found[0]["words"],
        "variables": found[0]["variables"],
    }


def _workload(run: RunDefinition, told: dict[int, Any]) -> dict[str, Any]:
    samples = _size("train_samples", told) or run.benchmark["workload"]["train_samples"]
    return {
        "train_samples": samples,
        "test_samples": _size("eval_samples", told),
        "features": None,
        "samples_per_rank": command.samples_of_rank(samples, run["scaling"], run["work"], run.ranks),
    }


def of_test_set(told: dict[int, Any], own: int) -> dict[str, Any]:
    """The metrics of the test set: of the rank whose epochs count, else of the first rank that told it."""
    found: dict[str, Any] = {}
    for rank in (own, *sorted(told)):
        for name, value in told[rank]["test"].items():
            found.setdefault(name, value)
    return found


def _size(name: str, told: dict[int, Any]) -> int | None:
    return next((each["sizes"][name] for each in told.values() if each["sizes"].get(name)), None)


def _with_earlier(
    folder: Path, run: RunDefinition, rank: int, epochs: list[Any], is_resumed: bool
) -> tuple[list[dict[str, Any]], int | None]:
    """(the epochs of a rank with those of earlier attempts, after which epoch it resumed; None if it did not).

    No epochs if those of an earlier attempt are not known, which was killed before they were read.
    """
    if not is_resumed:
        return epochs, None
    path = program.earlier_epochs(folder, rank)
    told = read_json(path) if path.exists() else []
    attempts = [*(told[:-1] if epochs else told), epochs]  # the last one in the file is this one, if it told an epoch
    return joined(attempts, run.derived.epochs_per_rank) if any(attempts) else ([], 0)


def joined(attempts: list[list[dict[str, Any]]], whole: int) -> tuple[list[dict[str, Any]], int]:
    """Each epoch of a run once, of the last attempt that trained it, and after which one the last attempt resumed.

    An attempt begins at the number that it told for its first epoch; without numbers, the first one at the begin, and
    each other so that it ends where the next one resumed, the last one at the end. No epochs if one is not known.

    Args:
        attempts: the epochs of each; the last one is the one that came to the run's end.
        whole: epochs of the run.
    """
    first = attempts[0][0]["number"] if len(attempts) > 1 and attempts[0] else None
    found: dict[int, dict[str, Any]] = {}
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
                found.setdefault(position, epoch)
        resumed_after = begin if place == len(attempts) - 1 else resumed_after
        end = begin
    is_whole = sorted(found) == list(range(len(found))) and len(found) >= resumed_after
    return ([found[position] for position in sorted(found)] if is_whole else []), resumed_after


def _names(epochs: list[dict[str, Any]], tested: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(the metrics, of whatever set, in the order in which they were told; why others are no columns)."""
    told = [name.removeprefix("val_") for each in epochs for name in each["metrics"]]
    names = [name for name in dict.fromkeys([*told, *tested]) if name not in LEARNING_RATES]
    taken: dict[str, str] = {}
    refused = {name: metric_names.refusal(name) or _twice(name, taken) for name in names}
    return [name for name in names if not refused[name]], [
        f"metric {json.dumps(name[:60])} {why}: give it another name" for name, why in refused.items() if why
    ]


def _twice(name: str, taken: dict[str, str]) -> str | None:
    other = taken.setdefault(name.lower(), name)
    return None if other == name else f"differs from {other} in its case only"


def _write_history(path: Path, epochs: list[dict[str, Any]], names: list[str]) -> None:
    columns = ["epoch", *names, *(f"val_{name}" for name in names), "time_s", "learning_rate", "steps_s",
               "begin_wall_ns", "begin_monotonic_ns"]  # fmt: skip
    rows: History = []
    for number, each in enumerate(epochs, 1):
        metrics, (wall, monotonic) = each["metrics"], each["begin"]
        seconds = (each["end"][1] - monotonic) / 1e9
        rate = next((metrics[name] for name in LEARNING_RATES if name in metrics), None)
        rows.append(metrics | {"epoch": number, "time_s": seconds, "learning_rate": rate,
                               "steps_s": seconds - each["eval_ns"] / 1e9,
                               "begin_wall_ns": wall, "begin_monotonic_ns": monotonic})  # fmt: skip
    history.write(path, rows, columns)
