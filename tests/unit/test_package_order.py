"""Imports go one way: a package imports only those that stand above it in the list."""

import ast
import re

import pytest
from tracked import ours

from study.core.paths import ROOT

LIBRARY = ROOT / "scripts" / "study"
# As in docs/extending.md (see the last test), lowest first.
ORDER = ("core", "instruments", "data", "workloads", "machines", "experiment", "communication", "backends", "training",
         "ensembles", "launch", "records", "prediction", "report", "plan", "workflow", "cli")  # fmt: skip
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


FRAMEWORK = re.compile(r"^ *(?:import|from) (?:tensorflow|tf_keras|keras|horovod|torch|jax)\b", re.M)
# The package of a framework, and a workload's model; horovodrun.py wraps Horovod's launcher.
MAY_IMPORT = re.compile(r"study/backends/\w+/.*|study/workloads/(\w+/)*(tensorflow|pytorch)\.py|horovodrun\.py")


def test_only_backends_and_models_import_a_framework():
    scripts = LIBRARY.parent
    files = ours(scripts.rglob("*.py"))
    importing = [path.relative_to(scripts).as_posix() for path in files if FRAMEWORK.search(path.read_text())]
    assert len(importing) > 20, "this test would see them"
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
