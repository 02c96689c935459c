"""Submit, query and cancel Snakemake's jobs; the outcome of each is decided here, and never guessed.

A job is a success only if its own exit code or the scheduler's record says so. An unreadable answer counts as
"running", since the next one may be readable, and Snakemake ends the whole study if a status command fails; but not for
ever: after some hours of unreadable answers the job counts as failed, and the last answer is quoted.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.environment import SESSION
from study.core.errors import StudyError
from study.core.files import AnyPath, write_json, write_text
from study.machines.batch_systems.base import BATCH_SYSTEMS, Job, State

FOLDER = Path(".cluster")  # below the folder that Snakemake runs in
TRIES = 4  # to submit
FIRST_PAUSE_S = 2
ANSWER_S = 60  # time limit of a scheduler's command
GRACE_POLLS = 5  # before a job without any information counts as failed
GRACE_S = 60
UNREADABLE_POLLS = 100  # before a job with unreadable answers only counts as failed
UNREADABLE_GRACES = 240  # and so many times the grace: four hours, in which a scheduler's server is repaired
TIME = re.compile(r"[0-9]{1,12}([.][0-9]+)?")  # seconds since 1970
# What is written down of a job that was submitted.
STATE = {
    "type": "object",
    "required": ["scheduler", "folder"],
    "properties": {
        "scheduler": {"type": "string"},
        "folder": {"type": "string"},
        "watched_by": {"type": ["string", "null"]},
    },
}
RUNNING, SUCCESS, FAILED = "running", "success", "failed"


def submit(
    scheduler: str, script: AnyPath, name: str, nodes: int, minutes: int, account: str, options: Iterable[str]
) -> str:
    """Submit Snakemake's job script; returns the job's id.

    scheduler: a name in `BATCH_SYSTEMS`. The script is copied, since Snakemake removes it when Snakemake is stopped. A
    failed submission is retried; raises `StudyError` with the scheduler's message if all tries fail.
    """
    folder = _new_folder(name)
    job = Job(
        _short(name), str((folder / "job.sh").resolve()), str((folder / "job.output").resolve()), nodes, minutes,
        account, tuple(options),
    )  # fmt: skip
    _write_script(job.script, script, minutes, job.options)
    behind = BATCH_SYSTEMS[scheduler]()
    line = behind.submit_line(job)
    job_id = behind.job_id(_submitted(line))
    if job_id is None:
        raise StudyError(
            f"{line[0]} gave no job id that could be read; was the job submitted? The line: {shlex.join(line)}"
        )
    write_json(_state_file(job_id), {"scheduler": scheduler, "folder": str(folder), "line": line, **_watched()})
    return job_id


def status(job_id: str) -> str:
    """``running``, ``success`` or ``failed``."""
    known = _known(job_id)
    if known is None:
        return _after_grace(job_id, "nothing is written down of it")
    found = _found_out(job_id, known)
    written = known | (_watched() if found == RUNNING else {"watched_by": None})
    if written != known:
        write_json(_state_file(job_id), written)
    return found


def _found_out(job_id: str, known: dict[str, Any]) -> str:
    folder, behind = Path(known["folder"]), BATCH_SYSTEMS[known["scheduler"]]()
    own = _own_exit_code(folder)
    if own is not None:
        return SUCCESS if own == 0 else FAILED
    answer = _asked(behind.status_line(job_id))
    if second := behind.second_line(job_id, *answer):
        answer = _asked(second)
    state = behind.state(*answer)
    if state is not State.UNREADABLE:
        _unreadable_file(job_id).unlink(missing_ok=True)
    if state is State.RUNNING:
        _forget_grace(job_id)
        return RUNNING
    if state is State.UNREADABLE:
        _forget_grace(job_id)
        said = " ".join(" ".join(str(part) for part in answer).split())[:300]
        why = f"its scheduler has given no readable answer for hours; the last one: {said}"
        return _after(_unreadable_file(job_id), job_id, why, UNREADABLE_POLLS, UNREADABLE_GRACES * _grace_s())
    if state in (State.FORGOTTEN, State.OVER):
        state = behind.record(job_id, folder)
    if state is State.FAILED:
        return FAILED
    if state is State.SUCCESS:
        return SUCCESS
    # The job has ended, but its exit code file is missing: the file system may be late.
    return _after_grace(job_id, "its scheduler says that it is over, its exit code is missing")


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs; each may belong to another scheduler."""
    by_scheduler: dict[str, list[str]] = {}
    for job_id in job_ids:
        known = _known(job_id)
        if known:
            by_scheduler.setdefault(known["scheduler"], []).append(job_id)
    for scheduler, ids in by_scheduler.items():
        _asked(BATCH_SYSTEMS[scheduler]().cancel_line(ids))


