"""Ensembles on real ranks: every way of sharing gives a member the weights that it has alone."""

import json
import math

import pandas as pd
import psutil
import pytest

pytestmark = pytest.mark.long

COMMON = """benchmark: lenet, scaling: weak, epochs: 2, batch_size: 20, learning_rate_scaling: none,
     loader: tfrecord"""
STUDY = f"""
description: a test
datasets:
  lenet:
    {{source: synthetic_images, train_samples: 80, test_samples: 20, image_size: 28, resize: 32, classes: 10, seed: 1}}
members:
  three: [{{learning_rate: 0.02}}, {{seed: 5, batch_size: 12, model: {{l2: 0.001}}}}, {{}}]
  diverging: [{{learning_rate: 0.02}}, {{seed: 5, batch_size: 12, model: {{l2: 0.001}}}}, {{learning_rate: 1.0e+38}}]
  second: [{{seed: 5, batch_size: 12, model: {{l2: 0.001}}}}]
runs:
  - {{{COMMON}, ensemble: 3, members: three, share_block_samples: 8, input_sharing: all_shared}}
  - {{{COMMON}, ensemble: 3, members: three, share_block_samples: 8, preprocessing_ranks: 2,
     input_sharing: single_broadcast}}
  - {{{COMMON}, ensemble: 3, members: diverging, share_block_samples: 8, preprocessing_ranks: 2,
     input_sharing: multi_broadcast, may_fail: a member diverges}}
  - {{{COMMON}, ensemble: 3, members: three, share_block_samples: 8, preprocessing_ranks: 2,
     input_sharing: multi_broadcast}}
  - {{{COMMON}, ensemble: 1, members: second}}
  - {{{COMMON}, ensemble: 1, compute: simulated, simulated_samples_per_s: 200}}
  - {{{COMMON}, ensemble: 1, measure: peak_throughput, core_limit: 1}}
  - {{{COMMON}, gpus: 1}}
  - {{{COMMON}, ensemble: 2}}
  - {{{COMMON}, ensemble: 2, share_block_samples: 8, input_sharing: all_shared,
     may_fail: a rank is killed}}
  - {{{COMMON.replace("tfrecord", "jpeg_files")}, ensemble: 2, share_block_samples: 8, preprocessing_ranks: 1,
     input_sharing: multi_broadcast, may_fail: files are deleted}}
tables: [scaling]
figures: [pittman2018_figure2, pittman2018_figure3]
"""
# The first rank of ensembles of two that share is killed when it takes a block of its second epoch.
KILLED = """import os, signal, sys
from study.ensembles.stream import Stream
if "loader~tfrecord+ensemble~2+input_sharing" in sys.argv[1] and os.environ["HOROVOD_RANK"] == "0":
    taken = Stream._taken
    def _taken(self):
        if self._next == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return taken(self)
    Stream._taken = _taken
"""
# The first rank of ensembles that read JPEG files reads a copy of its own, as on a disk of its node. The copy is
# deleted when the rank takes its third block.
DELETED = """import shutil, tempfile
from study.data.images.formats import Files
if "loader~jpeg_files" in sys.argv[1] and os.environ["HOROVOD_RANK"] == "0":
    copies = []
    def __init__(self, folder, index):
        copies.append(tempfile.mkdtemp())
        super(Files, self).__init__(Path(shutil.copytree(folder, copies[-1], dirs_exist_ok=True)), index)
    not_deleted = Stream._taken
    def _taken(self):
        if self._next == 2:
            for copy in copies:
                shutil.rmtree(copy)
        return not_deleted(self)
    Files.__init__, Stream._taken = __init__, _taken
"""
SAMPLES, EPOCHS, RANKS = 80, 2, 3
EPOCHS_MB = EPOCHS * SAMPLES * 4 * (28 * 28 * 3 + 10) / 1e6


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory):
    """The study, run once; and its rows by what they differ in."""
    from project import copy_of_project

    project = copy_of_project(tmp_path_factory.mktemp("ensembles") / "project")
    project.add_study("ensembles", STUDY)
    project.in_ranks(KILLED + DELETED)
    sensors = "power_sensors: [nvml, rapl]"
    project.change("config/machines/local.yaml", sensors, "power_sensors: []\npower_model: {idle_w: 40, peak_w: 140}")
    project.snakemake(study="ensembles")
    runs = pd.read_csv(project.made / "runs.csv")
    runs["folder"] = [(project.results / record).parent for record in runs.record]
    return project, runs


def row(runs, **values):
    found = runs
    for name, value in values.items():
        found = found[found[name] == value]
    assert len(found) == 1, found.record.tolist()
    return found.iloc[0]


def members(run):
    return pd.read_csv(run.folder / "members.csv", index_col="member")


def finished(runs):
    """All in which each member trains to the end."""
    return runs[~runs.members.str.contains("e+38", regex=False)]


