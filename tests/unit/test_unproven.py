"""Runs whose work nothing shows: whatever their times, they enter no answer, and each answer says so."""

import copy
import html
import io
import itertools
import re
import tarfile
from types import SimpleNamespace

import pandas as pd
import pytest
from examples import STUDY

from study.commands.analysis import check, recommend, tune
from study.commands.results import export, findings
from study.compare import references
from study.core import code_version, configuration
from study.core.files import read_json, write_json
from study.core.paths import SCRIPTS
from study.experiment import expansion
from study.machines import machine
from study.records import record as records
from study.records import tidy
from study.report.findings import outcome
from study.report.findings.declaration import _make_finding
from study.report.page import machine as machine_of_page
from study.report.page import page
from study.report.tables import TABLES
from study.workloads.command import samples

GRID = {"benchmark": "nt3", "scaling": "strong", "epochs": 8, "gpus": [1, 2], "loader": "read_csv", "repeats": 6,
        "tuning": {"arrays": {"input_pipeline": "keras_arrays"}}}  # fmt: skip
FASTER = {
    "title": "Two ranks are faster",
    "kind": "reduction",
    "quantity": {"column": "runtime_s"},
    "points": {"benchmark": "nt3", "gpus": [2, 1], "input_pipeline": "tf_data"},
    "sentences": {"yes": "Shorter by {number}.", "no": "No difference: {number}.", "opposite": "Longer by {number}.",
                  "not_enough_runs": "It cannot be told"},
    "table": "scaling",
}  # fmt: skip
CONTRADICTION = "throughput_samples_per_s makes the training 40 s long, and the program ran for 20 s"
SUCCESS = {"success": ["done"]}
RATE = {"metrics": {"throughput_samples_per_s": "img/s: ([0-9.]+)"}}


def tell(**found):
    """What is known of a command's output and files, which by themselves show nothing."""
    files = {"written": [], "used": found.pop("used", []), "notes_reads": True, "is_whole": True}
    epoch = found.pop("epoch", samples.Epoch(1000, 500, 5, 1.0))
    output = {
        "values": {},
        "faults": {},
        "success": [],
        "failure": None,
        "error": None,
        "restart": None,
        "resumed": None,
        "death": "",
        "printers": {},
    }
    state = {"hidden_exit": found.pop("hidden_exit", ""), "memory_kills": found.pop("memory_kills", 0)}
    state |= {"trained": False, "is_aborted": False, "runs_left": 0, "is_resumed": False} | {
        name: found.pop(name) for name in ("trained", "is_aborted", "runs_left", "is_resumed") if name in found
    }
    return {"output": output | found, "files": files, "epoch": epoch, **state}


LEFT_OUT = {"kind": "command", "workload": {"train_samples": 1000}, "command": ["train"]}
SIZES = {"scaling": "strong", "work": "samples", "batch_size": 300}
KINDS = {
    "nothing but exit status 0": (tell(), {}, "write success: "),
    "a line that it did not print": (tell(), SUCCESS, "matches no line"),
    "a number that it did not print": (tell(values={"throughput_samples_per_s": None}), RATE, "found no number"),
    "out of memory, and exit status 0": (tell(success=["done"], failure="out of memory"), SUCCESS, "out of memory"),
    "what an earlier run left": (tell(trained=True, used=["snapshot.pt"]), {}, "name it under fresh"),
    "a checkpoint that it went on from": (
        tell(trained=True, resumed="resuming from epoch 3", is_resumed=False), {}, "have each run train anew"
    ),
    "a number on the way of which no exit code shows the end": (
        tell(values={"throughput_samples_per_s": 9.0}, hidden_exit="a | tee b"), RATE, "be in its exit code (a | tee b)"
    ),
    "a number, and processes that the kernel ended": (
        tell(values={"throughput_samples_per_s": 9.0}, memory_kills=1), RATE, "a number shows no end of the work"
    ),
    "a restart": (tell(success=["done"], restart="worker group failed"), SUCCESS, "started again"),
    "a death that its exit code does not show": (
        tell(success=["done"], death="a process of it was ended"), SUCCESS, "exit code 0 does not show; let the command"
    ),
    "a run that it aborted": (tell(trained=True, is_aborted=True), {}, "aborted"),
    "an attempt without an end": (tell(trained=True, runs_left=1), {}, "began its run again"),
    "a number without its unit": (
        tell(faults={"throughput_samples_per_s": "4.0 is followed by k"}), RATE, "followed by k"
    ),
    "samples that may be left out": (
        tell(trained=True, epoch=samples.count_epoch(LEFT_OUT, SIZES, 2, 300, {})), {}, "say drop_last"
    ),
    "a number of an earlier epoch": (tell(faults={"throughput_samples_per_s": "of epoch 1"}), RATE, "of epoch 1"),
}  # fmt: skip


