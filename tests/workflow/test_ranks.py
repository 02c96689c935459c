"""Real Horovod on two ranks: gradients are averaged, a broken broadcast is noticed, failures become records."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from examples import define, expand, make_data
from project import FOR_EVER, STRONG, TINY, has_mpi


@pytest.fixture(scope="module")
def in_turn(ranks, tmp_path_factory):
    """(All results that two ranks print, the finished process): they tell addresses, average, and do not broadcast."""
    folder = tmp_path_factory.mktemp("ranks")
    (planned,) = expand(scaling="weak", gpus=2, learning_rate_scaling="none")
    make_data(planned, folder / "data")
    define(planned, data_dir=str(folder / "data")).write(folder / "run.yaml")
    (folder / "ranks").mkdir()
    average = ("ranks_average.py", folder / "run.yaml")
    done = ranks(2, "ranks_in_turn.py", "ranks_ports.py", "--", *average, "--", "ranks_without_broadcast.py", folder)
    return [json.loads(each.splitlines()[0]) for each in done.stdout.split("RESULT ")[1:]], done


@pytest.fixture(scope="module")
def averaged(in_turn):
    """What ranks_average.py prints of two ranks."""
    found, done = in_turn
    results = [each for each in found if "moved" in each]
    assert len(results) == 1, done.stdout + done.stderr
    return results[0]


def without_loading(text):
    """A study's text up to its loading measurements, and without the dataset that only these use."""
    lines = text.partition("loading:")[0].splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("  wide:"))


def test_two_ranks_on_half_batches_equal_one_on_the_whole_batch(averaged):
    assert averaged["moved"] > 1e-3
    assert averaged["off"] < 1e-3 * averaged["moved"]


def test_a_broadcast_that_does_nothing_is_noticed(in_turn):
    _, done = in_turn
    assert done.returncode != 0
    assert "the ranks' weights differ after the broadcast" in done.stdout + done.stderr


def test_on_one_host_nothing_listens_for_other_hosts(in_turn):
    """Neither Horovod's rendezvous server, which knows no key, nor Gloo, whose ports are closed after the start."""
    found, done = in_turn
    told = [each for each in found if "launcher_listens" in each]
    here = ["127.0.0.1"]
    assert told == [{"launcher_listens": here, "rank_listens": [], "rank_is_connected": here}] * 2


def test_a_run_over_its_time_limit_is_a_record_and_a_row(project):
    """The launcher and its ranks are ended for real; the study goes on to its tables."""
    project.change("config/machines/local.yaml", "time_limit_s: 3600", "time_limit_s: 5")
    project.in_ranks(FOR_EVER)
    project.change(
        "config/studies/tiny.yaml", STRONG, STRONG.replace("[1, 2]", "4").replace("repeats: 2", "repeats: 1")
    )
    project.snakemake("results/local/studies/tiny/tables/icpp2019_table2.csv")
    table = pd.read_csv(project.made / "tables" / "icpp2019_table2.csv").set_index("gpus")
    assert table.loc[4].failures == "1 x timeout"
    assert pd.isna(table.loc[4].time_per_epoch_s)
    still = subprocess.run(["pgrep", "-f", str(project.root)], capture_output=True, text=True).stdout
    assert still == ""


def test_a_run_by_hand_from_its_own_definition(project, tmp_path):
    """A reviewer repeats one run: same code, data and seed give the same weights.

    Of one rank; that several end with the same weights each time is seen where they get their data in different ways.
    """
    folder = next(project.results.glob("runs/*/*/strong+epochs~4+gpus~1+loader~read_csv"))
    line = [sys.executable, project.root / "scripts" / "launch_training.py", "--run", folder / "run.yaml"]
    subprocess.run([*line, "--outcome", tmp_path / "again" / "outcome.json"], cwd=project.root, check=True)
    first, again = (json.loads((f / "metrics.json").read_text()) for f in (folder, tmp_path / "again"))
    assert first["initial_weights_crc32"] == again["initial_weights_crc32"]
    assert first["test"] == again["test"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "run.yaml", "--outcome", "again.json"], "must be named outcome.json"),
        (["--run", "none.yaml", "--outcome", "x/outcome.json"], "none.yaml: cannot be read"),
    ],
)
def test_a_launch_that_cannot_be_meant_is_refused(project, arguments, words):
    folder = next(project.results.glob("runs/*/*/strong+epochs~4+gpus~2+loader~read_csv"))
    before = sorted(path.name for path in folder.iterdir())
    line = [sys.executable, project.root / "scripts" / "launch_training.py", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here")
@pytest.mark.long
def test_mpirun(project, monkeypatch):
    """A traced run, whose timeline has the same kinds of intervals as one with Gloo."""
    if not has_mpi():
        pytest.skip("this Horovod was built without MPI")
    # A rank that waits gives way to the processes of other tests; else it keeps its core busy meanwhile.
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"):
        monkeypatch.setenv(name, "1")
    runs_only = without_loading(TINY.replace(STRONG, "").replace("[read_csv, chunked, npy]}", "npy, trace: true}"))
    project.add_study("mpi", runs_only + "tables: [communication]\n")
    made = "results/local_mpi/studies/mpi/runs.csv"
    project.snakemake(made, "--config", "study=mpi", "machine=local_mpi", study=None)
    runs = pd.read_csv(project.root / made)
    assert runs.status.tolist() == ["ok"]
    (run,) = runs.itertuples()
    assert run.allreduce_transfer_s > 0 and run.timeline_broadcast_transfer_s > 0
    assert np.isfinite(run.slowest_rank_share)
    gloo = pd.read_csv(project.made / "runs.csv")
    gloo = gloo[(gloo.scaling == "weak") & (gloo.loader == "npy")]
    assert runs.test_loss.tolist() == pytest.approx(gloo.test_loss.tolist(), rel=1e-5)
