"""TensorFlow's strategies with real processes: the same weights as Horovod, bytes on the wire, lost processes."""

import itertools
import json
import subprocess

import numpy as np
import pandas as pd
import pytest
from project import copy_of_project

# Epochs tell the runs apart: 3 (of images) and 4 (20 steps) are compared; in 5 and 6 a process is killed.
NT3 = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 100, test_samples: 20, features: 60, seed: 1}
"""
OF_NT3 = """\
  - {benchmark: nt3, scaling: weak, epochs: 4, gpus: [1, 2], loader: npy}
  - {benchmark: nt3, scaling: weak, epochs: 4, gpus: 1, loader: npy, strategy: parameter_server, servers: 1}
"""
FEW = f"""{NT3}
runs:
{OF_NT3}\
tables: [scaling, strategies]
"""
STUDY = f"""{NT3}\
  lenet:
    {{source: synthetic_images, train_samples: 1000, test_samples: 20, image_size: 28, resize: 32, classes: 1000,
     seed: 1}}
runs:
  - &images {{benchmark: lenet, scaling: weak, epochs: 3, gpus: 1, batch_size: 250, loader: memory}}
  - {{<<: *images, strategy: parameter_server, servers: 2, server_placement: [round_robin, min_size]}}
  - {{<<: *images, strategy: parameter_server, servers: 2, loader: [tfrecord, lmdb]}}
  - {{<<: *images, loader: tfrecord}}
{OF_NT3}\
  - {{benchmark: nt3, scaling: weak, epochs: 4, gpus: 1, loader: npy, strategy: parameter_server, servers: 2,
     server_placement: [round_robin, min_size]}}
  - {{benchmark: nt3, scaling: weak, epochs: 5, gpus: 1, loader: npy, strategy: parameter_server, servers: 1}}
  - {{benchmark: nt3, scaling: weak, epochs: 6, gpus: 2, loader: npy, strategy: parameter_server, servers: 1,
     learning_rate_scaling: none}}
tables: [scaling, strategies]
"""
IN_RANKS = """
import os, signal, sys, threading
import numpy as np
from study.backends.tensorflow import local_replica, parameter_server
from study.training import rank
definition = RunDefinition.read(sys.argv[1] + "/run.yaml")
doomed = {5: "server 0", 6: "worker 1"}.get(definition["epochs"])
start, write, begun = parameter_server._start_server, rank._write_results, []
def begin(self):
    begun.append(1)
    if len(begun) == 2:  # in the second epoch
        threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
def start_server(run, role, place):
    if str(role) == doomed:
        parameter_server.Traffic.begin = begin
    return start(run, role, place)
def write_results(folder, communicator, gpu, found, *further):
    if communicator.rank == 0:
        np.savez(WEIGHTS + "/" + run_name(definition) + ".npz", *local_replica.join_weights(found.trainer.model))
    write(folder, communicator, gpu, found, *further)
def run_name(run):
    return "-".join(str(run[key]) for key in ("strategy", "gpus", "servers", "server_placement", "epochs", "loader"))
parameter_server._start_server, rank._write_results = start_server, write_results
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy_of_project(tmp_path_factory.mktemp("strategies") / "project")
    weights = project.root.parent / "weights"
    weights.mkdir()
    project.in_ranks(f"WEIGHTS = {str(weights)!r}\n{IN_RANKS}")
    return project


def with_runs(project, name, study):
    """(the project, the runs of a study that has run in it, the folder with their weights)."""
    project.add_study(name, study)
    project.snakemake(study=name)
    return project, pd.read_csv(project.made / "runs.csv"), project.root.parent / "weights"


@pytest.fixture(scope="module")
def few(project):
    """A run of each strategy."""
    return with_runs(project, "few", FEW)


@pytest.fixture(scope="module")
def trained(project):
    """All runs."""
    return with_runs(project, "strategies_test", STUDY)


def weights_of(folder, strategy, gpus, servers=0, placement="round_robin", epochs=4, loader="npy"):
    with np.load(folder / f"{strategy}-{gpus}-{servers}-{placement}-{epochs}-{loader}.npz") as arrays:
        return [arrays[name] for name in arrays]


def furthest(ones, others):
    """The largest difference of two lists of arrays, relative to the largest value of each array."""
    return max(np.abs(one - other).max() / np.abs(one).max() for one, other in zip(ones, others, strict=True))


