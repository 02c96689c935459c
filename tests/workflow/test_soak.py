"""``make soak``: how it judges, and a small one for real: a killed Snakemake's jobs are not submitted again."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import virtual_slurm
from project import ROOT, wait_for

RECORD, RUN = "runs/nt3/data/point/record.json", "runs/nt3/data/point"


@pytest.fixture
def soaks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "performance"))
    import slurm_soak

    return slurm_soak


def row(**changes):
    usual = {"record": RECORD, "gpus": 1, "status": "ok", "failure_kind": None, "failure_message": None}
    return {**usual, "started_wall_ns": 1_000, "runtime_s": 9e-6, **changes}


def notes(*spans, ranks=1, job="7", run=RUN):
    """What the ranks of a run note; a span is (begin, end) in ns, or (begin, None) of a killed one."""
    for begun, ended in spans:
        for rank in range(ranks):
            common = {"run": f"results/virtual/{run}", "job": job, "rank": rank, "ranks": ranks}
            yield {**common, "kind": "begin", "wall_ns": begun + rank}
            if ended is not None:
                yield {**common, "kind": "end", "wall_ns": ended + rank}


def judged(soaks, rows, *trained):
    return soaks.list_problems([RECORD], pd.DataFrame(rows), [note for each in trained for note in each])


def test_a_point_that_was_trained_and_recorded_once_is_right(soaks):
    assert judged(soaks, [row(gpus=2)], notes((2_000, 5_000), ranks=2)) == []


def test_a_point_that_was_killed_and_trained_again_is_right(soaks):
    assert judged(soaks, [row()], notes((100, None)), notes((2_000, 5_000), job="8")) == []
    assert judged(soaks, [row(gpus=2)], notes((100, None), (2_000, 5_000), ranks=2)) == [], "requeued, with the same id"
    first = next(notes((100, None), ranks=2))
    again = notes((2_000, 5_000), ranks=2)
    assert judged(soaks, [row(gpus=2)], [first], again) == [], "requeued before its second rank began"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "recorded 0 times"),
        ([row(), row()], "recorded 2 times"),
        ([row(), row(record="runs/nt3/data/other/record.json")], "it is no point"),
        ([row(started_wall_ns=3_000)], "good, but [0] trainings"),
        ([row(runtime_s=1e-6)], "good, but [0] trainings"),
        ([row(status="failed", failure_kind="error", failure_message="no")], "failed, error: no"),
    ],
)
def test_a_wrong_record_is_found(soaks, rows, words):
    rows = rows or pd.DataFrame(columns=list(row()))
    found = judged(soaks, rows, notes((2_000, 5_000)))
    assert any(words in each for each in found), found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(bool(virtual_slurm.missing()), reason="no Slurm here (.ci/run installs it as root)")
@pytest.mark.skipif(os.getuid() != 0, reason="a Slurm of one's own needs root")
def test_a_killed_snakemake_s_jobs_are_taken_over(soaks):
    """Six points; Snakemake is killed as soon as jobs run. These take longer than its restart; it waits for them."""
    folder = Path(tempfile.mkdtemp(prefix="soak."))  # a short path: munge's socket is in it
    soak = soaks.Soak(folder, 6, 1, soaks.parse_options(["--training-s", "20"]))
    try:
        soak.slurm.start()
        project, runs = soak.make_study("disturbed")
        soak.start(project)
        wait_for(lambda: soak.trained.exists() or soak.snakemake.poll() is not None)
        assert soak.snakemake.poll() is None, (folder / "disturbed.log").read_text()[-3000:]
        soaks.STRIKES["Snakemake killed"](soak, None)
        soak.snakemake.wait()
        soak.run_to_the_end(project, runs)
        assert "Resuming incomplete job" in (folder / "disturbed.log").read_text()
        noted = [json.loads(line) for line in soak.trained.read_text().splitlines()]
        assert sum(note["kind"] == "begin" and not note["rank"] for note in noted) == len(runs)
        table = pd.read_csv(soaks._get_study_folder(project) / "runs.csv")
        assert soaks.list_problems(soaks.list_records(runs), table, noted) == []
    finally:
        soak.stop()
        shutil.rmtree(folder, ignore_errors=True)
