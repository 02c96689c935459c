"""What Snakemake plans after a change: what depends on the change, and no more."""

import json
import resource
import subprocess
import tarfile

import matplotlib
import matplotlib.pyplot as plt
import notebooks
import pandas as pd
import pytest
from project import BIN, ROOT, STRONG, TINY

from study.core import validation
from study.core.cores import count_usable_cores

TABLES = {"make_table": 5}
UPDATED = {"update_records": 1}  # once in a study and a version of the code
REPORT = {"make_report": 1}  # whatever changes in the results
ALWAYS = {"collect_records": 1, **REPORT}  # what is made from all runs and loads
COLLECTED = {**ALWAYS, **TABLES, "make_figure": 3}
OF_STRONG = {
    **ALWAYS,
    "make_table": 3,
    "make_figure": 2,
}  # scaling, icpp2019_table2 and _claims; _figure6 and _figure11_13
OF_RUNS = {**ALWAYS, "make_table": 4, "make_figure": 3}  # all but icpp2019_table3
OF_LOADS = {**ALWAYS, "make_table": 2}  # icpp2019_claims has claims about loading alone
ONE_OF_TINY = """
description: one run of the tiny study
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: read_csv}
tables: [scaling]
"""
STATED = f"""
description: a finding of runs that the tiny study made
datasets:
  nt3: {{source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1, target_quality: {{
    quantity: validation_loss, at_most: 1000, why: every first epoch reaches it}}}}
runs:
{STRONG}
tables: [icpp2019_table2]
findings: [epoch_grows]
exports: [perfetto, archive]
"""
OF_RESULTS = {"make_export": 1}  # the archive; perfetto is of the runs alone
FINDING = """
title: An epoch takes longer on two ranks than on one
kind: ratio
quantity: {column: time_per_epoch_steady_s}
points: {benchmark: nt3, scaling: strong, loader: read_csv, gpus: [2, 1]}
sentences:
  'yes': It grows by {number}.
  'no': It changes by {number}.
  opposite: It falls by {number}.
  not_enough_runs: Whether it grows cannot be told
table: icpp2019_table2
look_for: an epoch
"""


def test_a_new_grid_point_runs_that_point(project):
    project.change("config/studies/tiny.yaml", STRONG, STRONG.replace("[1, 2]", "[1, 2, 4]"))
    assert project.plan() == {"train": 2, **OF_STRONG}


def test_a_raw_file_s_new_content_runs_its_descendants(project):
    (raw,) = project.root.glob("data/raw/nt3/synthetic-60-*/nt_test2.csv")
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert project.plan() == {"convert_dataset": 1, "train": 7, **OF_RUNS}


def test_another_dataset_s_raw_file_leaves_the_runs_alone(project):
    (raw,) = project.root.glob("data/raw/nt3/synthetic-20-*/nt_test2.csv")
    lines = raw.read_text().splitlines(keepends=True)
    raw.write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert project.plan() == {"convert_dataset": 1, "measure_loading": 1, **OF_LOADS}


def test_findings_and_exports_are_made_of_finished_runs_and_anew_where_they_change(project):
    """Two blocks are no verdict; the sentences are part of the declaration. One core has no block of two ranks."""
    project.add_study("stated", STATED)
    finding_file = project.root / "config" / "findings" / "epoch_grows.yaml"
    finding_file.write_text(FINDING)
    assert project.plan(study="stated") == {**ALWAYS, **UPDATED, "make_table": 1, "make_findings": 1, "make_export": 2}
    project.snakemake(study="stated")
    assert project.plan(study="stated") == {}
    are_whole(project.made / "exports")
    content = json.loads((project.made / "findings.json").read_text())
    validation.validate(content, "study_findings", "findings.json")
    (finding,) = content["findings"]
    blocks = 2 if count_usable_cores() >= 2 else 0
    assert (finding["verdict"], finding["blocks"], finding["runs"]) == ("not_enough_runs", blocks, 2 * blocks)
    assert finding["estimate"] > 0 or not blocks
    assert (finding["table"], finding["figure"]) == ("icpp2019_table2", None)
    assert all((project.results / record).is_file() for record in finding["records"])
    assert finding["sentence"] in (project.made / "findings.md").read_text()
    finding_file.write_text(FINDING.replace("An epoch", "Each epoch"))
    assert project.plan(study="stated") == {**REPORT, "make_findings": 1, **OF_RESULTS}
    line = [BIN / "python", "-m", "study.commands.main", "findings", "stated"]
    shown = subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True, check=True)
    assert "not enough runs" in shown.stdout and "No run failed." in shown.stdout


