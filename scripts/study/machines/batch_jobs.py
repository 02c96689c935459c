"""Submit, query and cancel Snakemake's jobs; the outcome of each is decided here, and never guessed.

A job is a success only if its own exit code or the scheduler's record says so. An unreadable answer counts as
"running", since the next one may be readable, and Snakemake ends the whole study if a status command fails; but not for
ever: after some hours of unreadable answers the job counts as failed, and the last answer is quoted. So does a job that
is held or suspended, or can never run, after three days, and one whose node is out of reach after its walltime.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.core import commands, validation
from study.core.environment import SESSION
from study.core.errors import StudyError
from study.core.files import AnyPath, write_json, write_text
from study.machines import machine_lock
from study.machines.batch_systems import BATCH_SYSTEMS, Job, State

FOLDER = Path(".cluster")  # below the folder that Snakemake runs in
TRIES = 6  # to submit; with the pauses between them, one minute
BEGUN = "begun"  # file in a job's folder
FIRST_PAUSE_S = 2
ANSWER_S = 60  # time limit of a scheduler's command
GRACE_POLLS = 5  # before a job without any information counts as failed
GRACE_S = 60
UNREADABLE_POLLS = 100  # before a job with unreadable answers only counts as failed
UNREADABLE_GRACES = 240  # and so many times the grace: four hours, in which a scheduler's server is repaired
HELD_GRACES = 72 * 60  # likewise for a job that waits for a person: three days, over a weekend
UNKNOWN_MINUTES = 24 * 60  # walltime of a job of which none is written down
TIME = re.compile(r"[0-9]{1,12}([.][0-9]+)?")  # seconds since 1970
# What is written down of a job that was submitted.
STATE = {
    "type": "object",
    "required": ["scheduler", "folder"],
    "properties": {
        "scheduler": {"type": "string"},
        "folder": {"type": "string"},
        "minutes": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
        "watched_by": {"type": ["string", "null"]},
    },
}
# States that must end, and the names of the files in which it is kept since when a job has been in them.
WAITS = {State.UNREADABLE: "unreadable", State.HELD: "held", State.UNREACHABLE: "unreachable"}
MOST_TIMES = 2 * UNREADABLE_POLLS  # that are kept of a wait; the first one always is
RUNNING, SUCCESS, FAILED = "running", "success", "failed"


def submit(scheduler: str, asked: Job) -> str:
    """Submit a job of Snakemake's; returns its id.

    scheduler: a name in `BATCH_SYSTEMS`. The script is copied, since Snakemake removes it when Snakemake is stopped;
    the output goes beside the copy. A failed submission is retried; raises `StudyError` with the scheduler's message if
    all tries fail.
    """
    folder = _new_folder(asked.name)
    script, output = (str((folder / name).resolve()) for name in ("job.sh", "job.output"))
    job = dataclasses.replace(asked, name=_shorten(asked.name), script=script, output=output)
    behind = BATCH_SYSTEMS[scheduler]()
    _write_script(job, asked.script, behind.job_id_variable)
    line = behind.submit_line(job)
    job_id = behind.job_id(_run_submit(line))
    if job_id is None:
        raise StudyError(
            f"{line[0]} gave no job id that could be read; was the job submitted? The line: {shlex.join(line)}"
        )
    state = {"scheduler": scheduler, "folder": str(folder), "line": line, "minutes": job.minutes, **_identify_watcher()}
    write_json(_state_file(job_id), state)
    return job_id


def status(job_id: str) -> str:
    """The status of a job for Snakemake: ``running``, ``success`` or ``failed``.

    Where that cannot be found out, as with a full disk, it is ``running``, after some hours ``failed``.

    Raises:
        OSError: nor can it be kept for how long that has been so.
    """
    try:
        state = _update_status(job_id)
    except Exception as error:  # noqa: BLE001  a status command that fails ends the study
        why = f"its state could not be found out for hours: {error!r}"
        print(f"the state of job {job_id} could not be found out: {error!r}", file=sys.stderr)
        return _fail_after("error", job_id, why, UNREADABLE_POLLS, UNREADABLE_GRACES * _read_grace_s())
    _forget("error", job_id)
    return state


def _update_status(job_id: str) -> str:
    written = _read_state(job_id)
    if written is None:
        return _fail_after_grace(job_id, "nothing is written down of it")
    state = _find_out(job_id, written)
    updated = written | (_identify_watcher() if state == RUNNING else {"watched_by": None})
    if updated != written:
        with contextlib.suppress(OSError):  # a full disk: what was found out counts
            write_json(_state_file(job_id), updated)
    return state


def _find_out(job_id: str, written: dict[str, Any]) -> str:
    folder, behind = Path(written["folder"]), BATCH_SYSTEMS[written["scheduler"]]()
    own = _read_exit_code(folder)
    if own is not None:
        return SUCCESS if own == 0 else FAILED
    at_work = _read_id_at_work(folder) or job_id
    answer = _run_query(behind.status_line(at_work))
    if second := behind.second_line(at_work, *answer):
        answer = _run_query(second)
    state = behind.state(*answer)
    for waits, name in WAITS.items():
        if state is not waits:
            _forget(name, job_id)
    if state not in (State.FORGOTTEN, State.OVER):
        _forget("grace", job_id)
    if state is State.RUNNING:
        return RUNNING
    if state in WAITS:
        return _judge_unfinished(state, job_id, written, " ".join(" ".join(str(part) for part in answer).split())[:300])
    if state in (State.FORGOTTEN, State.OVER):
        state = behind.record(at_work, folder)
    if state is State.FAILED:
        return FAILED
    if state is State.SUCCESS:
        return SUCCESS
    # The job has ended, but its exit code file is missing: the file system may be late.
    return _fail_after_grace(job_id, "its scheduler says that it is over, its exit code is missing")


def _judge_unfinished(state: State, job_id: str, written: dict[str, Any], said: str) -> str:
    """``running``, after a time ``failed``, for a job in one of the states of `WAITS`. said: by the scheduler."""
    if state is State.UNREADABLE:
        why = f"its scheduler has given no readable answer for hours; the last one: {said}"
        return _fail_after(WAITS[state], job_id, why, UNREADABLE_POLLS, UNREADABLE_GRACES * _read_grace_s())
    if state is State.UNREACHABLE:
        minutes = written.get("minutes", UNKNOWN_MINUTES)
        why = f"its node is out of reach for longer than its walltime of {minutes} minutes: {said}"
        return _fail_after(
            WAITS[state], job_id, why, UNREADABLE_POLLS, minutes * _read_grace_s() + GRACE_POLLS * _read_grace_s()
        )
    least_s = HELD_GRACES * _read_grace_s()
    if not _wait_file(WAITS[state], job_id).exists():
        print(
            f"job {job_id} is held, suspended or can never run: {said}; release it or cancel it, else it is cancelled "
            f"and counts as failed in {least_s / 3600:g} hours",
            file=sys.stderr,
        )
    outcome = _fail_after(WAITS[state], job_id, f"it was held for too long: {said}", UNREADABLE_POLLS, least_s)
    if outcome == FAILED:
        cancel([job_id])  # it must not begin when its run has been started anew
    return outcome


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs; each may belong to another scheduler."""
    by_scheduler: dict[str, list[str]] = {}
    for job_id in job_ids:
        written = _read_state(job_id)
        if written:
            folder = Path(written["folder"])
            at_work = _read_id_at_work(folder)
            ids = dict.fromkeys([job_id, *([at_work] if at_work else [])])
            by_scheduler.setdefault(written["scheduler"], []).extend(ids)
            if not at_work:
                with contextlib.suppress(OSError):
                    write_text(folder / BEGUN, "cancelled\n")  # so that no lost job of the submission begins later
    for scheduler, all_ids in by_scheduler.items():
        _run_query(BATCH_SYSTEMS[scheduler]().cancel_line(all_ids))


