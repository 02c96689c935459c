"""Timelines written as Horovod 0.28 writes them: one growing JSON array, several events on a line."""

import itertools
import json

START_US = 1_700_000_000_000_000
HEAD = (
    '[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":'
    + str(START_US)
    + '}},\n{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
)


def text(events):
    """The file of ``events``, dicts."""
    return HEAD + ",".join(json.dumps(event) for event in events) + "]"


def write(path, events):
    path.write_text(text(events))
    return path


def tensor(pid, name):
    """The line that registers a tensor."""
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def begin(name, at, pid):
    return {"ph": "B", "name": name, "ts": at, "pid": pid}


def end(at, pid, args=None):
    return {"ph": "E", "ts": at, "pid": pid} | ({"args": args} if args else {})


def ready(rank, at, pid):
    return {"ph": "X", "name": str(rank), "ts": at, "pid": pid, "dur": 0}


def negotiation(operation, pid, arrivals):
    """arrivals: when each rank is ready, by rank. The end comes with the last one."""
    by_time = sorted(arrivals.items(), key=lambda item: item[1])
    yield begin(f"NEGOTIATE_{operation}", by_time[0][1], pid)
    yield from (ready(rank, at, pid) for rank, at in by_time)
    yield end(by_time[-1][1], pid)


def broadcast(pid, at, until, library="GLOO"):
    yield begin("BROADCAST", at, pid)
    yield begin(f"{library}_BCAST", at, pid)
    yield end(until, pid)
    yield end(until, pid)


def allreduce(pids, at, copied, moved, until, library="GLOO", shape="[100, 10]"):
    """One fused operation: copied in from ``at`` to ``copied``, moved until ``moved``, copied out until ``until``."""
    yield from (begin("ALLREDUCE", at, pid) for pid in pids)
    activities = (("MEMCPY_IN_FUSION_BUFFER", at, copied), (f"{library}_ALLREDUCE", copied, moved),
                  ("MEMCPY_OUT_FUSION_BUFFER", moved, until))  # fmt: skip
    for name, first, last in activities:
        yield from (begin(name, first, pid) for pid in pids)
        yield from (end(last, pid) for pid in pids)
    yield from (end(until, pid, {"dtype": "float32", "shape": shape}) for pid in pids)


def run(ranks=4, epochs=2, steps=3, tensors=5, skew_us=2_000_000, library="GLOO"):
    """All events of a run: a broadcast for which rank 1 comes late, then allreduces for which rank 2 does.

    An epoch takes a second, and its steps are within its first half.
    """
    pids = list(range(1, tensors + 1))
    yield from (tensor(pid, f"DistributedSGD_Allreduce/grads_{pid}") for pid in pids)
    for pid in pids:
        yield from negotiation("BROADCAST", pid, dict.fromkeys(range(ranks), 0) | {1: skew_us})
    for index, pid in enumerate(pids):
        yield from broadcast(pid, skew_us + index * 1000, skew_us + (index + 1) * 1000, library)
    for epoch, step in itertools.product(range(epochs), range(steps)):
        at = 10_000_000 + epoch * 1_000_000 + step * 100_000
        for pid in pids:
            yield from negotiation("ALLREDUCE", pid, dict.fromkeys(range(ranks), at) | {2: at + 10_000})
        yield from allreduce(pids, at + 10_000, at + 11_000, at + 30_000, at + 31_000, library)


def epoch_edges_ns(epochs=2):
    """Where the epochs of `run` begin, and where the last one ends."""
    return [(START_US + 10_000_000 + epoch * 1_000_000) * 1000 for epoch in range(epochs + 1)]
