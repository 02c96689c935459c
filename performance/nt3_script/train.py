"""NT3 as a program of its own: the network, the files and the order of samples of the study's runs.

It trains as one rank of the run that ``like.yaml`` defines, and tells its phases and epochs as events.
"""

import time

STARTED = time.time_ns(), time.monotonic_ns()

import argparse  # noqa: E402
import dataclasses  # noqa: E402
import functools  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import pandas as pd  # noqa: E402

from study import backends  # noqa: E402
from study.communication import roles  # noqa: E402
from study.experiment.definition import RunDefinition  # noqa: E402
from study.instruments import phases  # noqa: E402
from study.training.rank import run_rank  # noqa: E402

EVENTS = {"load": "load", "preprocess": "preprocess", "broadcast": "broadcast", "train": "run", "evaluate": "eval"}
EDGES = {"begin": "start", "end": "stop"}


def main():
    """Read the command line, train, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--like", required=True, help="the definition of a run of the study")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    run = RunDefinition.read(arguments.like)
    derived = dataclasses.replace(
        run.derived, epochs_per_rank=arguments.epochs, batch_size_per_rank=arguments.batch, seed=arguments.seed
    )
    run = dataclasses.replace(run, derived=derived)
    folder = Path(os.environ["STUDY_RUN_FOLDER"])
    rank = run_rank(
        run, folder, STARTED, functools.partial(backends.get_backend(run.framework).connect, run, static_sets=[])
    )
    tell(folder, rank)


def tell(folder, rank):
    """Write the rank's phases as events, with their own times; rank 0 tells the epochs."""
    edges = phases.read_edges(folder / "ranks" / f"phases-{rank:05d}.jsonl", is_merged=False)
    events = [
        event(edge["wall_ns"], edge["monotonic_ns"], rank, f"{EVENTS[edge['phase']]}_{EDGES[edge['edge']]}")
        for edge in edges
        if edge["phase"] in EVENTS
    ]
    if rank == 0:
        events += epochs(pd.read_csv(folder / "history.csv"))
        tested = json.loads((folder / "metrics.json").read_text())["test"]
        last = max(events, key=lambda each: each["monotonic_ns"])
        stats = {f"test_{name}": value for name, value in tested.items()}
        events.append(event(last["time_ns"], last["monotonic_ns"], 0, "tracked_stats", stats))
    events.sort(key=lambda each: each["monotonic_ns"])
    with open(os.environ["STUDY_EVENTS"], "a", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)


def epochs(history):
    """Events of the epochs in a run's ``history.csv``; each ends with its validation."""
    for epoch in history.itertuples():
        begin = epoch.begin_wall_ns, epoch.begin_monotonic_ns
        steps_end = _later(begin, epoch.steps_s)
        end = _later(begin, epoch.time_s)
        sets = {"val_loss": epoch.val_loss, "val_accuracy": epoch.val_accuracy}
        yield event(*begin, 0, "epoch_start", epoch_num=epoch.epoch)
        yield event(*steps_end, 0, "eval_start")
        yield event(*end, 0, "eval_stop")
        yield event(*end, 0, "tracked_stats", {"loss": epoch.loss, "accuracy": epoch.accuracy, **sets})
        yield event(*end, 0, "epoch_stop", epoch_num=epoch.epoch)


def event(wall_ns, monotonic_ns, rank, key, value=None, **metadata):
    """One event in MLPerf's logging format."""
    return {"key": key, "value": value, "time_ns": wall_ns, "monotonic_ns": monotonic_ns, "rank": rank,
            "metadata": metadata}  # fmt: skip


def _later(moment, seconds):
    return tuple(each + round(seconds * 1e9) for each in moment)


if __name__ == "__main__":
    roles.run_process(main)