def are_whole(exports):
    """Each export has the study's four runs, and the notebook of the gallery reads them."""
    index = pd.read_csv(exports / "perfetto" / "index.csv")
    assert len(index) == 4 and all(each.endswith("/trace.json.gz") for each in index["file"])
    assert all((exports / "perfetto" / each).stat().st_size for each in index["file"])
    with tarfile.open(exports / "archive" / "stated.tar.gz") as archive:
        names = [each.name.partition("/")[2] for each in archive.getmembers()]
    assert {"SHA256SUMS", "workflow/Snakefile", "studies/stated/findings.json", "studies/stated/report.html"} <= set(
        names
    )
    assert not [name for name in names if name.startswith("studies/stated/exports")]
    matplotlib.use("Agg")
    shown = notebooks.run(ROOT / "docs" / "notebooks" / "study_results.ipynb", FOLDER=exports.parent)
    plt.close("all")
    assert len(shown["timed"]) == 4 and shown["findings"]["name"].tolist() == ["epoch_grows"]
    assert {"load", "broadcast", "train"} <= set(shown["of_phases"]["name"])


def test_a_table_s_code_makes_tables_only(project):
    first = '@table_rows("icpp2019_table3")'
    project.change("scripts/study/report/papers/icpp2019/tables.py", first, f"CHANGED = 1\n\n\n{first}")
    assert project.plan() == {**TABLES, **REPORT}


def test_a_machine_s_peak_trains_nothing(project):
    project.change(
        "config/machines/local.yaml", "gpus_per_rank: 0", "gpus_per_rank: 0\npeak_flop_per_s_per_rank: 1.0e+11"
    )
    assert project.plan() == OF_RUNS


def test_a_published_value_makes_tables_and_figures_only(project):
    project.change("config/papers/icpp2019/icpp2019_table2_nt3_strong.csv", "10.93", "10.94")
    assert project.plan() == {**TABLES, "make_figure": 3, **REPORT}


def test_a_figure_s_description_makes_that_figure_only(project):
    project.change(
        "config/papers/icpp2019/figures.yaml", "title: NT3 under strong scaling, by batch size", "title: NT3"
    )
    assert project.plan() == {"make_figure": 1, **REPORT}


def test_a_deleted_record_is_made_again_without_training(project):
    record = next(project.results.glob("runs/**/strong*/record.json"))
    before = record.read_bytes()
    record.unlink()
    assert project.plan() == {}
    assert not record.exists(), "a dry run writes nothing"
    project.snakemake()
    assert record.read_bytes() == before


def test_the_record_s_code_makes_records_again_without_training(project):
    project.change("scripts/study/records/record.py", "def make_record", "CHANGED = 1\n\n\ndef make_record")
    plan = project.plan()
    assert plan == {**UPDATED, **COLLECTED}, "nothing is trained"


def test_new_training_code_is_told_and_not_silently_run(project):
    """The runs stay, and every table says that they were made by other code."""
    project.change("scripts/study/training/rank.py", "def run_rank", "CHANGED = 1\n\n\ndef run_rank")
    assert project.plan() == OF_RUNS
    before = pd.read_csv(project.made / "runs.csv")
    folder = project.made.relative_to(project.root)
    done = project.snakemake(folder / "runs.csv", folder / "tables" / "icpp2019_table2.md")
    runs = pd.read_csv(project.made / "runs.csv")
    assert not runs.code_is_current.any()
    assert (runs.training_code == before.training_code).all()
    assert "7 of 7 runs were made by another version of their code" in done.stdout + done.stderr
    assert "another version of the code" in (project.made / "tables" / "icpp2019_table2.md").read_text()


