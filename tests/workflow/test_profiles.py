"""`snakemake --profile NAME`, as people type it, in a fresh clone with few packages: the paper of the machine."""

import json
import re
import subprocess
import sys
import tomllib

import plan_with_few_packages
import pytest
from packaging.requirements import Requirement
from project import ROOT, WAIT_S, copy_of_project

PLAN = ROOT / "tests" / "workflow" / "plan_with_few_packages.py"


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """What Snakemake says of a plan in a clone in which nothing was set up: ``plan("--profile", "summit")``."""
    folder = tmp_path_factory.mktemp("clone")
    clone, modules = copy_of_project(folder / "project"), folder / "modules.json"
    others = plan_with_few_packages.modules_of_others()
    assert {"pyarrow", "scipy", "matplotlib"} <= others

    def planned(*arguments, without=(), code=0):
        modules.write_text(json.dumps(sorted(others.union(without))))
        line = [sys.executable, clone.root / PLAN.relative_to(ROOT), modules, "-n", *arguments]
        done = subprocess.run(line, cwd=clone.root, env=clone.variables, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    return planned


def test_summit_plans_its_paper(plan):
    told = plan("--profile", "summit")
    study, chosen, *_ = re.search(r"^Study .*", told, re.M | re.S)[0].splitlines()
    assert study.startswith("Study icpp2019 on machine summit: 589 runs.")
    assert "config/machines/summit.yaml chose it; another study: --config study=NAME" in chosen
    assert re.search(r"^train +589$", told, re.M)


def test_without_the_plugin_for_clusters_one_line_names_it(plan):
    told = plan("--profile", "summit", without=["snakemake_executor_plugin_cluster_generic"], code=1)
    assert told.splitlines()[1:] == [
        "error: executor cluster-generic needs a plugin, which is not installed: "
        "pip install snakemake-executor-plugin-cluster-generic"
    ]


@pytest.mark.long
def test_summitdev_plans_all_runs_of_its_paper(plan):
    """Only the storages and the batch command, which are not here, are named; no run."""
    told = plan("--profile", "summitdev")
    assert "Study han2019 on machine summitdev: 470 runs." in told
    (refused,) = re.findall(r"This can be planned but not started here:\n((?: {4}.*\n)+)", told)
    assert {line.split(": ")[1] for line in refused.splitlines()} <= {"storage", "bsub is not on PATH here"}
    assert re.search(r"^train +470$", told, re.M)


def test_every_profile_is_found_by_its_name():
    for profile in (ROOT / "profiles").iterdir():
        if profile.name != "default":
            link = ROOT / profile.name
            assert link.is_symlink() and str(link.readlink()) == f"profiles/{profile.name}", (
                f"snakemake --profile {profile.name} finds no ./{profile.name}: ln -s profiles/{profile.name}"
            )


def test_what_planning_needs_is_what_is_locked():
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / "envs" / "requirements.lock").read_text(), re.M))
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        requirement = Requirement(each)
        assert requirement.specifier.contains(locked[requirement.name])
