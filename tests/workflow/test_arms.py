"""Arms of a study, from runs that are there: table, forest plot and tuner, by Snakemake and by make."""

import subprocess

import pandas as pd
from project import BIN

ARMS = """
description: loaders as arms
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: read_csv,
     tuning: {chunked: {loader: chunked}, converted: {loader: npy}}}
tables: [tuning]
figures: [tuning]
"""


def test_runs_that_are_there_become_arms_and_nothing_is_trained(project):
    project.add_study("arms", ARMS)
    targets = [f"results/local/studies/arms/{name}" for name in ("tables/tuning.md", "figures/tuning.svg")]
    assert project.plan(*targets, study="arms") == {"update_records": 1, "make_table": 1, "make_figure": 1}
    project.snakemake(*targets, study="arms")
    table = pd.read_csv(project.root / "results/local/studies/arms/tables/tuning.csv")
    assert table[["arm", "switch", "value", "baseline_value"]].to_numpy().tolist() == [
        ["chunked", "loader", "chunked", "read_csv"],
        ["converted", "loader", "npy", "read_csv"],
    ]
    assert (table["blocks"] == 1).all() and table["throughput_ratio"].notna().all() and table["verdict"].isna().all()
    assert "converted" in (project.root / targets[1]).read_text()

    # With another name, what the runs are compared as changes, and so do the tables; no run does.
    project.change("config/studies/arms.yaml", "converted:", "stored:")
    assert project.plan(*targets, study="arms") == {"make_table": 1, "make_figure": 1}

    done = tune(project)
    assert "arm has the screening blocks that it needs" in done
    assert (project.root / "results/local/studies/arms/tuner/tuner.csv").exists()
    assert tune(project, "--needed").strip() == ""


def tune(project, *arguments):
    line = [BIN / "python", "-m", "study.commands.main", "tune", "--study", "arms", "--machine", "local", *arguments]
    done = subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True)
    assert "arms.yaml: 1 screening and 0 held-out blocks at most, and study tune needs 3 of each" in done.stderr
    return done.stdout
