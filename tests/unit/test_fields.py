"""A field of the record is declared in one place; schema, columns, types, readers and docs follow from it."""

import json
import shutil

import pandas as pd
import pytest
from examples import expand

from study.core import fields, validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.ensembles import members_table
from study.records import record, tidy
from study.records.record import read_record
from study.report import reference
from study.report.page.tables import get_meaning

BEFORE = "      time_per_epoch_s: {type: amount,"
LINE = "      first_batch_s: {type: amount, meaning: of the first batch, empty: if not timed}\n"
CACHED = (
    fields.load_sections,
    fields.list_columns,
    fields.list_column_patterns,
    fields.metrics_schema,
    record.schema,
    record._fits,
)


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Declare a field in a copy of config/fields/; from then on the code works with the copy."""
    folder = tmp_path / "fields"
    shutil.copytree(fields.FOLDER, folder)

    def change(file, old, new):
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        monkeypatch.setattr(fields, "FOLDER", folder)
        forget()

    yield change
    monkeypatch.undo()
    forget()


def forget():
    for cached in CACHED:
        cached.cache_clear()


@pytest.fixture
def finished(make_recorded, tmp_path):
    """A run, its record's path, and the machine's results."""
    (run,) = expand()
    folder = make_recorded(run)
    return run, folder / "record.json", tmp_path / "local"


def table(run, results):
    return tidy.runs_frame([run], {"nt3": "c0de"}, results)


@pytest.mark.slow
def test_one_line_adds_a_field(finished, declare, tmp_path):
    run, path, results = finished
    declare("training.yaml", BEFORE, LINE + BEFORE)
    assert "first_batch_s" in record.schema()["properties"]["training"]["properties"]
    changed = json.loads(path.read_text())
    changed["training"]["first_batch_s"] = 2
    write_json(path, changed)
    made = table(run, results)
    assert made["first_batch_s"].to_list() == [2]
    made.to_csv(tmp_path / "runs.csv", index=False)
    for read in (tidy.read_runs(tmp_path / "runs.csv"), tidy.set_column_types(made)):
        assert read["first_batch_s"].dtype == float
    assert "| `first_batch_s` | number | s | of the first batch; empty if not timed |" in reference.make_columns_page()
    assert get_meaning("first_batch_s") == "of the first batch; empty if not timed"
    changed["training"]["first_batch_s"] = -1
    write_json(path, changed)
    with pytest.raises(StudyError, match="training.first_batch_s: -1 is less than the minimum of 0"):
        read_record(path)


@pytest.mark.slow
def test_a_table_that_is_older_than_a_field_is_read(finished, declare, tmp_path):
    run, _, results = finished
    table(run, results).to_csv(tmp_path / "runs.csv", index=False)
    declare("training.yaml", BEFORE, LINE + BEFORE)
    assert tidy.read_runs(tmp_path / "runs.csv")["first_batch_s"].isna().all()


def test_missing_values_make_integers_floats_and_booleans_objects():
    frame = pd.DataFrame({"nodes": [1, None], "block": [1, 2], "overlapped": [True, None], "git_dirty": [True, False],
                          "session": ["7", None], "gpus": [1, 2], "mine": [1, 2]})  # fmt: skip
    found = tidy.set_column_types(frame)
    assert found.dtypes.astype(str).to_dict() == {
        "nodes": "float64", "block": "int64", "overlapped": "object", "git_dirty": "bool", "session": "object",
        "gpus": "int64", "mine": "int64",
    }  # fmt: skip


FILES = (fields.RUN_FILES, fields.LOAD_FILES, fields.EPOCH_FILES, fields.MEMBER_FILES)


def test_a_row_of_members_has_the_declared_columns():
    member = {"number": 0, "seed": 1, "learning_rate": 0.1, "batch_size": 5, "epochs": 1, "losses": [0.5],
              "parameters": 12, "quality": {"accuracy": 0.9}, "samples_preprocessed": 4,
              "received_bytes": 0}  # fmt: skip
    rank = {"rank": 0, "host": "a", "member": member, "final_weights_crc32": 7, "initial_weights_crc32": 8}
    assert set(members_table._make_row(rank, 2.0, None)) - {"accuracy"} == set(fields.list_columns(fields.MEMBER_FILES))


def test_columns_have_different_names():
    for files in FILES:
        names = [each.column for section in fields.load_sections(files) for each in section.fields if each.column]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name", ["peak_memory_mb", "shared_read_mb", "tcp_sent_bytes", "cpu_busy", "input_wait_per_step_s"]
)
def test_what_a_rank_measures_is_checked_by_its_declaration(name):
    process = fields.metrics_schema()["$defs"]["process"]
    for value, is_valid in ((1.5, True), (None, True), (-1, False), ("1", False), (True, False)):
        given = {"peak_memory_mb": 1.0, name: value}
        if is_valid:
            validation.validate(given, process, "metrics.json")
        else:
            with pytest.raises(StudyError, match=name):
                validation.validate(given, process, "metrics.json")
