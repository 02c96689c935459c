"""A study beside busy processes: which runs are marked, which are run again, and what becomes of the findings.

Other programs use the machine that the tests share. So the copy's sampler counts only what the processes of one control
group use: the study, and the busy ones. The times of the runs are as noisy as the machine is.
"""

import json
import os
import subprocess
import threading
from pathlib import Path

import pandas as pd
import pytest
import yaml
from project import BIN, WAIT_S, copy_of_project, wait_for

BLOCKS, RANKS = 6, (1, 2)
BUSY = range(3, 5)  # the blocks beside the busy process: a third of them
COUNTED = """
        for core, used in enumerate(Path("GROUP/cpuacct.usage_percpu").read_text(encoding="ascii").split()):
            yield core, _Times(int(used) / 1e9, 0.0)
        return
"""
LOOP = "echo $$ >$0/cgroup.procs; while :; do :; done"
LOOPS = 4  # where the machine is busy anyway, one alone gets less than a twentieth of it
MACHINE = "base: local\ndescription: a test\nlauncher: processes\nrepeat_disturbed: 1\n"


@pytest.fixture
def group():
    """A control group that counts the CPU time of its processes."""
    root = Path("/sys/fs/cgroup/cpuacct")
    if not (root / "cpuacct.usage_percpu").exists():
        pytest.skip("needs the control groups' version 1, with cpuacct")
    found = root / f"study-test-{os.getpid()}"
    try:
        found.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own: {error}")
    yield found
    wait_for(lambda: not (found / "cgroup.procs").read_text())
    found.rmdir()


@pytest.fixture
def example(tmp_path, group):
    """A function that makes a small study of one program, in a copy of the project."""
    project = copy_of_project(tmp_path / "project")
    old = '        """Of each logical CPU that the kernel tells of."""'
    project.change("scripts/study/instruments/background.py", old, old + COUNTED.replace("GROUP", str(group)))
    folder = project.root / "examples" / "shell_counter"
    path = folder / "config" / "studies" / "shell_counter.yaml"
    study = yaml.safe_load(path.read_text())
    study["runs"][0] |= {"gpus": list(RANKS), "repeats": BLOCKS}
    path.write_text(yaml.safe_dump(study))
    path = folder / "config" / "benchmarks" / "shell_counter.yaml"
    path.write_text(path.read_text().replace("4000000", "3000000"))
    (folder / "config" / "machines").mkdir()
    for name in ("idle", "busy"):
        (folder / "config" / "machines" / f"{name}.yaml").write_text(MACHINE)
    here = folder / "config" / "config.yaml"
    here.write_text(here.read_text().replace("machine: local_processes", "machine: idle"))
    return folder


def run(folder, group, machine):
    """Run the study on a machine; its rows, its attempts and its finding."""
    line = [BIN / "python", "-m", "study.commands.main", "run", "--machine", machine]
    enter = ["sh", "-c", 'echo $$ >$0/cgroup.procs; exec "$@"', group]
    variables = {**os.environ, "PYTHONPATH": str(folder.parent.parent / "scripts")}
    done = subprocess.run(
        [*enter, *line], cwd=folder, env=variables, capture_output=True, text=True, timeout=3 * WAIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    study = folder / "results" / machine / "studies" / "shell_counter"
    (finding,) = json.loads((study / "findings.json").read_text())["findings"]
    return pd.read_csv(study / "runs.csv"), pd.read_csv(study / "attempts.csv"), finding, done.stderr


def beside(folder, group, ended):
    """Use the machine while the runs of `BUSY` are made. ended: set when the study is over."""
    first, last = (len(RANKS) * (block - 1) for block in (BUSY.start, BUSY.stop))
    made = folder / "results" / "busy" / "runs"
    while len(list(made.rglob("outcome.json"))) < first and not ended.wait(0.02):
        pass
    busy = [subprocess.Popen(["sh", "-c", LOOP, group]) for _ in range(LOOPS)]
    while len(list(made.rglob("outcome.json"))) < last and not ended.wait(0.02):
        pass
    for each in busy:
        each.kill()
        each.wait()


@pytest.mark.timed  # while other tests run, the machine is not quiet, and no block is run again
@pytest.mark.long
def test_a_third_of_a_study_beside_a_busy_process(example, group):
    idle, _, without, _ = run(example, group, "idle")
    assert not idle["disturbed"].any(), idle[["block", "gpus", "disturbed_by"]].to_string()
    ended = threading.Event()
    other = threading.Thread(target=beside, args=(example, group, ended))
    other.start()
    try:
        runs, attempts, finding, said = run(example, group, "busy")
    finally:
        ended.set()
        other.join()
    first = attempts[attempts["attempt"] == 1]
    assert set(first["block"]) == set(BUSY) and first["disturbed"].all(), first.to_string()
    assert said.count("is run again, attempt 2 of at most 2 (2 runs)") == 2 * len(BUSY), "at the end, and in the plan"
    assert not runs["disturbed"].any() and (runs["attempt"] > 1).tolist() == runs["block"].isin(BUSY).tolist()
    assert finding["verdict"] == without["verdict"] and finding["blocks_disturbed"] == 0
    assert finding["low"] <= without["high"] and without["low"] <= finding["high"]
