"""Whole or absent."""

import json

import pytest

from study.core.files import sha256, write_json, write_text, written_aside


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "file"
    with written_aside(target) as aside:
        aside.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half"


def test_an_error_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    write_text(tmp_path / "file", "old")
    with pytest.raises(RuntimeError), written_aside(tmp_path / "file") as aside:
        aside.write_text("new")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "file", {"value": float("nan")})
    write_json(tmp_path / "file", {"value": 1.5})
    assert json.loads((tmp_path / "file").read_text()) == {"value": 1.5}


def test_sha256_is_the_standard_one(tmp_path):
    write_text(tmp_path / "file", "abc")
    assert sha256(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
