"""Benchmarks that are given by a command: what is started, what is read from it, how it fails, and what is refused."""

import hashlib
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml
from examples import expand
from fake_nvml import FakeNvml
from project import wait_for

from study.compare import rank_answer
from study.contrib.exports import perfetto
from study.core import paths
from study.core.errors import StudyError
from study.core.files import write_json
from study.core.paths import ROOT
from study.experiment import expansion, inputs, programs, training_code
from study.experiment.parameters import PARAMETERS
from study.experiment.study import Study
from study.instruments import disturbance, phases
from study.instruments.power import summary
from study.launch import launch
from study.machines import guard, launchers, machine
from study.prediction import goals, settings
from study.prediction.answers import answer_workloads
from study.prediction.recommend import recommend
from study.records import checks, targets, tidy, versions
from study.records import record as records
from study.records.nodes import hosts_of_ranks
from study.records.record import make_record
from study.report.tables.summary import to_target
from study.training import process_tree, program, program_results
from study.workloads.command import code_files, content, events, own_parameters, samples
from study.workloads.command.output import HEAD_BYTES, TAIL_BYTES, OutputCopier

HELPER = ROOT / "examples" / "numpy_logistic" / "study_events.py"
BENCHMARK = {
    "title": "a test", "kind": "command", "command": [sys.executable, "program.py"], "work": "samples",
    "workload": {"train_samples": 100}, "epochs": {"strong": 2, "weak": 2},
}  # fmt: skip
EPOCHS = """
    import study_events as events
    with events.phase("init"):
        pass
    with events.phase("run"):
        for epoch in range(2):
            with events.phase("epoch"):
                time.sleep(0.01)
                events.metrics(loss=1 / (epoch + 1), learning_rate=0.1)
            with events.phase("eval"):
                time.sleep(0.01)
                events.event("eval_accuracy", 0.5 + 0.1 * epoch)
    events.event("eval_accuracy", 0.9)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of one's own, with a program and its benchmark."""

    def make(source="", grid=None, **changes):
        (tmp_path / "config" / "benchmarks").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config" / "benchmarks" / "mine.yaml").write_text(
            yaml.safe_dump({key: value for key, value in (BENCHMARK | changes).items() if value is not None})
        )
        (tmp_path / "program.py").write_text("import json, os, sys, time\n" + textwrap.dedent(source))
        shutil.copy(HELPER, tmp_path)
        monkeypatch.chdir(tmp_path)
        study = {"description": "a test", "tables": ["scaling"],
                 "runs": [{"benchmark": "mine", "scaling": "strong", "gpus": 1, **(grid or {})}]}  # fmt: skip
        return expansion.expand_study("test", study, "test.yaml").runs

    return make


ON = "local_processes"
OF_PROGRAM = {
    "events": 0, "reason": None, "epochs": None, "rank": None, "has_epochs": False, "metrics": {},
    "output": {"values": {}, "faults": {}, "success": [], "failure": "", "error": "", "restart": "", "resumed": "",
               "death": "", "printers": {}},
    "epoch": samples.Epoch(1, 1, None, 1.0), "steps_per_epoch": None,
}  # fmt: skip


@pytest.mark.slow
def test_without_the_number_of_samples_the_pattern_gives_the_throughput(project):
    changes = {"workload": None, "metrics": {"throughput_samples_per_s": "img/s: ([0-9.]+)"}, "batch_size": 10}
    (run,) = project(EPOCHS + '\n    print("img/s: 7.5")', **changes)
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["workload"]["train_samples"] is record["workload"]["samples_per_rank"] is None
    assert record["training"]["throughput_samples_per_s"] == 7.5
    assert record["training"]["steps_per_epoch"] is record["training"]["time_per_step_s"] is None
    assert "steps, throughput: the number of samples is not known" in record["program"]["reason"]
    with pytest.raises(StudyError, match="command: {steps_per_rank} needs the number of samples; give workload"):
        project(command=["python", "program.py", "{steps_per_rank}"], workload=None)


def launched(run, folder="run", on="local_processes", limit_s=60.0, stall_s=60.0):
    """The record of a run; where the folder has a run, this is another attempt, as after a job that was lost."""
    (Path(folder) / paths.OUTCOME).unlink(missing_ok=True)
    definition = inputs.define_run(run, machine.load(on), "data")
    launch.launch(definition, folder, limit_s, None, stall_s)
    return make_record(folder)


def log_of(folder="run"):
    return (Path(folder) / "train.log").read_text()


# What is started


