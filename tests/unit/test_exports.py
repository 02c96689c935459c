"""Exports of runs and studies: what other tools, and our own readers, find in them."""

import dataclasses
import json
import sys
import tarfile
from urllib.parse import unquote

import export_results
import export_trace
import pandas as pd
import pytest
import show_status
import yaml
from examples import STUDY, define, expand

from study.core import script_options
from study.core.errors import StudyError
from study.core.files import write_json
from study.core.paths import ROOT, SCRIPTS
from study.experiment import expansion
from study.instruments.phases import PhaseLog
from study.instruments.power.sampler import COLUMNS
from study.prediction.imports import read_any
from study.records.record import make_record
from study.records.tidy import read_runs, runs_frame
from study.report.exports import EXPORTS, declared, mlflow, mllog, openmetrics, ro_crate
from study.report.exports.kinds import OfRun, OfStudy
from study.workloads.command import events

FINDING = {"name": "scaling", "title": "It scales", "verdict": "yes", "sentence": "By 1.8.", "quantity": "speedup",
           "unit": "", "estimate": 1.8, "low": 1.7, "high": 1.9, "blocks": 3, "blocks_disturbed": 0, "runs": 6,
           "left_out": [], "records": [], "figure": None, "table": None, "look_for": None}  # fmt: skip
BEGIN_S = 1_700_000_000
GRID = {"benchmark": "nt3", "scaling": "weak", "gpus": [1, 2, 4], "loader": "npy", "epochs": 2}


@pytest.fixture
def trained(make_run):
    """A run of two epochs, with all phases of rank 0."""
    (run,) = expand(scaling="weak", epochs=2, gpus=2)
    edges = [
        ("train", "begin", 0, 0),
        ("train", "end", 0, 2.5),
        ("evaluate", "begin", 0, 2.5),
        ("evaluate", "end", 0, 3),
    ]
    return make_run(run, more_edges=edges)


@pytest.fixture
def study(make_run, tmp_path):
    """The results of a study: two runs that succeeded, one that failed, and a finding."""
    runs = expansion.expand("one", {**STUDY, "runs": [GRID]}, "one.yaml").runs
    for place, run in enumerate(runs):
        folder = make_run(run, status="failed" if place == 2 else "ok", started=(BEGIN_S + 100 * place) * 10**9)
        write_json(folder / "record.json", make_record(folder))
    folder = tmp_path / "local" / "studies" / "one"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "a b.csv").write_text("x\n1\n")
    runs_frame(runs, {"nt3": "c0de"}, tmp_path / "local").to_csv(folder / "runs.csv", index=False)
    write_json(folder / "findings.json", {"study": "one", "machine": "local", "findings": [FINDING]})
    return folder


def lines_of(path):
    marked = [line.split(mllog.MARK) for line in path.read_text().splitlines()]
    assert all(before == "" for before, _ in marked)
    return [json.loads(text) for _, text in marked]


