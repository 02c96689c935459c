"""Runs of a block on equally many nodes share a batch job, one after the other; here through the stand-in for LSF."""

import collections
import itertools
import json

import pandas as pd
import pytest
from project import wait_for
from test_clusters import Site

# One process for the job: on Summit's service node, no host of ranks is known, so that jobs on this host do not count
# as runs that disturb each other.
PROGRAM = """
title: A program of milliseconds that prints a number
kind: command
command: [python, program.py, "{epochs}", "{seed}"]
starts: job
reads: WORLD_SIZE
work: fixed
code: [program.py]
workload: {train_samples: 1}
epochs: {strong: 1, weak: 1}
metrics: {test_loss: {pattern: 'loss: ([0-9.]+)'}}
success: [done]
"""
# The number differs by the arm, the number of ranks, and a little by the block.
CODE = """import os, sys
epochs, seed = map(int, sys.argv[1:])
print("loss:", epochs * int(os.environ["WORLD_SIZE"]) + seed // 100_003 / 1000)
print("done")
"""
# {lost}: a file; while it is there, an arm waits.
WAITING = """import pathlib, sys, time
if sys.argv[1] == "2":
    pathlib.Path("{folder}/begun").touch()
    while pathlib.Path("{folder}/wait").exists():
        time.sleep(0.1)
"""
STUDY = """
description: a test
runs:
  - {{benchmark: program, scaling: weak, epochs: [1, 2], gpus: {gpus}, repeats: {repeats}, walltime_minutes: 10}}
tables: [scaling]
"""
FINDING = """
title: A test
kind: ratio
quantity: {{column: test_loss}}
points: {{benchmark: program, scaling: weak, epochs: {epochs}, gpus: {gpus}}}
sentences:
  'yes': It grows {{number}} times.
  'no': No difference shown, {{number}}.
  opposite: It falls, {{number}}.
  not_enough_runs: It cannot be told
"""


def add_blocks(project, few, many):
    """The study ``blocks``: three blocks of two arms on few and many ranks, with a finding of each kind."""
    (project.root / "config" / "benchmarks" / "program.yaml").write_text(PROGRAM)
    (project.root / "program.py").write_text(CODE)
    findings = project.root / "config" / "findings"
    (findings / "of_arms.yaml").write_text(FINDING.format(epochs="[2, 1]", gpus=few))
    (findings / "of_sizes.yaml").write_text(FINDING.format(epochs=1, gpus=f"[{many}, {few}]"))
    study = STUDY.format(gpus=f"[{few}, {many}]", repeats=3)
    project.add_study("blocks", f"{study}findings: [of_arms, of_sizes]\n")


def check_blocks(results, nodes):
    """Each block has a job for each number of nodes, which made its arms in turn; both findings have a verdict."""
    made = results / "studies" / "blocks"
    runs = pd.read_csv(made / "runs.csv")
    assert runs.status.tolist() == ["ok"] * 12, runs.failure_message.tolist()
    first_arms = collections.defaultdict(list)
    for _, job in runs.sort_values("started_wall_ns").groupby("batch_job"):
        assert (len(job), job.block.nunique(), job.nodes.nunique()) == (2, 1, 1)
        ends = job.started_wall_ns + job.runtime_s * 1e9
        assert ends.iloc[0] <= job.started_wall_ns.iloc[1], "one after the other"
        first_arms[job.nodes.iloc[0]].append((job.block.iloc[0], job.epochs.iloc[0]))
    assert sorted(first_arms) == nodes
    for arms in first_arms.values():
        assert all(one[1] != other[1] for one, other in itertools.pairwise(sorted(arms)[:2])), "in another order"
    of_arms, of_sizes = json.loads((made / "findings.json").read_text())["findings"]
    assert [(each["verdict"], each["blocks"]) for each in (of_arms, of_sizes)] == [("yes", 3)] * 2, of_sizes["sentence"]
    apart = "Its numbers of nodes had batch jobs of their own, on other nodes and at other times."
    assert of_sizes["sentence"].endswith(apart) and apart not in of_arms["sentence"]


@pytest.fixture
def summit(fresh, tmp_path):
    """The stand-in for LSF, with the study ``blocks`` on one node and two."""
    there = Site(fresh, tmp_path, "lsf")
    fresh.change("profiles/summit/config.yaml", "status-checks: 1", "status-checks: 4")
    add_blocks(fresh, 1, 12)
    return there


def test_a_block_s_runs_of_one_size_share_a_batch_job(summit):
    targets = [f"results/summit/studies/blocks/{name}" for name in ("runs.csv", "findings.json")]
    done = summit.snakemake("blocks", *targets)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "12 of them share 6 jobs" in done.stderr and "no verdict here" not in done.stderr
    check_blocks(summit.results, [1, 2])
    asked = [(line[line.index("-nnodes") + 1], line[line.index("-W") + 1]) for line in summit.calls("bsub")]
    assert sorted(asked) == [("1", "0:16")] * 3 + [("2", "0:16")] * 3
    assert "Nothing to be done" in summit.snakemake("blocks", *targets).stderr


@pytest.mark.long
def test_a_run_that_is_lost_with_its_job_is_made_again_alone(summit, tmp_path):
    (tmp_path / "wait").touch()
    (summit.project.root / "program.py").write_text(WAITING.format(folder=tmp_path) + CODE)
    summit.project.add_study("lost", STUDY.format(gpus=1, repeats=1))
    study = summit.start(*summit.runs_alone("lost"))
    wait_for((tmp_path / "begun").exists, study)
    (ended,) = summit.results.glob("runs/*/*/*/outcome.json")
    outcome = ended.read_bytes()
    summit.reach_walltime()
    wait_for(lambda: len(summit.calls("bsub")) == 2, study)
    (tmp_path / "wait").unlink()
    assert study.wait(300) == 0, summit.said()
    assert ended.read_bytes() == outcome, "it was not made again"
    runs = summit.runs()
    assert (runs.status.tolist(), runs.batch_job.nunique()) == (["ok"] * 2, 2)
    assert [line[line.index("-W") + 1] for line in summit.calls("bsub")] == ["0:16", "0:10"]
