"""The report tells findings, failures, machine, tables and runs; every number leads to its runs; texts stay texts."""

import json
import math
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from examples import expand

from study.core import provenance
from study.core.errors import StudyError
from study.core.files import write_json
from study.experiment.study import Study
from study.machines import machine
from study.records import tidy
from study.records.record import make_record
from study.report.page import assets, links, page, tables
from study.report.page.links import RecordLinks
from study.report.tables.layout import Table

MACHINE = machine.load("local")
HOSTILE = '<script>alert(1)</script> " onload="alert(2)" \'><img src=x onerror=alert(3)> & {{ 7 * 7 }}'
FINDING = {
    "name": "loading",
    "title": "Does loading grow?",
    "verdict": "yes",
    "sentence": "Loading grows from 3 to 5 s.",
    "quantity": "load_s",
    "unit": "s",
    "estimate": 2.0,
    "low": 1.5,
    "high": 2.5,
    "blocks": 2,
    "blocks_disturbed": 0,
    "blocks_worth": 2.0,
    "runs": 1,
    "left_out": [],
    "records": [],
    "figure": None,
    "table": "scaling",
    "look_for": "the second bar",
}


def of_study(found):
    return {"study": "test", "machine": "local", "findings": found}


class Seen(HTMLParser):
    """What a browser would see: elements with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._raw = [], "", False
        self.feed(text)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._raw = False

    def handle_data(self, data):
        if not self._raw:
            self.text += data

    @property
    def ids(self):
        return [of["id"] for _, of in self.elements if "id" in of]

    @property
    def links(self):
        return [of["href"] for tag, of in self.elements if tag == "a"]


def add_provenance(folder):
    """What a real run has, for one of `make_run`."""
    full = provenance.collect_provenance() | json.loads((folder / "provenance.json").read_text())
    full["host"] |= {"cpu": "a processor", "cores": 4, "memory_mb": 16000, "system": "Linux"}
    (folder / "provenance.json").write_text(json.dumps(full))


@pytest.fixture
def made(make_run, tmp_path):
    """The page of a study of two runs, one of which failed: ``made(**facts of that run)``."""
    folder = tmp_path / "local" / "studies" / "test"

    def make(text="a small study", found=None, declares=True, profile=False, message="no memory", **facts):
        runs = expand(gpus=[1, 2], may_fail="the paper's ran out of memory", profile=profile)
        for run, more in zip(runs, ({}, {"status": "failed", **facts}), strict=True):
            of_run = make_run(run, **more)
            record = make_record(of_run)
            add_provenance(of_run)
            record["files"] = {}
            if record["failure"]:
                record["failure"]["message"] = message
            write_json(of_run / "record.json", record)
        frame = tidy.runs_frame(runs, {"nt3": "c0de"}, tmp_path / "local")
        folder.mkdir(parents=True, exist_ok=True)
        frame.to_csv(folder / "runs.csv", index=False)
        tidy.loading_frame([], "c0de", tmp_path).to_csv(folder / "loading.csv", index=False)
        shown = frame.assign(records=frame["record"], note=text)
        table = Table("scaling", f"study test: {text}", shown, ["benchmark", "gpus", "runtime_s", "note"], notes=[text])
        table.write_to(folder / "tables")
        if found is not None:
            write_json(folder / "findings.json", of_study(found))
        declared = tuple(each["name"] for each in found or () if declares)
        study = Study("test", text, {}, tuple(runs), tables=("scaling",), findings=declared)
        return page.make_page(study, MACHINE, folder)

    return make


@pytest.mark.slow
def test_the_machine_is_told(made):
    text = Seen(made()).text
    assert "n1: a processor, 2 of 4 cores, 16 GB memory; no GPU seen" in text
    assert "no power and energy in 2 runs. Missing: no power sensor here" in text
    assert text.split("Hosts")[1].split("Power sensors")[0].count("n1:") == 1, "a host is told once"
    assert "tensorflow2" in text.split("Versions")[1]


@pytest.mark.slow
def test_every_link_in_the_page_leads_somewhere(made, tmp_path):
    records = ["runs/elsewhere/record.json"]
    seen = Seen(made(found=[{**FINDING, "records": records, "left_out": [{"record": "x.json", "reason": "slow"}]}]))
    folder = tmp_path / "local" / "studies" / "test"
    for link in seen.links:
        if link.startswith("#"):
            assert seen.ids.count(link[1:]) == 1, link
        elif not link.startswith("data:") and "elsewhere" not in link and "x.json" not in link:
            assert (folder / link).exists(), link
    assert len(seen.ids) == len(set(seen.ids))
    assert {"#run-1", "#run-2"} <= set(seen.links), "rows lead to runs"
    assert len([link for link in seen.links if link.endswith("/record.json") and "gpus~" in link]) == 2


@pytest.mark.slow
def test_while_the_study_runs_it_shows_what_has_ended(made, tmp_path):
    """Not the tables and findings of an earlier call, which are in the folder."""
    made(found=[FINDING])
    folder = tmp_path / "local" / "studies" / "test"
    ended = tidy.read_runs(folder / "runs.csv").iloc[:1]
    so_far = page.SoFar(ended, tidy.read_loading(folder / "loading.csv"), [])
    study = Study("test", "running", {}, tuple(expand(gpus=[1, 2, 4])), tables=("scaling",))
    seen = Seen(page.make_page(study, MACHINE, folder, so_far))
    assert "The study is running: 2 runs to come." in seen.text
    assert "Tables are made when all runs have ended." in seen.text
    assert FINDING["title"] not in seen.text
    assert not [each for _, each in seen.elements if each.get("href", "").endswith("runs.csv")]


@pytest.mark.slow
def test_texts_stay_texts(made):
    """Neither the study's description nor a message, caption, note, cell or finding becomes markup."""
    texts = dict.fromkeys(("name", "title", "sentence", "look_for"), HOSTILE)
    found = {**FINDING, **texts, "records": [HOSTILE], "left_out": [{"record": HOSTILE, "reason": HOSTILE}]}
    seen = Seen(made(HOSTILE, found=[found], message=HOSTILE))
    assert [tag for tag, _ in seen.elements].count("script") == 2, "DataTables' and ours"
    assert not [tag for tag, _ in seen.elements if tag == "img"]
    assert not [name for _, of in seen.elements for name in of if name.startswith("on")]
    assert seen.text.count("<script>alert(1)</script>") >= 8
    assert "{{ 7 * 7 }}" in seen.text


