"""Performance references on real runs: accepted, checked, changed; and runs of older code kept beside newer ones."""

import subprocess

import numpy as np
import pandas as pd
import pytest
import yaml
from project import BIN, STRONG, TINY, Project, copy_tree

REFERENCES = """references:
  - {quantity: runtime_s, high: 0.5}
  - {quantity: load_s, of: loads, point: {loader: npy, file: train}, high: 0.5}
"""
ONE_POINT = STRONG.replace("[1, 2]", "1").replace("repeats: 2", "repeats: 3")
HEAD, LOADING = TINY.partition("runs:")[0], TINY[TINY.index("loading:") : TINY.index("tables:")]
CHECKED = f"{HEAD}runs:\n{ONE_POINT}{LOADING}tables: [scaling]\n{REFERENCES}"
TABLE = "results/local/studies/checked/check/performance_check.md"


@pytest.fixture(scope="module")
def checked(finished, tmp_path_factory):
    """The finished study's point on one rank with a third repeat."""
    project = Project(tmp_path_factory.mktemp("checked") / "project", study="checked")
    copy_tree(finished.root, project.root)
    project.add_study("checked", CHECKED)
    project.make("runs.csv", study="checked")
    return project


def verb(project, name, *arguments):
    line = [BIN / "python", "-m", "study.commands.main", name, *map(str, arguments)]
    return subprocess.run(line, cwd=project.root, env=project.variables, capture_output=True, text=True)


def check(project, *options):
    """(exit code, the verdicts by quantity) of a check."""
    done = verb(project, "check", "--study", "checked", "--output", "table", *options)
    assert not done.stderr, done.stderr
    table = pd.read_csv(project.root / "table" / "performance_check.csv").set_index("quantity")
    return done.returncode, table["verdict"].to_dict()


def test_accepted_values_and_a_changed_one(checked):
    """Two repeats of a load are too few; a run time that is ten times the accepted one is a regression."""
    verdicts = {"runtime_s": "no reference", "load_s": "not enough repeats"}
    assert check(checked) == (0, verdicts)
    done = verb(checked, "check", "--study", "checked", "--accept")
    assert (done.returncode, done.stdout) == (0, "accepted 1 of 2 references in config/references/local/checked.yaml\n")
    assert "not accepted, not enough repeats: load_s of nt3/" in done.stderr
    assert check(checked) == (0, verdicts | {"runtime_s": "the reference's own runs"})

    file = checked.root / "config/references/local/checked.yaml"
    (entry,) = yaml.safe_load(file.read_text())["references"]
    changed = {key: entry[key] for key in ("quantity", "point", "unit")} | {"value": entry["value"] / 10}
    file.write_text(yaml.safe_dump({"references": [changed]}))
    assert check(checked) == (1, verdicts | {"runtime_s": "regression"})
    file.write_text("references: [{quantity: runtime_s}]\n")
    done = verb(checked, "check", "--study", "checked")
    assert done.returncode == 2
    assert done.stderr.startswith("error: config/references/local/checked.yaml: line 1: references[0]: the key 'point'")
    file.write_text(yaml.safe_dump({"references": [changed]}))
    assert checked.plan(TABLE, study="checked") == {"check_references": 1}
    checked.snakemake(TABLE, study="checked")
    assert "| regression" in (checked.root / TABLE).read_text()
    file.unlink()
    assert checked.plan(TABLE, study="checked") == {"check_references": 1}, "the accepted values have changed"


@pytest.mark.long
def test_runs_of_older_code_stay_and_are_compared(checked):
    checked.change("config/config.yaml", "# keep_versions: true ", "keep_versions: true ")
    checked.change("scripts/train.py", "import argparse", "import argparse  # noqa: E402\nimport calendar")
    checked.snakemake("--forcerun", "collect_records", study="checked")
    (version,) = (checked.results / "versions").iterdir()
    kept = version / "studies" / "checked"
    old = pd.read_csv(kept / "runs.csv")
    assert len(old) == 3
    line = (f"old={kept}", f"new={checked.made}", "--output", checked.root / "both")
    done = verb(checked, "compare", *line)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "a copy compared with itself" in done.stderr, "nothing was trained anew"
    checked.snakemake("--forcerun", "train", study="checked")
    new = pd.read_csv(checked.made / "runs.csv")
    assert set(new["training_code"]).isdisjoint(old["training_code"])
    done = verb(checked, "compare", *line)
    assert (done.returncode, done.stderr) == (0, "")
    row = pd.read_csv(checked.root / "both" / "comparison.csv").set_index("quantity").loc["runtime_s"]
    means = [np.exp(np.log(runs["runtime_s"]).mean()) for runs in (new, old)]
    assert row["ratio"] == pytest.approx(means[0] / means[1]), "of geometric means, and of blocks likewise"
    assert (row["repeats"], row["base_repeats"], row["differs"]) == (3, 3, "several versions of the code")
    assert set(pd.read_csv(checked.root / "both" / "scaling.csv")["machine"]) == {"old", "new"}
