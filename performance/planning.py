"""Cost of planning a study of thousands of runs, against a dry run of as many jobs with nothing but files."""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import yaml
from command_cost import measure_command
from project import copy_of_project
from ratios import SEED, alternate, compute_ratio

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


def measure_planning(_):
    """Measure time and peak memory of ``snakemake --dry-run``, for studies of 1,000 and 5,000 runs, none finished."""
    with tempfile.TemporaryDirectory(prefix="planning.") as folder:
        project = copy_of_project(Path(folder) / "project")
        for number in RUNS:
            ours = partial(_measure_dry_run, project.root, _add_study(project, number), project.variables)
            trivial = partial(
                _measure_dry_run, *_make_trivial_jobs(Path(folder) / f"trivial{number}", number), dict(os.environ)
            )
            samples_by_kind = alternate(f"planning {number} runs", PAIRS, {"the study": ours, "trivial jobs": trivial})
            (jobs,) = {each["jobs"] for samples in samples_by_kind.values() for each in samples}
            name = f"{number} runs, {jobs} jobs: dry run"
            for measure, unit, one in MEASURES:
                study, others = (
                    [each[measure] for each in samples_by_kind[how]] for how in ("the study", "trivial jobs")
                )
                yield compute_ratio(name, study, "as many trivial jobs", others, unit)
                yield compute_ratio(name, study, f"1 {one}", [1.0] * PAIRS, one)


def make_study(number):
    """Make the name and content of a study of ``number`` runs of one benchmark."""
    shape = {"train_samples": 60, "test_samples": 20, "features": 60}
    grid = {"gpus": [1, 2, 4, 8], "batch_size": list(range(1, POINTS // 4 + 1)), "repeats": number // POINTS}
    return f"many{number}", {
        "description": "many runs of one benchmark",
        "datasets": {"nt3": {"source": "synthetic", **shape, "seed": SEED}},
        "runs": [{"benchmark": "nt3", "scaling": "weak", "epochs": 4, "loader": "npy", **grid}],
        "tables": ["scaling"],
    }


def _add_study(project, number):
    """Add a study of ``number`` runs to the project's copy; returns the arguments of Snakemake that plan it."""
    name, content = make_study(number)
    project.add_study(name, yaml.safe_dump(content))
    return ["--profile", "profiles/local", "--config", f"study={name}"]


def _make_trivial_jobs(folder, number):
    """Make a folder with as many trivial jobs; returns it and the arguments, with the options of the profile."""
    folder.mkdir()
    (folder / "Snakefile").write_text(TRIVIAL, encoding="utf-8")
    (folder / "runs.txt").write_text("".join(f"{run:05d}\n" for run in range(number)), encoding="utf-8")
    options = yaml.safe_load((Path(__file__).parents[1] / "profiles" / "default" / "config.yaml").read_text())
    line = ["--cores", "all", "--rerun-triggers", *options["rerun-triggers"], "--quiet", *options["quiet"]]
    return folder, [*line, "--keep-going", "--ignore-incomplete"]


def _measure_dry_run(folder, arguments, variables):
    """Measure a dry run as `measure_command` does, and count its jobs."""
    cost = measure_command([Path(sys.executable).with_name("snakemake"), "--dry-run", *arguments], folder, variables)
    (total,) = {line.split()[1] for line in cost["text"].splitlines() if line.startswith("total ")}
    return {**cost, "jobs": int(total)}
