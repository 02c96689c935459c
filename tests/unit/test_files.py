"""Whole or absent."""

import json
import os
import subprocess
import sys
import time

import pytest

from study import plan
from study.core.errors import StudyError
from study.core.files import (
    find_changed_since_read,
    find_replaced_since_read,
    has_changed,
    read_json,
    read_seal,
    read_seal_at_end,
    write_aside,
    write_json,
    write_sealed,
    write_text,
    write_with_checksum,
)


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "file"
    with write_aside(target) as aside:
        aside.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half"


def test_an_error_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    write_text(tmp_path / "file", "old")
    with pytest.raises(RuntimeError), write_aside(tmp_path / "file") as aside:
        aside.write_text("new")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "file", {"value": float("nan")})
    write_json(tmp_path / "file", {"value": 1.5})
    assert json.loads((tmp_path / "file").read_text()) == {"value": 1.5}


def test_what_a_killed_process_left_is_removed_by_the_next_writer(tmp_path):
    code = f"""
import os
from study.core.files import write_aside
with write_aside({str(tmp_path / "file")!r}) as aside:
    aside.write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code])
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part")
    write_text(tmp_path / "file.txt", "another file")
    assert left.exists()
    write_text(tmp_path / "file", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.txt"]


def test_a_writer_at_work_is_left_alone(tmp_path):
    with write_aside(tmp_path / "file") as aside:
        aside.write_text("first")
        other = aside.with_name(f".file.{os.getpid() + 1}.part")
        aside.rename(other)  # as if it were another process's
        write_text(tmp_path / "file", "second")
        assert other.read_text() == "first"
        other.rename(aside)
    assert (tmp_path / "file").read_text() == "first"


@pytest.mark.parametrize(
    "change", [("1.5", "2.5"), ('"b"', '"c"'), ("true", "null"), ('"checksum": "', '"checksum": "0')]
)
def test_a_change_of_a_sealed_file_is_noticed(tmp_path, change):
    write_sealed(tmp_path / "file", {"value": 1.5, 2: ["b", {"c": True}]})
    assert read_json(tmp_path / "file") == {"value": 1.5, "2": ["b", {"c": True}]}
    text = (tmp_path / "file").read_text()
    (tmp_path / "file").write_text(text.replace(*change))
    with pytest.raises(StudyError, match="file: was changed after it was written; restore it, or delete it"):
        read_json(tmp_path / "file")


def test_the_checksum_of_a_sealed_file_is_found_without_reading_it_whole(tmp_path, monkeypatch):
    """In other layouts, which others may have written, it is read: no other key can be taken for it."""
    path, value = (
        tmp_path / "file",
        {"checksums": {"checksum": "f" * 64}, "text": '\n  "checksum": "0"\n}', "n": [1] * 99},
    )
    write_sealed(path, value)
    seal = read_seal(path)
    assert seal is not None and read_seal_at_end(path) == seal
    whole = json.loads(path.read_text())
    for other in (json.dumps(whole), json.dumps({"checksum": whole["checksum"], **value}, indent=2)):
        path.write_text(other)
        assert read_seal_at_end(path) == seal
    path.write_text(json.dumps({"inner": {"checksum": "f" * 64}}, indent=1) + "\n")
    assert read_seal_at_end(path) is None and read_seal_at_end(tmp_path / "absent") is None
    write_sealed(path, value)
    monkeypatch.setattr("study.core.files.json.loads", None)
    assert read_seal_at_end(path) == seal, "nothing is parsed"


def test_what_was_changed_while_it_was_read_is_found(tmp_path):
    """Snakemake dates its outputs when their job ends, so they are newer than what was changed meanwhile."""
    made, before, after = (tmp_path / name for name in ("runs.csv", "before.json", "after.json"))
    assert find_changed_since_read([before], made) == []
    before.touch()
    begun_ns = before.stat().st_ctime_ns + 1
    with write_with_checksum(made, begun_ns) as aside:
        aside.write_text("1")
    after.touch()
    os.utime(after, ns=(begun_ns + 1, begun_ns + 1))
    assert made.stat().st_mtime_ns > begun_ns + 1
    assert find_changed_since_read([before, after, tmp_path / "missing"], made) == [after]
    with write_with_checksum(made) as aside:
        aside.write_text("1")
    assert find_changed_since_read([before, after], made) == []


def test_a_file_that_an_older_one_replaced_is_found(tmp_path):
    """As from a backup, with its old time: another content counts, the same one and a new file do not."""
    made, record, other = (tmp_path / name for name in ("runs.csv", "record.json", "other.json"))
    write_sealed(record, {"value": 1})
    backup = record.read_bytes()
    os.utime(record, (1, 1))
    write_sealed(record, {"value": 2})
    with write_with_checksum(made, time.time_ns(), {record: read_seal(record)}) as aside:
        aside.write_text("1")
    time.sleep(0.01)  # file systems date changes by the kernel's clock, which ticks each 4 ms

    def put(path, content):
        path.with_name("aside").write_bytes(content)
        os.utime(path.with_name("aside"), (1, 1))
        path.with_name("aside").rename(path)
        return find_replaced_since_read(find_changed_since_read([record, other], made), made)

    assert put(record, record.read_bytes()) == []
    assert put(other, backup) == []
    assert not plan.has_replaced_inputs([str(record), str(other)], str(made))
    assert put(record, backup) == [record]
    assert plan.has_replaced_inputs([str(record), str(other)], str(made))
    write_sealed(record, {"value": 3})
    assert plan.has_replaced_inputs([str(record), str(other)], str(made)), "of a new time"


def test_a_change_of_a_file_with_a_checksum_beside_it_is_noticed(tmp_path):
    path = tmp_path / "table.csv"
    assert not has_changed(path)
    write_text(path, "1,2")
    assert not has_changed(path), "it has no checksum"
    for text in ("1,2", "1,3"):
        with write_with_checksum(path) as aside:
            aside.write_text(text)
        assert path.read_text() == text and not has_changed(path)
    path.write_text("1,4")
    assert has_changed(path)
    path.unlink()
    assert not has_changed(path)
