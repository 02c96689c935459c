"""Code and rules are in the form their tools want; the repository keeps its own rules."""

import os
import re
import subprocess

import fork_server
import pytest
import yaml
from project import BIN, ROOT, WAIT_S
from tracked import tracked

from study.machines.batch_systems import BATCH_SYSTEMS
from study.machines.machine import load


@pytest.mark.parametrize(
    "line",
    [
        "ruff check",
        "ruff format --check",
        "mypy",
        "snakefmt --check Snakefile rules workflow",
        "snakemake --lint",
        "snakemake --lint --snakefile workflow/Snakefile",
    ],
)
def test_clean(line):
    """As `ruff check .` and `mypy` in a clone without files of the user's own, which may be of another form."""
    tool, *arguments = line.split()
    if tool == "ruff":
        arguments += tracked("*.py", "*.ipynb")
    if tool == "mypy":
        arguments += tracked("scripts/study/*.py")
    if tool == "snakemake":
        done = fork_server.run(arguments, ROOT, os.environ, WAIT_S)
    else:
        done = subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_large():
    assert [name for name in tracked() if (ROOT / name).stat().st_size > 1_000_000] == []


def test_no_file_names_a_registry():
    """A lock with an index's address would send others to that index."""
    words = [b"pypi" + b".org", b"pythonhosted" + b".org", b"--index" + b"-url", b"--find" + b"-links"]
    assert [name for name in tracked() for word in words if word in (ROOT / name).read_bytes()] == []


def test_hooks_and_the_workflow_of_github_call_what_is_here():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    programs = [hook["entry"].split()[0] for hook in hooks]
    assert [each for each in programs if not (BIN / each.removeprefix(".venv/bin/")).exists()] == []
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["tests"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    used = [step["uses"] for step in steps if "uses" in step]
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each)] == []


def test_the_same_pythons_are_supported_everywhere():
    supported = re.search('^readonly SUPPORTED="(.*?)"', (ROOT / "scripts" / "setup.sh").read_text(), re.M)[1].split()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported
    for page in ("README.md", "docs/start.md"):
        assert f"Python {' or '.join(supported)}, " in " ".join((ROOT / page).read_text().split())
    locks = "".join(path.read_text() for path in (ROOT / "envs").glob("*.lock"))
    conditions = set(re.findall(r" ; (.*) \\$", locks, re.M))
    assert conditions == {"python_full_version < '3.12'", "python_full_version >= '3.12'"}


def test_the_lock_fits_what_was_asked_for():
    wanted = [line.split("#")[0].strip() for line in (ROOT / "envs" / "requirements.in").read_text().splitlines()]
    locked = (ROOT / "envs" / "requirements.lock").read_text()
    for requirement in filter(None, wanted):
        name = requirement.split("=")[0].split("<")[0]
        assert f"\n{name}==" in f"\n{locked}"
        if "==" in requirement:
            assert f"\n{requirement} " in f"\n{locked}"
    assert "requirements.lock" in (ROOT / "envs" / "study.yaml").read_text()


def test_versions_that_other_files_name_are_the_locked_ones():
    lock = (ROOT / "envs" / "requirements.lock").read_text() + (ROOT / "envs" / "horovod.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", lock, re.M))
    container = (ROOT / "envs" / "container.def").read_text()
    assert f"TensorFlow {locked['tensorflow']} and Horovod {locked['horovod']}" in container
    assert "python:3.11-" in container
    assert "python=3.11" in (ROOT / "envs" / "study.yaml").read_text()
    extending = (ROOT / "docs" / "extending.md").read_text()
    assert f"Horovod {locked['horovod']}" in extending
    assert f"TensorFlow {'.'.join(locked['tensorflow'].split('.')[:2])}" in extending


def test_the_environment_of_sites_has_the_locked_versions():
    """All that the project asks for but what the site or the checks bring."""
    lock = (ROOT / "envs" / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", lock, re.M))
    listed = yaml.safe_load((ROOT / "envs" / "site_tensorflow.yaml").read_text())["dependencies"]
    pins = dict(re.split("==?", each) for each in [*listed[:-2], *listed[-1]["pip"]])
    assert pins.pop("python") == "3.11"
    assert pins == {name: locked[name] for name in pins}
    sections = (ROOT / "envs" / "requirements.in").read_text().split("# building Horovod")[0]
    wanted = {re.split("[=<]", line)[0].strip() for line in sections.splitlines() if line and not line.startswith("#")}
    wanted = {name.split("#")[0].strip() for name in wanted}
    assert set(pins) == wanted - {"tensorflow", "tf-keras"}


def test_every_profile_names_a_machine_whose_queue_takes_its_jobs():
    for folder in (ROOT / "profiles").iterdir():
        if not (folder / "machine.yaml").exists():
            continue
        name = yaml.safe_load((folder / "machine.yaml").read_text())["machine"]
        machine = load(name)
        profile = yaml.safe_load((folder / "config.yaml").read_text())
        if "scheduler" not in machine:
            continue
        assert profile["jobs"] <= machine.get("queue", {}).get("most_jobs", 100), folder
        assert (profile["executor"] == "cluster-generic") == (machine["scheduler"] in BATCH_SYSTEMS)
