"""The workflow as a module, from an empty folder whose configuration goes before the repository's."""

import json
import os
import re
import subprocess
import textwrap

import fork_server
import pytest
from project import BIN, ROOT, WAIT_S

STUDY = """
description: "a test with {braces}"
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: strong, epochs: 2, gpus: 1, loader: read_csv}
tables: [scaling]
"""
LINES = ["--profile", ROOT / "profiles" / "local", "--workflow-profile", ROOT / "profiles" / "default"]


@pytest.fixture
def folder(tmp_path):
    """What docs/module.md tells the reader to write, with a study, a machine and a benchmark file of the user's own.

    Its name has what a shell and Snakemake would take apart (snakemake/snakemake#2981 and #3235).
    """
    folder = tmp_path / "user's folder (é)"
    folder.mkdir()
    page = (ROOT / "docs" / "module.md").read_text(encoding="utf-8")
    (snakefile,) = re.findall(r"```python\n(.*?)^ *```", page, re.S | re.M)
    (folder / "Snakefile").write_text(textwrap.dedent(snakefile).replace("/path/to/study", str(ROOT)))
    for name, text in {
        "config": "study: mine\nmachine: mine\ndata_dir: data\nresults_dir: results\n",
        "studies/mine": STUDY,
        "machines/mine": "base: local\ndescription: my machine\ntime_limit_s: 600\nrepeat_disturbed: 0\n",
        "benchmarks/nt3": re.sub(
            "^batch_size: .*", "batch_size: 10", (ROOT / "config/benchmarks/nt3.yaml").read_text(), flags=re.M
        ),
    }.items():
        path = folder / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def called(folder, program, *arguments):
    """A finished command in the user's folder."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    if program == "snakemake":
        return fork_server.run(arguments, folder, variables, WAIT_S)
    return subprocess.run(
        [BIN / program, *arguments], cwd=folder, env=variables, capture_output=True, text=True, timeout=WAIT_S
    )


def test_a_folder_with_a_configuration_is_enough(folder):
    done = called(folder, "snakemake", *LINES)
    assert done.returncode == 0, done.stderr
    (record,) = folder.glob("results/mine/runs/nt3/*/*/record.json")
    record = json.loads(record.read_text())
    assert record["parameters"]["batch_size"] == 10
    assert "| nt3" in (folder / "results/mine/studies/mine/tables/scaling.md").read_text()
    again = called(folder, "snakemake", *LINES, "-n")
    assert "Nothing to be done" in again.stdout + again.stderr
    told = called(folder, "python", "-m", "study.commands.main", "status")
    assert told.stdout.startswith("study mine on mine: 1 run: 1 done\n"), told.stderr


def test_the_files_of_the_workflow_around_it_may_have_any_keys(folder):
    """It hands over a part of its configuration."""
    path = folder / "config" / "config.yaml"
    path.write_text("samples: {1: a}\nscaling:\n" + textwrap.indent(path.read_text(), "  "))
    snakefile = (folder / "Snakefile").read_text()
    (folder / "Snakefile").write_text(re.sub(r"config:\n( +)config\n", r'config:\n\1config["scaling"]\n', snakefile))
    planned = called(folder, "snakemake", *LINES, "-n")
    assert "Study mine on machine mine: 1 run." in planned.stderr, planned.stdout
