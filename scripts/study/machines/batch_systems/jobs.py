"""Submit, ask after and cancel Snakemake's jobs; what becomes of each is decided here, never by a guess.

A job counts as a success only where its own exit code or the scheduler's record says so. An answer that cannot be read
is "running": the next one may be better, and Snakemake ends the whole study at a status command that fails.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from study.core.errors import StudyError
from study.core.files import write_json, write_text
from study.machines.batch_systems import SCHEDULERS
from study.machines.batch_systems.base import Job, State

FOLDER = Path(".cluster")  # below the folder that Snakemake runs in
TRIES = 4  # to submit
FIRST_PAUSE_S = 2
ANSWER_S = 60  # that a scheduler's command may take
GRACE_POLLS = 5  # before a job that nobody knows anything of counts as failed
GRACE_S = 60
SESSION = "STUDY_SESSION"  # the environment variable that tells one Snakemake from another
RUNNING, SUCCESS, FAILED = "running", "success", "failed"


def submit(scheduler, script, name, nodes, minutes, account, options):
    """Submit Snakemake's job script; returns the job's id.

    scheduler: a name in `SCHEDULERS`. The script is copied, since Snakemake removes its own when it is stopped. A
    submission that fails is tried again; raises `StudyError` with the scheduler's words where it goes on failing.
    """
    folder = _new_folder(name)
    job = Job(
        _short(name), str((folder / "job.sh").resolve()), str((folder / "job.output").resolve()), nodes, minutes,
        account, tuple(options),
    )  # fmt: skip
    _write_script(job.script, script, minutes)
    behind = SCHEDULERS[scheduler]()
    line = behind.submit_line(job)
    job_id = behind.job_id(_submitted(line))
    if job_id is None:
        raise StudyError(
            f"{line[0]} gave no job id that could be read; was the job submitted? The line: {shlex.join(line)}"
        )
    write_json(_state_file(job_id), {"scheduler": scheduler, "folder": str(folder), "line": line, **_watched()})
    return job_id


def status(job_id):
    """``running``, ``success`` or ``failed``."""
    known = _known(job_id)
    if known is None:
        return _after_grace(job_id, "nothing is written down of it")
    found = _found_out(job_id, known)
    written = known | (_watched() if found == RUNNING else {"watched_by": None})
    if written != known:
        write_json(_state_file(job_id), written)
    return found


def _found_out(job_id, known):
    folder, behind = Path(known["folder"]), SCHEDULERS[known["scheduler"]]()
    own = _own_exit_code(folder)
    if own is not None:
        return SUCCESS if own == 0 else FAILED
    state = behind.state(*_asked(behind.status_line(job_id)))
    if state in (State.RUNNING, State.UNREADABLE):
        _forget_grace(job_id)
        return RUNNING
    if state in (State.FORGOTTEN, State.OVER):
        state = behind.record(job_id, folder)
    if state is State.FAILED:
        return FAILED
    if state is State.SUCCESS:
        return SUCCESS
    # Over, it says, but the exit code of the job's own is not there: the file system may be late.
    return _after_grace(job_id, "its scheduler says that it is over, its exit code is missing")


def cancel(job_ids):
    """End jobs, of whichever scheduler each is."""
    by_scheduler = {}
    for job_id in job_ids:
        known = _known(job_id)
        if known:
            by_scheduler.setdefault(known["scheduler"], []).append(job_id)
    for scheduler, ids in by_scheduler.items():
        _asked(SCHEDULERS[scheduler]().cancel_line(ids))


def cancel_watched():
    """End the jobs that the Snakemake of this process asks after and that have not ended; returns their ids.

    Snakemake does not cancel the ones whose state it is asking for at the moment of a Ctrl-C.
    """
    session = os.environ.get(SESSION)
    job_ids = sorted(file.stem for file in FOLDER.glob("*.json"))
    left = [job_id for job_id in job_ids if session and (_known(job_id) or {}).get("watched_by") == session]
    cancel(left)
    return left


def _watched():
    """Which Snakemake waits for a job, for `cancel_watched`."""
    return {"watched_by": os.environ.get(SESSION)}


def _new_folder(name):
    folder = FOLDER / f"{_short(name)}.{time.time_ns()}.{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


def _short(name):
    """A name that every scheduler takes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60] or "job"


def _write_script(path, script, minutes):
    """What is submitted: Snakemake's script, with its deadline told beforehand and its exit code written down after."""
    path = Path(path)
    inner = path.with_name("snakemake.sh")
    write_text(inner, Path(script).read_text(encoding="utf-8"))
    exit_code = path.with_name("exit_code")
    write_text(
        path,
        "#!/bin/bash\n"
        f"cd {shlex.quote(str(Path.cwd()))}\n"
        f"export PATH={shlex.quote(os.environ['PATH'])}\n"
        f"export STUDY_JOB_ENDS=$(( $(date +%s) + {60 * minutes} ))\n"
        f"bash {shlex.quote(str(inner))}\n"
        "code=$?\n"
        f"echo $code > {shlex.quote(str(exit_code))}.part && mv {shlex.quote(str(exit_code))}.part "
        f"{shlex.quote(str(exit_code))}\n"
        "exit $code\n",
    )
    path.chmod(0o755)
    inner.chmod(0o755)


def _submitted(line):
    """What the submit command printed, after as many tries as it takes or are allowed."""
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


def _asked(line):
    """(exit code, output, errors) of a scheduler's command; exit code None where it did not come to an end."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _state_file(job_id):
    return FOLDER / f"{_short(job_id)}.json"


def _known(job_id):
    try:
        return json.loads(_state_file(job_id).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _own_exit_code(folder):
    try:
        return int((folder / "exit_code").read_text())
    except (OSError, ValueError):
        return None


def _grace_file(job_id):
    return FOLDER / f"{_short(job_id)}.grace"


def _forget_grace(job_id):
    _grace_file(job_id).unlink(missing_ok=True)


def _after_grace(job_id, why):
    """``failed`` once that many polls over that many seconds have found no more; ``running`` until then."""
    file = _grace_file(job_id)
    times = file.read_text().split() if file.exists() else []
    times.append(repr(time.time()))
    file.parent.mkdir(exist_ok=True)
    write_text(file, " ".join(times))
    seconds = float(times[-1]) - float(times[0])
    if len(times) <= GRACE_POLLS or seconds < float(os.environ.get("STUDY_GRACE_S", GRACE_S)):
        return RUNNING
    print(f"job {job_id} counts as failed: {why}", file=sys.stderr)
    return FAILED