@pytest.mark.parametrize(
    ("file", "old", "new", "trains"),
    [
        ("config/benchmarks/nt3.yaml", "learning_rate: 0.001", "learning_rate: 0.002", 7),
        ("config/benchmarks/nt3.yaml", "title: NT3 (normal", "title: NT-3 (normal", 0),
        ("config/benchmarks/nt3.yaml", "# NT3", "# a comment\n# NT3", 0),
        ("config/machines/local.yaml", "time_limit_s: 3600", "time_limit_s: 7200", 0),
        ("config/machines/local.yaml", "cores_per_rank: 1", "cores_per_rank: 2", 7),
    ],
)
def test_only_what_decides_a_run_runs_it_again(project, file, old, new, trains):
    project.change(file, old, new)
    assert project.plan().get("train", 0) == trains


def test_reordered_keys_are_the_same_run(project):
    path = project.root / "config" / "benchmarks" / "nt3.yaml"
    path.write_text(path.read_text().replace("optimizer: sgd\n", "") + "optimizer: sgd\n")
    assert project.plan() == {}


def test_two_studies_share_equal_runs(project):
    project.add_study("other", TINY.replace(STRONG, STRONG.replace("[1, 2]", "1")))
    assert project.plan(study="other") == {**UPDATED, **COLLECTED}


def test_one_table_s_or_figure_s_target_plans_only_the_runs_that_it_needs(project):
    """Of a study of which nothing is done: two strong points with two repeats, three weak ones, a measurement."""
    project.add_study("apart", TINY.replace("seed: 1", "seed: 2"))
    made = "results/local/studies/apart"
    files = {"fetch_dataset": 2, "convert_dataset": 2}
    strong, weak = ({**files, "train": number, **UPDATED} for number in (4, 2))
    assert project.plan(f"{made}/tables/icpp2019_table2.md", study="apart") == {**strong, "make_table": 1}
    assert project.plan(f"{made}/tables/icpp2019_table6.md", study="apart") == {**weak, "make_table": 1}
    loads = {**files, **UPDATED, "measure_loading": 1, "make_table": 1}
    assert project.plan(f"{made}/tables/icpp2019_table3.md", study="apart") == loads
    assert project.plan(f"{made}/figures/icpp2019_figure6.svg", study="apart") == {**strong, "make_figure": 1}
    done = project.snakemake("-n", f"{made}/tables/communication.md", study="apart", check=False)
    assert "apart.yaml: tables: communication needs traced runs" in done.stdout + done.stderr


def test_some_runs_are_trained_again(project):
    (outcome,) = project.results.glob("runs/nt3/*/*gpus~1+*repeat~2/outcome.json")
    plan = project.plan("--forcerun", str(outcome.relative_to(project.root)))
    assert plan == {"train": 1, **OF_STRONG}


def test_a_config_file_of_the_user_s_own_is_over_config_yaml_and_leaves_the_profile_s_machine(project):
    (project.root / "my.yaml").write_text("study: tiny\n")
    done = project.snakemake("--dry-run", "--configfile", "my.yaml", "--profile", "profiles/theta", study=None)
    assert "Study tiny on machine theta: 7 runs" in done.stderr
    done = project.snakemake("--configfile", "my.yaml", study=None)
    assert "Study tiny on machine local" in done.stderr


def test_a_table_made_alone_is_the_same_as_with_all_runs(project):
    whole = (project.made / "tables" / "icpp2019_table2.csv").read_text()
    for record in project.results.glob("runs/**/weak*/record.json"):
        record.unlink()
    (project.made / "tables" / "icpp2019_table2.csv").unlink()
    project.snakemake("results/local/studies/tiny/tables/icpp2019_table2.csv")
    assert (project.made / "tables" / "icpp2019_table2.csv").read_text() == whole


def test_the_plan_of_the_paper_s_study(project):
    """Every run, by benchmark and mode; worked out by hand from the paper's grids."""
    jobs, output = project.planned(study="icpp2019")
    for line in (
        "nt3 strong scaling: 103 runs on 1, 6, 12, 24, 48, 96, 192, 384 ranks, loaders read_csv, chunked; 4 may fail",
        "p1b1 strong scaling: 108 runs on 1, 6, 12, 24, 48, 96 ranks",
        "p1b2 strong scaling: 96 runs on 1, 6, 12, 24, 48, 96, 192, 384 ranks",
        "p1b3 batch scaling: 136 runs on 1, 6, 12, 24, 48, 96, 192, 384 ranks, loaders read_csv, chunked; 4 may fail",
        "nt3 weak scaling: 50 runs on 1, 6, 24, 96, 384, 768, 1536, 3072 ranks",
        "p1b1 weak scaling: 48 runs",
        "p1b2 weak scaling: 48 runs",
    ):
        assert line in output
    assert "3072 ranks need 384 nodes" in output
    assert jobs["train"] == 103 + 108 + 96 + 136 + 50 + 2 * 48
    assert "Figure icpp2019_figure7_12_19" in output
    assert "Table communication" in output


