"""Dry runs of Snakemake in forks of one process that has imported it and pandas: 1.5 of 2.5 CPU seconds less each.

The process does not import this project's library: each copy of the project has its own.
"""

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

_LOCK = threading.Lock()


def run(arguments, folder, environment, timeout):
    """As ``snakemake ARGUMENTS`` in a folder; the finished process with its texts."""
    with _LOCK:
        server = _server()
        asked = {"arguments": [*map(str, arguments)], "folder": str(folder), "environment": dict(environment)}
        server.stdin.write(json.dumps(asked | {"timeout": timeout}) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(["snakemake", *arguments], **answer)


@functools.cache
def _server():
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    atexit.register(server.wait, 10)
    atexit.register(server.stdin.close)
    return server


def _serve():
    """Answer until the standard input ends."""
    import jsonschema  # noqa: F401
    import pandas as pd  # noqa: F401
    import snakemake.cli  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            child = os.fork()
            if not child:
                _dry_run(asked, out.fileno(), errors.fileno())
            returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for each in (out, errors):
                each.seek(0)
                texts.append(each.read())
        print(json.dumps({"returncode": returncode, "stdout": texts[0], "stderr": texts[1]}), flush=True)


def _dry_run(asked, out, errors):
    signal.alarm(int(asked["timeout"]))  # ends the fork
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    code = 1
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        program = str(Path(sys.executable).with_name("snakemake"))
        sys.argv = [program, *asked["arguments"]]
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:1] = [str(Path(program).parent), *paths]
        from snakemake.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