def test_one_worker_and_one_server_end_with_the_weights_of_one_rank(few):
    _, _, folder = few
    alone = weights_of(folder, "horovod", 1)
    assert furthest(alone, weights_of(folder, "parameter_server", 1, 1)) < 1e-6
    assert furthest(alone, weights_of(folder, "horovod", 2)) > 1e-6, "which the comparison would notice"


@pytest.mark.long
def test_two_servers_too(trained):
    _, _, folder = trained
    served = weights_of(folder, "parameter_server", 1, 2, "min_size")
    assert furthest(weights_of(folder, "horovod", 1), served) < 1e-6


@pytest.mark.long
def test_one_worker_ends_with_the_weights_of_one_rank_on_images_too(trained):
    """Which are cut out and mirrored at random, the same in each strategy."""
    _, runs, folder = trained
    alone = weights_of(folder, "horovod", 1, epochs=3, loader="memory")
    for placement, loader in itertools.product(("round_robin", "min_size"), ("memory", "tfrecord", "lmdb")):
        if placement == "round_robin" or loader == "memory":
            served = weights_of(folder, "parameter_server", 1, 2, placement, epochs=3, loader=loader)
            assert furthest(alone, served) < 1e-6
    assert (runs[runs.benchmark == "lenet"].status == "ok").all()


def test_a_worker_sends_and_receives_each_parameter_once_per_step(few):
    project, runs, _ = few
    (served,) = bytes_of_servers(runs).record
    record = json.loads((project.results / served).read_text())
    assert [each["role"] for each in record["processes"]] == ["chief", "worker", "server"]


@pytest.mark.long
def test_a_worker_of_two_servers_too(trained):
    _, runs, _ = trained
    assert len(bytes_of_servers(runs)) == 3


def bytes_of_servers(runs):
    """The good runs of NT3 with servers, after a check of what was sent."""
    served = runs[(runs.strategy == "parameter_server") & (runs.status == "ok") & (runs.benchmark == "nt3")]
    for way in ("sent", "received"):
        assert served[f"tcp_{way}_mb_per_step"].div(served.gradient_mb).between(1.00, 1.15).all()
    both = served.servers_sent_mb_per_step + served.servers_received_mb_per_step
    of_workers = served.tcp_sent_mb_per_step + served.tcp_received_mb_per_step
    assert (both / of_workers).tolist() == pytest.approx([1] * len(served), rel=0.01)
    return served


@pytest.mark.long
@pytest.mark.parametrize(("benchmark", "parameters"), [("nt3", None), ("lenet", 4_290_984)])
def test_large_variables_are_split_by_min_size_only(trained, benchmark, parameters):
    """In turn, one server has all kernels and the other all biases."""
    _, runs, _ = trained
    of_two = runs[(runs.servers == 2) & (runs.status == "ok") & (runs.benchmark == benchmark)]
    of_two = of_two[of_two.loader.isin(["npy", "memory"])]
    assert parameters is None or set(of_two.parameters) == {parameters}, "TF-Slim's LeNet, as Han et al. trained it"
    share = of_two.set_index("server_placement").busiest_server_share
    assert share["round_robin"] > 0.95
    assert 0.5 <= share["min_size"] < 0.55


@pytest.mark.long
def test_a_worker_reads_its_own_images(trained):
    """As many bytes as the one rank of Horovod that trains on them; besides, the chief reads the index and test set."""
    _, runs, _ = trained
    read = runs[(runs.benchmark == "lenet") & (runs.loader == "tfrecord")].set_index("strategy").shared_read_mb
    assert read["parameter_server"] == pytest.approx(read["horovod"], rel=0.05)


@pytest.mark.long
def test_a_killed_server_is_named_and_leaves_nothing(trained):
    project, runs, _ = trained
    run = runs[runs.epochs == 5].iloc[0]
    assert (run.status, run.failure_kind, run.failure_phase) == ("failed", "killed", "train")
    assert run.failure_message == "server 0 ended first: signal 9 (SIGKILL)"
    still = subprocess.run(["pgrep", "-f", str(project.root)], capture_output=True, text=True).stdout
    assert still == ""


@pytest.mark.long
def test_a_run_goes_on_without_a_killed_worker_and_is_no_result(trained):
    project, runs, _ = trained
    run = runs[runs.epochs == 6].iloc[0]
    assert (run.status, run.failure_kind, run.workers_lost) == ("failed", "workers_lost", 1)
    assert run.failure_message == "worker 1 ended (signal 9 (SIGKILL)), and the run continued without it"
    assert "epoch 6/6" in ((project.results / run.record).parent / "train.log").read_text()
    assert pd.isna(run.time_per_epoch_s) and pd.isna(run.test_accuracy)