@pytest.mark.slow
def test_each_rank_gets_torchruns_variables_and_the_values_of_placeholders(project):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    words = [sys.executable, "program.py", "{batch_size_per_rank}", "{samples_per_rank}", "{steps_per_rank}", "{seed}",
             "{hidden}", "{{kept}}", "{run_folder}"]  # fmt: skip
    (run,) = project(
        f"open(f'{{os.environ[\"STUDY_RUN_FOLDER\"]}}/{{os.environ[\"RANK\"]}}', 'w').write("
        f"json.dumps([sys.argv[1:], {{n: os.environ[n] for n in {names}}}, os.getcwd()]))",
        {"gpus": 2, "hidden": 64},
        command=words,
        batch_size=20,
        parameters={"hidden": {"type": "integer", "default": 128, "meaning": "width"}},
    )
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    told = [json.loads((Path("run/program") / str(rank)).read_text()) for rank in (0, 1)]
    assert told[0][0] == ["20", "50", "6", "100003", "64", "{kept}", str(Path("run/program").resolve())]
    assert [each[1]["RANK"] for each in told] == [each[1]["LOCAL_RANK"] for each in told] == ["0", "1"]
    same = [{name: each[1][name] for name in names if "RANK" not in name} for each in told]
    assert same[0] == same[1]
    assert int(same[0].pop("MASTER_PORT")) > 1024
    assert same[0] == {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    assert told[0][2] == str(Path.cwd())


@pytest.mark.slow
def test_code_that_changes_during_a_run_leaves_no_record(project):
    """An editor or git checkout beside a run, even if undone: what the program has imported when is not known."""
    (run,) = project(
        """
        text = open("program.py").read()
        time.sleep(0.05)
        open("program.py", "w").write("other")
        open("program.py", "w").write(text)
        open("output.txt", "w").write("what a program writes beside its code is no change")
        """,
        code=["program.py"],
    )
    with pytest.raises(StudyError, match=r"program\.py: was changed while the run was at work"):
        launched(run)
    assert not (Path("run") / paths.OUTCOME).exists()


def write(name, text):
    Path(name).write_text(text)


@pytest.mark.parametrize(
    ("change", "is_change"),
    [
        (lambda: None, False),
        (lambda: Path("code.py").read_text(), False),
        (lambda: Path("code.py").chmod(0o600), False),
        (lambda: os.link("code.py", "backup.py"), False),
        (lambda: write("new.py", "x"), False),
        (lambda: write("code.py", "y"), True),
        (
            lambda: (shutil.copy2("code.py", "old"), Path("code.py").write_text("y"), shutil.copy2("old", "code.py")),
            True,
        ),
        (lambda: (os.rename("code.py", "old"), write("code.py", "x")), True),
        (lambda: (os.unlink("link.py"), os.symlink("other.py", "link.py")), True),
        (lambda: [(os.unlink("link.py"), os.symlink(to, "link.py")) for to in ("other.py", "code.py")], True),
    ],
)
def test_a_change_of_code_is_seen_also_if_it_was_undone(tmp_path, monkeypatch, change, is_change):
    monkeypatch.chdir(tmp_path)
    for name in ("code.py", "other.py"):
        Path(name).write_text("x")
    os.symlink("code.py", "link.py")
    before = {Path(name): training_code._read_file_state(Path(name)) for name in ("code.py", "link.py")}
    change()
    assert (training_code.find_changed_file(before) is not None) == is_change


STOPPED = """
import os, signal, sys
from study.experiment import inputs
from study.core.files import read_json
from study.launch import launch
launch.launch(inputs.from_param(read_json("definition.json")), "run", float(sys.argv[1]), None, float(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["all", "launch"])
def test_a_standstill_is_told_and_counts_for_no_limit(project, who):
    """As by Ctrl-Z, `docker pause` or `scontrol suspend`. It lasts longer than the run's limits."""
    (run,) = project("import study_events as events\nwith events.phase('run'):\n    time.sleep(2)")
    Path("definition.json").write_text(json.dumps(inputs.to_param(inputs.define_run(run, machine.load(ON), "data"))))
    limit_s = 2 * launched(run, "undisturbed")["runtime_s"]
    with subprocess.Popen([sys.executable, "-c", STOPPED, str(limit_s)], start_new_session=True) as launching:
        wait_for(lambda: list(Path("run").glob("ranks/events*")), seconds=60)
        stopped = [launching.pid, *(process_tree.list_descendants(launching.pid) if who == "all" else ())]
        begun = time.monotonic()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(limit_s + 1)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        still_s = time.monotonic() - begun
        assert launching.wait(60) == 0
    record = make_record("run")
    assert record["status"] == "ok", record["failure"]
    assert record["background"]["stood_still_s"] == pytest.approx(still_s, abs=1.5)
    assert disturbance.is_disturbed(record["background"]) is True
    if who == "launch":
        assert record["runtime_s"] < limit_s, "the end of its last process, not when the launch went on"


@pytest.mark.slow
def test_a_run_with_a_pattern_that_backtracks_comes_to_its_end(project):
    source = "for _ in range(5000): print('loss ' + '1' * 40 + ' sec')\nprint('ppl=3.25')"
    slow = r"([0-9]+\s*)+img/s"
    (run,) = project(source, metrics={"rate": slow, "perplexity": "ppl=(.*)"}, success=[slow, "ppl"])
    record = launched(run)
    assert record["status"] == "ok" and record["quality"] == {"rate": None, "perplexity": 3.25}
    assert f"metrics.rate: its pattern {slow!r} was given up: it took more than" in record["program"]["reason"]
    assert f"success: {slow!r} was given up: it took" in record["unproven"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["open('/dev/full', 'w').write('x' * 9999)", "os.system('cp program.py /dev/full'); 1 / 0"]
)
def test_a_run_that_a_full_disk_ended_has_no_outcome_and_runs_again(project, source):
    (run,) = project(source)
    with pytest.raises(StudyError, match=r"No space left on device.* that is no result, so"):
        launched(run)
    assert not (Path("run") / paths.OUTCOME).exists()
    (run,) = project("print('there is space')")
    assert launched(run)["status"] == "ok"


@pytest.mark.parametrize(("starts", "processes"), [("rank", 2), ("node", 1), ("job", 1)])
@pytest.mark.slow
def test_it_is_started_for_each_rank_each_node_or_the_job(project, monkeypatch, starts, processes):
    (run,) = project(
        "open(os.environ['STUDY_RUN_FOLDER'] + f'/{os.getpid()}', 'w').write(os.environ['WORLD_SIZE'])\n"
        "print(*(name for name in ('RANK', 'LOCAL_RANK', 'NODE_RANK') if name in os.environ), 'are set')",
        {"gpus": 2},
        starts=starts,
        reads="WORLD_SIZE",
    )
    monkeypatch.setenv("RANK", "7")
    assert launched(run)["status"] == "ok"
    assert ("RANK LOCAL_RANK NODE_RANK are set" in log_of()) == (starts != "job"), "a job starts its ranks itself"
    assert [each.read_text() for each in Path("run/program").iterdir()] == ["2"] * processes
    assert len(json.loads(Path("run/metrics.json").read_text())["ranks"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("on", "program"), [("local", "horovodrun"), ("local_mpi", "mpirun")])
def test_other_launchers_of_this_host_start_it(project, monkeypatch, on, program):
    if not launchers.is_installed(program):
        pytest.skip(f"{program} is not installed")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    (run,) = project("open(os.environ['STUDY_RUN_FOLDER'] + '/' + os.environ['RANK'], 'w').close()", {"gpus": 2})
    record = launched(run, on=on)
    assert record["status"] == "ok", record["failure"]
    assert sorted(each.name for each in Path("run/program").iterdir()) == ["0", "1"]
    (run,) = project("if os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(100)", {"gpus": 2})
    failure = launched(run, "failing", on)["failure"]
    assert (failure["kind"], failure["rank"]) == ("error", 1) and "exit code 3" in failure["message"], failure
    assert not at_work()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["program.py", "run_command.py"])
def test_a_killed_process_ends_the_run(project, victim):
    """The program itself, or the process of ours that started it; both leave nothing behind."""
    (run,) = project("time.sleep(100)", {"gpus": 2})

    def strike():
        wait_for(at_work, seconds=60)
        time.sleep(1)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            is_victim = any(word.endswith(victim) for word in words) and "RANK" in process.environ()
            if is_victim and process.environ()["RANK"] == "1" and process.cwd() == str(Path.cwd()):
                process.kill()
                return

    thread = threading.Thread(target=strike)
    thread.start()
    failure = launched(run)["failure"]
    thread.join()
    assert (failure["kind"], failure["rank"]) == ("killed", 1), failure
    assert not at_work()
    (run,) = project("pass", {"gpus": 2})
    assert launched(run)["status"] == "ok", "the next run is good"


@pytest.mark.parametrize("name", ["summit", "theta", "perlmutter", "polaris", "local", "local_mpi", "local_processes"])
def test_every_launcher_tells_a_process_its_rank(monkeypatch, name):
    """And starts one process per node, which has the cores and the GPUs of all its ranks."""
    monkeypatch.setattr(launchers.shutil, "which", lambda *_, **__: "/somewhere")
    found = machine.load(name)
    assert launchers.get_launcher(found).rank_variables
    whole = launchers.with_one_process_a_node(found)
    assert (
        launchers.count_nodes(2, whole) == 2
        and whole["cores_per_rank"] == found["cores_per_rank"] * found["ranks_per_node"]
    )
    assert launchers.make_command(2, whole, ["PROGRAM"])[-1] == "PROGRAM"


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [("PMIX_RANK", 7, program.Place((7,), 1, 1, 6)), ("JSM_NAMESPACE_RANK", 12, program.Place((12,), 0, 2, 1))],
)
def test_a_rank_knows_its_place_on_several_nodes(project, name, number, expected):
    (run,) = project(grid={"gpus": 13})
    definition = inputs.define_run(run, machine.load("summit"), "data")
    assert [len(each) for each in program.list_ranks_by_node(definition)] == [6, 6, 1]
    assert program.find_place(definition, {name: str(number)}) == expected
    with pytest.raises(StudyError, match="tells this process no rank"):
        program.find_place(definition, {name: "13"})


