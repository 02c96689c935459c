"""Imports go one way: a package imports only those that stand above it in the list."""

import ast
import re
import subprocess
import sys

import pytest
from tracked import ours

from study.core import provenance
from study.core.files import write_json
from study.core.paths import ROOT
from study.experiment.expansion import load_study
from study.records.record import make_record
from study.records.tidy import runs_frame

LIBRARY = ROOT / "scripts" / "study"
# As in docs/extending.md (see the last test), lowest first.
ORDER = ("core", "instruments", "data", "workloads", "machines", "experiment", "communication", "backends", "training",
         "ensembles", "launch", "records", "compare", "prediction", "report", "plan", "workflow",
         "commands", "contrib")  # fmt: skip
DOCUMENT = ROOT / "docs" / "extending.md"
MODULES = sorted(path.relative_to(LIBRARY) for path in ours(LIBRARY.rglob("*.py")))


def imported(path):
    """(line, package) of each import of the study's own packages, also those inside functions."""
    for node in ast.walk(ast.parse((LIBRARY / path).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names = [node.module] if node.module != "study" else [f"study.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name.split(".")[1]) for name in names if name.startswith("study."))


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.name != "__init__.py" or len(path.parts) > 1], ids=str
)
def test_a_package_imports_only_those_above_it(path):
    own = ORDER.index(path.parts[0].removesuffix(".py"))
    wrong = [f"{path}:{line} imports study.{package}" for line, package in imported(path) if ORDER.index(package) > own]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_contrib():
    """It can be deleted: what uses it loads it by its name, and says so if it is not there."""
    outside = [path for path in MODULES if path.parts[0] != "contrib"]
    assert not [path for path in outside if any(package == "contrib" for _, package in imported(path))]


# Steps and the plan, in a process of their own, in which contrib is hidden from import.
STEPS = """
import sys
sys.modules["study.contrib"] = None
from study import plan
from study.commands import main, steps
from study.experiment.expansion import load_study
from study.machines import machine
from study.workflow import workflow_plan, start
print(plan.summarize(load_study("smoke"), machine.load("local")))
folder, study = sys.argv[1], ["--study", "smoke"]
files = [f"--{form}={folder}/tables/scaling.{form}" for form in ("csv", "markdown", "latex", "html")]
steps.make_table([*study, "--table", "scaling", *files], standalone_mode=False)
steps.make_report([*study, "--machine", "local", "--output", f"{folder}/report.html"], standalone_mode=False)
"""


def test_a_study_is_planned_and_told_without_contrib(make_run, tmp_path):
    runs, facts = load_study("smoke").runs, provenance.collect_provenance()
    for run in runs:
        folder = make_run(run)
        write_json(folder / "record.json", {**make_record(folder), "files": {}})
        write_json(folder / "provenance.json", facts)
    folder = tmp_path / "local" / "studies" / "smoke"
    (folder / "tables").mkdir(parents=True)
    frame = runs_frame(runs, {run["benchmark"]: "c0de" for run in runs}, tmp_path / "local")
    frame.to_csv(folder / "runs.csv", index=False)
    (folder / "loading.csv").touch()
    line = [sys.executable, "-c", STEPS, str(folder)]
    done = subprocess.run(line, cwd=LIBRARY.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Study smoke on machine local: 4 runs.")
    assert "p1b2" in (folder / "tables" / "scaling.csv").read_text()
    assert "p1b2" in (folder / "report.html").read_text()


FRAMEWORK = re.compile(r"^ *(?:import|from) (?:tensorflow|tf_keras|keras|horovod|torch|jax)\b", re.M)
# The package of a framework, and a workload's model; horovodrun.py wraps Horovod's launcher; load.py is a program.
MAY_IMPORT = re.compile(
    r"study/backends/\w+/.*|study/workloads/(\w+/)*(tensorflow|pytorch)\.py|horovodrun\.py|"
    r"study/contrib/gpu_check/load\.py"
)


def test_only_backends_and_models_import_a_framework():
    scripts = LIBRARY.parent
    files = ours(scripts.rglob("*.py"))
    importing = [path.relative_to(scripts).as_posix() for path in files if FRAMEWORK.search(path.read_text())]
    assert importing, "this test would see them"
    assert not [path for path in importing if not MAY_IMPORT.fullmatch(path)]


def test_papers_are_not_needed_by_what_all_papers_share():
    """report/papers/<paper> builds on tables and figures; only the registry imports the papers."""
    shared = [path for path in MODULES if path.parts[:2] in (("report", "tables"), ("report", "figures"))]
    for path in shared:
        if path.as_posix() != "report/tables/__init__.py":
            assert "study.report.papers" not in (LIBRARY / path).read_text(), path


def test_the_document_lists_the_packages_in_this_order():
    listed = re.findall(
        r"^\| `(\w+)(?:\.py)?` \|", DOCUMENT.read_text(encoding="utf-8").split("## The library")[1], re.M
    )
    assert tuple(listed) == ORDER


def test_only_one_package_imports_snakemake():
    found = [path for path in MODULES if re.search(r"^ *(from|import) snakemake\b", (LIBRARY / path).read_text(), re.M)]
    assert found
    assert {path.parts[0] for path in found} == {"workflow"}
