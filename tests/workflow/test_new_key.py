"""A new grid key touches its declaration and the code that obeys it; runs that have finished outlive it."""

import json
import subprocess
import sys

import pandas as pd
from project import STRONG, TINY
from test_plans import OF_STRONG

KEY = """

declare("colour", Choice(("blue", "red")), "A key of this test.", default="blue")
"""
RED = STRONG.replace("[1, 2]", "1").replace("repeats: 2", "repeats: 1").replace("read_csv,", "read_csv, colour: [red],")
TWO_COLOURS = STRONG + RED
DECLARATIONS = "scripts/study/experiment/parameters/strategy.py"  # after the loader in a name


def test_a_new_key_outlives_finished_runs_and_reaches_everything(project):
    path = project.root / DECLARATIONS
    path.write_text(path.read_text() + KEY)
    assert project.plan() == {}, "a default changes nothing"
    runs_csv = project.made.relative_to(project.root) / "runs.csv"
    project.snakemake(runs_csv, "--forcerun", "collect_records")
    runs = pd.read_csv(project.made / "runs.csv")
    assert runs.code_is_current.all()
    assert (runs.colour == "blue").all(), "readers fill in the default"

    project.change("config/studies/tiny.yaml", STRONG, TWO_COLOURS)
    assert project.plan() == {"train": 1, **OF_STRONG}, "only the points that use it"
    tables = ("scaling", "icpp2019_table2", "icpp2019_table6")
    project.make("runs.csv", *(f"tables/{name}.md" for name in tables), study="tiny")
    runs = pd.read_csv(project.made / "runs.csv")
    assert runs.groupby("colour").size().to_dict() == {"blue": 7, "red": 1}
    red = runs[runs.colour == "red"]
    assert red.record.str.contains(r"strong\+epochs~4\+gpus~[12]\+loader~read_csv\+.*colour~red").all()
    record = json.loads((project.results / red.record.iloc[0]).read_text())
    assert record["parameters"]["colour"] == "red"
    for table in ("scaling", "icpp2019_table2"):
        assert "| colour" in (project.made / "tables" / f"{table}.md").read_text(), table
    assert "| colour" not in (project.made / "tables" / "icpp2019_table6.md").read_text(), "all are blue there"

    project.add_study("wrong", TINY.replace(STRONG, TWO_COLOURS.replace("[red]", "[rde]")))
    done = project.snakemake("--dry-run", study="wrong", check=False)
    assert "runs[1].colour[0]: 'rde' is not one of blue, red; did you mean 'red'?" in done.stdout + done.stderr

    line = [sys.executable, project.root / "scripts" / "make_reference.py"]
    subprocess.run(line, cwd=project.root, env=project.variables, check=True)
    assert "| `colour` | `blue`, `red` | `blue` |" in (project.root / "docs/reference/grid-keys.md").read_text()