@pytest.mark.parametrize(
    ("place", "shown", "expected"),
    [
        (program.Place((5,), 1, 2, 2), None, [1]),
        (program.Place((5,), 1, 2, 2), "2,0", [0]),
        (program.Place((5,), 1, 2, 2), "GPU-00000002-aaaa", [2]),  # its own only, as jsrun shows
        (program.Place((2, 3), 0, 1, 2), None, [0, 1]),  # starts: node
        (program.Place((2, 3), 0, 1, 2), "1,2", [1, 2]),
        (program.Place((0, 1, 2, 3), 0, 0, 4), None, [0, 1, 2, None]),
        (program.Place((0,), 0, 0, 1), "MIG-5c1", [None]),
    ],
)
def test_the_gpus_of_a_program_s_ranks_are_those_that_its_variables_show(place, shown, expected):
    """By local rank; for a program that starts the ranks of its node, the first ones."""
    nvml, variables = FakeNvml(3), {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    found = program.find_gpus(place, {"gpus_per_rank": 1}, variables, nvml)
    assert [each.uuid for each in found] == [None if index is None else nvml.gpus[index].uuid for index in expected]
    assert all(each.uuid or each.reason for each in found)


def test_without_gpus_nvml_is_not_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    place = program.Place((0, 1), 0, 0, 2)
    assert program.find_gpus(place, {"gpus_per_rank": 0}, {}) == [(None, None)] * 2
    (told, _) = program.find_gpus(place, {"gpus_per_rank": 1}, {})
    assert told.uuid is None and told.reason.startswith("NVML lists no GPUs here")
    told = program.find_gpus(place, {"gpus_per_rank": 1}, {}, SimpleNamespace(NVMLError=OSError))
    assert [each.reason for each in told] == ["NVML: 'types.SimpleNamespace' object has no attribute 'nvmlInit'"] * 2


@pytest.fixture
def container(tmp_path, monkeypatch):
    """A stand-in for apptainer in PATH, and an image with a Python of its own that has torch 9.9; its name."""
    programs, inside = tmp_path / "bin", tmp_path / "inside"
    packages = inside / "packages" / "torch-9.9.dist-info"
    for folder in (programs, inside, packages):
        folder.mkdir(parents=True)
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    scripts = {
        programs / "apptainer": f'exec {sys.executable} {Path(__file__).with_name("apptainer_stand_in.py")} "$@"',
        inside / "python3": f'PYTHONPATH={inside / "packages"} exec {sys.executable} -S "$@"',
        inside / "sh": 'exec /bin/sh "$@"',
    }
    for path, line in scripts.items():
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    (tmp_path / "a.sif").write_text(str(inside))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return "a.sif"


@pytest.mark.slow
@pytest.mark.parametrize("gpus_per_rank", [0, 1])
def test_a_command_runs_in_its_container(project, container, tmp_path, gpus_per_rank):
    """With its folders, its variables and the node's GPUs; the versions are those within it."""
    elsewhere = tmp_path / "libraries"  # code outside of the program's folder
    elsewhere.mkdir()
    (run,) = project(
        "told = {name: os.environ.get(name) for name in ('OF_CONTAINER', 'RANK', 'MASTER_PORT')}\n"
        "open(os.environ['STUDY_RUN_FOLDER'] + '/told', 'w').write(json.dumps([told, os.getcwd()]))\n"
        "import study_events as e\n"
        "for _ in range(2):\n    with e.phase('epoch'): time.sleep(.01)",
        command=["python3", "program.py"],
        environment={"image": container},
        code=["program.py", str(elsewhere)],
    )
    on = {**machine.load("local_processes"), "gpus_per_rank": gpus_per_rank}
    launch.launch(inputs.define_run(run, on, "data"), "run", 60, None, 60)
    record = make_record("run")
    assert record["status"] == "ok", record["failure"]
    assert record["program"]["epochs"] == 2
    told, folder = json.loads(Path("run/program/told").read_text())
    assert folder == str(tmp_path) and told["RANK"] == "0" and int(told["MASTER_PORT"]) > 1024
    options = [tuple(each) for each in json.loads(told["OF_CONTAINER"])]
    assert {("--bind", str(tmp_path)), ("--bind", str(tmp_path / "run")), ("--pwd", str(tmp_path))} <= {*options}
    assert (("--nv", "") in options) == bool(gpus_per_rank)
    packages = record["provenance"]["packages"]
    assert packages["torch"] == "9.9" and len(packages["image"]) == 12 and "numpy" not in packages


@pytest.mark.slow
def test_containers_that_fail(project, container, tmp_path, monkeypatch):
    """One without Python has no versions; one that cannot be started is one line."""
    program = {"command": ["echo", "ppl=3"], "metrics": {"ppl": "ppl=(.*)"}, "environment": {"image": container}}
    (tmp_path / "inside" / "python3").unlink()
    shutil.copy("/bin/echo", tmp_path / "inside")
    (run,) = project(**program)
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["quality"]["ppl"] == 3 and record["provenance"]["packages"].keys() == {"image"}
    (run,) = project(**program | {"command": ["absent"]})
    failure = launched(run, "other")["failure"]
    assert 'exit code 255; its last lines: FATAL: "absent": executable file not found' in failure["message"]
    monkeypatch.setenv("PATH", "/bin")
    with pytest.raises(StudyError, match="environment: apptainer does not tell its packages: .*No such file"):
        content.read_package_versions(run.spec)


@pytest.mark.slow
def test_an_empty_command_costs_little_beyond_its_own(project):
    """Of the runtime that is recorded, which begins with the launcher; the best of three, beside a start of Python."""
    (run,) = project(command=["true"])
    records = [launched(run, f"run{number}") for number in range(3)]
    starts = []
    for _ in range(3):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
        starts.append(time.monotonic() - begun)
    own_s = min(each["runtime_s"] - each["phases"]["program"]["slowest_s"] for each in records)
    assert own_s < 10 * min(starts), (own_s, starts)


# What is read


@pytest.mark.parametrize(
    ("source", "events"),
    [("print('hello')", 0), ("import study_events as e\ne.event('train_samples', 100)\ne.metrics(loss=0.3)", 2)],
    ids=["no event", "no event of a phase"],
)
@pytest.mark.slow
def test_a_program_that_tells_no_phase_has_no_times_of_phases(project, source, events):
    """Where its start-up ends is not known: its whole time is neither start-up nor other."""
    (run,) = project(f"time.sleep(0.3)\n{source}")
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["program"]["events"] == events and record["phases"].keys() == {"program"}
    why = "startup_s, other_s and the times of phases: the program reported no phase; see docs/commands.md, events"
    assert why in record["program"]["reason"].split("; ", 1)[1]
    assert tidy._compute_other_s(record) is None
    edges = phases.read_edges("run/phases.jsonl")
    assert phases.find_last_phase(edges) == ("after program", 0) and phases.find_furthest_behind(edges) == (None, None)
    assert phases.find_last_phase(edges[:-1]) == phases.find_furthest_behind(edges[:-1]) == ("program", 0), (
        "while it runs"
    )
    perfetto.write_trace("run", "trace.json")
    shown = [each["name"] for each in json.loads(Path("trace.json").read_text())["traceEvents"] if each["ph"] == "X"]
    assert "program" in shown and not [name for name in shown if name.startswith("startup")]


@pytest.mark.parametrize("where", ["file", "output"])
@pytest.mark.slow
def test_events_become_phases_epochs_and_metrics(project, where):
    source = textwrap.dedent(EPOCHS)
    if where == "output":
        printed = "\nfor line in open('told'): print(':::MLLOG', line, end='')"
        source = f"os.environ['STUDY_EVENTS'] = 'told'\n{source}{printed}"
    (run,) = project(source)
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert {"startup", "load", "train", "program"} <= record["phases"].keys()
    told = record["phases"]
    parts = sum(told[name]["rank_0_s"] for name in ("startup", "load", "train", "evaluate") if name in told)
    assert tidy._compute_other_s(record) == pytest.approx(record["runtime_s"] - parts)
    assert record["quality"] == {"loss": 0.5, "validation_loss": None, "test_loss": None, "accuracy": None,
                                 "validation_accuracy": 0.6, "test_accuracy": 0.9}  # fmt: skip
    training = record["training"]
    assert 0.02 <= training["time_per_epoch_s"] < record["runtime_s"] / 2 and training["learning_rate_used"] == 0.1
    assert 0 < training["epoch_steps_s"] < training["time_per_epoch_s"], "without validation"
    assert record["program"]["reason"].startswith("steps_per_epoch, time_per_step_s: the batch size is not known; give")
    assert record["program"]["events"] == 17
    assert "epoch 2/2: " in log_of()


@pytest.mark.slow
def test_without_events_a_pattern_is_read_and_the_rest_has_a_reason(project):
    metrics = {"throughput_samples_per_s": "img/s: ([0-9.]+)", "perplexity": "ppl=(\\S+)", "absent": "never (x)"}
    metrics["cut"] = "items: ([0-9.]+)"
    printed = (
        "print('img/s: 10.5'); print('img/s: 12.5'); print('ppl=3.25'); print('items: 998'); print('items: 1,002'); "
        "memory = bytearray(200_000_000)"
    )
    (run,) = project(printed, metrics=metrics)
    record = launched(run)
    assert record["status"] == "ok", "a pattern that finds nothing costs no run"
    assert record["training"]["throughput_samples_per_s"] == 12.5 and record["training"]["time_per_epoch_s"] is None
    assert record["quality"] == {"perplexity": 3.25, "absent": None, "cut": None}, "998 is not the last match"
    assert record["program"]["reason"] == (
        "the program wrote no events (docs/commands.md); metrics.absent: its pattern found no number; "
        "metrics.cut: its pattern takes '1' of '1,002'; startup_s, other_s and the times of phases: the program "
        "reported no phase; see docs/commands.md, events"
    )
    assert 200 < record["memory"]["peak_memory_mb"] < 300 and record["program"]["cpu_time_s"] > 0
    assert record["phases"].keys() == {"program"}


LOGS = """
    def log(key, value=None, **metadata):
        event = {"key": key, "value": value, "time_ms": time.time_ns() // 1_000_000, "metadata": metadata}
        os.write(1, f":::MLLOG {json.dumps(event)}\\n".encode())

    def train(seconds):
        log("run_start")
        for number in range(2):
            log("epoch_start", epoch_num=number)
            time.sleep(seconds)
            log("epoch_stop", epoch_num=number)
        log("run_stop")
"""


@pytest.mark.slow
def test_all_ranks_print_mlperf_s_lines_without_their_number(project):
    fork = "child = os.fork()\ntrain(0.2 if child else 0.25)\nchild and os.wait()"
    (run,) = project(textwrap.dedent(LOGS) + fork, {"gpus": 2}, starts="job", work="samples", reads="WORLD_SIZE")
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["program"]["epochs"] == 2 and record["unproven"] is None
    assert record["training"]["time_per_epoch_s"] == pytest.approx(0.2, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "changes", "rate", "steps"),
    [
        ("log('train_samples', 50)", {}, 500, 5),  # of its shard
        ("log('global_batch_size', 50)", {}, 500, 2),
        ("", {"batch_size": 30, "drop_last": True}, 300, 1),
        ("", {"batch_size": 30, "drop_last": False}, 500, 2),
        ("log('trained_samples', 60)", {"batch_size": 30}, 300, 1),
        ("", {"batch_size": 30}, None, None),
    ],
)
def test_what_is_trained_is_counted(project, lines, changes, rate, steps):
    """An epoch of 0.2 s, of 100 samples on two ranks."""
    source = textwrap.dedent(LOGS) + f"{lines}\nos.environ['RANK'] == '0' and train(0.2)"
    (run,) = project(source, {"gpus": 2}, work="samples", reads="WORLD_SIZE", **({"batch_size": 10} | changes))
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    if rate is None:
        assert "40 of an epoch's 100 samples fill no batch of 60" in record["unproven"]
        return
    assert record["unproven"] is None and record["training"]["steps_per_epoch"] == steps
    assert record["training"]["throughput_samples_per_s"] == pytest.approx(rate, rel=0.25)
    assert record["program"]["trained_share"] == pytest.approx(0.6 if rate == 300 else 1)