def test_a_table_shows_what_differs_and_says_what_does_not(tmp_path):
    frame = pd.DataFrame(
        {
            "benchmark": ["nt3", "nt3"],
            "loader": ["read_csv", "npy"],
            "runtime_s": [1.23456, 10.5],
            "runtime_ci95_s": [0.5, None],
            "power_per_gpu_w": [None, None],
            "nodes": [1, 2],
        }
    )
    table = Table("some", "a caption", frame, ["benchmark", "loader", "runtime_s", "power_per_gpu_w"], notes=["a note"])
    table.write_to(tmp_path)
    space = links.Embedding(tmp_path, 1)
    view = tables.read_view(tmp_path, "some", "Title", "", RecordLinks(pd.DataFrame(), pd.DataFrame()), space)
    assert [column.name for column in view.columns if column.is_shown] == ["loader", "runtime_s"]
    assert [column.name for column in view.columns] == ["benchmark", "loader", "runtime_s", "power_per_gpu_w", "nodes"]
    assert view.same == [("benchmark", "nt3")]
    assert [(row.cells[2].text, row.cells[2].order) for row in view.rows] == [
        ("1.235 ± 0.50", "1.23456"),
        ("10.50", "10.5"),
    ]
    assert (view.caption, view.notes) == ("a caption", ["a note"])
    assert (view.caption_text, view.terms) == ("a caption", [])


