"""Results of an earlier version of a study, which its file no longer declares: they are not shown and not packed."""

import json
import tarfile

import pytest

from study.commands.results import findings as show_findings
from study.compare import rank_answer
from study.contrib.exports import archive
from study.core import configuration
from study.core.files import write_json
from study.experiment.undeclared_results import list_undeclared_results
from study.records import tidy

OLD_FORM = {"study": "mine", "findings": [{"name": "n"}]}  # lacks what the schema asks for
STALE = ["figures/loaders.svg", "findings.json", "findings.md", "tables/summary.csv", "tables/summary.md"]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """``study(text)``: the results of a study ``mine`` whose file has this text now."""
    folder = tmp_path / "local" / "studies" / "mine"
    for name in (*STALE, "tables/scaling.csv", "figures/network.svg", "runs.csv", "loading.csv", "attempts.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    write_json(folder / "findings.json", OLD_FORM)
    file = tmp_path / "mine.yaml"
    files = configuration.list_files
    monkeypatch.setattr(configuration, "list_files", lambda kind: {**files(kind), "mine": file})

    def write(text):
        file.write_text(text)
        return folder

    return write


def names(folder):
    return [path.relative_to(folder).as_posix() for path in list_undeclared_results(folder)]


@pytest.mark.parametrize(
    ("text", "stale"),
    [
        ("tables: [scaling]\nfigures: [network]\n", STALE),
        ("tables: [scaling]\nfigures: [network]\nfindings: []\n", STALE),
        ("tables: [scaling]\nfigures: [network]\nfindings: [n]\n", [STALE[0], *STALE[3:]]),
        ("tables: [scaling, summary]\nfigures: [network, loaders]\nfindings: [n]\n", []),
        ("tables: [scaling, summary]\n", ["figures/loaders.svg", "figures/network.svg", *STALE[1:3]]),
        ("tables: 3\nfigures: [network]\nfindings: [n]\n", STALE[:1]),
        ("tables: [", []),  # not valid YAML
        ("", []),
    ],
)
def test_what_a_study_no_longer_declares(study, text, stale):
    assert names(study(text)) == stale


def test_findings_are_not_printed_and_their_file_is_named(study, tmp_path, monkeypatch, capsys):
    folder = study("tables: [scaling]\n")
    monkeypatch.setattr(rank_answer, "answer_workloads", lambda runs: [])
    monkeypatch.setattr(tidy, "read_runs", lambda path: None)
    monkeypatch.setattr("sys.argv", ["show", "--study", "mine", "--machine", "local", "--results-dir", str(tmp_path)])
    show_findings(standalone_mode=False)
    said = capsys.readouterr().out
    assert "Study mine declares no findings." in said and "findings.md" not in said
    assert f"{folder / 'findings.json'} is of an earlier version of the study, and is not used; delete it." in said


def test_exports_have_what_the_study_declares(study, tmp_path):
    folder = study("tables: [scaling]\nfigures: [network]\n")
    archive.export(archive.Results("mine", tmp_path / "local"), tmp_path / "mine.tar.gz")
    with tarfile.open(tmp_path / "mine.tar.gz") as file:
        packed = {each.name.partition("/studies/mine/")[2] for each in file.getmembers()} - {""}
    assert packed == {"tables/scaling.csv", "figures/network.svg", "runs.csv", "loading.csv", "attempts.csv"}
    assert json.loads((folder / "findings.json").read_text()) == OLD_FORM, "nothing is deleted"