@pytest.mark.slow
def test_numbers_that_the_program_s_time_contradicts_are_empty_in_the_tables(project):
    """A rate of one rank that is declared as that of the job, and one that is declared as it is."""
    source = "time.sleep(0.8)\nprint('rate: 100')"  # 100 samples on each of 2 ranks
    for owner, reasons in (("job", ["numbers_agree"]), ("rank", [])):
        metrics = {"throughput_samples_per_s": {"pattern": "rate: ([0-9]+)", "of": owner}}
        (run,) = project(source, {"gpus": 2}, work="samples", reads="WORLD_SIZE", metrics=metrics)
        record = launched(run, owner)
        assert list(record["check_reasons"]) == reasons, record
        emptied = checks.list_emptied_columns(record)
        assert ("throughput_samples_per_s" in emptied) == bool(reasons)


@pytest.mark.slow
def test_a_throughput_that_its_ranks_cannot_make_is_empty_and_its_run_unproven(project):
    source = "time.sleep(0.4)\nprint('rate:', 500 * int(os.environ['WORLD_SIZE']) ** 4)"
    metrics = {"throughput_samples_per_s": {"pattern": "rate: ([0-9]+)", "of": "job"}}
    runs = project(source, {"gpus": [1, 2]}, work="samples", reads="WORLD_SIZE", metrics=metrics)
    for run in runs:
        path = Path(paths.locate_record(ON, run.directory))
        write_json(path, launched(run, path.parent))
    frame = tidy.runs_frame(runs, {}, ON).set_index("gpus")
    assert frame.loc[1, "throughput_samples_per_s"] == 500 and not frame.loc[1, "unproven"]
    assert pd.isna(frame.loc[2, "throughput_samples_per_s"]) and frame.loc[2, "runtime_s"] > 0.4
    assert "is 16.00 times that on 1 rank, more than 2 times" in frame.loc[2, "unproven"]


@pytest.mark.slow
def test_an_epoch_of_no_time_is_doubted_and_costs_no_record(project):
    source = textwrap.dedent(LOGS) + "time.sleep(0.2)\nstood = time.time_ns()\ntime.time_ns = lambda: stood\ntrain(0)"
    record = launched(project(source)[0])
    assert record["status"] == "ok", record["failure"]
    assert "by its events" in record["check_reasons"]["numbers_agree"]


def test_metrics_of_the_test_set_are_of_the_rank_whose_epochs_count():
    told = {3: {"test": {"accuracy": 0.9, "loss": 3.0}}, 0: {"test": {"loss": 0.5}}, 1: {"test": {"accuracy": 0.7}}}
    assert program_results.collect_test_metrics(told, 0) == {"loss": 0.5, "accuracy": 0.7}
    assert program_results.collect_test_metrics(told, 3) == {"accuracy": 0.9, "loss": 3.0}


@pytest.mark.slow
def test_output_that_is_no_utf_8_and_a_lot_of_it(project):
    (run,) = project(
        "sys.stdout.buffer.write(b'\\xff\\xfe begin\\n' + b'x' * 300_000 + b'\\n')\n"
        f"for _ in range({(HEAD_BYTES + 3 * TAIL_BYTES) // 1000}): print('y' * 999)\n"
        "print('the end')"
    )
    assert launched(run)["status"] == "ok"
    log = log_of()
    assert "begin" in log and "bytes of output are left out here" in log and log.rstrip().endswith("the end")
    assert len(log) < 1.2 * (HEAD_BYTES + TAIL_BYTES)


def test_a_progress_bar_has_its_last_state(tmp_path):
    read, written = os.pipe()
    os.write(written, b"10 %\r50 %\r100 %\nloss 2\r\x1b[K   \r\nnext")
    os.close(written)
    lines, path = [], tmp_path / "out"
    with open(path, "wb") as target:
        OutputCopier(read, target, lines.append).join(5)
    assert lines == [b"100 %", b"loss 2", b"next"] and path.read_text() == "100 %\nloss 2\nnext\n"


# How it fails


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        ("print('reading', file=sys.stderr); print('no such thing', file=sys.stderr); sys.exit(3)", "error",
         "the program ended with exit code 3; its last lines: reading | no such thing"),
        ("os.kill(os.getpid(), 9)", "killed", "was ended by signal 9 (SIGKILL)"),
        ("bytearray(1 << 60)", "oom", "MemoryError"),
        ("raise ValueError('a cause')", "error", "ValueError: a cause"),
        ("import study_events as e\ne.event('epoch_start'); e.metrics(loss=float('nan')); time.sleep(50)", "diverged",
         "the loss is not finite in epoch 1 (loss nan)"),
        ("import study_events as e\nwith e.phase('epoch'): time.sleep(.01)\ne.event('epoch_stop')", "error",
         "event epoch_stop: there was no epoch_start, or it has had its epoch_stop"),
        ("import study_events as e\nos.environ['RANK'] = '7'; e.event('run_start'); time.sleep(50)", "error",
         "event run_start: is of rank 7, but this process started rank 0"),
        ("print(':::MLLOG {\"key\": \"run_start\", \"time_ms\": 1000}')", "error", "s before the start of its process"),
        ("import study_events as e\nwith e.phase('epoch'): time.sleep(.01)", "error",
         "the program reported 1 epochs, but a rank of this run trains 2"),
        ("import study_events as e\ne.event('epoch_start')", "error", "epoch 1 has an epoch_start and no epoch_stop"),
        ("import study_events as e\ne.metrics(loss=float('nan')); time.sleep(50)", "diverged", "in epoch 1 (loss nan)"),
        ("print(':::MLLOG {\"key\": \"run_start\", \"time_ms\": 1, \"rank\": \"x\"}'); time.sleep(50)", "error",
         'event run_start: is of rank "x", which is no number'),
        ("signal = __import__('signal'); signal.signal(15, signal.SIG_IGN)\nimport study_events as e\n"
         "e.event('epoch_stop'); time.sleep(50)", "error", "event epoch_stop: there was no epoch_start"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_failures(project, source, kind, told):
    (run,) = project(source)
    failure = launched(run)["failure"]
    assert (failure["kind"], failure["rank"]) == (kind, 0), failure
    assert told in failure["message"], failure["message"]
    assert not at_work()


@pytest.fixture
def memory_group():
    """A group of processes that may have 60 MB of memory together; the kernel ends one that takes more."""
    folder = Path(f"/sys/fs/cgroup/memory/study-test-{os.getpid()}")
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(60_000_000))
    except OSError as error:
        pytest.skip(f"no group of processes with a limit of memory can be made here: {error}")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), seconds=10)
    folder.rmdir()


@pytest.mark.slow
@pytest.mark.timed  # the kernel counts for the whole machine: a rank that another test kills would be out of memory too
@pytest.mark.parametrize("who", ["program", "its child"])
def test_a_program_that_the_kernel_ends_for_want_of_memory(project, memory_group, who):
    """For real: SIGKILL, of which the program can say nothing; and a child's, of which it says nothing either."""
    take = f"open('{memory_group}/cgroup.procs', 'w').write(str(os.getpid())); bytearray(200 << 20)"
    child = f"if not os.fork(): {take}\nsys.exit(os.waitstatus_to_exitcode(os.wait()[1]) != 0)"
    (run,) = project(f"print('step 7', file=sys.stderr, flush=True)\n{take if who == 'program' else child}")
    failure = launched(run)["failure"]
    assert (failure["kind"], failure["rank"], failure["host"]) == ("oom", 0, socket.gethostname()), failure
    assert "out of memory: the kernel ended 1 process" in failure["message"] and "step 7" in failure["message"]
    assert not at_work()


# It starts two ranks in sessions of their own, waits for them, and fails if one fails, as torchrun does.
AS_TORCHRUN = """
import subprocess
if len(sys.argv) > 1:
    print("rank", sys.argv[1], "trains", file=sys.stderr, flush=True)
    time.sleep(100)
start = lambda rank: subprocess.Popen([sys.executable, "program.py", rank], start_new_session=True)
ranks = [start(rank) for rank in "01"]
while not any(rank.poll() for rank in ranks):
    time.sleep(0.05)
sys.exit("ChildFailedError: local_rank 1 failed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["node process", "its child"])
def test_a_killed_process_of_a_program_that_starts_a_nodes_ranks(project, victim):
    (run,) = project(AS_TORCHRUN, {"gpus": 2}, starts="node")

    def strike():
        wait_for(lambda: len(at_work()) >= 3, seconds=60)
        time.sleep(1)
        words = 2 if victim == "node process" else 3
        next(each for each in at_work() if len(each.cmdline()) == words).kill()

    thread = threading.Thread(target=strike)
    thread.start()
    failure = launched(run)["failure"]
    thread.join()
    kind = "killed" if victim == "node process" else "error"
    assert (failure["kind"], failure["rank"], failure["host"]) == (kind, 0, socket.gethostname()), failure
    assert ("SIGKILL" if kind == "killed" else "ChildFailedError: local_rank 1") in failure["message"], failure
    assert "trains" in failure["message"], "its last lines, of its children too"
    assert not at_work()
    (run,) = project("pass", {"gpus": 2}, starts="node")
    assert launched(run)["status"] == "ok", "the next run is good"


def at_work():
    """Processes of the test's program that still run."""
    here = str(Path.cwd())
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        is_ours = "program.py" in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
        try:
            if is_ours and process.cwd() == here:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others_and_is_named(project):
    (run,) = project("if os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(100)", {"gpus": 2})
    failure = launched(run)["failure"]
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("error", 1, "program"), failure
    assert not at_work()


