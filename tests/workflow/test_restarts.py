"""A run that is killed at any moment and started again ends with the weights of one that was not."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest
from project import WAIT_S, copy_of_project, wait_for

EPOCHS = 12
NT3 = """
description: a test
datasets:
  nt3: {source: synthetic, train_samples: 200, test_samples: 20, features: 100, seed: 1}
"""
OF_NT3 = f"benchmark: nt3, scaling: weak, epochs: {EPOCHS}, loader: npy, checkpoint_epochs: 2"
ONE_RANK = f"""{NT3}
runs:
  - {{{OF_NT3}, gpus: 1}}
tables: [scaling]
"""
STUDY = f"""{NT3}\
  p1b2: {{source: synthetic, train_samples: 300, test_samples: 30, features: 200, seed: 1}}
  lenet:
    {{source: synthetic_images, train_samples: 80, test_samples: 20, image_size: 28, resize: 32, classes: 10, seed: 1}}
members:
  two: [{{}}, {{learning_rate: 0.02, batch_size: 12}}]
runs:
  - {{{OF_NT3}, gpus: 2, warmup_epochs: 5}}
  - {{benchmark: p1b2, scaling: weak, epochs: {EPOCHS}, gpus: 2, loader: npy, sharding: by_rank,
     checkpoint_epochs: 1}}
  - {{benchmark: lenet, scaling: weak, epochs: {EPOCHS}, ensemble: 2, members: two, batch_size: 20, loader: tfrecord,
     learning_rate_scaling: none, input_sharing: all_shared, share_block_samples: 8, checkpoint_epochs: 1}}
tables: [scaling]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project, for the runs of one rank and of all the others."""
    project = copy_of_project(tmp_path_factory.mktemp("restarts") / "project")
    project.hold_training(after=EPOCHS)  # not at all, but all runs are of the same code
    return project


@pytest.fixture(scope="module")
def one_rank(project):
    return with_runs(project, "one_rank", ONE_RANK)


@pytest.fixture(scope="module")
def finished_study(project):
    return with_runs(project, "restarts", STUDY)


def with_runs(project, name, study):
    """The project after a study's runs without a break, each with its folder by (benchmark, gpus)."""
    project.add_study(name, study)
    project.make("runs.csv", study=name)
    runs = pd.read_csv(project.made / "runs.csv")
    assert (runs.status == "ok").all(), runs.failure_message.tolist()
    assert runs.resumed_after_epoch.isna().all()
    assert (runs.checkpoint_s > 0).all()
    project.runs = {(row.benchmark, row.gpus): (project.results / row.record).parent for row in runs.itertuples()}
    return project


