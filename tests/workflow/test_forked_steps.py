"""A forked step ends, prints and sees what the same step as a process does."""

import subprocess
import sys
from pathlib import Path

import forked_steps
import pytest
from project import BIN, ROOT

SERVER = """
import os, socket, sys
import forked_steps
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("ready", flush=True)
forked_steps.serve(listening, os.getppid())
"""
STEP = """
import os, signal, subprocess, sys
print(sys.argv[1:], os.getcwd(), os.environ["GIVEN"], [name for name in os.environ if "python" in name.lower()])
print(sys.path[0], subprocess.run(["false"]).returncode, sys.stdin.read(), "pandas" in sys.modules, flush=True)
end = sys.argv[1]
if end == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(3 if end == "code" else end if end == "a text" else None)
"""


@pytest.fixture
def shell(tmp_path):
    """What Snakemake's shell does with a line: as processes, and with forked steps; (exit code, output) of it."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("make_table", "launch_training"):
        (scripts / f"{name}.py").write_text(STEP)
    address = tmp_path / "socket"
    here = {"PATH": f"{BIN}:/usr/bin:/bin", "SCRIPTS": str(scripts), "GIVEN": "by the shell"}

    def run(line, **more):
        words = ["bash", "-c", f"set -euo pipefail; {line} 2>&1 | tee log"]
        done = subprocess.run(words, cwd=tmp_path, env=here | more, input="typed", capture_output=True, text=True)
        assert done.stdout == (tmp_path / "log").read_text()
        return done.returncode, done.stdout

    own = {"PYTHONPATH": str(Path(forked_steps.__file__).parent)}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, address], stdout=subprocess.PIPE, env=own, text=True
    ) as server:
        assert server.stdout.readline() == "ready\n"
        yield lambda line: (run(line), run(line, **forked_steps.variables(address)))
        server.kill()


@pytest.mark.parametrize(("end", "code"), [("well", 0), ("code", 3), ("a text", 1)])
@pytest.mark.parametrize("step", ["make_table", "launch_training"])
def test_a_step_ends_alike(shell, step, end, code):
    as_process, forked = shell(f'python "$SCRIPTS/{step}.py" "{end}" "*"')
    assert as_process == forked
    assert forked[0] == code and "by the shell []" in forked[1] and "typed False" in forked[1]


def test_a_step_that_is_ended_has_failed(shell):
    as_process, forked = shell('python "$SCRIPTS/make_table.py" killed')
    assert as_process[0] == 137 and forked[0] == 1
    assert "the fork of this step was ended" in forked[1]


def test_each_forked_step_is_a_script():
    assert [name for name in forked_steps.FORKED if not (ROOT / "scripts" / f"{name}.py").is_file()] == []
