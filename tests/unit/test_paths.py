"""Paths are compared as the files that they are, whatever links they go through; names of files that are not read."""

import pytest

from study.core import paths
from study.workflow import request as workflow_request


@pytest.fixture
def link(tmp_path):
    (tmp_path / "real" / "config").mkdir(parents=True)
    (tmp_path / "real" / "config" / "x.yaml").write_text("a: 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    return tmp_path / "link"


@pytest.mark.parametrize("path", ["link/config/x.yaml", "real/config/x.yaml"])
@pytest.mark.parametrize("folder", ["link", "real", "link/config/.."])
def test_inside_by_either_path(link, tmp_path, path, folder):
    assert str(paths.find_relative_path(tmp_path / path, tmp_path / folder)) == "config/x.yaml"
    assert paths.find_relative_path(tmp_path / path, tmp_path / "real" / "other") is None


def test_a_loop_of_links_and_a_null_character_are_outside(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert paths.find_relative_path(tmp_path / "loop", tmp_path / "real") is None
    assert paths.find_relative_path("a\0b", tmp_path) is None


def test_a_machine_s_folder_may_be_a_link_to_another_disk(tmp_path):
    (tmp_path / "disk" / "of_2024").mkdir(parents=True)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "summit").symlink_to(tmp_path / "disk" / "of_2024")
    assert paths.find_machine_name(tmp_path / "results" / "summit") == "summit"
    assert paths.find_machine_name(tmp_path / "results" / "summit" / "versions" / "v1") == "summit"


def test_a_profile_s_file_is_not_taken_twice(link, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles" / "p").mkdir(parents=True)
    (tmp_path / "profiles" / "p" / "config.yaml").write_text("configfile: link/config/x.yaml\n")
    given = [tmp_path / "real" / "config" / "x.yaml"]
    assert workflow_request.find_hidden_config_files(["--profile", "p"], {}, given) == []
    assert workflow_request.find_hidden_config_files(["--profile", "p"], {}, []) == [link / "config" / "x.yaml"]
