"""What is told of where a run was made is what the machine's own tools say."""

import os
import subprocess
import sys

import pytest
from fake_nvml import FakeNvml

from study.core import provenance
from study.data import text_table


def test_versions_host_and_environment(monkeypatch):
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "5")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    facts = provenance.collect_provenance()
    assert facts["packages"]["snakemake"]
    assert facts["table_parser"] == ("fallback" if text_table.compiled is None else "compiled")
    assert facts["host"]["cores_allowed"] == len(os.sched_getaffinity(0))
    assert facts["environment"]["HOROVOD_CYCLE_TIME"] == "5"
    assert "SECRET_TOKEN" not in facts["environment"]
    assert facts["gpus"]["found"] or facts["gpus"]["reason"]


def git(folder, *arguments):
    line = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def test_git_state(tmp_path):
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "file").write_text("1")
    unknown = {"commit": None, "dirty": None}
    assert provenance.read_git_state(tmp_path) == {**unknown, "reason": "no git repository"}
    git(tmp_path, "init", "-q")
    assert "HEAD" in provenance.read_git_state(tmp_path)["reason"], "there is no commit"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "worktree", "add", "-q", tmp_path / "second")
    state = {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False, "reason": None}
    folders = (tmp_path, tmp_path / "program", tmp_path / "second", tmp_path / "second" / "program")
    assert [provenance.read_git_state(each) for each in folders] == [state] * 4
    for each in folders[1::2]:
        (each / "file").write_text("2")
    assert [provenance.read_git_state(each) for each in folders] == [{**state, "dirty": True}] * 4


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """A repository with a submodule and a worktree; git could run a program in all, which leaves a line."""
    folder = tmp_path_factory.mktemp("repositories")
    evil, top = folder / "evil", folder / "top"
    evil.write_text(f"#!/bin/sh\necho ${{0##*/}} $# ${{PWD##*/}} >>{folder / 'was_run'}\ncat\n")
    evil.chmod(0o755)
    for each in (folder / "part", top):
        (each / "program").mkdir(parents=True)
        (each / "program" / "file").write_text("1")
        git(each, "init", "-q")
        if each == top:
            git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", folder / "part")
        git(each, "add", ".")
        git(each, "commit", "-qm", "first")
    git(top, "worktree", "add", "-q", folder / "second")
    for data in (top / ".git", top / ".git" / "modules" / "part"):
        with open(data / "config", "a") as config:
            config.write(f'[filter "evil"]\nclean = {evil}\n[diff]\nexternal = {evil}\n[core]\nfsmonitor = {evil}\n')
        (data / "info" / "attributes").write_text("* filter=evil\n")
        (data / "hooks" / "post-index-change").symlink_to(evil)
    return folder


@pytest.fixture
def trap(repositories):
    """The same with a changed file in each; all is put back afterwards."""
    files = [repositories / each / "program" / "file" for each in ("top", "top/part", "second")]
    for file in files:
        file.write_text("2")
    yield repositories
    subprocess.run(["chown", "-hR", str(os.geteuid()), repositories], check=True)
    (repositories / "top" / ".git").chmod(0o755)
    (repositories / "was_run").unlink(missing_ok=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="to give files to another user needs root")
@pytest.mark.parametrize(("theirs", "folder", "has_commit"), [
    ("top/.git", "top/program", False),
    ("top/.git", "top", True),
    ("top", "top", True),
    ("top/.git/config", "top", True),
    ("top/.git", "second", True),
    ("top/part/.git", "top/part", True),
    ("top/part/.git", "top/part/program", False),
], ids=str)  # fmt: skip
def test_nothing_of_another_user_is_run_to_learn_the_state(trap, theirs, folder, has_commit):
    subprocess.run(["chown", "-hR", "65534", trap / theirs], check=True)
    state = provenance.read_git_state(trap / folder)
    assert not (trap / "was_run").exists()
    assert (state["dirty"], state["commit"] is not None) == (None, has_commit)
    assert "another user" in state["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="to give files to another user needs root")
def test_another_user_s_submodule_is_not_entered(trap):
    (trap / "top" / "program" / "file").write_text("1")
    subprocess.run(["chown", "-R", "65534", trap / "top" / ".git" / "modules"], check=True)
    state = provenance.read_git_state(trap / "top")
    assert state["dirty"] is None and "modules/part belongs to another user" in state["reason"]
    assert {*(trap / "was_run").read_text().splitlines()} == {"evil 0 top"}, "this user's own filter, for own files"


@pytest.mark.parametrize("key", ["include.path", "includeIf.gitdir:/.path"])
@pytest.mark.parametrize("folder", ["top", "second"])
def test_configuration_that_others_can_write_is_not_used_by_a_repository_that_includes_it(trap, tmp_path, folder, key):
    included, config = tmp_path / "included", trap / "top" / ".git" / "config"
    before = config.read_text()
    included.write_text("[user]\nname = x\n")
    included.chmod(0o666)
    git(trap / "top", "config", key, included)
    state = provenance.read_git_state(trap / folder)
    config.write_text(before)
    assert not (trap / "was_run").exists()
    assert state["commit"] and state["dirty"] is None
    assert state["reason"].startswith(f"{included} belongs to another user")


def test_no_variable_leads_git_to_another_repository(trap, tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    own = provenance.read_git_state(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(trap / "top" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(trap / "top"))
    assert provenance.read_git_state(tmp_path) == own
    assert not (trap / "was_run").exists()


def test_gpus_by_older_bindings_which_give_bytes(monkeypatch):
    nvml = FakeNvml(1)
    nvml.gpus[0].name, nvml.nvmlShutdown = b"Stand-in 100", lambda: None
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert provenance.find_gpus()["found"] == [{"name": "Stand-in 100", "uuid": nvml.gpus[0].uuid}]