def test_the_paper_s_study_plans_on_summit_within_ten_seconds(project):
    """Ten seconds of a core on which Snakemake and pandas are imported in 1.1 s."""
    plan = [BIN / "snakemake", "--config", "study=icpp2019", "machine=summit", "-n"]
    seconds = []
    for line in ([BIN / "python", "-c", "import snakemake.api, pandas"], plan):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert "Study icpp2019 on machine summit: 589 runs" in done.stderr
    assert seconds[1] < 9 * seconds[0], seconds


def test_what_a_machine_cannot_run_is_refused_before_anything_starts(project):
    done = project.snakemake(study="icpp2019", check=False)
    assert done.returncode != 0
    assert "3072 ranks need 384 nodes of 8 ranks" in done.stdout + done.stderr
    assert not list(project.root.glob("data/raw/nt3/candle*"))


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("config/studies/tiny.yaml", "loader: read_csv,", "loder: read_csv,", ["line 9: runs[0].loder", "'loader'"]),
        ("config/studies/tiny.yaml", "gpus: [1, 2]", "gpus: [1, 3]", ["tiny.yaml: runs[0].gpus: 3", "divided evenly"]),
        ("config/benchmarks/nt3.yaml", "batch_size", "batchsize", ["nt3.yaml", "batchsize", "'batch_size'"]),
        ("config/machines/local.yaml", "launcher", "launchr", ["local.yaml", "launchr", "'launcher'"]),
        ("config/config.yaml", "data_dir", "datadir", ["datadir", "'data_dir'"]),
    ],
)
def test_a_mistake_in_any_yaml_is_one_line_before_any_job(project, file, old, new, words):
    project.change(file, old, new)
    done = project.snakemake("--dry-run", check=False)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in output
    for word in words:
        assert word in output
    assert "Job stats" not in output


def test_tables_without_runs_and_benchmarks_without_code_are_refused(project):
    project.add_study("misspelt", TINY.replace("icpp2019_table2", "icpp2019_tabel2"))
    done = project.snakemake("--dry-run", study="misspelt", check=False)
    assert "tables: 'icpp2019_tabel2' is not one of" in done.stdout + done.stderr
    assert "did you mean 'icpp2019_table2'?" in done.stdout + done.stderr
    project.add_study("few", TINY.replace(STRONG, ""))
    done = project.snakemake("--dry-run", study="few", check=False)
    assert "few.yaml: tables: icpp2019_table2 needs strong-scaling runs with read_csv" in done.stdout + done.stderr
    nt3 = (project.root / "config" / "benchmarks" / "nt3.yaml").read_text()
    (project.root / "config" / "benchmarks" / "nt9.yaml").write_text(nt3)
    project.add_study("nine", TINY.replace("benchmark: nt3,", "benchmark: nt9,"))
    done = project.snakemake("--dry-run", study="nine", check=False)
    assert "nt9.yaml has no scripts/study/workloads/nt9.py" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_another_learning_rate_in_the_benchmark_s_file_trains_again(project):
    """The name of a run does not have it, its fingerprint has."""
    one = ONE_OF_TINY.replace("scaling: weak, epochs: 2, gpus: 2", "scaling: strong, epochs: 4, gpus: 1")
    project.add_study("one", one)
    assert "train" not in project.plan(study="one"), "that run is done"
    project.change("config/benchmarks/nt3.yaml", "learning_rate: 0.001", "learning_rate: 0.004")
    assert project.plan(study="tiny")["train"] == len(pd.read_csv(project.made / "runs.csv"))
    project.make("runs.csv", study="one")
    (run,) = pd.read_csv(project.made / "runs.csv").itertuples()
    assert (run.learning_rate, run.status) == (0.004, "ok")