def test_weights_are_those_of_the_member_alone_in_every_way(ensembles):
    _, runs = ensembles
    of_three = finished(runs[runs.ensemble == RANKS])
    assert (of_three.status == "ok").all(), of_three.failure_message.tolist()
    assert len(of_three) == 3
    checksums = [members(run).weights_crc32.tolist() for run in of_three.itertuples()]
    assert len({tuple(each) for each in checksums}) == 1
    assert checksums[0][2] not in checksums[0][:2]
    alone = row(runs[runs.measure == "train"], ensemble=1, compute="measured", batch_size_per_rank=20, members="none")
    by_itself = row(runs[runs.members.str.contains("seed")], ensemble=1)
    assert by_itself.final_weights_crc32 == checksums[0][1]
    pair = row(runs, ensemble=2, input_sharing="duplicated")
    assert members(pair).weights_crc32.nunique() == 2, "other seeds give other weights"
    assert members(pair).gpu_energy_j.isna().all()
    assert members(pair).gpu_energy_reason.str.contains("no GPUs of their own").all()
    assert alone.final_weights_crc32 == members(pair).weights_crc32[0], "an ordinary run is the first member alone"


def test_samples_and_bytes_are_those_of_the_formulas(ensembles):
    _, runs = ensembles
    for run in finished(runs[runs.ensemble == RANKS]).itertuples():
        assert run.samples_preprocessed == EPOCHS * SAMPLES, run.input_sharing
        # Whoever preprocesses a block sends it, directly or not, to all others.
        assert run.shared_mb == pytest.approx((RANKS - 1) * EPOCHS_MB, rel=0.01), run.input_sharing
    pair = row(runs, ensemble=2, input_sharing="duplicated")
    assert (pair.samples_preprocessed, pair.shared_mb) == (2 * EPOCHS * SAMPLES, 0)


def test_queues_and_cores_over_time_are_those_of_the_whole_run(ensembles):
    project, runs = ensembles
    for run in finished(runs[runs.ensemble.gt(1) & runs.status.eq("ok")]).itertuples():
        rows = pd.read_csv(run.folder / "usage.csv")
        assert sorted(set(rows["rank"])) == list(range(run.ensemble))
        assert rows.queue_fill.dropna().between(0, 1).all() and rows.cores_used.ge(0).all()
        # Each rank's rows follow one another without a gap, from the begin of its training on.
        for rank, own in rows.groupby("rank"):
            ends = own.begin_wall_ns + 1e9 * own.seconds
            assert (ends.shift()[1:] - own.begin_wall_ns[1:]).abs().max() < 1e6 or len(own) == 1, rank
        assert (rows.cores_used * rows.seconds).sum() == pytest.approx(run.ranks_cpu_s, rel=0.05)
        filled = rows.dropna(subset="queue_fill").groupby("rank").queue_fill
        assert (filled.min().mean() - 1e-9) <= run.queue_fill <= (filled.max().mean() + 1e-9)
    for number, axis in ((2, "queue fill"), (3, "cores used")):
        assert axis in (project.made / "figures" / f"pittman2018_figure{number}.svg").read_text()


def test_what_trains_nothing_says_so(ensembles):
    _, runs = ensembles
    simulated, peak = row(runs, compute="simulated"), row(runs, measure="peak_throughput")
    assert simulated.status == peak.status == "ok"
    assert simulated.makespan_s > EPOCHS * SAMPLES / 200
    assert simulated[["loss", "test_loss"]].isna().all()
    assert peak[["loss", "throughput_samples_per_s"]].isna().all()
    assert peak.peak_samples_per_s > 0
    record = json.loads((peak.folder / "record.json").read_text())
    assert [len(each["affinity"]) for each in record["ensemble"]["members"]] == [1], "core_limit: 1"
    assert 0 < peak.other_cores_cpu_share < 0.01
    assert math.isnan(simulated.other_cores_cpu_share), "it has no limit"


def failure_of(run):
    return json.loads((run.folder / "record.json").read_text())["failure"]


def test_a_member_that_diverges_ends_the_run(ensembles):
    _, runs = ensembles
    run = row(runs[runs.members.str.contains("e+38", regex=False)])
    failure = failure_of(run)
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("diverged", 2, "train")
    assert "the loss is not finite from step" in failure["message"]
    assert not (run.folder / "members.csv").exists()


def test_a_deleted_file_ends_the_run(ensembles):
    _, runs = ensembles
    failure = failure_of(row(runs, loader="jpeg_files"))
    # Its kind would be `hang` if the watchdog had ended the run.
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("error", 0, "train")
    assert ".jpg: cannot be read: No such file" in failure["message"]


def test_a_killed_rank_ends_the_run(ensembles):
    project, runs = ensembles
    failure = failure_of(row(runs, ensemble=2, input_sharing="all_shared"))
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("killed", 0, "train")
    left = [p for p in psutil.process_iter(["cmdline"]) if str(project.root) in " ".join(p.info["cmdline"] or [])]
    assert not left, "no process is left"
    assert project.plan(study="ensembles") == {}
