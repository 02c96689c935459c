"""Start a run's ranks, wait for them, and write down how it ended; a run that fails is a result too."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import yaml

from study.core import code_version, environment, provenance
from study.core.files import sha256, write_json, write_text
from study.core.paths import ROOT
from study.data.loaders import read_sidecar
from study.instruments import heartbeats, phases
from study.launch import failure, run_directory, supervision
from study.machines import launchers, queues
from study.training import checkpoints


def launch(run, folder, time_limit_s, job=None, stall_limit_s=heartbeats.LIMIT_S):
    """Run ``run`` (the content of ``run.yaml``) in ``folder`` and write ``outcome.json`` there last.

    job: the batch job that this is in, by `study.machines.queues.job`.
    A run that takes longer than ``time_limit_s`` seconds, or in which no rank gives a sign of life for
    ``stall_limit_s`` seconds, is ended. Whatever an earlier attempt left in the
    folder is removed first. Raises `StudyError` where nothing could be started; a run that was started and
    failed is recorded, not raised.
    """
    folder = Path(folder)
    with run_directory.alone_in(folder) as lock:
        _launch(run, folder, time_limit_s, stall_limit_s, job, lock)


def give_up(run, folder, tries):
    """Write down that ``run`` was launched in ``folder`` and lost: its job was killed, preempted, its node died.

    tries: how many jobs have been lost. One that lived to its walltime is not tried again but with a checkpoint, others
    are, `batch.TRIES` in all. Returns whether it is written down: not where there is no launch of this very run, or one
    that has its outcome.
    """
    folder = Path(folder)
    with run_directory.alone_in(folder):
        begun = _launched(run, folder)
        if begun is None:
            return False
        last_sign = max(path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
        kind, message = queues.lost(begun["job"], last_sign)
        goes_on = (folder / checkpoints.FOLDER).exists()  # so that another job may come to its end
        if tries < queues.TRIES and (kind != "timeout" or goes_on):
            return False
        if (folder / "ranks").exists():  # not where it was ended in time to write its end down, which Snakemake removed
            run_directory.merge_ranks(folder)
        _write_outcome(
            folder,
            failure.described(folder, kind, message, log=_last_lines(folder / run_directory.LOG)),
            None,
            begun["wall_ns"],
            last_sign,
        )
    return True


def _last_lines(log):
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _launched(run, folder):
    """When, and in which batch job, an attempt at ``run`` was launched that has no outcome; None where none was."""
    try:
        same = yaml.safe_load((folder / "run.yaml").read_text(encoding="utf-8")) == run
        facts = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    if not same or (folder / "outcome.json").exists():
        return None
    return {"job": facts["job"], "wall_ns": (folder / "provenance.json").stat().st_mtime_ns}


def _launch(run, folder, time_limit_s, stall_limit_s, job, lock):
    program = [sys.executable, str(ROOT / "scripts" / "train.py"), str(folder)]
    line = launchers.command(run["parameters"]["gpus"], run["machine"], program)
    code = code_version.training_code(run["benchmark"]["name"])
    variables = _variables(run, folder) | {heartbeats.LIMIT_VARIABLE: str(stall_limit_s)}
    facts = {"training_code": code, "launch_line": line, "job": job, "data": _data(run)}
    facts |= provenance.collect(variables)
    run_directory.empty(folder, keep={checkpoints.FOLDER} if _checkpoints_count(folder, code) else set())
    (folder / "ranks").mkdir()
    write_text(folder / "run.yaml", yaml.safe_dump(run, sort_keys=False))
    write_json(folder / "provenance.json", facts)

    begun_wall, begun = phases.now()
    until = supervision.Limits(
        time_limit_s,
        stall_limit_s,
        lambda: heartbeats.last_sign(folder / "ranks"),
        lambda: queues.is_last_moment(job, time.time()),
    )
    exit_code, stopped, last_lines = supervision.execute(line, variables, folder / run_directory.LOG, lock, until)
    runtime_ns = time.monotonic_ns() - begun
    run_directory.merge_ranks(folder)
    why = failure.failure_of(folder, exit_code, stopped, last_lines)
    if why is None:
        shutil.rmtree(folder / checkpoints.FOLDER, ignore_errors=True)
    _write_outcome(folder, why, exit_code, begun_wall, begun_wall + runtime_ns)


def _write_outcome(folder, why, exit_code, begun_ns, ended_ns):
    """``outcome.json``, the last of a run's files. why: its failure, or None."""
    write_json(
        folder / "outcome.json",
        {
            "status": "failed" if why else "ok",
            "failure": why,
            "exit_code": exit_code,
            "started_wall_ns": begun_ns,
            "runtime_s": (ended_ns - begun_ns) / 1e9,
            "files": {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.is_file()},
        },
    )


def _checkpoints_count(folder, code):
    """Whether the earlier attempt was of today's code; whether they are of this run is asked when one is read."""
    try:
        return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["training_code"] == code
    except (OSError, ValueError, KeyError):
        return False


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
        variables |= {
            "HOROVOD_TIMELINE": str((folder / run_directory.TIMELINE).resolve()),
            "HOROVOD_CACHE_CAPACITY": "0",
        }
    return variables
