"""Steps of a study in forks of a process that has imported pandas and Matplotlib: a CPU second less for each table.

`serve` runs in a fork of a Snakemake of `fork_server`. The bash function ``python`` of `FUNCTION` hands it the steps of
`FORKED`; every other step, so each run and each measurement, is a process as everywhere. A forked step reads the
project's own library anew, and has the folder, the environment and the open files that the process would have had.
Where a test starts a Snakemake of its own, and in test_module.py, test_examples.py, test_slurm.py and
test_clusters.py, they are processes too.

Run as a program with a step's command line, this file is the one that asks.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path

FORKED = ("update_records", "collect_records", "fetch_dataset", "convert_dataset", "make_table", "make_figure",
          "make_report")  # fmt: skip
IMPORTED = ("matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg", "matplotlib.figure", "pandas")
FUNCTION, SOCKET = "BASH_FUNC_python%%", "FORKED_STEPS"  # variables; bash defines a function from one of such a name
_SCRIPTS = "|".join(f'"$SCRIPTS/{name}.py"' for name in FORKED)
# Without the function and the variables for what is no such step: a run's environment is as everywhere.
_TEXT = f"""() {{ case "$1" in
{_SCRIPTS}) command python -IS {str(Path(__file__))!r} "$@" ;;
*) (unset -f python; unset {SOCKET}; exec python "$@") ;;
esac
}}"""
_LENGTH = 8  # bytes of the number that says how long a question is


def variables(path):
    """The environment of a Snakemake whose steps are to ask the server at this socket."""
    return {FUNCTION: _TEXT, SOCKET: str(path)}


def serve(listening, parent):
    """Fork for each step until this process is ended, or the parent, a process's number, has ended."""
    signal.signal(signal.SIGCHLD, _wait_for_ended)
    while os.getppid() == parent:
        if select.select([listening], [], [], 1)[0]:
            asking, _ = listening.accept()
            if not os.fork():
                listening.close()
                _step(asking)
            asking.close()
    os._exit(0)


def _wait_for_ended(*_):
    """Their CPU time then counts as this process's, and so as that of the tests."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _step(asking):
    """Do the step that is asked for, in this process, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(asking, _LENGTH, 3, socket.MSG_WAITALL)
    asked = json.loads(asking.recv(int.from_bytes(head), socket.MSG_WAITALL))
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    code = 1
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        script = asked["arguments"][0]
        sys.argv, sys.path[0] = asked["arguments"], str(Path(script).parent)
        importlib.invalidate_caches()
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # the one that asked may have been ended
            asking.sendall(str(code).encode())
        os._exit(code)


def _ask(arguments):
    """Have a server do a step; its exit code."""
    environment = {name: value for name, value in os.environ.items() if name not in (FUNCTION, SOCKET)}
    asked = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": environment}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[SOCKET])
        socket.send_fds(server, [len(asked).to_bytes(_LENGTH)], [0, 1, 2])
        server.sendall(asked)
        answer = server.recv(_LENGTH)
    return int(answer) if answer else "the fork of this step was ended"


if __name__ == "__main__":
    sys.exit(_ask(sys.argv[1:]))