def cancel_watched() -> list[str]:
    """Cancel the running jobs that the Snakemake of this process waits for; returns their ids.

    On Ctrl-C Snakemake does not cancel the jobs whose state it is querying at that moment.
    """
    session = os.environ.get(SESSION)
    job_ids = sorted(file.stem for file in FOLDER.glob("*.json"))
    left = [job_id for job_id in job_ids if session and (_known(job_id) or {}).get("watched_by") == session]
    cancel(left)
    return left


def _watched() -> dict[str, str | None]:
    """Identifies the Snakemake that waits for a job, for `cancel_watched`."""
    return {"watched_by": os.environ.get(SESSION)}


def _new_folder(name: str) -> Path:
    folder = FOLDER / f"{_short(name)}.{time.time_ns()}.{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


def _short(name: str) -> str:
    """A name that every scheduler accepts, and that is no option and no hidden file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60].lstrip("-.") or "job"


def _write_script(path: AnyPath, script: AnyPath, minutes: int, options: Iterable[str]) -> None:
    """The submitted script: runs Snakemake's script, and writes its exit code to a file.

    It exports what the run's provenance tells of its job: the deadline and the submit options.
    """
    path = Path(path)
    inner = path.with_name("snakemake.sh")
    write_text(inner, Path(script).read_text(encoding="utf-8"))
    exit_code = path.with_name("exit_code")
    write_text(
        path,
        "#!/bin/bash\n"
        f"cd {shlex.quote(str(Path.cwd()))}\n"
        f"export PATH={shlex.quote(os.environ['PATH'])}\n"
        f"export {SESSION}={shlex.quote(os.environ.get(SESSION, ''))}\n"  # PBS and Cobalt do not pass it on
        f"export STUDY_JOB_OPTIONS={shlex.quote(shlex.join(options))}\n"
        f"export STUDY_JOB_ENDS=$(( $(date +%s) + {60 * minutes} ))\n"
        f"bash {shlex.quote(str(inner))}\n"
        "code=$?\n"
        f"echo $code > {shlex.quote(str(exit_code))}.part && mv {shlex.quote(str(exit_code))}.part "
        f"{shlex.quote(str(exit_code))}\n"
        "exit $code\n",
    )
    path.chmod(0o755)
    inner.chmod(0o755)


def _submitted(line: list[str]) -> str:
    """The output of the submit command, retried up to the limit."""
    pause = float(os.environ.get("STUDY_SUBMIT_PAUSE_S", FIRST_PAUSE_S))
    for attempt in range(1, TRIES + 1):
        exit_code, output, errors = _asked(line)
        if exit_code == 0:
            return output
        said = " ".join((errors or output).split()) or f"exit code {exit_code}"
        if attempt < TRIES:
            print(f"{line[0]} failed ({said}); trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)
            pause *= 2
    raise StudyError(f"{line[0]} refused the job {TRIES} times: {said}. The line: {shlex.join(line)}")


def _asked(line: list[str]) -> tuple[int | None, str, str]:
    """(exit code, output, errors) of a scheduler's command; exit code None if it did not finish."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _state_file(job_id: str) -> Path:
    return FOLDER / f"{_short(job_id)}.json"


def _known(job_id: str) -> dict[str, Any] | None:
    try:
        known = checked.load_json(_state_file(job_id), STATE)
    except StudyError:
        return None
    return known if known["scheduler"] in BATCH_SYSTEMS else None


def _own_exit_code(folder: Path) -> int | None:
    try:
        return int((folder / "exit_code").read_text())
    except (OSError, ValueError):
        return None


def _grace_file(job_id: str) -> Path:
    return FOLDER / f"{_short(job_id)}.grace"


def _forget_grace(job_id: str) -> None:
    _grace_file(job_id).unlink(missing_ok=True)


def _unreadable_file(job_id: str) -> Path:
    return FOLDER / f"{_short(job_id)}.unreadable"


def _grace_s() -> float:
    return float(os.environ.get("STUDY_GRACE_S", GRACE_S))


def _after_grace(job_id: str, why: str) -> str:
    """``failed`` after enough polls and seconds without any information; ``running`` until then."""
    return _after(_grace_file(job_id), job_id, why, GRACE_POLLS, _grace_s())


def _after(file: Path, job_id: str, why: str, polls: int, least_s: float) -> str:
    """``failed`` after more polls than that and as many seconds, whose times are kept in ``file``; else ``running``."""
    known = file.read_bytes().decode("ascii", "replace").split() if file.exists() else []
    times = [*(each for each in known if TIME.fullmatch(each)), repr(time.time())]
    file.parent.mkdir(exist_ok=True)
    write_text(file, " ".join(times))
    seconds = float(times[-1]) - float(times[0])
    if len(times) <= polls or seconds < least_s:
        return RUNNING
    print(f"job {job_id} counts as failed: {why}", file=sys.stderr)
    return FAILED
