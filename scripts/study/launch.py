"""Start a run's ranks, wait for them, and write down how it ended; a run that fails is a result too."""

import contextlib
import fcntl
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import yaml

from study import code_version, environment, launcher, phases, provenance
from study.configuration import ROOT
from study.errors import StudyError
from study.files import sha256, write_json, write_text, written_aside
from study.loaders import read_sidecar
from study.power import telemetry

LOG = "train.log"
RUN_FILES = {"run.yaml", "provenance.json", "phases.jsonl", "ranks", "telemetry.csv", "sensors.json",
             "timeline.json.gz", "profile.pstats", "history.csv", "metrics.json", "outcome.json", "communication.json",
             "activity.csv", "communication.log", "record.json", "record.log", LOG}  # fmt: skip
TIMELINE = "ranks/timeline.json"  # as Horovod writes it
LAST_LINES = 200
GRACE_S = 10
# What launchers put before a rank's line: ``[1]<stdout>:``, mpirun ``[1,0]<stdout>:``, srun ``1: ``.
TAG = re.compile(r"^(?:\[(?:\d+,)?|\s*)(?P<rank>\d+)(?:\]<std(?:out|err)>:\s?|: )")
OUT_OF_MEMORY = re.compile(r"MemoryError|ResourceExhaustedError|std::bad_alloc|Out of memory|OOM when|oom-kill", re.I)
KILLED = re.compile(r"SIGKILL|signal 9|[Ee]xit (code|status)[:=]? *(137|-9)\b")
ERROR = re.compile(r"^(error: |[A-Za-z_.]*(Error|Exception|Interrupt)\b)")


def launch(run, folder, time_limit_s):
    """Run ``run`` (the content of ``run.yaml``) in ``folder`` and write ``outcome.json`` there last.

    A run that takes longer than ``time_limit_s`` seconds is ended. Whatever an earlier attempt left in the
    folder is removed first. Raises `StudyError` where nothing could be started; a run that was started and
    failed is recorded, not raised.
    """
    folder = Path(folder)
    with _alone_in(folder) as lock:
        _launch(run, folder, time_limit_s, lock)


def _launch(run, folder, time_limit_s, lock):
    program = [sys.executable, str(ROOT / "scripts" / "train.py"), str(folder)]
    line = launcher.command(run["parameters"]["gpus"], run["machine"], program)
    code = code_version.training_code(run["benchmark"]["name"])
    variables = _variables(run, folder)
    facts = {"training_code": code, "launch_line": line, "data": _data(run), **provenance.collect(variables)}
    _empty(folder)
    (folder / "ranks").mkdir()
    write_text(folder / "run.yaml", yaml.safe_dump(run, sort_keys=False))
    write_json(folder / "provenance.json", facts)

    begun_wall, begun = phases.now()
    exit_code, timed_out, last_lines = _execute(line, variables, folder / LOG, time_limit_s, lock)
    runtime = (time.monotonic_ns() - begun) / 1e9
    _merge_ranks(folder)
    failure = _failure(folder, exit_code, timed_out, last_lines)
    write_json(
        folder / "outcome.json",
        {
            "status": "failed" if failure else "ok",
            "failure": failure,
            "exit_code": exit_code,
            "started_wall_ns": begun_wall,
            "runtime_s": runtime,
            "files": {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()},
        },
    )


@contextlib.contextmanager
def _alone_in(folder):
    """Hold ``folder`` for one launch: a Snakemake that was killed may have left an earlier one running."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                f"{folder}: an earlier launch of this run is still at work there; let it end or stop it "
                "(pkill -f scripts/train.py), then run again"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)


def _empty(folder):
    """Remove what an earlier attempt left; a folder that holds anything but a run's own files is refused."""
    strange = sorted(path.name for path in folder.iterdir() if path.name not in RUN_FILES)
    if strange:
        raise StudyError(f"{folder}: is not a run's directory, it holds {strange[0]}; give a new or empty one")
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _data(run):
    """What the converted files' sidecars say: shapes, and the checksums of the files they were made from."""
    return {
        file: {key: value for key, value in read_sidecar(paths["sidecar"]).items() if key != "codes"}
        for file, paths in run["data"].items()
    }


