"""A stand-in for a batch system that cannot be installed: jobs really run here, under the real one's rules.

Each command on PATH (lsf/bsub, ...) is a few lines over this module. State is a folder of files, $STANDIN_STATE; there
is no daemon, each job has a process of its own that waits, starts it, ends it at its walltime and forgets it. What is
refused, and in which words, is what the real system refuses; nothing else is accepted than what this project's own
command lines need.

STANDIN_START_S        a job waits that long (1)
STANDIN_FORGET_S       an ended job is known that long (3)
STANDIN_ANSWER_S       how long a command takes to answer (0)
STANDIN_STATE/faults   {"command": n}: the next n calls of that command crash
STANDIN_STATE/hold     while there is such a file no job starts
STANDIN_STATE/N.over   once there is such a file job N is at its walltime
STANDIN_NODES          ranks run on nodes of their own, whose meters are in this folder; see node.py
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOROVODRUN = str(Path(__file__).resolve().parents[2] / "scripts" / "horovodrun.py")
STATE = Path(os.environ.get("STANDIN_STATE", "/nonexistent"))
START_S = float(os.environ.get("STANDIN_START_S", 1))
FORGET_S = float(os.environ.get("STANDIN_FORGET_S", 3))
ANSWER_S = float(os.environ.get("STANDIN_ANSWER_S", 0))
LOOK_S = 0.1


def refuse(*lines, code=255):
    """End as the real command does when it refuses."""
    print("\n".join(lines), file=sys.stderr)
    sys.exit(code)


def crash_if_asked(command):
    """Fail as a command does whose server is away, where a test has asked for it. Each call is written down."""
    if not STATE.is_dir():
        refuse(f"{command}: STANDIN_STATE is not a folder: this stand-in is for tests only")
    with open(STATE / "calls", "a") as log:
        log.write(json.dumps([command, *sys.argv[1:]]) + "\n")
    time.sleep(ANSWER_S)
    file = STATE / "faults"
    with _locked():
        faults = json.loads(file.read_text()) if file.exists() else {}
        left = faults.get(command, 0)
        if left:
            file.write_text(json.dumps(faults | {command: left - 1}))
    if left:
        print("@@ communication time out @@")
        refuse(f"{command}: cannot connect to the server", code=1)


def options(arguments, single, double):
    """({option: [values]}, the rest) of a command line; an unknown option is refused.

    single: options without a value; double: with one.
    """
    found, rest, index = {}, [], 0
    while index < len(arguments):
        word = arguments[index]
        if word in double:
            if index + 1 >= len(arguments):
                refuse(f"{word}: needs a value")
            found.setdefault(word, []).append(arguments[index + 1])
            index += 2
        elif word in single:
            found.setdefault(word, []).append(True)
            index += 1
        elif word.startswith("-") and not rest:
            refuse(f"{word}: Illegal option.")
        else:
            rest.append(word)
            index += 1
    return found, rest


def submit(script, nodes, minutes, output, first=1000, **more):
    """Start the process that will run the job; returns its number."""
    with _locked():
        number = max([int(path.stem) for path in STATE.glob("*.job")], default=first - 1) + 1
        last = STATE / "last"
        number = max(number, int(last.read_text()) + 1 if last.exists() else 0)
        last.write_text(str(number))
        save(number, state="queued", script=script, nodes=nodes, minutes=minutes, output=output, **more)
    subprocess.Popen(
        [sys.executable, __file__, "run", str(number)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip
    return number


def save(number, **changes):
    """Change what is known of a job."""
    file = STATE / f"{number}.job"
    known = json.loads(file.read_text()) if file.exists() else {}
    aside = file.with_suffix(".part")
    aside.write_text(json.dumps(known | changes))
    aside.replace(file)


def job(number):
    """What is known of a job: state (queued, running, done, failed, killed, timeout), exit_code, ...; or None."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((STATE / f"{int(str(number).split('.')[0])}.job").read_text())
    return None


def waiting_or_running():
    """How many jobs are not over."""
    return sum(json.loads(path.read_text())["state"] in ("queued", "running") for path in STATE.glob("*.job"))


def cancel(number):
    """End a job, waiting or running."""
    known = job(number)
    if known is None:
        return False
    save(number, cancelled=True)
    if known.get("pid"):
        _end(known["pid"])
    return True


def in_a_job(command):
    """The present job, for launchers: outside of a job they refuse."""
    number = os.environ.get("STANDIN_JOB")
    if number is None:
        refuse(f"{command}: Error: no allocation; it must be run within a batch job", code=1)
    return job(number)


def start_ranks(ranks, program, variable, a_node=1):
    """Become Horovod's own launcher, which starts real ranks on this machine.

    variable: by which the real launcher tells a process its rank. a_node: ranks of a node.
    """
    told = ["sh", "-c", f'export {variable}="$HOROVOD_RANK"; exec "$@"', "sh"]
    if nodes := os.environ.get("STANDIN_NODES"):
        program = ["python", str(Path(__file__).with_name("node.py")), nodes, str(a_node), *program]
    line = [
        "env",
        "-u",
        "PYTHONPATH",
        "-u",
        "LSB_JOBID",  # else Horovod asks LSF for the job's hosts
        "python",
        HOROVODRUN,
        "--gloo",
        "-np",
        str(ranks),
        "-H",
        f"localhost:{ranks}",
        *told,
        *program,
    ]
    os.execvp(line[0], line)


@contextlib.contextmanager
def _locked():
    with open(STATE / "lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(number):
    """The life of a job."""
    time.sleep(START_S)
    while (STATE / "hold").exists() and not job(number).get("cancelled"):
        time.sleep(LOOK_S)
    known = job(number)
    if not known.get("cancelled"):
        with open(known["output"], "ab") as output:
            process = subprocess.Popen(
                [known["script"]], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd="/",
                start_new_session=True, env={**os.environ, "STANDIN_JOB": str(number), **_name_job(number, known)},
            )  # fmt: skip
        save(number, state="running", pid=process.pid)
        over, state = STATE / f"{number}.over", None
        deadline = time.monotonic() + 60 * known["minutes"]
        while process.poll() is None:
            if over.exists() or time.monotonic() > deadline:
                _end(process.pid)
                state = "timeout"
                break
            time.sleep(LOOK_S)
        code = process.wait()
    else:
        code, state = 143, None
    if job(number).get("cancelled"):
        state = "killed"
    save(number, state=state or ("failed" if code else "done"), exit_code=code, pid=None)
    if known.get("cobaltlog"):
        _write_cobaltlog(number, known["cobaltlog"], code, state)
    time.sleep(FORGET_S)
    if known.get("forget", True):
        (STATE / f"{number}.job").unlink()


def _name_job(number, known):
    """The variable in which the batch system tells a job its id, if it is told here."""
    return {known["id_variable"]: str(number)} if "id_variable" in known else {}


def _write_cobaltlog(number, path, code, state):
    lines = [f"Fri Jun 01 10:00:00 2018 +0000 (UTC) jobid {number} submitted from terminal 12"]
    if state == "timeout":
        lines.append(
            "Fri Jun 01 11:00:00 2018 +0000 (UTC) Info: maximum execution time exceeded; initiating job termination"
        )
    else:
        lines.append(
            f"Fri Jun 01 11:00:00 2018 +0000 (UTC) Info: task completed normally with an exit code of {code}; ..."
        )
    Path(path).write_text("\n".join(lines) + "\n")


def _end(pid):
    """End all that a job started: its processes may be in sessions of their own."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for number, wait in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            _, processes = psutil.wait_procs(processes, timeout=wait)


if __name__ == "__main__":
    _run(int(sys.argv[2]))
