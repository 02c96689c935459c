"""Stand-in for one rank of a training run, for performance/slurm_soak.py, which puts it in place of scripts/train.py.

A few seconds go by. Begin and end of each rank are lines of the file SOAK_LOG: they tell what was really trained. The
files are those of a good run; their numbers depend on the run only, so that an undisturbed study has the same tables.
"""

import json
import os
import socket
import sys
import time
import zlib
from pathlib import Path

import yaml

folder = Path(sys.argv[-1])
run = yaml.safe_load((folder / "run.yaml").read_text())
rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
loss = zlib.crc32(str(folder).encode()) % 1000 / 1000


def note(kind):
    """Append a line to the log of what was trained."""
    facts = {"run": str(folder), "kind": kind, "rank": rank, "ranks": ranks, "job": os.environ["SLURM_JOB_ID"]}
    with open(os.environ["SOAK_LOG"], "a") as log:
        log.write(json.dumps({**facts, "wall_ns": time.time_ns()}) + "\n")


def edge(phase, kind):
    """A line of the log of phases."""
    told = {"phase": phase, "edge": kind, "rank": rank, "host": socket.gethostname()}
    return json.dumps({**told, "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}) + "\n"


note("begin")
begun, begun_monotonic = time.time_ns(), time.monotonic_ns()
phases = folder / "ranks" / f"phases-{rank:05d}.jsonl"
phases.write_text(edge("train", "begin"))
time.sleep(float(os.environ["SOAK_TRAINING_S"]))
with open(phases, "a") as log:
    log.write(edge("train", "end"))
if rank == 0:
    epochs = run["derived"]["epochs_per_rank"]
    row = f"{1 / epochs},{1 / epochs},1,{loss},0.1,{begun},{begun_monotonic}\n"
    rows = [f"{epoch},{row}" for epoch in range(1, epochs + 1)]
    names = "epoch,time_s,steps_s,loss,val_loss,learning_rate,begin_wall_ns,begin_monotonic_ns\n"
    (folder / "history.csv").write_text(names + "".join(rows))
    of_rank = {"gpu": None, "peak_memory_mb": 1.0, "final_weights_crc32": 0, "shared_read_mb": None,
               "storage_read_mb": None}  # fmt: skip
    metrics = {
        "workload": {"train_samples": 1, "test_samples": 1, "features": 1, "samples_per_rank": 1},
        "resumed_after_epoch": None, "test": {"loss": loss}, "parameters": 1, "initial_weights_crc32": 0,
        "ranks": [{"rank": number, **of_rank} for number in range(ranks)],
    }  # fmt: skip
    (folder / "metrics.json").write_text(json.dumps(metrics))
note("end")