def test_mllog_is_read_back_as_the_same_epochs_and_time(trained, tmp_path):
    made = mllog.write(trained, tmp_path / "log")
    entries = lines_of(tmp_path / "log")
    assert (made.size, made.absent) == (f"{len(entries)} lines", {})
    assert all(set(each) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"} for each in entries)
    assert sorted(entries, key=lambda each: each["time_ms"]) == entries
    (series,) = read_any([f"2:{tmp_path / 'log'}"], "fixed")
    assert series.points["time"].tolist() == [2.5]
    log = PhaseLog(tmp_path / "phases.jsonl", 0, "n1")
    log.edge("startup", "begin", (1, 1))
    progress = events.Progress(log, (1, 1))
    for line in (tmp_path / "log").read_bytes().splitlines():
        event = events.parsed(line)
        progress.take(event, (event["time_ms"] * 10**6,) * 2)
    progress.end((10**19, 10**19))
    assert [each.seconds for each in progress.epochs] == [1, 1] and progress.has_succeeded
    assert progress.epochs[1].metrics == {"loss": 0.5, "accuracy": 0.9, "learning_rate": 0.002, "val_loss": 0.6,
                                          "val_accuracy": 0.8}  # fmt: skip
    assert progress.test == {"loss": 0.5, "accuracy": 0.75}
    assert progress.sizes["model_parameters"] == 12


@pytest.mark.parametrize(
    ("changes", "samples"), [({}, 40), ({"backward_passes_per_step": 2}, 80), ({"strategy": "parameter_server"}, 20)]
)
def test_the_global_batch_is_that_of_a_weight_update(changes, samples):
    """Of two ranks with batches of 20."""
    run = define(expand(gpus=2, batch_size=20)[0])
    changed = dataclasses.replace(run, parameters={**run.parameters, **changes})
    assert mllog._global_batch_size(changed) == samples


def test_mllog_of_a_failed_run_tells_what_it_lacks(make_run, tmp_path):
    (run,) = expand(scaling="weak", epochs=2, gpus=1)
    folder = make_run(run, status="failed", more_edges=[("train", "begin", 0, 0)])
    made = mllog.write(folder, tmp_path / "log")
    keys = [each["key"] for each in lines_of(tmp_path / "log")]
    assert keys[-1] == "run_start" and set(made.absent) == {"epochs", "sizes and metrics of the test set"}
    with pytest.raises(StudyError, match="has no lines of"):
        read_any([f"1:{tmp_path / 'log'}"], "fixed")
    with pytest.raises(StudyError, match="rank 0 has begun no phase"):
        mllog.write(tmp_path, tmp_path / "other")


def test_a_run_that_was_ended_in_training_is_aborted(make_run, tmp_path):
    (run,) = expand(scaling="weak", epochs=2, gpus=1)
    folder = make_run(run, status="failed", more_edges=[("train", "begin", 0, 0), ("train", "end", 0, 1)])
    mllog.write(folder, tmp_path / "log")
    assert lines_of(tmp_path / "log")[-1]["metadata"] == {"status": "aborted"}
    with pytest.raises(StudyError, match="was aborted"):
        read_any([f"1:{tmp_path / 'log'}"], "fixed")


def test_the_command_writes_a_log(trained, tmp_path, monkeypatch, capsys):
    line = ["trace", str(trained), "--format", "mllog", "--output", str(tmp_path / "log")]
    monkeypatch.setattr(sys, "argv", line)
    export_trace.main()
    assert f"{tmp_path / 'log'}: {len(lines_of(tmp_path / 'log'))} lines" in capsys.readouterr().out


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_mlflow_has_each_run_once_and_our_reader_finds_its_time(study, tmp_path):
    store, results = tmp_path / "mlruns", tmp_path / "local"
    experiment, number = mlflow.write(study, results, store)
    before = files_of(store)
    assert mlflow.write(study, results, store) == (experiment, number) and files_of(store) == before
    meta = yaml.safe_load((experiment / "meta.yaml").read_text())
    assert (meta["name"], meta["experiment_id"]) == ("local/one", experiment.name)
    runs = {
        each["run_name"]: each for path in experiment.glob("*/meta.yaml") for each in [yaml.safe_load(path.read_text())]
    }
    assert len(runs) == number == 4
    assert sorted(each["status"] for each in runs.values()) == [mlflow.FINISHED] * 3 + [mlflow.FAILED]
    assert all(each["start_time"] % 10**5 == 0 for name, each in runs.items() if name != "findings")
    by_ranks = {
        (path / "params" / "gpus").read_text(): path for path in experiment.iterdir() if (path / "params/gpus").exists()
    }
    (series,) = read_any([str(by_ranks["1"]), str(by_ranks["2"])], "per_rank")
    table = read_runs(study / "runs.csv")
    assert (
        series.quantity == "time_per_epoch_s"
        and series.points["time"].tolist() == table["time_per_epoch_s"].tolist()[:2]
    )
    losses = (by_ranks["2"] / "metrics/epoch/loss").read_text().split("\n")
    assert [line.split()[1:] for line in losses if line] == [["0.5", "1"], ["0.5", "2"]]
    assert not (by_ranks["4"] / "metrics/time_per_epoch_s").exists()
    assert (by_ranks["4"] / "tags/failure_kind").read_text() == "oom"
    findings = experiment / runs["findings"]["run_id"]
    assert (findings / "metrics/finding/scaling/estimate").read_text().split()[1] == "1.8"
    assert (findings / "tags/mlflow.note.content").read_text() == "- It scales: By 1.8."


def test_mlflow_forgets_runs_that_the_study_no_longer_has_and_no_others(study, tmp_path):
    store = tmp_path / "mlruns"
    experiment, _ = mlflow.write(study, tmp_path / "local", store)
    (experiment / "own" / "tags").mkdir(parents=True)
    read_runs(study / "runs.csv").iloc[:1].to_csv(study / "runs.csv", index=False)
    assert mlflow.write(study, tmp_path / "local", store) == (experiment, 2)
    assert len(list(experiment.iterdir())) == 2 + len(["own", "meta.yaml"])


def test_an_export_of_runs_has_a_file_for_each_and_says_why_not(make_run, tmp_path):
    """A run that failed before its first phase has none; of one that succeeded, a damaged file is an error."""
    planned = expansion.expand("one", {**STUDY, "runs": [GRID]}, "one.yaml")
    folders = [make_run(run, status="failed" if place else "ok") for place, run in enumerate(planned.runs)]
    (folders[2] / "phases.jsonl").write_text("")
    lines = list(declared.write("perfetto", planned, tmp_path / "local", tmp_path / "made"))
    table = pd.read_csv(tmp_path / "made" / declared.INDEX, keep_default_na=False)
    assert table["record"].tolist() == [f"runs/{run.directory}/record.json" for run in planned.runs]
    assert [(tmp_path / "made" / file).is_file() for file in table["file"]] == [True, True, False]
    assert table["file"][2] == "" and "no rank has begun a phase" in table["absent"][2]
    assert "power: telemetry.csv is missing" in table["absent"][0] and "epochs: " in table["absent"][1]
    assert lines[0].startswith(f"left out: {table['record'][2]}: ") and lines[1].endswith("2 files, and index.csv")
    (folders[0] / "phases.jsonl").write_text("")
    with pytest.raises(StudyError, match="rank 0 has begun no phase"):
        list(declared.write("mllog", planned, tmp_path / "local", tmp_path / "made"))


def test_exports_that_cannot_be_made_are_refused():
    loads = {"runs": [], "loading": [{"benchmark": "nt3", "loader": "npy", "repeats": 1}]}
    for changed, message in (
        ({"runs": [GRID], "exports": ["perfeto"]}, "one.yaml: exports: 'perfeto' is not one of mlflow, mllog, .*'perf"),
        ({**loads, "exports": ["perfetto"]}, "one.yaml: exports: perfetto needs runs; the study has none"),
    ):
        with pytest.raises(StudyError, match=message):
            declared.check(expansion.expand("one", {**STUDY, **changed}, "one.yaml"))


def test_every_export_has_a_command_and_a_row_in_the_documents():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.split("## Exports")[1].split("\n\n**")[0]
    assert [name for name in EXPORTS if f"| `{name}` |" not in table] == []
    for script, kind, elsewhere in (("export_trace", OfRun, set()), ("export_results", OfStudy, {"openmetrics"})):
        options = script_options.of_script(SCRIPTS / f"{script}.py").options
        (offered,) = [set(each.choices) for each in options if each.name == "--format"]
        assert offered == {name for name, each in EXPORTS.items() if isinstance(each, kind)} - elsewhere


def exported(study, tmp_path, monkeypatch, *more):
    monkeypatch.setattr(sys, "argv", ["export", "one", "--machine", "local", "--results-dir", str(tmp_path), *more])
    export_results.main()


def test_the_archive_is_an_ro_crate_in_which_all_is_defined_and_there(study, tmp_path, monkeypatch):
    exported(study, tmp_path, monkeypatch, "--output", str(tmp_path / "one.tar.gz"))
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        names = {each.name.split("/", 1)[1] for each in archive.getmembers()}
        crate = json.load(archive.extractfile(f"local-one/{ro_crate.FILE}"))
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {each["@id"]: each for each in crate["@graph"]}
    assert len(entities) == len(crate["@graph"])
    described, root = entities[ro_crate.FILE], entities["./"]
    assert described["about"] == {"@id": "./"} and {"@id": ro_crate.CRATE} in described["conformsTo"]
    assert {each["@id"] for each in root["conformsTo"]} == set(ro_crate.PROFILES)
    assert all(root[name] for name in ("name", "description", "datePublished", "license", "author"))
    known = {*entities, ro_crate.CRATE}
    assert {reference for entity in crate["@graph"] for reference in references(entity)} <= known
    files = {unquote(name) for name, each in entities.items() if "File" in each["@type"]}
    assert files == names - {ro_crate.FILE, "SHA256SUMS"} and "studies/one/tables/a b.csv" in files
    assert entities[root["mainEntity"]["@id"]]["@type"] == ["File", "SoftwareSourceCode", "ComputationalWorkflow"]
    actions = [entities[each["@id"]] for each in root["mentions"]]
    assert [each["@type"] for each in actions] == ["CreateAction"] * 4
    assert actions[0]["instrument"] == root["mainEntity"]
    ends = [each["actionStatus"].rpartition("/")[2] for each in actions]
    assert ends == ["CompletedActionStatus"] * 3 + ["FailedActionStatus"]
    assert actions[3]["error"] == "oom: no memory"
    assert (actions[1]["startTime"], actions[1]["endTime"]) == (
        "2023-11-14T22:13:20.000+00:00",
        "2023-11-14T22:13:40.000+00:00",
    )
    assert all(each["instrument"] and each["object"] and each["result"] for each in actions)


def references(value):
    """The ids that an entity refers to."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict) and set(each) == {"@id"}:
            yield each["@id"]
        elif isinstance(each, dict | list):
            yield from references(each)


def test_a_file_is_no_store(study, tmp_path, monkeypatch):
    with pytest.raises(StudyError, match="--output: .* is a file; a folder is expected"):
        exported(study, tmp_path, monkeypatch, "--format", "mlflow", "--output", str(study / "runs.csv"))


def test_openmetrics_of_a_run_that_goes_on(tmp_path):
    folder = tmp_path / "run"
    log = PhaseLog(folder / "ranks" / "phases-0.jsonl", 0, "n1")
    log.edge("load", "begin", (BEGIN_S * 10**9, 5))
    log.edge("load", "end")
    log.edge("train", "begin")
    (folder / "train.log").write_text(
        "[0]<stdout>:epoch 2/8: 1.41 s, loss 0.6\n[0]<stdout>:epoch 3/8: 1.41 s\nepoch 9/"
    )
    readings = {"host": "n1", "sensor": "rapl", "kind": "cpu", "device": "package-0"}
    rows = [",".join(COLUMNS)]
    for second in range(3):
        times = {"wall_ns": (BEGIN_S + second) * 10**9, "monotonic_ns": second * 10**9}
        row = {**readings, **times, "power_w": 40 + second, "energy_j": 30 * second}
        rows.append(",".join(str(row.get(name, "")) for name in COLUMNS))
    rows.append("170")  # a line that is being written
    (folder / "ranks" / "telemetry-n1.csv").write_text("\n".join(rows))
    found = openmetrics.text("s", 'a"b', {"done": 1, "to do": 2}, (1, 3), [("p", "running", folder)])
    assert found.endswith("# EOF\n") and found.count("# TYPE") == len(set(found.split("# TYPE ")[1:]))
    device = 'study="s",machine="a\\"b",run="p",host="n1",sensor="rapl",kind="cpu",device="package-0"'
    for line in (
        'study_runs{study="s",machine="a\\"b",state="to_do"} 2',
        'study_loading_measurements{study="s",machine="a\\"b",state="to_do"} 2',
        'study_run_info{study="s",machine="a\\"b",run="p",state="running",phase="train",rank="0"} 1',
        'study_run_epoch{study="s",machine="a\\"b",run="p"} 3',
        f'study_run_begin_timestamp_seconds{{study="s",machine="a\\"b",run="p"}} {BEGIN_S}',
        f"study_run_power_watts{{{device}}} 42",
        f"study_run_energy_joules_total{{{device}}} 60",
        "# UNIT study_run_energy_joules joules",
    ):
        assert line in found.splitlines()


def test_openmetrics_leave_out_what_is_not_known(tmp_path):
    (tmp_path / "ranks").mkdir()
    found = openmetrics.text("s", "m", {"running": 1}, (0, 0), [("p", "running", tmp_path)])
    told = [line.split("{")[0] for line in found.splitlines() if not line.startswith("#")]
    assert told == ["study_runs", "study_run_info", "study_run_heartbeat_timestamp_seconds"]


def test_status_prints_openmetrics_of_the_last_run(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        show_status, "load_study", lambda name, on: expansion.expand("one", {**STUDY, "runs": [GRID]}, "")
    )
    monkeypatch.setattr(sys, "argv", ["status", "--machine", "local", "--results-dir", str(tmp_path), "--openmetrics"])
    show_status.main()
    said = capsys.readouterr().out
    assert 'study_runs{study="one",machine="local",state="failed"} 1' in said and said.count("study_run_info{") == 1
    assert said.endswith("# EOF\n")
