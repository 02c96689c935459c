"""Planning a study of thousands of runs, against a dry run of as many jobs whose rules have nothing but files."""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import yaml
from measured import measured
from project import copy_of_project
from ratios import SEED, alternate, compared

RUNS = (1000, 5000)
PAIRS = 2
POINTS = 20  # of the grid; the rest are repeats
MEASURES = (
    ("seconds", "times as long", "s"),
    ("cpu_s", "times the CPU time", "CPU s"),
    ("peak_mb", "times the memory", "MB"),
)

# The same files, rules and edges as those of such a study, without params, messages, logs, resources and priorities.
TRIVIAL = """
RUNS = [line.strip() for line in open("runs.txt")]
FILES = ("train", "test")
rule all:
    input:
        expand("runs/{run}/outcome.json", run=RUNS),
        expand("table.{form}", form=("csv", "md", "tex", "html")), "report.html"
rule fetch:
    output: "raw/{file}.csv"
    shell: "touch {output}"
rule convert:
    input: "raw/{file}.csv"
    output: "converted/{file}.npy", "converted/{file}.json"
    shell: "touch {output}"
rule train:
    input: expand("converted/{file}.{form}", file=FILES, form=("npy", "json"))
    output: "runs/{run}/outcome.json"
    shell: "touch {output}"
rule update:
    output: "updated"
    shell: "touch {output}"
rule collect:
    input: expand("runs/{run}/outcome.json", run=RUNS), ancient("updated")
    output: "runs.csv", "loading.csv"
    shell: "touch {output}"
rule table:
    input: expand("runs/{run}/outcome.json", run=RUNS), ancient("updated")
    output: "table.csv", "table.md", "table.tex", "table.html"
    shell: "touch {output}"
rule report:
    input: "runs.csv", "loading.csv", "table.csv", "table.md"
    output: "report.html"
    shell: "touch {output}"
"""


def planning_ratios(_):
    """Time and peak memory of ``snakemake --dry-run``, for studies of 1,000 and of 5,000 runs that are all to do."""
    with tempfile.TemporaryDirectory(prefix="planning.") as folder:
        project = copy_of_project(Path(folder) / "project")
        for number in RUNS:
            ours = partial(_dry_run, project.root, _study(project, number), project.variables)
            trivial = partial(_dry_run, *_trivial(Path(folder) / f"trivial{number}", number), dict(os.environ))
            found = alternate(f"planning {number} runs", PAIRS, {"the study": ours, "trivial jobs": trivial})
            (jobs,) = {each["jobs"] for samples in found.values() for each in samples}
            name = f"{number} runs, {jobs} jobs: dry run"
            for what, unit, one in MEASURES:
                study, others = ([each[what] for each in found[how]] for how in ("the study", "trivial jobs"))
                yield compared(name, study, "as many trivial jobs", others, unit)
                yield compared(name, study, f"1 {one}", [1.0] * PAIRS, one)


def study_of(number):
    """Name and content of a study of so many runs of one benchmark."""
    shape = {"train_samples": 60, "test_samples": 20, "features": 60}
    grid = {"gpus": [1, 2, 4, 8], "batch_size": list(range(1, POINTS // 4 + 1)), "repeats": number // POINTS}
    return f"many{number}", {
        "description": "many runs of one benchmark",
        "datasets": {"nt3": {"source": "synthetic", **shape, "seed": SEED}},
        "runs": [{"benchmark": "nt3", "scaling": "weak", "epochs": 4, "loader": "npy", **grid}],
        "tables": ["scaling"],
    }


def _study(project, number):
    """Add a study of so many runs to the project's copy; the arguments of Snakemake that plan it."""
    name, content = study_of(number)
    project.add_study(name, yaml.safe_dump(content))
    return ["--profile", "profiles/local", "--config", f"study={name}"]


def _trivial(folder, number):
    """Folder and arguments of as many trivial jobs; the options are those of the profile that plans the study."""
    folder.mkdir()
    (folder / "Snakefile").write_text(TRIVIAL, encoding="utf-8")
    (folder / "runs.txt").write_text("".join(f"{run:05d}\n" for run in range(number)), encoding="utf-8")
    options = yaml.safe_load((Path(__file__).parents[1] / "profiles" / "default" / "config.yaml").read_text())
    line = ["--cores", "all", "--rerun-triggers", *options["rerun-triggers"], "--quiet", *options["quiet"]]
    return folder, [*line, "--keep-going", "--ignore-incomplete"]


def _dry_run(folder, arguments, variables):
    """What a dry run takes, see `measured`, and the number of its jobs."""
    found = measured([Path(sys.executable).with_name("snakemake"), "--dry-run", *arguments], folder, variables)
    (total,) = {line.split()[1] for line in found["text"].splitlines() if line.startswith("total ")}
    return {**found, "jobs": int(total)}