def start(project, reference, folder):
    line = [sys.executable, project.root / "scripts" / "launch_training.py", "--run", reference / "run.yaml"]
    return subprocess.Popen(
        [*line, "--outcome", folder / "outcome.json"], cwd=project.root, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def kill_all(folder, launch):
    """SIGKILL to the launch and to everything that was started for the run."""
    os.killpg(launch.pid, signal.SIGKILL)
    while found := [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):  # its guard was faster
                process.kill()
        psutil.wait_procs(found, timeout=5)
    launch.wait()


def killed_after(project, reference, folder, epoch, delay_s):
    """Start the run and kill it ``delay_s`` seconds after it has printed that ``epoch`` has ended.

    However fast it is, it does not come to its end meanwhile: it waits two epochs later.
    """
    project.hold_training(after=min(epoch + 2, EPOCHS - 1))
    launch = start(project, reference, folder)
    log = folder / "train.log"

    wait_for(lambda: log.exists() and f"epoch {epoch}/" in log.read_text(), launch)
    time.sleep(delay_s)
    kill_all(folder, launch)
    assert not (folder / "outcome.json").exists()
    project.release_training()


def results(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    return metrics, pd.read_csv(folder / "history.csv")


def test_a_run_of_one_rank_killed_twice_has_the_same_weights(one_rank, tmp_path):
    kill_twice(one_rank, tmp_path, "nt3", 1)


@pytest.mark.long
@pytest.mark.parametrize("benchmark", ["nt3", "p1b2"])
def test_a_run_of_two_ranks_killed_twice_has_the_same_weights(finished_study, tmp_path, benchmark):
    kill_twice(finished_study, tmp_path, benchmark, 2)


def kill_twice(finished_study, tmp_path, benchmark, gpus):
    reference, folder = finished_study.runs[benchmark, gpus], tmp_path / "again"
    chance = random.Random(f"{benchmark}{gpus}")
    killed_after(finished_study, reference, folder, chance.randint(3, 5), chance.uniform(0, 0.3))
    killed_after(finished_study, reference, folder, chance.randint(8, 10), chance.uniform(0, 0.3))
    assert len(list((folder / "checkpoints").glob("epoch-*.npz"))) in (1, 2)
    assert start(finished_study, reference, folder).wait(WAIT_S) == 0
    once, history_once = results(reference)
    again, history_again = results(folder)
    assert again["resumed_after_epoch"] >= 6
    assert again["initial_weights_crc32"] != once["initial_weights_crc32"], "it did not begin anew"
    quality = [name for name in history_once if not name.endswith(("_s", "_ns", "_bytes", "cpu_busy"))]
    pd.testing.assert_frame_equal(history_again[quality], history_once[quality], rtol=1e-5)
    if gpus == 1:
        assert again["ranks"][0]["final_weights_crc32"] == once["ranks"][0]["final_weights_crc32"], "bit for bit"
    assert again["test"] == pytest.approx(once["test"], rel=1e-5)
    assert not (folder / "checkpoints").exists(), "they are for runs that have not ended"


@pytest.mark.long
def test_each_member_of_an_ensemble_goes_on_from_its_own_checkpoint(finished_study, tmp_path):
    """One is further than the other one, whose latest checkpoint was not written when the run was killed."""
    reference, folder = finished_study.runs["lenet", 2], tmp_path / "again"
    killed_after(finished_study, reference, folder, 4, 0)
    kept = [sorted((folder / "checkpoints" / f"member-{number:05d}").glob("epoch-*.npz")) for number in (0, 1)]
    behind, ahead = sorted(kept, key=lambda files: files[-1].name)
    behind[-1].unlink()
    assert behind[0].name < ahead[-1].name
    assert start(finished_study, reference, folder).wait(WAIT_S) == 0
    once, again = (pd.read_csv(each / "members.csv", index_col="member") for each in (reference, folder))
    assert again.weights_crc32.tolist() == once.weights_crc32.tolist(), "bit for bit"
    assert again.losses.tolist() == once.losses.tolist(), "of all epochs"
    assert again.initial_weights_crc32.nunique() == 2
    assert not set(again.initial_weights_crc32) & set(once.initial_weights_crc32), "no member began anew"
    assert results(folder)[0]["resumed_after_epoch"] == int(ahead[-1].stem[-6:])
    assert again.samples_preprocessed.sum() < once.samples_preprocessed.sum() == EPOCHS * 80


@pytest.mark.long
def test_the_times_of_a_resumed_run_do_not_count(finished_study):
    """Through Snakemake: killed, and found again by the next one; its quality counts, its times do not."""
    folder = finished_study.runs["p1b2", 2]
    (folder / "outcome.json").unlink()
    (folder / "train.log").unlink()
    copy = folder.with_name("definition.yaml")
    copy.write_text((folder / "run.yaml").read_text())
    reference = folder.with_name("reference")
    reference.mkdir()
    copy.rename(reference / "run.yaml")
    killed_after(finished_study, reference, folder, 6, 0.1)
    finished_study.snakemake(study="restarts")
    runs = pd.read_csv(finished_study.made / "runs.csv").set_index("benchmark")
    run = runs.loc["p1b2"]
    assert run.status == "ok"
    assert 5 <= run.resumed_after_epoch < EPOCHS
    assert pd.isna(run.runtime_s) and pd.isna(run.time_per_epoch_s) and pd.isna(run.train_s)
    assert run.accuracy > 0
    table = pd.read_csv(finished_study.made / "tables" / "scaling.csv").set_index("benchmark").loc["p1b2"]
    assert (table.repeats_ok, table.repeats_resumed) == (1, 1)
    assert pd.isna(table.runtime_s)
    record = json.loads((folder / "record.json").read_text())
    assert record["runtime_s"] > 0, "they are told where it is said what they are"
