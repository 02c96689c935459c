"""A record that has passed all checks is not checked again, and one of which a byte was changed always is."""

import os

import pandas as pd
import pytest
from examples import expand

from study.core.errors import StudyError
from study.core.files import write_sealed
from study.records import checked_records, record, renewal
from study.records.checked_records import CheckedRecords
from study.records.tidy import runs_frame


@pytest.fixture
def path(make_run):
    folder = make_run(*expand())
    renewal.make(folder)
    return folder / "record.json"


def read(path, folder):
    with CheckedRecords(folder) as checked:
        return renewal.current_record(path, checked)


@pytest.fixture
def checks(monkeypatch):
    """The paths of the records whose schema was checked."""
    found, check = [], record._check_read
    monkeypatch.setattr(record, "_check_read", lambda content, where: (found.append(where), check(content, where)))
    return found


def test_each_content_is_checked_once(path, tmp_path, checks):
    expected = record.read_record(path)
    assert [read(path, tmp_path) for _ in range(3)] == [expected] * 3
    assert CheckedRecords(tmp_path).read(path) == expected
    assert len(checks) == 2, "by read_record, and by the first reader"
    assert list(read(path, tmp_path)) == list(expected), "columns keep their order"


@pytest.mark.parametrize("old, new", [('"runtime_s": 20.0', '"runtime_s": 10.0'), ('"status": "ok"', '"status": "no"'),
                                      ('"schema_version": 8', '"schema_version": 7')])  # fmt: skip
def test_a_changed_byte_is_noticed_whatever_the_file_s_size_and_times(path, tmp_path, old, new):
    read(path, tmp_path)
    before, text = path.stat(), path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    for refuses in (lambda: read(path, tmp_path), lambda: CheckedRecords(tmp_path).read(path)):
        with pytest.raises(StudyError, match="was changed after it was written"):
            refuses()
    path.write_text(text)
    assert read(path, tmp_path)["runtime_s"] == 20.0


def test_what_does_not_pass_is_not_noted(path, tmp_path):
    """Though its checksum is right."""
    write_sealed(path, {**record.read_record(path), "runtime_s": "long"})
    for _ in range(2):
        with pytest.raises(StudyError, match="runtime_s"):
            read(path, tmp_path)
    assert not (tmp_path / checked_records.FILE).exists()


def test_a_damaged_note_or_one_by_other_code_is_none(path, tmp_path, checks, monkeypatch):
    read(path, tmp_path)
    note = tmp_path / checked_records.FILE
    text = note.read_bytes()
    for number, damaged in enumerate((text.replace(text[1:9], b"00000000"), text[:-9], b"\xff" * 99, b""), 2):
        note.write_bytes(damaged)
        assert [read(path, tmp_path)["runtime_s"] for _ in range(3)] == [20.0] * 3
        assert len(checks) == number
    monkeypatch.setattr(checked_records, "_compute_checks_digest", lambda: b"other code, or another schema")
    read(path, tmp_path)
    assert len(checks) == number + 1


def test_a_record_of_other_code_is_made_again_though_it_passed(path, tmp_path):
    made = record.read_record(path)
    provenance = {**made["provenance"], "record_code": "0123456789ab"}
    write_sealed(path, {**made, "runtime_s": 1e6, "provenance": provenance})
    with CheckedRecords(tmp_path) as checked:
        assert checked.read(path)["runtime_s"] == 1e6
    assert read(path, tmp_path)["runtime_s"] == 20.0


def test_a_run_notes_its_own_record_at_its_end(path, tmp_path, checks, monkeypatch):
    """A table is the same whether it is noted or not. Outside of a results folder nothing is noted."""
    tables = [runs_frame(expand(), {}, tmp_path / "local")]
    assert not checks
    (tmp_path / "local" / checked_records.FILE).unlink()
    tables += [runs_frame(expand(), {}, tmp_path / "local") for _ in range(2)]
    assert len(checks) == 1
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0], tables[2])
    checked_records.note_new(path.rename(tmp_path / "record.json"), {})
    checked_records.note_new(tmp_path / "runs" / "record.json", {})
    assert list(tmp_path.rglob(checked_records.FILE)) == [tmp_path / "local" / checked_records.FILE]


def test_a_note_that_has_grown_too_long_keeps_what_was_read_last(path, tmp_path, monkeypatch):
    note = tmp_path / checked_records.FILE
    note.write_text(f"{'0' * 64}\n" * 9)
    monkeypatch.setattr(checked_records, "MOST_BYTES", 99)
    read(path, tmp_path)
    assert len(note.read_text()) == 65 and CheckedRecords(tmp_path).find_accepted(path.read_bytes())