def test_every_number_has_what_it_is_sorted_by(tmp_path):
    """The script looks at the first row only, which has no speedup here: 0.05 would be after 0.125, as 05000 > 1250."""
    numbers = [math.nan, 0.125, 0.05, 2.0, math.inf]
    frame = pd.DataFrame({"loader": list("abcde"), "speedup": numbers})
    Table("some", "a caption", frame, list(frame)).write_to(tmp_path)
    space = links.Embedding(tmp_path, 1)
    view = tables.read_view(tmp_path, "some", "Title", "", RecordLinks(pd.DataFrame(), pd.DataFrame()), space)
    cells = [row.cells[1] for row in view.rows]
    assert [cell.text for cell in cells] == ["–", "0.1250", "0.05000", "2.000", "inf"]
    assert [cell.order for cell in cells[:4]] == ["", "0.125", "0.05", "2"] and float(cells[4].order) > 1e308
    template = assets.make_environment().from_string('{% from "table.html" import show %}{{ show(view) }}')
    made = Seen(template.render(view=view))
    assert [of["data-order"] for tag, of in made.elements if tag == "td" and of.get("class") == "number"][:4] == [
        cell.order for cell in cells[:4]
    ]


def test_the_terms_of_a_caption_are_a_list():
    caption = "Time: of the whole run. Energy too. speedup: over 1 rank. It is paired. low, high: e.g. its interval."
    view = tables.View("key", "Title", caption, [], [])
    assert view.caption_text == "Time: of the whole run. Energy too."
    assert view.terms == [("speedup", "over 1 rank. It is paired."), ("low, high", "e.g. its interval.")]
    assert tables.View("key", "Title", "loader: of the file.", [], []).caption_text == ""


def test_files_are_in_the_page_while_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "FIGURE_BYTES", 10)
    for name in ("a.svg", "b.svg"):
        (tmp_path / name).write_text("<svg/> ")
    space = links.Embedding(tmp_path, 1)
    assert space.embed_figure(tmp_path / "a.svg") == "data:image/svg+xml;base64,PHN2Zy8+IA=="
    assert space.embed_figure(tmp_path / "b.svg") == ""
    assert space.make_link(tmp_path / "b.svg").href == "b.svg"


@pytest.mark.slow
def test_the_page_of_five_thousand_runs_stays_small(made, tmp_path):
    """Every run has its link; tables keep to their share, and say what is left out."""
    made()
    folder, many = tmp_path / "local" / "studies" / "test", 5000
    frame = pd.read_csv(folder / "runs.csv")
    frame = frame.loc[frame.index.repeat(many // len(frame))].reset_index(drop=True)
    names = frame["record"].str.replace("/record.json", "", regex=False) + "+repeat~" + frame.index.astype(str)
    frame = frame.assign(record=names + "/record.json", records=names + "/record.json", runtime_s=frame.index / 7)
    one = tmp_path / "one.json"
    host = {"name": "n1", "cpu": "", "cores": 1, "system": "", "cores_allowed": 1, "physical_cores_allowed": None,
            "cpu_quota_cores": None, "memory_mb": 1}  # fmt: skip
    one.write_text(json.dumps(provenance.collect_provenance() | {"host": host}))
    for name in names:
        (tmp_path / "local" / name).mkdir()
        (tmp_path / "local" / name / "provenance.json").symlink_to(one)
    frame.to_csv(folder / "runs.csv", index=False)
    registered = ("scaling", "icpp2019_table2", "communication", "staging", "energy_by_phase", "icpp2019_claims")
    for name in registered:
        frame.to_csv(folder / "tables" / f"{name}.csv", index=False)
        (folder / "tables" / f"{name}.md").write_text("**t**: c\n\n| gpus | status | runtime_s |\n|---|---|---|\n")
    whole = page.make_page(Study("test", "many", {}, (), tables=registered), MACHINE, folder)
    assert len(whole) < 10_000_000
    assert len(re.findall(r'<li id="run-', whole)) == many
    assert len(re.findall(r'<a href="#run-', whole)) >= many
    assert whole.count("This page has the first") == len(registered)
    assert '<a href="runs.csv">' in whole


@pytest.mark.parametrize("name", ["tables/scaling.md", "tables/scaling.csv", "figures/scaling.svg", "recommendation"])
def test_no_file_of_elsewhere_is_shown(made, tmp_path, name):
    made()
    folder = tmp_path / "local" / "studies" / "test"
    place = folder / name
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "id_secret")
    with pytest.raises(StudyError, match=f"{name}: leads to {tmp_path}/id_secret, which is not in {tmp_path}/local"):
        page.make_page(Study("test", "", {}, (), tables=("scaling",)), MACHINE, folder)
