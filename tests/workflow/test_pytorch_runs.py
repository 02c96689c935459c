"""PyTorch with real ranks: averaged gradients, bytes on the wire, equal ranks, restarts, and ranks that are lost."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import define, expand
from project import ROOT, copy_of_project

from study import backends

# Not by an import, which takes 3 CPU seconds of each worker that collects the tests.
pytestmark = pytest.mark.skipif(
    backends.explain_missing("pytorch") is not None, reason=str(backends.explain_missing("pytorch"))
)

# Epochs tell the runs apart: in 5, rank 1 is killed.
STUDY = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 100, test_samples: 20, features: 60, seed: 1}
runs:
  - &point {benchmark: nt3, scaling: weak, epochs: 4, gpus: 2, loader: npy}
  - {<<: *point, framework: pytorch, strategy: ddp, loader: [npy, parallel]}
  - {<<: *point, framework: pytorch, strategy: ddp, gpus: 1, sharding: by_rank}
  - {<<: *point, framework: pytorch, strategy: ddp, gradient_compression: fp16}
  - {<<: *point, framework: pytorch, strategy: ddp, plateau_epochs: 1, checkpoint_epochs: 2}
  - {<<: *point, framework: pytorch, strategy: ddp, epochs: 5}
tables: [frameworks, scaling]
"""
IN_RANKS = """
import os, signal, sys
from study.training import checkpoints, loop
definition = RunDefinition.read(sys.argv[1] + "/run.yaml")
end, save = loop.Loop.end_epoch, checkpoints.Writer.save
def end_epoch(self, epoch, *further):
    if definition["epochs"] == 5 and self._ranks.rank == 1 and epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return end(self, epoch, *further)
loop.Loop.end_epoch = end_epoch
"""


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    """(What two ranks print, their weights)."""
    folder = tmp_path_factory.mktemp("ddp")
    define(*expand(scaling="weak", gpus=2, learning_rate_scaling="none", framework="pytorch", strategy="ddp",
                   loader="npy")).write(folder / "run.yaml")  # fmt: skip
    line = [sys.executable, ROOT / "scripts" / "strategyrun.py", "ddp", "2", "0", "[]", folder, sys.executable,
            Path(__file__).with_name("ranks_average_pytorch.py"), folder / "run.yaml"]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.split("RESULT ")[1].splitlines()[0]), np.load(folder / "run.npy")


def test_two_ranks_on_half_batches_equal_one_on_the_whole_batch(ddp):
    result, _ = ddp
    assert result["moved"] > 1e-3
    assert result["off"] < 1e-5 * result["moved"]
    assert result["has_averaged"]
    # A ring allreduce of two ranks sends 2 (N - 1) / N = 1 times the gradients.
    assert result["sent_per_step"] == pytest.approx(result["gradient_bytes"], rel=0.02)


