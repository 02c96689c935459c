"""What is told of where a run was made is what the machine's own tools say."""

import os
import subprocess
import sys

from fake_nvml import FakeNvml

from study.core import provenance
from study.data import text_table


def test_versions_host_and_environment(monkeypatch):
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "5")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    facts = provenance.collect()
    assert facts["packages"]["snakemake"]
    assert facts["table_parser"] == ("fallback" if text_table.compiled is None else "compiled")
    assert facts["host"]["cores_allowed"] == len(os.sched_getaffinity(0))
    assert facts["environment"]["HOROVOD_CYCLE_TIME"] == "5"
    assert "SECRET_TOKEN" not in facts["environment"]
    assert facts["gpus"]["found"] or facts["gpus"]["reason"]


def test_git_state(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        )

    assert provenance.git_state(tmp_path) == {"commit": None, "dirty": None}
    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").stdout.strip()
    assert provenance.git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "file").write_text("2")
    assert provenance.git_state(tmp_path) == {"commit": commit, "dirty": True}


def test_git_state_of_another_user_s_clone(tmp_path, monkeypatch):
    """GIT_TEST_ASSUME_DIFFERENT_OWNER is by what git's own tests have it refuse a folder as of another user."""
    for name in ("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):  # a user's own may call every folder safe
        monkeypatch.setenv(name, os.devnull)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(["git", "-C", tmp_path, "rev-parse", "HEAD"], capture_output=True, text=True)
    assert "dubious ownership" in refused.stderr
    assert len(provenance.git_state(tmp_path)["commit"]) == 40


def test_gpus_by_older_bindings_which_give_bytes(monkeypatch):
    nvml = FakeNvml(1)
    nvml.gpus[0].name, nvml.nvmlShutdown = b"Stand-in 100", lambda: None
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert provenance._gpus()["found"] == [{"name": "Stand-in 100", "uuid": nvml.gpus[0].uuid}]
