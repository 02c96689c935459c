"""Snakemake in forks of one process that has imported it and pandas: 1.7 of a dry run's 2.5 CPU seconds less.

The process does not import this project's library: each copy of the project has its own. The steps that Snakemake
starts are processes as everywhere, but for those of `forked_steps`, where a caller asks for it. Where a test sends
signals to Snakemake it starts one itself.
"""

import atexit
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import forked_steps

# What a study's plan imports besides the project's library. An import that is missing here costs time and nothing else.
IMPORTED = ("docutils.core", "fastjsonschema", "jinja2", "jsonschema", "pandas", "requests", "smart_open",
            "snakemake.cli", "snakemake.report.html_reporter", "statistics", "tqdm", "yte")  # fmt: skip
_LOCK = threading.Lock()


def run(arguments, folder, environment, timeout, has_forked_steps=False):
    """As ``snakemake ARGUMENTS`` in a folder; the finished process with its texts.

    has_forked_steps: whether `forked_steps` does what it can of the steps.
    """
    with _LOCK:
        server = _server()
        asked = {"arguments": [*map(str, arguments)], "folder": str(folder), "environment": dict(environment),
                 "has_forked_steps": has_forked_steps}  # fmt: skip
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
    for name in (*IMPORTED, *forked_steps.IMPORTED):
        importlib.import_module(name)

    for line in sys.stdin:
        asked = json.loads(line)
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as errors,
            tempfile.TemporaryDirectory(prefix="steps-") as steps,
        ):
            child = os.fork()
            if not child:
                _snakemake(asked, out.fileno(), errors.fileno(), Path(steps) / "socket")
            returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for each in (out, errors):
                each.seek(0)
                texts.append(each.read())
        print(json.dumps({"returncode": returncode, "stdout": texts[0], "stderr": texts[1]}), flush=True)


def _snakemake(asked, out, errors, steps):
    signal.alarm(int(asked["timeout"]))  # ends the fork
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    code, server = 1, None
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        program = str(Path(sys.executable).with_name("snakemake"))
        sys.argv = [program, *asked["arguments"]]
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:1] = [str(Path(program).parent), *paths]
        if asked["has_forked_steps"]:
            server = _serve_steps(steps)
        from snakemake.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if server:
            os.kill(server, signal.SIGTERM)
            os.waitpid(server, 0)
        os._exit(code)


def _serve_steps(path):
    """Fork the server of this Snakemake's steps, and have them ask it; the server's process number."""
    parent, listening = os.getpid(), socket.socket(socket.AF_UNIX)
    with listening:
        listening.bind(str(path))
        listening.listen()
        if not (server := os.fork()):
            forked_steps.serve(listening, parent)
    os.environ.update(forked_steps.variables(path))
    return server


if __name__ == "__main__":
    _serve()