@pytest.mark.skipif(
    backends.explain_missing("pytorch", "horovod") is not None, reason="Horovod was built without PyTorch"
)
def test_horovod_averages_as_ddp_does(tmp_path, ranks, ddp):
    """Equal ranks, the same bytes, and the weights of DDP."""
    of_ddp, weights = ddp
    definition = define(
        *expand(scaling="weak", gpus=2, learning_rate_scaling="none", framework="pytorch", loader="npy")
    )
    definition.write(tmp_path / "horovod.yaml")
    done = ranks(2, "ranks_average_pytorch.py", tmp_path / "horovod.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.split("RESULT ")[1].splitlines()[0])
    assert result["has_averaged"]
    assert (result["differing_ranks"], of_ddp["differing_ranks"]) == (0, 0)
    assert result["off"] < 1e-5 * result["moved"]
    assert np.abs(np.load(tmp_path / "horovod.npy") - weights).max() < 1e-6
    # Horovod's coordinator also sends a little in each cycle.
    assert result["sent_per_step"] == pytest.approx(result["gradient_bytes"], rel=0.05)


# Each place in a fork, since to import PyTorch takes longer than to wait.
ALONE = """
import os, sys, types
from study.backends.pytorch.process_group import ProcessGroup
from study.core.errors import exit_with_message
run = types.SimpleNamespace(machine={"gpus_per_rank": 0}, parameters={})
waiting = []
for place in sys.argv[1:]:
    child = os.fork()
    if not child:
        os.environ["STUDY_PROCESS"] = place
        sys.exit(exit_with_message(lambda: ProcessGroup(run)))
    waiting.append(child)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in waiting))
"""


def test_a_rendezvous_that_nobody_answers_ends_in_one_line():
    """Of rank 0 without rank 1, and of rank 1 without rank 0, within half of the stall limit."""
    with socket.socket() as of_rank_0, socket.socket() as of_rank_1:
        for free in (of_rank_0, of_rank_1):
            free.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{free.getsockname()[1]}" for free in (of_rank_0, of_rank_1)]
    places = [json.dumps([rank, 2, "c", "k", ["a", "a"], [at, at]]) for rank, at in enumerate(addresses)]
    variables = {**os.environ, "STUDY_STALL_LIMIT_S": "4"}
    line = [sys.executable, "-c", ALONE, *places]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 1\n", done.stderr
    told = sorted(each for each in done.stderr.splitlines() if each.startswith("error: "))
    assert len(told) == 2
    for rank, (line, at) in enumerate(zip(told, addresses, strict=True)):
        assert f"rank {rank} waited 2 s for the others at {at}" in line
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(the project, the runs of the study)."""
    project = copy_of_project(tmp_path_factory.mktemp("pytorch") / "project")
    project.in_ranks(IN_RANKS)
    project.add_study("pytorch_test", STUDY)
    project.snakemake(study="pytorch_test")
    return project, pd.read_csv(project.made / "runs.csv")


def metrics_of(project, row):
    return json.loads((project.results / row["record"]).with_name("metrics.json").read_text())


def test_runs_end_well_and_ranks_are_equal(trained):
    project, runs = trained
    fine = runs[(runs["epochs"] != 5)]
    assert set(fine["status"]) == {"ok"}, fine[["record", "status"]].to_string()
    of_pytorch = fine[fine["framework"] == "pytorch"]
    assert len(of_pytorch) == 5
    for _, row in of_pytorch.iterrows():
        ranks = metrics_of(project, row)["ranks"]
        assert len({each["final_weights_crc32"] for each in ranks}) == 1


def test_loaders_and_staging_train_the_same_weights(trained):
    project, runs = trained
    same = runs[(runs["framework"] == "pytorch") & (runs["gpus"] == 2) & (runs["epochs"] == 4)
                & (runs["gradient_compression"] == "none") & (runs["plateau_epochs"] == 0)]  # fmt: skip
    assert set(same["loader"]) == {"npy", "parallel"}
    checksums = {metrics_of(project, row)["ranks"][0]["final_weights_crc32"] for _, row in same.iterrows()}
    assert len(checksums) == 1


def test_sixteen_bits_halve_what_is_sent(trained):
    _, runs = trained
    of_two = runs[(runs["framework"] == "pytorch") & (runs["gpus"] == 2) & (runs["epochs"] == 4)]
    sent = of_two.groupby("gradient_compression")["tcp_sent_mb_per_step"].median()
    assert sent["fp16"] == pytest.approx(sent["none"] / 2, rel=0.03)


def test_a_killed_rank_is_named(trained):
    project, runs = trained
    (killed,) = (row for _, row in runs[runs["epochs"] == 5].iterrows())
    assert killed["status"] == "failed"
    failure = json.loads((project.results / killed["record"]).read_text())["failure"]
    assert (failure["kind"], failure["rank"]) == ("killed", 1)


def test_tensorflow_and_pytorch_begin_with_the_same_weights_and_have_a_ratio(trained):
    project, runs = trained
    table = pd.read_csv(project.made / "tables" / "frameworks.csv")
    (row,) = (each for _, each in table[(table["framework"] == "pytorch") & (table["gpus"] == 2)].iterrows()
              if each["loader"] == "npy" and each["epochs_per_rank"] == 4 and each["repeats_ok"]
              and pd.notna(each["epoch_ratio"]))  # fmt: skip
    assert row["epoch_ratio"] > 0
    assert row["tcp_sent_mb_per_step"] == pytest.approx(row["gradient_mb"], rel=0.02)


@pytest.mark.long
def test_the_tutorial_s_two_files_train_and_are_in_the_tables(trained):
    """The files of the page as they are there."""
    project, _ = trained
    text = (ROOT / "docs" / "tutorials" / "own-pytorch-model.md").read_text(encoding="utf-8")
    for block in re.findall(r"```(?:yaml|python)\n(# (?:config|scripts)/.*?)```", text, re.S):
        name = block.splitlines()[0].removeprefix("# ")
        (project.root / name).write_text(block)
    project.snakemake(study="tides")
    runs = pd.read_csv(project.made / "runs.csv")
    assert list(runs["status"]) == ["ok", "ok"]
    assert runs["mae"].notna().all() and runs["test_mae"].notna().all()
