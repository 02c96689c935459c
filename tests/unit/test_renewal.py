"""Records of finished runs are made again where they are missing or of older code, and nowhere else."""

import json

import pytest
from examples import expand

from study.core.errors import StudyError
from study.core.files import read_json, write_sealed
from study.records import record, renewal


@pytest.fixture
def run(make_run):
    return make_run(*expand())


def older(folder):
    """Make the record of other code, with another runtime, as if that code had been wrong."""
    made = renewal.make(folder)
    provenance = {**made["provenance"], "record_code": "0123456789ab"}
    write_sealed(folder / "record.json", {**made, "runtime_s": 1e6, "provenance": provenance})
    return made


def test_a_missing_record_is_made(run):
    found = renewal.current_record(run / "record.json")
    assert found == renewal.current_record(run / "record.json") == record.read_record(run / "record.json")
    assert found["runtime_s"] == 20.0


def test_a_record_of_other_code_is_made_again(run):
    made = older(run)
    assert renewal.current_record(run / "record.json")["runtime_s"] == made["runtime_s"]
    assert read_json(run / "record.json") == json.loads(json.dumps(made))


def test_a_current_record_is_not_written_again(run):
    renewal.make(run)
    before = (run / "record.json").stat().st_mtime_ns
    renewal.current_record(run / "record.json")
    assert renewal.update([run / "record.json"]) == 0
    assert (run / "record.json").stat().st_mtime_ns == before


def test_where_nothing_can_be_written_the_record_is_only_returned(run, monkeypatch):
    older(run)
    before = (run / "record.json").read_bytes()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(renewal, "write_sealed", refuse)
    assert renewal.current_record(run / "record.json")["runtime_s"] == 20.0
    assert (run / "record.json").read_bytes() == before


def test_a_record_that_was_changed_by_hand_is_refused_not_replaced(run):
    renewal.make(run)
    path = run / "record.json"
    path.write_text(path.read_text().replace('"runtime_s": 20.0', '"runtime_s": 10.0'))
    with pytest.raises(StudyError, match="was changed after it was written"):
        renewal.current_record(path)
    assert renewal.update([path]) == 0


def test_neither_a_record_nor_a_run_is_an_error(tmp_path):
    assert not renewal.has_ended(tmp_path / "record.json")
    with pytest.raises(StudyError, match="record.json: cannot be read: No such file"):
        renewal.current_record(tmp_path / "record.json")


def test_what_is_wrong_at_a_run_s_end_is_only_told(run, capsys):
    (run / "history.csv").write_text("epoch\n")
    renewal.make_at_end(run)
    assert "warning: " in capsys.readouterr().err
    assert not (run / "record.json").exists()