@pytest.mark.slow
def test_a_program_that_stalls_is_ended(project):
    (run,) = project("import study_events as e\ne.event('run_start'); time.sleep(100)")
    failure = launched(run, stall_s=3.0)["failure"]
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("hang", 0, "train"), failure
    assert not at_work()


@pytest.mark.slow
def test_a_program_that_computes_sends_heartbeats(project):
    (run,) = project("end = time.monotonic() + 6\nwhile time.monotonic() < end: pass")
    assert launched(run, stall_s=3.0)["status"] == "ok"


BEGINS_AGAIN = """
    import study_events as events
    events.event("run_start")
    with events.phase("epoch"):
        time.sleep(0.01)
    with events.phase("init"):  # it has failed after the first epoch, and goes on from a checkpoint
        time.sleep(0.01)
    with events.phase("run"), events.phase("epoch"):
        time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize("source", [BEGINS_AGAIN, EPOCHS])
def test_a_program_that_began_again_after_an_error_is_told(project, source):
    (run,) = project(source)
    record = launched(run)
    assert record["status"] == "ok" and record["program"]["epochs"] == 2
    why = "a rank began its run again once, without run_stop: its times are of all attempts"
    assert record["unproven"] == (why if source is BEGINS_AGAIN else None)


LEAVES_WORKERS = """
    import signal
    done, tell = os.pipe()
    def worker():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun = time.process_time()
        while time.process_time() < begun + 0.5:
            pass
        os.write(tell, b".")
    if os.fork() == 0:  # a daemon, which ends by itself
        if os.fork() == 0:
            worker()
        os._exit(0)
    if os.fork() == 0:  # a loader's worker, for which nobody waits
        worker()
        os._exit(0)
    os.read(done, 1), os.read(done, 1)
    time.sleep(1)
    os._exit(0)
"""


@pytest.mark.slow
def test_the_processor_time_of_what_a_program_does_not_wait_for_counts(project):
    """Two processes of 0.5 s each, and Python itself; what follows the last sample of each is lost."""
    (run,) = project(LEAVES_WORKERS)
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    (run,) = project()
    python_s = launched(run, "empty")["program"]["cpu_time_s"]
    assert 0.85 <= record["program"]["cpu_time_s"] < 1.4 + 2 * python_s


def told_epochs(*values, numbers=None):
    """What a file of earlier epochs has of an attempt."""
    return [{"value": value, "number": numbers and numbers[place]} for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([told_epochs(1, 2, 3)], ([1, 2, 3], 0)),
        ([told_epochs(3)], ([], 2)),  # nothing is known of the first attempt
        ([[], told_epochs(3)], ([], 2)),
        ([told_epochs(3, numbers=[3])], ([], 2)),
        ([told_epochs(1, 2), told_epochs(20, 30)], ([1, 20, 30], 1)),  # the checkpoint was older than epoch 2
        ([told_epochs(1), told_epochs(2), told_epochs(3)], ([1, 2, 3], 2)),
        ([told_epochs(1, 2), told_epochs(20), told_epochs(300)], ([1, 20, 300], 2)),
        ([told_epochs(1, 2, 3), []], ([1, 2, 3], 3)),  # nothing was left to do
        # By their numbers, counted from 0: the second attempt told an epoch that its checkpoint did not have.
        ([told_epochs(1, numbers=[0]), told_epochs(2, 3, numbers=[1, 2]), told_epochs(30, numbers=[2])],
         ([1, 2, 30], 2)),
        # The last attempt stopped at its target, an epoch before the end.
        ([told_epochs(1, numbers=[1]), told_epochs(2, numbers=[2])], ([1, 2], 1)),
    ],
)  # fmt: skip
def test_each_epoch_is_in_the_history_once_whatever_attempts_trained_it(attempts, expected):
    epochs, after = program_results.join_attempts(attempts, 3)
    assert ([each["value"] for each in epochs], after) == expected


STOPS = """
import study_events as events
with events.phase("run") as told:
    for epoch in range(3):
        with events.phase("epoch"):
            time.sleep(0.05)
            events.metrics(loss=1.0, val_accuracy=0.5 + 0.1 * epoch)
    told.update(STATUS)
