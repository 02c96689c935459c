"""The docs' reference pages are those that the declarations give."""

import json
import re

import jsonschema
import make_reference
import pytest
from examples import expand
from tracked import ours

from study.core import fields, validation
from study.core.paths import ROOT
from study.experiment.parameters import PARAMETERS
from study.records import tidy
from study.report import editor_schemas


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_pages_are_current(name):
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == make_reference.PAGES[name](), "make reference writes it anew"


@pytest.mark.parametrize("kind", editor_schemas.SCHEMAS)
def test_editors_accept_every_file_of_ours_and_refuse_an_unknown_key(kind, monkeypatch):
    written = editor_schemas.find_path(kind).read_text(encoding="utf-8")
    monkeypatch.setattr(editor_schemas, "list_files", lambda kind, found=editor_schemas.list_files: ours(found(kind)))
    assert written == editor_schemas.make_text(kind), "make reference writes it anew"
    schema = jsonschema.Draft202012Validator(json.loads(written))
    assert editor_schemas.list_files(kind)
    for file in editor_schemas.list_files(kind):
        content = validation.read_yaml(file)
        assert [(file.name, error.message) for error in schema.iter_errors(content)] == []
        assert not schema.is_valid({**content, "no_such_key": 1})
        text = file.read_text(encoding="utf-8")
        assert text == editor_schemas.add_schema_line(file, kind), "make reference writes the line"
        (named,) = re.findall(r"\A# yaml-language-server: \$schema=(.*)\n", text)
        assert (file.parent / named).resolve() == editor_schemas.find_path(kind)


@pytest.mark.parametrize(("benchmark", "is_accepted"), [("nt3", False), (["nt3", "p1b1"], False), ("mine", True)])
def test_editors_accept_parameters_of_programs_only(benchmark, is_accepted):
    schema = jsonschema.Draft202012Validator(json.loads(editor_schemas.make_text("studies")))
    for more in ({"width": 1}, {"tuning": {"wide": {"width": 1}}}):
        grid = {"benchmark": benchmark, "scaling": "strong", "gpus": 1, **more}
        study = {"description": "x", "runs": [grid], "tables": ["scaling"]}
        assert schema.is_valid(study) == is_accepted, more


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_every_row_has_a_meaning(name):
    tables = re.findall(r"^(\|.*\|)\n\|[-|]+\|\n((?:\|.*\|\n)+)", make_reference.PAGES[name](), re.M)
    assert tables
    for head, rows in tables:
        meaning = [cell.strip() for cell in head.split("|")].index("meaning")
        cells = [row.split("|") for row in rows.splitlines()]
        assert [row[1] for row in cells if not row[meaning].strip()] == []


def test_the_declared_columns_are_those_of_the_tidy_tables(make_recorded, tmp_path):
    """A column is declared in config/fields/, with its meaning."""
    (run,) = expand()
    make_recorded(run)
    results = tmp_path / "local"
    made = set(tidy.runs_frame([run], {"nt3": "c0de"}, results, reads_targets=True))
    assert made - set(PARAMETERS) == set(fields.list_columns())
    assert list(tidy.loading_frame([], "c0de", results)) == list(fields.list_columns(fields.LOAD_FILES))