def _variables(run, folder):
    """The environment of the ranks.

    A traced run goes without Horovod's response cache: with it, only the first negotiation of a tensor tells which
    rank was ready when.
    """
    variables = {
        **os.environ,
        **run["machine"].get("environment", {}),
        "PATH": environment.search_path(),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(run["machine"]["cores_per_rank"]),
    }
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts, so that a rank's GPU is known by its UUID
    variables.pop("HOROVOD_TIMELINE", None)  # it slows a run, and only the study says which one
    if run["parameters"]["trace"]:
        variables |= {"HOROVOD_TIMELINE": str((folder / TIMELINE).resolve()), "HOROVOD_CACHE_CAPACITY": "0"}
    return variables


def _execute(line, variables, log, limit_s, lock):
    """Run ``line`` in a session of its own; returns (exit code, whether the limit ended it, its last lines)."""
    last_lines = deque(maxlen=LAST_LINES)
    process = subprocess.Popen(
        line,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),  # held for as long as the launcher lives, whatever becomes of this process
    )
    reader = threading.Thread(target=_follow, args=(process.stdout, log, last_lines))
    reader.start()
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the ranks are ended too
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        process.wait(timeout=limit_s)
        timed_out = False
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        _end(process)
    reader.join()
    return process.returncode, timed_out, list(last_lines)


def _follow(stream, log, last_lines):
    """Copy the ranks' output to the log; epochs and errors also go to standard error as they come."""
    with open(log, "w", encoding="utf-8") as handle:
        for text in stream:
            with contextlib.suppress(OSError):  # a full disk must not stop the ranks at a full pipe
                handle.write(text)
                handle.flush()
            last_lines.append(text.rstrip("\n"))
            bare = TAG.sub("", last_lines[-1])
            if bare.startswith(("epoch ", "error: ")):
                print(bare, file=sys.stderr, flush=True)


def _end(process):
    """End what is left of the process's session: first asked, then killed."""
    for number, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                continue
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # ranks whose launcher is gone


def _merge_ranks(folder):
    """Join what the ranks and the hosts' samplers wrote into the run's own files."""
    ranks = folder / "ranks"
    phases.merge(sorted(ranks.glob("phases-*.jsonl")), folder / "phases.jsonl")
    telemetry.merge(ranks, folder / "telemetry.csv", folder / "sensors.json")
    _keep_timeline(folder)
    shutil.rmtree(ranks, ignore_errors=True)


def _keep_timeline(folder):
    """Compress the timeline; it is far larger than all else and opens in Perfetto and chrome://tracing as it is."""
    written = folder / TIMELINE
    if written.exists() and written.stat().st_size:
        with (
            open(written, "rb") as source,
            written_aside(folder / "timeline.json.gz") as aside,
            gzip.open(aside, "wb", compresslevel=4) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)


def _failure(folder, exit_code, timed_out, last_lines):
    """Kind (timeout, oom, killed, error), phase, rank and message of a failed run; None for one that is whole."""
    missing = [name for name in ("metrics.json", "history.csv") if not (folder / name).exists()]
    if exit_code == 0 and not timed_out and not missing:
        return None
    rank = None
    if timed_out:
        kind, message = "timeout", "the run reached its time limit and was ended"
    elif found := _first(last_lines, OUT_OF_MEMORY):
        kind, (rank, message) = "oom", found
    elif exit_code in (-9, 137) or _first(last_lines, KILLED):
        kind, (rank, message) = "killed", _first(last_lines, KILLED) or (rank, f"exit code {exit_code}")
    elif found := _first(last_lines, ERROR):
        kind, (rank, message) = "error", found
    elif exit_code == 0:
        kind, message = "error", f"the ranks ended without writing {' and '.join(missing)}"
    else:
        said = [line.strip() for line in last_lines if re.search(r"\w", line)]
        kind, message = "error", f"exit code {exit_code}" + (f"; the last line is: {said[-1][:300]}" if said else "")
    phase, open_rank = phases.last(phases.read(folder / "phases.jsonl"))
    return {"kind": kind, "phase": phase, "rank": open_rank if rank is None else rank, "message": message}


def _first(lines, pattern):
    """(rank, text) of the first line of a rank that matches, else of the launcher's first such line, else None."""
    matches = [(TAG.match(line), TAG.sub("", line)) for line in lines]
    matches = [(tag, text.strip()[:500]) for tag, text in matches if pattern.search(text)]
    by_rank = [(int(tag["rank"]), text) for tag, text in matches if tag]
    return (by_rank or [(None, text) for _, text in matches] or [None])[0]