"""


@pytest.mark.slow
def test_a_program_that_stops_at_its_target_has_the_epochs_that_it_trained(project):
    """Time per epoch and throughput are of the epochs that were counted, and the time to the target ends there."""
    target = {"quantity": "validation_accuracy", "at_least": 0.65, "why": "a test"}
    pattern = {"throughput_samples_per_s": "img/s: (.*)"}
    whole = {"epochs": {"strong": 10, "weak": 10}, "target_quality": target, "metrics": pattern}
    (run,) = project(STOPS.replace("STATUS", "status='success'") + "print('img/s: 1')", **whole)
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["program"]["epochs"] == 3 and record["derived"]["epochs_per_rank"] == 10
    history, training = pd.read_csv("run/history.csv"), record["training"]
    assert list(history["epoch"]) == [1, 2, 3] and (history["time_s"] > 0.05).all()
    assert training["time_per_epoch_s"] == pytest.approx(history["time_s"].mean())
    assert training["throughput_samples_per_s"] == pytest.approx(100 * 3 / history["time_s"].sum()), "not the pattern's"
    assert "the program's epochs give it, not its pattern" in record["program"]["reason"]
    found = targets.to_target(Path("run"), record, run.dataset.target)
    assert found["epochs_to_target"] == 3 and found["training_to_target_s"] < record["runtime_s"]
    (run,) = project(STOPS.replace("STATUS", "status='aborted'"), **whole)
    assert "reported 3 epochs, but a rank of this run trains 10" in launched(run, "other")["failure"]["message"]


def test_what_is_of_the_way_to_the_target_is_told():
    frame = pd.DataFrame([ran(ranks, 1) for ranks in (1, 2, 4)])
    assert to_target(frame, "times") == rank_answer._describe_stops(frame) == []
    early = frame.assign(program_epochs=[9, math.nan, 10])
    assert to_target(early, "times") == [
        "1 run stopped at the target before the last epoch (program_epochs): times are of the way to the target, not "
        "of equal work"
    ]
    assert rank_answer._describe_stops(early) == ["1 of 3 runs stopped at the target: the work is the way to it."]


@pytest.mark.parametrize(
    ("starts", "launcher", "nodes", "told"),
    [
        ("job", "srun", 2, "one of the 2 nodes is measured"),
        ("job", "jsrun", 1, "is the job's service node, without ranks"),
        ("job", "srun", 1, None),
        ("node", "jsrun", 2, None),
        ("rank", "srun", 2, None),
    ],
)
def test_what_one_process_of_several_nodes_measures_is_not_of_the_job(starts, launcher, nodes, told):
    spec = {"kind": "command", "starts": starts, "workload": {"train_samples": 1}}
    run = SimpleNamespace(benchmark=spec, derived=SimpleNamespace(nodes=nodes), machine={"launcher": launcher})
    of_program = {**OF_PROGRAM, "cpu_s": 2.0}
    metrics = {"program": of_program, "ranks": [{"peak_memory_mb": 3.0}], "workload": {"train_samples": 1}}
    found, memory = records._program(run, metrics, [], {}), records._memory(run, metrics)
    assert (found["cpu_time_s"], memory) == ((None, None) if told else (2.0, {"peak_memory_mb": 3.0}))
    assert told in found["reason"] if told else found["reason"] is None
    on = hosts_of_ranks(run, {"host": {"name": "n1"}}, [{"host": "n1", "rank": 0}])
    assert on == {"rank_hosts": None if told else ["n1"], "hosts_reason": found["reason"]}
    power = summary.make_unmeasured(machine.load("local"), 2, found["reason"])
    assert power["energy_job_j"] is None and power["reason"] == found["reason"]


def test_a_run_that_stopped_at_its_target_predicts_nothing(project):
    project()
    frame = pd.DataFrame([ran(ranks, repeat) for ranks in (1, 2, 4) for repeat in (1, 2, 3)])
    chosen = settings.select_runs(frame.assign(program_epochs=[9, *[10] * 8]))
    assert len(chosen.used) == 8
    assert any("stopped at its target" in reason for reason in map(str, chosen.left_out))


def test_events_are_taken_in_their_order_also_where_the_program_ends_meanwhile(tmp_path, monkeypatch):
    """The thread that follows the program has read the first event, and takes it, when the last one is there."""
    following, taken, is_taking = program.Program.__new__(program.Program), [], threading.Event()
    following._ranks, following._progress, following._place = tmp_path, {}, program.Place((0,), 0, 0, 1)
    following._benchmark = {}

    def take(event):
        is_taking.set()
        time.sleep(0.05 if event["key"] == "first" else 0)
        taken.append(event["key"])

    monkeypatch.setattr(following, "_take_event", take, raising=False)
    with open(following._events_file, "w") as handle:
        handle.write('{"key": "first", "time_ms": 1}\n')
        handle.flush()
        following._start_following(SimpleNamespace(pid=os.getpid()), [], set())
        assert is_taking.wait(10)
        handle.write('{"key": "last", "time_ms": 2}')
    following._end_following()
    assert taken == ["first", "last"]


@pytest.mark.parametrize(
    ("waited_mb", "seen_mb", "seen_s", "peak_mb"),
    [
        (50.0, 0.585, 1.0, 50.0),  # more than the process had before it executed the program
        (50.0, 60.0, 1.0, 60.0),  # a process that the program did not wait for had more
        (20.4, 9.0, 6.0, 9.0),  # 20.4 MB are those of before
        (20.4, 0.585, 1.0, None),  # looked at when it had hardly begun
        (20.4, 0.0, -math.inf, None),
    ],
)
def test_the_memory_of_a_program_is_none_of_the_process_that_executed_it(waited_mb, seen_mb, seen_s, peak_mb):
    """It took 10 s, and the process that became the program had 20 MB."""
    it = program.Program.__new__(program.Program)
    it._before_mb, it._begun_s, it._sampled_peak_mb, it._sampled_s = 20.0, 100.0, seen_mb, 100.0 + seen_s
    assert it._compute_peak_mb(waited_mb, ended_s=110.0) == peak_mb


# What is planned


def test_own_parameters_are_axes_and_arms(project):
    act = {"type": "text", "default": "relu", "choices": ["relu", "tanh"], "meaning": "activation"}
    declared = {"hidden": {"type": "integer", "default": 128, "meaning": "width"}, "act": act}
    runs = project(
        grid={"hidden": [64, 128], "tuning": {"tanh": {"act": "tanh"}}},
        command=[sys.executable, "program.py", "{hidden}", "{act}"],
        parameters=declared,
    )
    assert [run["program_parameters"] for run in runs] == ["hidden~64", "act~tanh+hidden~64", "none", "act~tanh"]
    assert runs[1].arms[0].switches == {"program_parameters": ("act~tanh+hidden~64", "hidden~64")}
    assert runs[1].directory == "mine/none/strong+work~samples+program_parameters~act~tanh+hidden~64+gpus~1"
    assert own_parameters.parse_values("hidden~64+act~tanh", declared) == {"hidden": 64, "act": "tanh"}


@pytest.mark.parametrize(
    ("work", "scaling", "word", "warns"),
    [
        ("samples", "weak", "x", True), ("fixed", "weak", "x", True), ("samples", "strong", "x", False),
        ("epochs", "weak", "x", False), ("samples", "weak", "{samples_per_rank}", False),
        ("fixed", "weak", "{scaling}", False),
    ],
)  # fmt: skip
def test_a_program_that_may_divide_samples_under_weak_scaling_is_told_in_the_plan(project, work, scaling, word, warns):
    runs = project(grid={"gpus": [1, 2], "scaling": scaling}, work=work, command=[sys.executable, "program.py", word])
    told = programs.warn_of_undivided_samples(runs)
    assert [line.startswith("mine weak scaling on 2 ranks: each rank must train on all samples") for line in told] == (
        [True] if warns else []
    )
    assert programs.warn_of_undivided_samples(expand(gpus=2, scaling="weak")) == []


def test_code_and_packages_belong_to_the_version_and_the_identity(project):
    (run,) = project("print(1)", code=["program.py"])
    before = (
        content.compute_code_digest(run.spec),
        inputs.define_run(run, machine.load("local_processes"), "data").fingerprint,
    )
    (run,) = project("print(2)", code=["program.py"])
    after = (
        content.compute_code_digest(run.spec),
        inputs.define_run(run, machine.load("local_processes"), "data").fingerprint,
    )
    assert before[0] != after[0] and before[1] == after[1], "the run is then one of older code"
    (run,) = project("print(2)", code=["program.py"], command=[sys.executable, "-O", "program.py"])
    assert inputs.define_run(run, machine.load("local_processes"), "data").fingerprint != after[1]
    found = content.read_package_versions(run.spec)
    assert found["numpy"] and len(found["environment"]) == 12


@pytest.fixture
def code(tmp_path):
    """A folder with a program's code in ``src``, and a folder beside it: (the benchmark's YAML, src, the other one)."""
    src, other = tmp_path / "src", tmp_path.with_name(f"{tmp_path.name}-other")
    for folder in (src / "lib", src / "__pycache__", other):
        folder.mkdir(parents=True)
    for path in (src / "main.py", src / "lib" / "a.py", src / "__pycache__" / "a.pyc", other / "b.py"):
        path.write_text(path.name)
    return {"folder": str(tmp_path), "code": ["src"], "environment": {}}, src, other


def test_links_in_code_count_as_git_stores_them_or_with_the_file_that_they_lead_to(code):
    spec, src, other = code
    files = {"src/lib/a.py": b"a.py", "src/main.py": b"main.py"}
    assert dict(code_files.read_contents(spec)) == files
    whole = b"".join(f"{name}\0{len(text)}\0".encode() + text for name, text in files.items())
    assert content.compute_code_digest(spec) == hashlib.sha256(whole).hexdigest()[:12], (
        "finished runs keep their version"
    )
    (src / "again").symlink_to("lib")
    (src / "loop").symlink_to(".")
    (src / "b.py").symlink_to(f"../../{other.name}/b.py")
    os.mkfifo(src / "pipe")
    links = {"src/again\0link": b"lib", "src/loop\0link": b".", "src/b.py": b"b.py"}
    assert dict(code_files.read_contents(spec)) == files | links, "nothing counts twice, and no pipe is waited for"
    assert code_files.find_link_fault(spec) is None
    before = content.compute_code_digest(spec)
    (other / "b.py").write_text("changed")
    assert content.compute_code_digest(spec) != before
    told = code_files.find_link_fault({**spec, "environment": {"image": "a.sif"}})
    assert told.startswith(f"src/b.py is a symbolic link that leads to {other}/b.py, which the container does not see")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("../../{other}", "leads out of the code, to the folder .*-other, where a change would go unnoticed"),
        ("__pycache__", "leads out of the code, to the folder .*/__pycache__"),
        ("absent", "leads nowhere .No such file or directory."),
        ("link", "leads nowhere .Too many levels of symbolic links."),
    ],
)
def test_links_in_code_that_no_version_could_tell_are_refused_in_the_plan(project, code, target, message):
    _, src, other = code
    (src / "link").symlink_to(target.replace("{other}", other.name))
    with pytest.raises(StudyError, match=f"mine.yaml: code: src/link is a symbolic link that {message}"):
        project(code=["src"])
    if "other" in target:
        (run,) = project(code=["src", str(other)])
        names = [name for name, _ in code_files.read_contents(run.spec)]
        assert names == [f"{other}/b.py", "src/lib/a.py", "src/link\0link", "src/main.py"]


def test_of_a_package_that_is_there_twice_the_one_that_is_imported_counts():
    """As on a cluster: torch of a loaded module in PYTHONPATH, before that of the environment; 2.9 < 2.10 as a text."""
    found = content.select_versions(
        "3.11", [["torch", "2.10"], ["numpy", "2.0"], ["Torch", "2.9"], ["nvidia_nccl.cu12", "2.2"]]
    )
    assert (found["torch"], found["numpy"], found["nvidia-nccl-cu12"]) == ("2.10", "2.0", "2.2")
    assert content.select_versions("3.11", [["torch", "2.9"], ["torch", "2.10"]])["torch"] == "2.9"


PARAMETER = {"type": "integer", "default": 1, "meaning": "m"}


@pytest.mark.parametrize(
    ("changes", "grid", "message"),
    [
        ({"code": ["absent.py"]}, {}, "code: .*absent.py does not exist"),
        ({"command": ["python", "-u", "trian.py"]}, {}, "command: .*/trian.py does not exist; give"),
        ({"environment": {"python": "venv"}}, {}, "environment: python: .*venv/bin/python does not exist"),
        ({"environment": {"image": "a.sif"}}, {}, "environment: image: .*a.sif does not exist"),
        ({"command": ["python", "{epoch_per_rank}"]}, {}, "is no placeholder; did you mean 'epochs_per_rank'"),
        ({"command": ["python", "{checkpoint}"]}, {}, "{checkpoint} is no placeholder"),
        ({"resume": ["--resume"]}, {}, "resume: no word has {checkpoint}"),
        ({"metrics": {"rate": "img/s: [0-9]+"}}, {}, "metrics.rate: .* has 0 groups; give one"),
        ({"metrics": {"rate": "(a)(b)"}}, {}, "metrics.rate: .* has 2 groups; give one"),
        ({"metrics": {"runtime_s": "(a)"}}, {}, "mine.yaml: metrics: 'runtime_s' is a grid key or a column"),
        ({"metrics": {"rate": "(("}}, {}, "metrics.rate: .* is no regular expression"),
        ({"metrics": {"rate": "(a{99999999999999999999})"}}, {}, "metrics.rate: .* is no regular expression"),
        ({"parameters": {"gpus": PARAMETER}}, {}, "parameters.gpus: is a name of the study's own"),
        ({"parameters": {"rate": {**PARAMETER, "default": "x"}}}, {}, "parameters.rate: default: x is no integer"),
        ({"folder": "nowhere"}, {}, "folder: .*nowhere is no folder"),
        ({"learning_rate": 0.1}, {}, "learning_rate"),
        ({}, {"loader": "read_csv"}, "loader: mine loads its own data; leave it out"),
        ({}, {"staging": "local_copy"}, "staging: mine is a command without {staging} in its words; leave it out"),
        ({}, {"batch_size": 7}, "batch_size: mine is a command without {batch_size} or {batch_size_per_rank}"),
        ({}, {"trace": True, "gpus": 2}, "trace: mine is a command"),
        ({"work": "epochs"}, {"gpus": 2}, "work: epochs are divided among the ranks, but the command has no"),
        ({"work": "steps"}, {"gpus": 2}, "work: steps are divided .*, but the command has no {steps_per_rank}"),
        ({}, {"gpus": 2, "scaling": "weak", "batch_scaling": "linear"},
         "batch_scaling: mine is a command without {batch_size_per_rank} in its words"),
        ({}, {"hidden": 3}, "hidden: the benchmark has no such parameter; its own: none"),
        ({"parameters": {"rate": PARAMETER}, "command": ["x", "{rate}"]}, {"rate": "a"}, "rate: a is not valid"),
        ({}, {"work": "fixed"}, "work: is given in config/benchmarks/mine.yaml"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_in_the_plan(project, changes, grid, message):
    with pytest.raises(StudyError, match=message.replace("{", r"\{").replace("}", r"\}")) as told:
        project(grid=grid, **changes)
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_runs_with_other_packages_are_another_version(project, monkeypatch):
    (run,) = project("pass")
    folder = Path(paths.locate_run("results/local_processes", run.directory))
    record = launched(run, folder)
    (folder / "record.json").write_text(json.dumps(record))
    study = Study("test", "", {}, (run,))
    assert versions.keep_other_versions(study, "results/local_processes") == []
    found = content.read_package_versions(run.spec)
    monkeypatch.setattr(content, "read_package_versions", lambda _: {**found, "environment": "another"})
    assert len(versions.keep_other_versions(study, "results/local_processes")) == 1


def test_what_stands_twice_is_the_same():
    """A helper that everybody copies; and a search for processes, since the guard must import next to nothing."""
    copies = [path.read_text() for path in sorted((ROOT / "examples").glob("*/study_events.py"))]
    assert len(copies) == 2 and copies[0] == copies[1]
    process = subprocess.Popen(["sh", "-c", "setsid sleep 100 & sleep 100"])
    try:
        wait_for(lambda: len(process_tree.list_descendants(process.pid)) >= 2, seconds=10)
        assert process_tree.read_peak_mb(process_tree.list_descendants(process.pid)) > 0
        ours, of_guard = process_tree.list_descendants(os.getpid()), set(guard._list_descendants())
        assert ours == of_guard and process_tree.list_descendants(process.pid) < ours
    finally:
        process_tree.end_tree(process.pid, 5)
        process.wait()


# Events by themselves


class Log:
    """Records edges."""

    def __init__(self):
        self.edges = []

    def edge(self, phase, edge, at=None):
        self.edges.append((phase, edge))


def test_phases_follow_one_another_and_validation_after_an_epoch_belongs_to_it():
    log, told = Log(), []
    progress = events.Progress(log, (0, 0), lambda *each: told.append(each[0]))
    second = 1_000_000_000
    keys = ["init_start", "preprocess_start", "init_stop", "preprocess_stop", "run_start", "epoch_start", "epoch_stop",
            "eval_start", "eval_stop", "epoch_start", "epoch_stop", "run_stop", "eval_start", "eval_stop"]  # fmt: skip
    for place, key in enumerate(keys):
        progress.take({"key": key}, (place * second, place * second))
    progress.end((99 * second, 99 * second))
    assert [phase for phase, edge in log.edges if edge == "begin"] == ["load", "preprocess", "train", "evaluate"]
    assert [(each.seconds, each.steps_s) for each in progress.epochs] == [(3, 1), (1, 1)]
    assert told == [1, 2]


def test_events_that_two_ranks_have_printed_into_one_line_are_both_taken():
    first, second = ({"key": "epoch_start", "time_ms": 5, "rank": rank} for rank in (0, 1))
    lines = [f"[0] :::MLLOG {json.dumps(each)}" for each in (first, second)]
    assert events.find_marked_events("".join(lines).encode()) == [first, second]
    assert events.find_marked_events("".join(lines).replace("[0] ", "").encode()) == [first, second]
    assert events.find_marked_events(f"{lines[0]}loss 0.5".encode()) == [], "as before: nobody knows what it is"
    assert events.find_marked_events(lines[0].encode()) == [first] and events.find_marked_events(b"no event") == []
    quoted = {**first, "value": ":::MLLOG {}"}
    assert events.find_marked_events(f":::MLLOG {json.dumps(quoted)}".encode()) == [quoted]


PRINTS_AT_ONCE = """
    for piece in ("img/s: 99\\n", "img/s: 100", "2026-11-28 img/s: 101", "\\n", "\\n"):
        os.write(1, piece.encode())
