"""Tell a scaling study what a training program does: its phases, epochs and metrics. Copy this file; it needs nothing.

    import study_events as events

    with events.phase("init"):          # loading data, building the model
        ...
    with events.phase("run"):
        for epoch in range(epochs):
            with events.phase("epoch"):
                ...
                events.metrics(loss=0.3, val_accuracy=0.9)   # val_: of the validation set, test_: of the test set

Each call appends a line in MLPerf's logging format to the file that STUDY_EVENTS names; without it nothing is written.
Every rank may call.
"""

import contextlib
import json
import os
import time


def event(key, value=None, **metadata):
    """Write one event, such as ``event("train_samples", 50_000)``."""
    path = os.environ.get("STUDY_EVENTS")
    if not path:
        return
    now, monotonic = time.time_ns(), time.monotonic_ns()
    line = {"namespace": "", "time_ms": now // 1_000_000, "time_ns": now, "monotonic_ns": monotonic, "key": key,
            "value": value, "rank": int(os.environ.get("RANK", 0)), "metadata": metadata}  # fmt: skip
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def phase(name):
    """Around init, load, preprocess, broadcast, run, epoch or eval; an error leaves it without an end."""
    event(f"{name}_start")
    yield
    event(f"{name}_stop")


def metrics(**values):
    """Metrics of the epoch: ``loss``, ``accuracy``, ``learning_rate``; with ``val_`` and ``test_`` of those sets."""
    event("tracked_stats", {name: float(value) for name, value in values.items()})