def cancel_watched() -> list[str]:
    """Cancel the running jobs that the Snakemake of this process waits for; returns their ids.

    On Ctrl-C Snakemake does not cancel the jobs whose state it is querying at that moment.
    """
    session = os.environ.get(SESSION)
    job_ids = sorted(file.stem for file in FOLDER.glob("*.json"))
    watched = [job_id for job_id in job_ids if session and (_read_state(job_id) or {}).get("watched_by") == session]
    cancel(watched)
    return watched


def _identify_watcher() -> dict[str, str | None]:
    """Identifies the Snakemake that waits for a job, for `cancel_watched`."""
    return {"watched_by": os.environ.get(SESSION)}


def _new_folder(name: str) -> Path:
    folder = FOLDER / f"{_shorten(name)}.{time.time_ns()}.{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


def _shorten(name: str) -> str:
    """Shorten a job's name to one that every scheduler accepts, and that is no option and no hidden file."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:60].lstrip("-.") or "job"


def _write_script(job: Job, script: AnyPath, job_id_variable: str) -> None:
    """Write the script to submit, which runs Snakemake's script and writes its exit code to a file.

    It exports what the run's provenance tells of its job: the deadline and the submit options.
    """
    path = Path(job.script)
    inner = path.with_name("snakemake.sh")
    write_text(inner, Path(script).read_text(encoding="utf-8"))
    exit_code = path.with_name("exit_code")
    write_text(
        path,
        "#!/bin/bash\n"
        f"cd {shlex.quote(str(Path.cwd()))}\n"
        f"export PATH={shlex.quote(os.environ['PATH'])}\n"
        f"export {SESSION}={shlex.quote(os.environ.get(SESSION, ''))}\n"  # PBS and Cobalt do not pass it on
        f"{_make_guard_lines(path.with_name(BEGUN), exit_code, job_id_variable)}"
        f"export STUDY_JOB_OPTIONS={shlex.quote(shlex.join(job.options))}\n"
        f"export STUDY_JOB_ENDS=$(( $(date +%s) + {60 * job.minutes} ))\n"
        f"bash {shlex.quote(str(inner))}\n"
        "code=$?\n"
        "[ $code -ge 128 ] && exit $code\n"  # ended by a signal: the batch system says why, and may start it again
        f"echo $code > {shlex.quote(str(exit_code))}.part && mv {shlex.quote(str(exit_code))}.part "
        f"{shlex.quote(str(exit_code))}\n"
        "exit $code\n",
    )
    path.chmod(0o755)
    inner.chmod(0o755)


def _make_guard_lines(begun: Path, exit_code: Path, job_id_variable: str) -> str:
    """Lines of a script that end a job at once if another job of the same submission works or has ended.

    There may be a second job of one submission, whose first answer was lost. begun: a file with the id of the job that
    is at work. The batch system may start that one again, but not once it has written its exit code: Snakemake may have
    read that and gone on.
    """
    file = shlex.quote(str(begun.absolute()))
    return (
        f"if [ -e {shlex.quote(str(exit_code))} ]; then\n"
        '  echo "nothing is done here: this job has ended before"; exit 0\n'
        "fi\n"
        f'own="${{{job_id_variable}:-}}"\n'
        f'( set -o noclobber; echo "$own" > {file} ) 2>/dev/null\n'
        f"other=$(cat {file} 2>/dev/null)\n"
        'if [ -n "$own" ] && [ -n "$other" ] && [ "$own" != "$other" ]; then\n'
        '  echo "nothing is done here: job $other is of the same submission"; exit 0\n'
        "fi\n"
    )


def _run_submit(line: list[str]) -> str:
    """The output of the submit command, retried up to the limit."""
    pause = float(os.environ.get("STUDY_SUBMIT_PAUSE_S", FIRST_PAUSE_S))
    for attempt in range(1, TRIES + 1):
        exit_code, output, errors = _run_query(line)
        if exit_code == 0:
            return output
        said = " ".join((errors or output).split()) or f"exit code {exit_code}"
        if attempt < TRIES:
            print(f"{line[0]} failed ({said}); trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)
            pause *= 2
    raise StudyError(f"{line[0]} refused the job {TRIES} times: {said}. The line: {shlex.join(line)}")


def _run_query(line: list[str]) -> tuple[int | None, str, str]:
    """(exit code, output, errors) of a scheduler's command; exit code None if it did not finish."""
    try:
        process = commands.run_program(line, ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    return process.returncode, process.stdout, process.stderr


def _state_file(job_id: str) -> Path:
    return FOLDER / f"{_shorten(job_id)}.json"


def _read_state(job_id: str) -> dict[str, Any] | None:
    try:
        written = validation.load_valid_json(_state_file(job_id), STATE)
    except StudyError:
        return None
    return written if written["scheduler"] in BATCH_SYSTEMS else None


def _read_id_at_work(folder: Path) -> str | None:
    """The id of the job of a submission that has begun: not the known one if an answer to the submission was lost."""
    try:
        job_id = (folder / BEGUN).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return job_id if re.fullmatch(r"[0-9][A-Za-z0-9.\[\]_-]*", job_id) else None


def _read_exit_code(folder: Path) -> int | None:
    try:
        return int((folder / "exit_code").read_text())
    except (OSError, ValueError):
        return None


def _wait_file(name: str, job_id: str) -> Path:
    """The file in which it is kept since when a job has been in a state that must end."""
    return FOLDER / f"{_shorten(job_id)}.{name}"


def _forget(name: str, job_id: str) -> None:
    for file in _list_wait_files(name, job_id):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _list_wait_files(name: str, job_id: str) -> tuple[Path, Path]:
    """`_wait_file`, and what takes its place where that cannot be written, in a folder of this user's alone."""
    here = hashlib.sha256(str(FOLDER.absolute()).encode()).hexdigest()[:12]
    return _wait_file(name, job_id), (machine_lock.find_folder({}) or FOLDER) / f"{here}-{_shorten(job_id)}.{name}"


def _read_grace_s() -> float:
    return float(os.environ.get("STUDY_GRACE_S", GRACE_S))


def _fail_after_grace(job_id: str, why: str) -> str:
    """``failed`` after enough polls and seconds without any information; ``running`` until then."""
    return _fail_after("grace", job_id, why, GRACE_POLLS, _read_grace_s())


def _fail_after(name: str, job_id: str, why: str, polls: int, least_s: float) -> str:
    """``failed`` after more polls than that and as many seconds, whose times are kept in a file; else ``running``.

    Raises:
        OSError: the file can be written nowhere.
    """
    usual, other = _list_wait_files(name, job_id)
    try:
        times = _note_poll(usual)
    except OSError:
        times = _note_poll(other)
    seconds = float(times[-1]) - float(times[0])
    if len(times) <= polls or seconds < least_s:
        return RUNNING
    print(f"job {job_id} counts as failed: {why}", file=sys.stderr)
    return FAILED


def _note_poll(file: Path) -> list[str]:
    """The times of all polls until now, this one too, which is added to the file."""
    earlier = file.read_bytes().decode("ascii", "replace").split() if file.exists() else []
    times = [*(each for each in earlier if TIME.fullmatch(each)), repr(time.time())]
    latest = times if len(times) <= MOST_TIMES else [times[0], *times[-MOST_TIMES + 1 :]]
    file.parent.mkdir(exist_ok=True)
    write_text(file, " ".join(latest))
    return latest
