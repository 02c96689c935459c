"""A study run for real, from synthetic CSV to tables: the numbers in it hold together."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml


@pytest.fixture(scope="module")
def runs(finished):
    return pd.read_csv(finished.made / "runs.csv")


def folder_of(finished, run):
    return (finished.results / run.record).parent


def test_every_run_succeeded(runs):
    assert len(runs) == 2 * 2 + 3
    assert (runs.status == "ok").all(), runs[["gpus", "loader", "failure_message"]]
    assert runs.code_is_current.all()


def test_the_learning_rate_was_scaled_by_the_ranks(runs):
    assert np.allclose(runs.learning_rate_used, 0.001 * runs.gpus)


def test_epochs_were_divided_under_strong_scaling_only(runs, finished):
    for run in runs.itertuples():
        history = pd.read_csv(folder_of(finished, run) / "history.csv")
        expected = 4 // run.gpus if run.scaling == "strong" else 2
        assert len(history) == run.epochs_per_rank == expected


def test_times_hold_together(runs, finished):
    """Epochs lie within training, phases within the run, and each is measured by a clock of its own."""
    for run in runs.itertuples():
        history = pd.read_csv(folder_of(finished, run) / "history.csv")
        assert 0 < history.time_s.sum() <= run.train_s
        assert run.time_per_epoch_s == pytest.approx(history.time_s.mean())
        phases = [run.startup_s, run.load_s, run.preprocess_s, run.broadcast_s, run.train_s, run.evaluate_s]
        assert min(phases) > 0
        assert max(phases) < sum(phases) < run.runtime_s * 1.5
        assert run.train_s < run.runtime_s
        assert run.throughput_samples_per_s == pytest.approx(60 * run.gpus / run.time_per_epoch_s)
        assert run.peak_memory_mb > 100


def test_the_target_is_reached_within_the_run(runs, finished):
    """Every run reaches it in its first epoch; what the machine lacks, a power sensor and a peak, is told."""
    assert (runs.quality_target == "validation_loss <= 1000").all() and (runs.epochs_to_target == 1).all()
    for run in runs.itertuples():
        first = pd.read_csv(folder_of(finished, run) / "history.csv").time_s.iloc[0]
        assert first <= run.training_to_target_s <= run.train_s
        before_training = run.launch_to_target_s - run.training_to_target_s
        assert run.startup_s < before_training < run.runtime_s - run.train_s
        assert run.flop_per_s == pytest.approx(run.model_flop_per_sample * run.throughput_samples_per_s)
    assert (runs.load_to_target_j.notna() ^ runs.target_energy_reason.notna()).all()
    assert runs.flop_reason.str.contains("local.yaml has no peak_flop_per_s_per_rank").all()


def test_timed_runs_did_not_overlap(runs, finished):
    spans = []
    for run in runs.itertuples():
        outcome = json.loads((folder_of(finished, run) / "outcome.json").read_text())
        begun = outcome["started_wall_ns"] / 1e9
        spans.append((begun, begun + outcome["runtime_s"]))
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


def test_repeats_were_run_interleaved(runs):
    """One block after the other, the second one of two in reverse order."""
    strong = runs[runs.scaling == "strong"].sort_values("started_wall_ns")
    assert list(zip(strong.block, strong.gpus, strict=True)) == [(1, 1), (1, 2), (2, 2), (2, 1)]
    assert (runs.block == runs.repeat).all()
    assert runs.session.nunique() == 1


def test_all_ranks_start_and_end_with_the_same_weights(runs, finished):
    for run in runs[runs.gpus == 2].itertuples():
        metrics = json.loads((folder_of(finished, run) / "metrics.json").read_text())
        assert [rank["rank"] for rank in metrics["ranks"]] == [0, 1]
        assert len({rank["final_weights_crc32"] for rank in metrics["ranks"]}) == 1
        assert metrics["initial_weights_crc32"] != metrics["ranks"][0]["final_weights_crc32"]


def test_the_loader_changes_the_time_and_nothing_else(runs, finished):
    """Same seed, bit-identical arrays: the three weak runs end with the same weights."""
    weak = runs[runs.scaling == "weak"]
    assert sorted(weak.loader) == ["chunked", "npy", "read_csv"]
    metrics = [json.loads((folder_of(finished, run) / "metrics.json").read_text()) for run in weak.itertuples()]
    assert len({each["ranks"][0]["final_weights_crc32"] for each in metrics}) == 1
    assert weak.test_loss.nunique() == 1


def test_repeats_differ(runs):
    strong = runs[(runs.scaling == "strong") & (runs.gpus == 1)]
    assert strong.test_loss.nunique() == 2


def test_a_run_directory_tells_all(runs, finished):
    folder = folder_of(finished, runs.iloc[0])
    assert {path.name for path in folder.iterdir()} - {"telemetry.csv"} == {
        "run.yaml", "phases.jsonl", "history.csv", "metrics.json", "provenance.json", "outcome.json", "record.json",
        "train.log", "sensors.json", "background.csv"}  # fmt: skip
    run = yaml.safe_load((folder / "run.yaml").read_text())
    assert folder.name == "strong+epochs~4+gpus~1+loader~read_csv"
    assert run["parameters"]["staging"] == "none", "all parameters are there, defaults filled in"
    edges = [json.loads(line) for line in (folder / "phases.jsonl").read_text().splitlines()]
    assert len(edges) == 6 * 2 * run["parameters"]["gpus"]
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["launch_line"][1:3] == [str(finished.root / "scripts" / "horovodrun.py"), "--gloo"]
    assert provenance["packages"]["horovod"] == "0.28.1"
    assert len(provenance["data"]["train"]["source"]["sha256"]) == 64


def test_table2_is_the_mean_of_its_runs(runs, finished):
    table = pd.read_csv(finished.made / "tables" / "icpp2019_table2.csv")
    assert list(table.gpus) == [1, 2]
    for row in table.itertuples():
        times = runs[(runs.scaling == "strong") & (runs.gpus == row.gpus)].time_per_epoch_s
        assert row.time_per_epoch_s == pytest.approx(times.mean())
        assert row.time_per_epoch_ci95_s == pytest.approx(12.706 * times.std() / np.sqrt(2), rel=1e-3)
        assert row.repeats_ok == 2
    assert table.published_time_per_epoch_s.tolist()[0] == 10.3
    assert (table.power_per_gpu_w.notna() | table.power_reason.str.contains("NVML|RAPL")).all()
    assert table.ratio_time_per_epoch_s.isna().all()


def test_what_has_ended_is_in_the_report_while_the_study_runs(project):
    """The second report within a minute is left out."""
    report = project.made / "report.html"
    os.utime(report, (0, 0))
    line = [sys.executable, "scripts/show_early.py", "--study", "tiny", "--machine", "local"]
    line += ["--block", "1", "--report", report, "--output", "shown"]
    for said in (f"The report of what has ended: {report}\n", ""):
        done = subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, said)
    assert "The study is running:" in report.read_text()
    assert (project.root / "shown").exists()


def test_a_second_run_has_nothing_to_do(project):
    assert project.plan() == {}
    done = project.snakemake()
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_record_that_was_damaged_while_tables_were_made_of_it_is_named(project):
    """It is older than the tables, so that Snakemake alone would take all for up to date."""
    record = next(project.results.rglob("record.json"))
    begun_ns = (project.made / ".runs.csv.sha256").stat().st_mtime_ns
    assert record.stat().st_mtime_ns < begun_ns
    record.write_bytes(record.read_bytes().replace(b'"status"', b'"statuz"', 1))
    os.utime(record, ns=(begun_ns + 1, begun_ns + 1))
    done = project.snakemake("--dry-run", check=False)
    assert done.returncode == 1
    assert f"{record.relative_to(project.root)}: was changed after it was written" in done.stdout + done.stderr
