"""A rank's side of the sampler: start it, learn what it found, stop it."""

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from study.core.files import write_json, write_text
from study.core.paths import ROOT
from study.instruments.power.sampler import COLUMNS

PROGRAM = ROOT / "scripts" / "sample_power.py"
STOP_S = 10


@contextmanager
def sampled(run, folder, ranks):
    """Sample this host's power while the block runs; the first rank of each host does it, the others do nothing.

    Writes ``telemetry-<rank>.csv`` and, with the devices found and the reasons for sensors that are not there,
    ``telemetry-<rank>.json`` into ``folder``. The sampler ends with this process, however that ends.
    """
    machine = run["machine"]
    if ranks.local_rank != 0 or not (machine["power_sensors"] or machine["power_model"]):
        yield
        return
    path = Path(folder) / f"telemetry-{ranks.rank:05d}.csv"
    line = [sys.executable, str(PROGRAM), "--output", str(path), "--rate-hz", str(machine["sampling_hz"])]
    line += ["--sensor", *machine["power_sensors"]]
    if machine["power_model"]:
        line += ["--model", json.dumps(machine["power_model"])]
    # In a session of its own: what ends the ranks' process group must not cut its last lines off.
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    found = json.loads(process.stdout.readline() or b'{"devices": [], "reasons": {"sampler": "it did not start"}}')
    write_json(path.with_suffix(".json"), {"host": socket.gethostname(), "rank": ranks.rank, **found})
    try:
        yield
    finally:
        process.stdin.close()
        process.wait(STOP_S)


def merge(ranks, path, sensors):
    """Join the hosts' ``telemetry-<rank>`` files in the folder ``ranks`` into ``path`` and ``sensors``.

    A line cut off by a kill is left out. Neither file is written where there is nothing to write.
    """
    hosts = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(Path(ranks).glob("telemetry-*.json"))]
    if hosts:
        write_json(sensors, hosts)
    parts = sorted(Path(ranks).glob("telemetry-*.csv"))
    lines = [line for part in parts for line in part.read_text(encoding="utf-8").splitlines(keepends=True)[1:]]
    whole = [line for line in lines if line.endswith("\n") and line.count(",") == len(COLUMNS) - 1]
    if whole:
        write_text(path, ",".join(COLUMNS) + "\n" + "".join(whole))