@pytest.fixture
def finished(make_recorded, tmp_path, monkeypatch, capsys):
    """A study of which 2 ranks and the arm are much faster: ``finished(whys)``; these are unproven by turns."""
    study = expansion.expand_study(
        "test",
        {**copy.deepcopy(STUDY), "runs": [GRID], "references": [{"quantity": "runtime_s", "high": 0.05}]},
        "s.yaml",
    )
    results, folder = tmp_path / "local", tmp_path / "local" / "studies" / "test"
    monkeypatch.setattr(configuration, "find_own_folder", lambda: tmp_path / "config")
    monkeypatch.setattr(machine_of_page, "_load_provenances", lambda *_: [])
    monkeypatch.setattr(expansion, "load_study", lambda name, on: study)
    monkeypatch.setattr(code_version, "digest_training_code", lambda *names, framework: "c0de")
    monkeypatch.setattr(code_version, "digest_loader_and_sensors", lambda loader, sensors: "c0de")
    line = ["--study", "test", "--machine", "local", "--results-dir", str(tmp_path)]

    def call(verb, *options):
        with verb.make_context(verb.name, [*line, *options]) as context:
            verb.callback(**context.params)
        return " ".join(capsys.readouterr().out.split())

    def finish(*whys):
        started, why = itertools.count(1), itertools.cycle(whys)
        for run in sorted(study.runs, key=lambda run: run.repeat):
            is_arm = run["input_pipeline"] == "keras_arrays"
            seconds, drift = 20 / run.gpus**0.8 / (1.5 if is_arm else 1), 1 + 0.01 * run.repeat + 0.003 * run.gpus
            made = make_recorded(run, runtime=seconds * drift, load=(0.5,) * run.gpus, started=next(started) * 10**11,
                                 times=[seconds * drift / run.epochs_per_rank / 2] * run.epochs_per_rank)  # fmt: skip
            if whys and (is_arm or run.gpus == 2):
                reason = next(why)
                doubt = {"check_reasons": {"numbers_agree": CONTRADICTION}} if CONTRADICTION in reason else {}
                changed = {"unproven": None if doubt else reason, **doubt}
                write_json(made / "record.json", read_json(made / "record.json") | changed)
        frame = tidy.runs_frame(study.runs, {}, results, reads_targets=True)
        (folder / "tables").mkdir(parents=True)
        frame.to_csv(folder / "runs.csv", index=False)
        tidy.loading_frame([], "c0de", results).to_csv(folder / "loading.csv", index=False)
        finding = outcome.judge_finding(_make_finding("faster", FASTER), study, frame)
        write_json(folder / "findings.json", outcome.to_json(study, "local", [finding]))
        table = TABLES["scaling"].make(frame, pd.DataFrame())
        shown = {"scaling": table.markdown(), "report": page.make_page(study, machine.load("local"), folder)}
        shown |= {verb.name: call(verb) for verb in (findings, recommend, tune, check)}
        shown["goal"] = call(recommend, "--goal", "fastest")
        shown["accept"] = call(check, "--accept")
        accepted = references.read(references.build_path("local", "test"))
        return SimpleNamespace(
            shown=shown, finding=finding, table=table.frame, accepted=accepted, exported=call(export), folder=folder
        )

    return finish


def test_proven_runs_have_all_answers(finished):
    told = finished()
    assert told.finding.verdict == "yes" and told.table["speedup"].notna().all()
    for name in ("report", "findings", "recommend", "goal"):
        assert "2 ranks get the work done 1.7" in told.shown[name] and "are unproven" not in told.shown[name]
    assert "nt3 on 2 ranks: turn arrays" in told.shown["tune"]
    assert len(told.accepted) == 4


def test_unproven_runs_have_none(finished):
    whys = {kind: records._explain_unproven(program, keys) for kind, (program, keys, _) in KINDS.items()}
    assert all(words in whys[kind] for kind, (_, _, words) in KINDS.items())
    whys["numbers that contradict each other"] = CONTRADICTION
    told = finished(*whys.values())
    for name, text in told.shown.items():
        assert "2 ranks get the work done" not in text and "recommended: 2" not in text, name
        missing = [why for why in whys.values() if why not in html.unescape(text)]
        assert name == "accept" or len(missing) <= (7 if name == "tune" else 0), name  # it has looked at 9 runs
    assert told.finding.verdict == "not_enough_runs" and told.finding.estimate is None
    of_two = told.table[told.table["gpus"] == 2]
    assert of_two["speedup"].isna().all() and of_two["time_per_epoch_s"].isna().all()
    assert of_two["runtime_s"].notna().all() and of_two["runs_unproven"].eq(6).all()
    assert "not enough blocks" in told.shown["tune"]
    assert len(told.accepted) == 1, "one rank without the arm"
    with tarfile.open(told.folder.with_name("test.tar.gz")) as archive:
        text = archive.extractfile(next(name for name in archive.getnames() if name.endswith("/runs.csv"))).read()
    packed = "".join(pd.read_csv(io.BytesIO(text))["unproven"].dropna())
    assert [why for why in whys.values() if why not in packed] == []


def test_one_function_says_which_runs_count():
    """Elsewhere a mean of the runs whose status is ok would have unproven ones: `keep_proven` chooses."""
    chooses = re.compile(r"""\[\(?\w+\["status"\]( == "ok"|\.eq\("ok"\))""")
    files = [each for name in ("compare", "prediction", "report") for each in (SCRIPTS / "study" / name).rglob("*.py")]
    assert len(files) > 50 and [each.name for each in files if chooses.search(each.read_text())] == ["failed_runs.py"]