"""


@pytest.mark.parametrize(("starts", "ranks", "number"), [("job", 2, 99), ("job", 1, 1002026)])
@pytest.mark.slow
def test_a_number_that_another_rank_has_printed_into_does_not_count(project, starts, ranks, number):
    """Of one rank, nobody else can print: the first match in the last line counts, whatever it is."""
    pattern = {"throughput_samples_per_s": "img/s: ([0-9.]+)"}
    (run,) = project(PRINTS_AT_ONCE, {"gpus": ranks}, starts=starts, metrics=pattern, reads="WORLD_SIZE")
    record = launched(run)
    assert record["status"] == "ok", record["failure"]
    assert record["training"]["throughput_samples_per_s"] == number


def told(*given):
    """Progress after events, each (seconds, key) or (seconds, key, value), of a process that began at 0 s."""
    progress = events.Progress(Log(), (0, 0))
    for seconds, key, *value in given:
        progress.take({"key": key, **({"value": value[0]} if value else {})}, (int(seconds * 1e9),) * 2)
    progress.end((10**12, 10**12))
    return progress


def printed_by_all(ranks, *given):
    """The epochs of each rank of a process whose ranks all print, each (key) or (key, number), a second apart."""
    progress = {rank: events.Progress(Log(), (0, 0)) for rank in range(ranks)}
    for second, (key, *number) in enumerate(given, 1):
        event = {"key": key, "metadata": {"epoch_num": number[0]} if number else {}}
        if (rank := events.choose_rank(event, progress)) is not None:
            progress[rank].take(event, (second * 10**9,) * 2)
    for each in progress.values():
        each.end((10**12, 10**12))
    return [[(epoch.begin[0] // 10**9, epoch.end[0] // 10**9) for epoch in each.epochs] for each in progress.values()]


BEGIN, START, STOP = ("run_start",), ("epoch_start",), ("epoch_stop",)


@pytest.mark.parametrize(
    ("given", "epochs"),
    [
        ([BEGIN, BEGIN, START, START, STOP, STOP, START, START, STOP, STOP], [[(3, 5), (7, 9)], [(4, 6), (8, 10)]]),
        # The first rank is an epoch ahead of the other one for a moment.
        ([BEGIN, BEGIN, START, START, STOP, START, STOP, START, STOP, STOP], [[(3, 5), (6, 9)], [(4, 7), (8, 10)]]),
        ([BEGIN, START, STOP, START, STOP], [[(2, 3), (4, 5)], []]),  # only one prints
        # By their numbers they need not overlap.
        ([("epoch_start", 0), ("epoch_stop", 0), ("epoch_start", 0), ("epoch_start", 1), ("epoch_stop", 0),
          ("epoch_start", 1), ("epoch_stop", 1), ("epoch_stop", 1)], [[(1, 2), (4, 7)], [(3, 5), (6, 8)]]),
        ([BEGIN, START, ("eval_start",), ("eval_start",), ("eval_stop",), ("eval_stop",), STOP], [[(2, 7)], []]),
    ],
)  # fmt: skip
def test_lines_that_all_ranks_print_without_their_number_are_of_one_rank_each(given, epochs):
    assert printed_by_all(2, *given) == epochs


def test_a_run_that_begins_again_is_not_taken_for_another_rank():
    progress = {rank: events.Progress(Log(), (0, 0)) for rank in range(2)}
    for second, (key,) in enumerate((BEGIN, BEGIN, START, STOP, BEGIN), 1):
        progress[events.choose_rank({"key": key}, progress)].take({"key": key}, (second * 10**9,) * 2)
    assert [each.runs_left for each in progress.values()] == [1, 0]


def test_a_block_is_as_many_epochs_as_it_says():
    progress = events.Progress(Log(), (0, 0))

    def take(second, key, **metadata):
        progress.take({"key": key, "metadata": metadata}, (second * 10**9,) * 2)

    take(1, "run_start")
    take(2, "block_start", first_epoch_num=4, epoch_count=2)
    progress.take({"key": "tracked_stats", "value": {"loss": 0.5}}, (5 * 10**9,) * 2)
    take(8, "block_stop", first_epoch_num=4)
    take(8, "eval_start")
    take(9, "eval_stop")
    assert [(each.seconds, each.steps_s, each.number, each.metrics) for each in progress.epochs] == [
        (3, 3, 4, {}), (4, 3, 5, {"loss": 0.5})]  # fmt: skip
    for second, key in enumerate(("block_start", "epoch_start", "epoch_stop", "block_stop"), 10):
        take(second, key, epoch_count=1)
    assert len(progress.epochs) == 3 and progress.epochs[-1].seconds == 1, "an epoch of its own counts"


def test_numbers_that_no_table_can_hold_are_not_finite():
    epochs = told(
        (1, "epoch_start"), (2, "tracked_stats", {"loss": 10**400, "score": -1e300, "f1": 0}), (3, "epoch_stop")
    )
    assert epochs.epochs[0].metrics == {"loss": math.inf, "score": -math.inf, "f1": 0.0}
    assert not events.is_finite(epochs.losses)


def test_a_validation_before_the_first_epoch_is_no_test():
    first = [(1, "run_start"), (2, "eval_start"), (3, "eval_accuracy", 0.1), (3, "eval_stop"),
             (3, "tracked_stats", {"val_loss": 9.0, "test_f1": 0.3})]  # fmt: skip
    trained = told(*first, (4, "epoch_start"), (6, "epoch_stop"), (7, "eval_accuracy", 0.7), (8, "run_stop"))
    assert trained.test == {"f1": 0.3} and trained.epochs[0].metrics == {"val_accuracy": 0.7}
    assert trained.epochs[0].steps_s == 2
    assert told(*first).test == {"accuracy": 0.1, "loss": 9.0, "f1": 0.3}, "without an epoch there is no other place"


def test_a_program_that_trains_in_two_runs_validates_in_the_second_one_too():
    stage = [(1, "run_start"), (2, "epoch_start"), (3, "epoch_stop"), (4, "eval_accuracy", 0.5), (5, "run_stop")]
    second = [(seconds + 10, *rest) for seconds, *rest in stage]
    two = told(*stage, *second, (20, "eval_accuracy", 0.4))
    assert [each.metrics for each in two.epochs] == [{"val_accuracy": 0.5}] * 2 and two.test == {"accuracy": 0.4}


@pytest.mark.parametrize(
    ("begun", "ended", "seconds", "steps_s"),
    [(14, 16, 10, 8), (18, 22, 12, 8), (20, 23, 13, 10), (21, 23, 13, 10), (8, 12, 10, 8)],
    ids=["within", "over its end", "at its end", "after it", "over its begin"],
)
def test_the_time_of_an_epoch_s_steps_is_without_validation_wherever_that_is(begun, ended, seconds, steps_s):
    """An epoch from 10 to 20 s. What is between its end and the end of its validation belongs to the validation."""
    every = [(1, "run_start"), (10, "epoch_start"), (20, "epoch_stop"), (begun, "eval_start"), (ended, "eval_stop")]
    (epoch,) = told(*sorted(every, key=lambda each: each[0]), (30, "run_stop")).epochs
    assert (epoch.seconds, epoch.steps_s) == (seconds, steps_s)


def test_the_helper_writes_what_is_read(tmp_path, monkeypatch):
    shutil.copy(HELPER, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import study_events

    path = tmp_path / "events.jsonl"
    study_events.event("run_start")
    assert not path.exists(), "without a study nothing is written"
    monkeypatch.setenv("STUDY_EVENTS", str(path))
    study_events.metrics(loss=math.inf)
    event = events.parse_event(path.read_bytes(), is_marked=False)
    assert event["key"] == "tracked_stats" and event["value"] == {"loss": math.inf}
    wall, monotonic = events.get_moment(event)
    assert abs(wall - time.time_ns()) < 5e9 and abs(monotonic - time.monotonic_ns()) < 5e9


@pytest.mark.parametrize("source", [EPOCHS, ""])
@pytest.mark.slow
def test_energy_is_of_the_whole_program(project, source):
    """From its start to its end, whether it tells its phases or not; by a model here, for want of sensors."""
    (run,) = project(f"{source}\n    time.sleep(1)" if source else "time.sleep(1)")
    on = machine.load("local_processes") | {"power_model": {"idle_w": 50, "peak_w": 50}}
    launch.launch(inputs.define_run(run, on, "data"), "run", 60, None, 60)
    record = make_record("run")
    seconds = phases.compute_durations(phases.read_edges("run/phases.jsonl"))["program"][0]
    assert record["power"]["source"] == "modelled" and record["power"]["reason"] is None
    assert record["power"]["energy_job_j"] == pytest.approx(50 * seconds, rel=0.02)


# Predictions for a fixed work, of which the truth is known


def truth(ranks, epochs_told=True):
    """Data parallel training of 48,000 samples, 1 ms each: what a job of 10 epochs takes, by its parts (s)."""
    epoch = 0.5 + 1e-3 * 48_000 / ranks + 0.2 * math.log2(ranks)
    parts = {"load_s": 20.0, "time_per_epoch_s": epoch} if epochs_told else {}
    whole = {"runtime_s": 10 * epoch + 30, "program_s": 10 * epoch + 20}
    return {"load_s": math.nan, "time_per_epoch_s": math.nan, **parts, **whole}


def ran(ranks, repeat, work="samples", epochs_told=True):
    defaults = {name: each.default for name, each in PARAMETERS.items() if each.has_default}
    unknown = ("features", "resumed_after_epoch", "energy_job_j", "energy_per_gpu_j", "time_per_epoch_steady_s")
    return {
        **defaults, **dict.fromkeys(unknown, math.nan), "machine": "m", "benchmark": "mine", "dataset": "none",
        "scaling": "strong", "work": work, "epochs": 10, "epochs_per_rank": 10, "gpus": ranks, "nodes": 1,
        "batch_size": 100, "batch_size_per_rank": 100, "loader": "none", "train_samples": 48_000,
        "samples_per_rank": 48_000 // ranks, "status": "ok", "cpu_limited": False, "code_is_current": True,
        "power_source": None, "learning_rate": None, "learning_rate_used": None, "packages": "torch 2.9",
        "repeat": repeat, "record": f"runs/{ranks}-{repeat}/record.json",
        **{name: value * (1 + 0.002 * repeat) for name, value in truth(ranks, epochs_told).items()},
    }  # fmt: skip


def predicted(work, epochs_told=True):
    """{ranks: predicted runtime (s)} from runs on 1, 2 and 4 ranks."""
    frame = pd.DataFrame([ran(ranks, repeat, work, epochs_told) for ranks in (1, 2, 4) for repeat in (1, 2, 3)])
    chosen = settings.select_runs(frame)
    assert not chosen.problems and not chosen.left_out
    (answer,) = answer_workloads(chosen.used, {}, {"nodes": 1, "ranks_per_node": 64}, chosen.failed)
    (series,) = answer.predictions
    prediction = answer.predictions[series]
    found = dict(zip(answer.candidates[series]["ranks"], np.median(prediction.draws["runtime_s"], axis=1), strict=True))
    return found, answer, series


@pytest.mark.parametrize("epochs_told", [True, False])
def test_more_ranks_are_predicted_to_shorten_a_fixed_work(project, epochs_told):
    """As it does: the held-out counts 8 and 16 are within a tenth; within a half where the program tells no epochs.

    Then nothing tells its start apart from what the ranks divide.
    """
    project()
    found, answer, series = predicted("samples", epochs_told)
    for ranks in (8, 16):
        assert found[ranks] == pytest.approx(truth(ranks)["runtime_s"], rel=0.1 if epochs_told else 0.5)
    assert found[16] < found[8] < found[4] < found[1]
    goal = goals.load("fastest")
    pick = recommend(answer.predictions[series], goal, {}, []).pick
    assert pick is not None and pick > 4
