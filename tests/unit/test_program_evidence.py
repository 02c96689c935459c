"""What shows that a command did its work: exit status 0 alone does not. Each case is a real program, with the truth."""

import os
import platform
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from test_programs import at_work

from study import plan
from study.core import environment, paths
from study.core.errors import StudyError
from study.experiment import expansion, inputs, programs
from study.launch import failure, launch, program_files
from study.machines import machine
from study.records import program_evidence, renewal
from study.records.record import make_record
from study.workloads import command
from study.workloads.command import code_files, placeholders, reading

BENCHMARK = {
    "title": "a test", "kind": "command", "command": [sys.executable, "program.py"], "work": "samples",
    "workload": {"train_samples": 100}, "epochs": {"strong": 2, "weak": 2},
}  # fmt: skip
RATE = {"throughput_samples_per_s": "img/s: ([0-9.]+)"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of one's own, with a program and its benchmark; returns its runs."""

    def make(source="", grid=None, **changes):
        (tmp_path / "config" / "benchmarks").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config" / "benchmarks" / "mine.yaml").write_text(yaml.safe_dump(BENCHMARK | changes))
        (tmp_path / changes.get("folder", ".")).mkdir(exist_ok=True)
        program = tmp_path / changes.get("folder", ".") / "program.py"
        program.write_text("import os, sys, time\n" + textwrap.dedent(source))
        monkeypatch.chdir(tmp_path)
        study = {"description": "a test", "tables": ["scaling"],
                 "runs": [{"benchmark": "mine", "scaling": "strong", "gpus": 1, **(grid or {})}]}  # fmt: skip
        return expansion.expand_study("test", study, "test.yaml").runs

    return make


def launch_run(run, folder="run", stall_s=60.0):
    """Launch a run in a folder without an outcome, and return its record."""
    (Path(folder) / paths.OUTCOME).unlink(missing_ok=True)
    launch.launch(inputs.define_run(run, machine.load("local_processes"), "data"), folder, 60.0, None, stall_s)
    return make_record(folder)


# Exit status 0

OUT_OF_MEMORY = 'raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 39.39 GiB capacity)")'


def pipe(*words):
    """A command whose exit code is that of tee."""
    return ["bash", "-c", f"{sys.executable} program.py {' '.join(words)} 2>&1 | tee log.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "changes", "unproven"),
    [
        ("print('img/s: 12')", {"metrics": RATE}, None),
        ("print('done')", {"success": "^done$"}, None),
        ("open('model.pt', 'w').write('x')", {"outputs": ["*.pt"]}, None),
        ("open(os.environ['STUDY_RUN_FOLDER'] + '/a.pt', 'w').write('x')", {"outputs": ["{run_folder}/*.pt"]}, None),
        ("print('img/s: 12')", {"metrics": {**RATE, "top5": {"pattern": "top5 ([0-9.]+)", "optional": True}}}, None),
        ("print('trained')", {}, "nothing shows that it did its work"),
        ("print('nothing')", {"success": ["^done$"]}, "success: '^done$' matches no line of its output"),
        ("print('img/s: 12')", {"metrics": {**RATE, "top5": "top5 ([0-9.]+)"}}, "metrics.top5: its pattern found no"),
        ("open('model.pt', 'w').close()", {"outputs": ["*.pt"]}, "outputs: it wrote no file *.pt"),
        ("print('Unable to locate sufficient 2 gpus. Exiting.')", {"metrics": RATE},
         "words of a failure (Unable to locate sufficient 2 gpus. Exiting.)"),
        ("print('img/s: 12')\nprint('ERROR: 0.5')\nprint('[1] ERROR: rank 1 is gone, stopping')", {"metrics": RATE},
         "words of a failure ([1] ERROR: rank 1"),
        ("print('img/s: 12')\nprint('[rank1]: ncclSystemError: System call failed', file=sys.stderr)",
         {"metrics": RATE}, "ncclSystemError"),
        # Words of failure that are not the end.
        ("print('torch.OutOfMemoryError: CUDA out of memory. Decreasing batch size to 8')\nprint('img/s: 12')",
         {"metrics": RATE}, None),
        ("import traceback\ntry: import tensor_board\nexcept ImportError: traceback.print_exc()\ntime.sleep(1.2)\n"
         "print('training')\nopen('model.pt', 'w').write('x')", {"outputs": "*.pt"}, "words of a failure (Traceback"),
        ("import atexit\nclass A:\n  def __del__(self): raise ValueError('late')\na = A()\nprint('img/s: 12')",
         {"metrics": RATE}, None),
    ],
)  # fmt: skip
def test_a_run_counts_where_something_shows_its_work(project, source, changes, unproven):
    (run,) = project(source, **changes)
    record = launch_run(run)
    assert record["status"] == "ok", record["failure"]
    assert record["unproven"] is None if unproven is None else unproven in record["unproven"], record["unproven"]


DIES = "print('img/s: 12', flush=True); time.sleep(0.2); os.kill(os.getpid(), 9)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "unproven"),
    [
        ({"command": pipe(), "metrics": RATE}, "an error would not be in its exit code"),
        ({"command": pipe(), "success": "never"}, "matches no line"),
        (
            {"command": ["bash", "-c", f"({sys.executable} program.py; echo finished) 2>&1"], "success": "finished"},
            "Killed",
        ),
    ],
)
def test_a_number_before_a_death_that_a_shell_hides_is_no_end(project, changes, unproven):
    (run,) = project(DIES, **changes)
    record = launch_run(run)
    assert record["status"] == "ok", record["failure"]
    assert unproven in record["unproven"]


TELLS_DEATHS = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 15)
WRAPPER = "import subprocess, sys; subprocess.run([sys.executable, 'program.py'])"


@pytest.mark.slow
@pytest.mark.skipif(not TELLS_DEATHS, reason="before Linux 6.15 only its parent is told how a process ended")
@pytest.mark.parametrize(
    ("source", "command", "death"),
    [
        (DIES, ["bash", "-c", f"{sys.executable} program.py & wait; true"], "was ended by signal 9 (SIGKILL)"),
        (DIES, [sys.executable, "-c", WRAPPER], "was ended by signal 9 (SIGKILL)"),
        ("if not os.fork():\n  sum(range(10**7)); print('img/s: 12', flush=True); time.sleep(0.2); os.abort()\n"
         "os.wait()", [sys.executable, "program.py"], "signal 6 (SIGABRT) (a copy of its own process)"),
        ("print('img/s: 12', flush=True); time.sleep(0.2); sys.exit(3)",
         ["sh", "-c", f"for lr in 1 2; do {sys.executable} program.py && break; done; true"], "with exit code 3"),
    ],
)  # fmt: skip
def test_a_death_that_no_exit_code_shows_is_a_doubt(project, source, command, death):
    source = f"sum(range(10**7))\n{source}"
    (run,) = project(source, command=command, metrics=RATE)
    record = launch_run(run)
    assert record["status"] == "ok", record["failure"]
    assert death in record["unproven"]


@pytest.mark.parametrize(("printed_s", "death"), [(4.0, "killed"), (5.1, "")])
def test_a_death_is_no_doubt_if_a_line_of_success_followed_it(printed_s, death):
    reader = reading.OutputReader({"success": ["done"]}, 1, 1, False)
    reader.take(b"done", at_s=printed_s)
    assert reader.to_json(deaths=[(5.0, "killed")])["death"] == death


@pytest.mark.slow
@pytest.mark.parametrize("helper", ["time.sleep(9)", "sys.exit(1)"])
def test_the_end_of_a_helper_is_no_death_of_the_work(project, helper):
    source = f"""
        import signal
        if not (pid := os.fork()):
            {helper}
        end = time.process_time() + 1
        while time.process_time() < end: pass
        {"os.kill(pid, signal.SIGKILL)" if "sleep" in helper else ""}
        os.wait()
        print("img/s: 12")
    """
    (run,) = project(source, metrics=RATE)
    assert launch_run(run)["unproven"] is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("python a.py 2>&1 | grep loss", "python a.py 2>&1 | grep loss"),
        ("set -e\ntorchrun a.py \\\n  --lr 1 || true", "torchrun a.py    --lr 1 || true"),
        ("set -o pipefail\npython a.py | tee b", ""),
        ("# python a.py | tee b\nPORT=$(python p.py | head -1)\nnvidia-smi | grep MiB\nrm a || true\npython a.py", ""),
        ("python a.py || exit 1", ""),
    ],
)
def test_what_hides_an_exit_code(tmp_path, text, line):
    (tmp_path / "run.sh").write_text(text)
    assert code_files.find_hidden_exit_code({"command": ["bash", "run.sh"], "folder": str(tmp_path)}) == line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (f"print('img/s: 12')\n{OUT_OF_MEMORY}", "oom", "CUDA out of memory"),
        ("print('img/s: 12')\n{}['rank']", "error", "KeyError: 'rank'"),
        ("import logging\nlogging.warning('a')\nraise SystemError('NCCL error in: x.cpp')", "error", "NCCL error"),
    ],
)
def test_an_uncaught_error_at_the_end_fails_the_run_whatever_hides_its_exit_code(project, source, kind, message):
    (run,) = project(source, command=pipe(), metrics=RATE)
    told = launch_run(run)["failure"]
    assert told["kind"] == kind and message in told["message"], told
    assert "set -o pipefail" in "".join(told["log"])


# What an earlier run left

RESUMES = """
    done = int(open({path!r}).read()) if os.path.exists({path!r}) else 0
    for epoch in range(done, 2):
        print('img/s: 12')
        os.makedirs(os.path.dirname({path!r}) or '.', exist_ok=True)
        open({path!r}, 'w').write(str(epoch + 1))
    print('done')
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", ["snapshot.pt", "out/deep/last.ckpt"])
def test_a_file_of_an_earlier_run_that_this_one_used_is_named(project, path):
    (run,) = project(RESUMES.format(path=path), success=["done"])
    assert [launch_run(run, f"run{number}")["unproven"] is None for number in range(3)] == [True, False, False]
    assert f"it read or changed what an earlier run wrote ({path})" in make_record("run2")["unproven"]
    (run,) = project(RESUMES.format(path=path), success=["done"], fresh=[path.partition("/")[0]])
    for number in range(3, 5):
        assert launch_run(run, f"run{number}")["unproven"] is None
        assert "img/s" in (Path(f"run{number}") / "train.log").read_text(), "it trained"
    aside = sorted(Path(program_files.HIDDEN, program_files.ASIDE).rglob(Path(path).name))
    assert [each.read_text() for each in aside] == ["2", "2"], "nothing is deleted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("open(os.environ['STUDY_RUN_FOLDER'] + '/a.pt', 'a').write('x')", {}),
        ("open(f'log{time.time_ns()}', 'w').write('x')", {}),
        ("if not os.path.exists('data/x'): os.mkdir('data'); open('data/x', 'w').write('x')\nopen('data/x').read()",
         {"reuses": ["data"]}),
        ("open('config.json').read()", {}),
    ],
    ids=["in its own folder", "new names", "reused on purpose", "the user's"],
)  # fmt: skip
def test_files_that_no_run_goes_on_from_are_no_doubt(project, source, changes):
    (run,) = project(f"{source}\nprint('done')", success=["done"], **changes)
    Path("config.json").write_text("{}")
    assert [launch_run(run, f"run{number}")["unproven"] for number in range(3)] == [None] * 3


@pytest.mark.slow
def test_under_written_only_what_runs_have_written_is_moved_aside(project):
    source = "open('out1.txt').read(); open('out7.txt', 'a').write('x'); print('done')"
    (run,) = project(source, success=["done"], fresh=["{written}/out[0-9]*.txt"])
    Path("out1.txt").write_text("the user's")
    assert [launch_run(run, f"run{number}")["unproven"] for number in range(3)] == [None] * 3
    assert Path("out7.txt").read_text() == "x", "each run has written it anew"


@pytest.mark.slow
def test_what_a_killed_run_left_is_seen_too(project):
    """It wrote its file and was killed with its launch, before anybody noted the file."""
    (run,) = project("open('a.pt', 'a').write('x'); print('done')", success=["done"], code=["program.py"])
    begun = program_files.ProgramFiles(inputs.define_run(run, machine.load("local_processes"), "data"), Path("run"))
    subprocess.run([sys.executable, "program.py"], check=True)
    del begun
    assert "what an earlier run wrote (a.pt)" in launch_run(run)["unproven"]


@pytest.mark.slow
def test_the_log_of_the_command_that_starts_the_runs_is_no_file_of_theirs(project):
    """``study measure ... > log.txt``: it grows in each run, and no run wrote it."""
    (run,) = project("print('done')", success=["done"])
    with open("log.txt", "w") as log:
        for number in range(2):
            files = program_files.ProgramFiles(
                inputs.define_run(run, machine.load("local_processes"), "data"), Path(f"run{number}")
            )
            print("a run begins", file=log, flush=True)
            names = files.finish()
            assert (names["written"], names["used"]) == ([], [])


def test_where_reads_are_not_noted_a_file_that_is_there_is_a_doubt(project, monkeypatch):
    (run,) = project(code=["program.py"])
    definition = inputs.define_run(run, machine.load("local_processes"), "data")
    before = program_files.ProgramFiles(definition, Path("run"))
    Path("a.pt").write_text("x")
    assert before.finish()["used"] == []
    monkeypatch.setattr(program_files, "_notes_reads", lambda _: False)
    assert program_files.ProgramFiles(definition, Path("run")).finish() == {
        "written": [], "used": ["a.pt"], "notes_reads": False, "is_whole": True,
    }  # fmt: skip


@pytest.mark.slow
def test_a_program_that_says_that_it_resumed_is_doubted_also_in_the_first_run(project):
    """Its checkpoint is of a run by hand, of which nobody knows."""
    source = "print('Resuming training from snapshot at Epoch 1')\nprint('img/s: 12')"
    (run,) = project(source, metrics=RATE)
    assert "it says that it went on from a checkpoint (Resuming training from snap" in launch_run(run)["unproven"]
    (run,) = project(source, metrics=RATE, reuses="snapshot.pt")
    assert launch_run(run, "other")["unproven"] is None


@pytest.mark.parametrize(
    "line",
    [b"=> no checkpoint found at 'a.pt'", b"Namespace(resume='', start_epoch=0)", b"resume_from_checkpoint: None",
     b"loaded pretrained weights", b"results of epoch 1"],
)  # fmt: skip
def test_settings_about_checkpoints_are_no_resumption(line):
    assert reading.read_again({0: [line]}, {}, 1, 1, False)["resumed"] == ""


@pytest.mark.slow
def test_in_a_folder_of_very_many_files_only_declared_outputs_are_looked_for(project, monkeypatch):
    monkeypatch.setattr(program_files, "MOST_FILES", 3)
    (run,) = project("open(f'{time.time_ns()}.pt', 'w').write('x')", outputs="*.pt", code=["."], folder="prog")
    for number in range(5):
        Path(f"prog/{number}").touch()
    records = [launch_run(run, f"run{number}") for number in range(2)]
    assert [each["unproven"] for each in records] == [None, None], "and what is noted in the folder is no code"
    assert "nobody looked for what an earlier run left" in records[0]["program"]["reason"]


# Processes that outlive the command


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "nohup {python} program.py > out.txt 2>&1 &",
        "setsid {python} program.py &",
        "{python} program.py & sleep 0.3",
        "(({python} program.py) &)",
    ],
)
def test_a_program_that_leaves_its_work_behind_fails(project, line):
    """And is ended: its times would be those of a part of the work."""
    (run,) = project("time.sleep(100)", command=["bash", "-c", line.format(python=sys.executable)])
    failure = launch_run(run)["failure"]
    assert failure["kind"] == "error" and "a process that it started was still at work and was" in failure["message"]
    assert "program.py" in failure["message"] and not at_work()


@pytest.mark.slow
def test_what_ends_with_the_command_is_no_fault(project):
    line = f"{sys.executable} program.py & wait; sleep 0.1 &"
    (run,) = project("print('done')", command=["bash", "-c", line], success=["done"])
    record = launch_run(run)
    assert (record["status"], record["unproven"]) == ("ok", None), record["failure"]


# Restarts

FAILS_ONCE = """
    print('training with 3 layers', flush=True)
    if not os.path.exists(os.environ['STUDY_RUN_FOLDER'] + '/once'):
        open(os.environ['STUDY_RUN_FOLDER'] + '/once', 'w').close()
        {fails}
    time.sleep(0.3)
    print('img/s: 12')
"""
LOOP = ["bash", "-c", f"until {sys.executable} program.py; do {{}} :; done"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("raise ValueError('a node failed')", ""),
        ("sys.exit(3)", "echo crashed. Respawning..;"),
        ("os.kill(os.getpid(), 9)", "echo restarting;"),
        ("sys.stderr.write('RuntimeError: NCCL error\\n'); sys.exit(1)", ""),
        ("time.sleep(0.3); sys.exit(3)", ""),  # without a word
    ],
)
def test_a_program_that_was_started_again_has_no_clean_time(project, fails, words):
    loop = [*LOOP[:2], LOOP[2].format(words)]
    (run,) = project(FAILS_ONCE.format(fails=fails), command=loop, metrics=RATE)
    record = launch_run(run)
    assert record["status"] == "ok", record["failure"]
    assert "it was started again" in record["unproven"]


def test_the_words_of_torchrun_for_a_failed_worker_are_a_restart():
    lines = [
        b"E1129 18:00:00.1 12 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0 "
        b"(pid: 12) of binary: /usr/bin/python",
        b"img/s: 12",
    ]
    output = reading.read_again({0: lines}, {"metrics": RATE}, 1, 1, False)
    assert output["restart"] and output["values"] == {"throughput_samples_per_s": 12.0}


def test_tracebacks_that_a_program_survives_are_no_restart_and_first_lines_are_of_each_stream():
    reader, raised = reading.OutputReader({}, 1, 1, False), (b"Traceback (most recent call last):", b"ValueError: a")
    for line in (*raised, *raised):
        reader.take(line, source=1)
    reader.take(b"training")
    assert reader.to_json()["restart"] == ""
    reader.take(b"training")  # although the error was read before its first lines
    assert reader.to_json()["restart"] == "Traceback (most recent call last):"


def test_an_error_that_a_program_survived_is_told_and_no_restart():
    lines = [
        b"training",
        b"Traceback (most recent call last):",
        b"ValueError: no tensorboard",
        b"epoch 1",
        b"img/s: 12",
    ]
    output = reading.read_again({0: lines}, {"metrics": RATE}, 1, 1, False)
    assert (output["failure"], output["restart"]) == ("", "")
    program = {"output": output}
    assert "it printed an error and went on (Traceback" in program_evidence.list_remarks(program)[0]


def test_words_of_failure_long_before_the_end_are_no_end():
    reader = reading.OutputReader({}, 1, 1, False)
    reader.take(b"CUDA out of memory. Decreasing batch size to 8", at_s=10.0)
    assert reader.to_json(ended_s=12.0)["failure"] and not reader.to_json(ended_s=200.0)["failure"]


def test_what_was_seen_while_a_program_ran_holds_when_its_output_is_read_again(project):
    """Times and processes are not in the stored output."""
    (run,) = project(metrics=RATE)
    Path("train.log").write_text("[0]<stdout>:CUDA out of memory. Retry\n[0]<stdout>:img/s: 5\n[1]<stdout>:img/s: 7\n")
    definition = inputs.define_run(run, machine.load("local_processes"), "data")
    live = {"failure": "", "restart": "python train.py", "death": ""}
    output = program_evidence.read_stored_output(Path(), definition, {"success": ["never"]}, live)
    assert (output["failure"], output["restart"], output["values"]) == ("", "python train.py", {})
    output = program_evidence.read_stored_output(Path(), definition, {"metrics": RATE}, live)
    assert output["values"] == {"throughput_samples_per_s": 5.0}, "of the first process"


@pytest.mark.slow
def test_a_run_that_it_reports_as_aborted_is_unproven(project):
    line = ':::MLLOG {"key": "%s", "time_ms": %d, "metadata": {"status": "%s"}}'
    (run,) = project(f"for key in ('run_start', 'run_stop'): print('{line}' % (key, time.time() * 1e3, 'aborted'))")
    assert "it reported run_stop with the status aborted" in launch_run(run)["unproven"]


# Readings, silence, causes, words, ranks and threads


@pytest.mark.slow
def test_a_corrected_pattern_reads_the_stored_output_again_and_trains_nothing(project):
    source = "print('img/s: 12.5, done')"
    (run,) = project(source, {"gpus": 2}, metrics={"throughput_samples_per_s": "images: ([0-9.]+)"}, success=["ready"])
    record = launch_run(run)
    assert record["unproven"].count("matches no line") == 1 and record["training"] is None
    renewal.make("run")
    (corrected,) = project(source, {"gpus": 2}, metrics=RATE, success=["done"])
    definitions = [inputs.define_run(each, machine.load("local_processes"), "data") for each in (run, corrected)]
    assert definitions[0].fingerprint == definitions[1].fingerprint, "so that nothing is trained"
    again = renewal.current_record("run/record.json", None, command.select_reading(corrected.spec))
    assert (again["unproven"], again["training"]["throughput_samples_per_s"]) == (None, 12.5)
    assert renewal.current_record("run/record.json") == again, "and it stays so"


@pytest.mark.slow
def test_a_silent_epoch_is_no_hang_unless_the_benchmark_has_a_limit(project):
    source = """
        line = ':::MLLOG {"key": "%s", "time_ms": %d}'
        for key in ("run_start", "epoch_start"): print(line % (key, time.time() * 1e3), flush=True)
        end = time.monotonic() + 7
        while time.monotonic() < end: pass
        for key in ("epoch_stop", "run_stop"): print(line % (key, time.time() * 1e3), flush=True)
    """
    (run,) = project(source, epochs={"strong": 1})
    record = launch_run(run, stall_s=3.0)
    assert (record["status"], record["unproven"]) == ("ok", None), record["failure"]
    (run,) = project(source, epochs={"strong": 1}, silence_limit_s=3)
    assert launch_run(run, "other")["failure"]["kind"] == "hang"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["torch.OutOfMemoryError: CUDA out of memory. Decreasing batch size to: 32.", "Traceback (most recent call "
          "last):", "FileNotFoundError: [Errno 2] No such file or directory: val.json"], "error"),
        (["Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory.", "step 3", "step 4",
          "Traceback (most recent call last):", '  File "a.py"', "ValueError: bad label"], "error"),
        (["Out of memory, using the CPU", "Fatal Python error: Segmentation fault"], "error"),
        (["Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory.", "Traceback (most recent "
          "call last):", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"], "oom"),
        (["Traceback (most recent call last):", "MemoryError: a", "During handling of the above exception, another "
          "exception occurred:", "Traceback (most recent call last):", "ValueError: b"], "oom"),
    ],
)  # fmt: skip
def test_memory_that_ran_out_is_the_cause_only_if_no_other_error_followed(tmp_path, lines, kind):
    lines = [*lines, "error: the program ended with exit code 1; its last lines: CUDA out of memory"]
    (tmp_path / "phases.jsonl").touch()
    tagged = [f"[0]<stderr>:{line}" for line in lines]
    assert failure.diagnose_failure(tmp_path, 1, None, tagged)["kind"] == kind


def test_an_error_that_was_survived_is_not_the_cause_of_another_one(tmp_path):
    (tmp_path / "phases.jsonl").touch()
    lines = ["OutOfMemoryError: Decreasing batch size", "FileNotFoundError: val.json"]
    lines.append("error: the program ended with exit code 1; its last lines: step 9 | FileNotFoundError: val.json")
    message = failure.diagnose_failure(tmp_path, 1, None, [f"[0]<stderr>:{line}" for line in lines])["message"]
    fatal = ["F1130 09:20:44.366193 24873 rendezvous.cc:161] [id=0] Termination timeout for `all reduce`"]
    fatal.append(
        "error: the program was ended by signal 6 (SIGABRT); its last lines: @ 0x7fdd117963d9 Eigen::pack_lhs()"
    )
    told = failure.diagnose_failure(tmp_path, 1, None, [f"[0]<stderr>:{line}" for line in fatal])["message"]
    assert "Termination timeout for `all reduce`" in told, told
    assert "Decreasing" not in message and "exit code 1; its last lines: step 9 | FileNotFound" in message


def test_a_shells_variable_in_braces_stays():
    words = ["epochs=7; echo ${epochs} {epochs} {{epochs}} ${{epochs}}"]
    assert placeholders.fill_placeholders(words, {"epochs": 3}) == ["epochs=7; echo ${epochs} 3 {epochs} ${epochs}"]
    assert placeholders.list_placeholders("${epochs}") == []


def test_numbers_among_the_words_are_words(project):
    (run,) = project(command=["python", "program.py", "--epochs", 2, 0.5], resume=["{checkpoint}", 1])
    assert run.spec["command"][-2:] == ["2", "0.5"] and run.spec["resume"] == ["{checkpoint}", "1"]


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        ({"command": ["python", "program.py", "{ranks}"]}, ""),
        ({"command": ["bash", "-c", "echo $WORLD_SIZE"]}, ""),
        ({"reads": "WORLD_SIZE", "success": "^done$"}, ""),
        ({"code": ["program.py"]}, "os.environ['WORLD_SIZE']"),
        (None, ""),
    ],
)
def test_a_job_must_get_its_number_of_ranks(project, changes, source):
    project(source, starts="job", **(changes or {}))
    if changes is not None:
        assert len(project(source, {"gpus": [1, 2]}, starts="job", **changes)) == 2
        return
    with pytest.raises(StudyError, match="nothing tells it that it has 2 ranks: give {ranks} in its words, or say"):
        project(source, {"gpus": [1, 2]}, starts="job")


def test_the_plan_says_how_many_threads_a_rank_gets(project):
    on = machine.load("local_processes")
    (line,) = programs.describe_threads(project(), on)
    assert f"mine: each rank gets OMP_NUM_THREADS={on['cores_per_rank']}" in line and "intra_op_threads" in line
    assert programs.describe_threads(project(grid={"intra_op_threads": 2}), on) == []
    assert programs.describe_threads(project(), on | {"environment": {"OMP_NUM_THREADS": "4"}}) == []
    (run,) = project("print(os.environ['OMP_NUM_THREADS'], 'threads')", {"intra_op_threads": 3}, success=["3 threads"])
    assert launch_run(run)["unproven"] is None


def test_the_plan_warns_of_a_pipe_that_hides_exit_codes(project):
    (line,) = programs.warn_of_hidden_exit_codes(project(command=["bash", "-c", "python program.py 2>&1 | tee log"]))
    assert "set -o pipefail" in line
    kept = "set -o pipefail; python program.py | tee log"
    assert programs.warn_of_hidden_exit_codes(project(command=["bash", "-c", kept])) == []
    Path("run.sh").write_text("python program.py |& tee log\n")
    assert "|& tee log)" in programs.warn_of_hidden_exit_codes(project(command=["bash", "run.sh"]))[0]


@pytest.mark.slow
def test_a_command_that_is_called_for_each_epoch_is_no_restart(project):
    loop = ["bash", "-c", f"for epoch in 1 2 3; do {sys.executable} program.py $epoch; done"]
    (run,) = project(
        "print('epoch', sys.argv[1], flush=True); time.sleep(0.3); print('img/s: 12')", command=loop, metrics=RATE
    )
    assert launch_run(run)["unproven"] is None


def test_fresh_is_within_the_programs_folder_and_none_of_its_code(project):
    for pattern, why in (("../a", "leads out of"), (os.sep + "tmp", "leads out of"), ("*.py", "names its code")):
        with pytest.raises(StudyError, match=f"fresh: .* {why}"):
            project(fresh=[pattern], code=["program.py"])
    Path("last.pt").touch()
    assert project(fresh="last.pt", command=[sys.executable, "program.py", "--snapshot", "last.pt"]), "a word, no code"


def test_caches_and_logs_of_the_shell_stay_and_the_plan_names_the_rest():
    kept = {"TORCH_HOME": "/a", "TRITON_CACHE_DIR": "/b", "JAX_COMPILATION_CACHE_DIR": "/c", "NCCL_DEBUG": "INFO",
            "HF_HOME": "/d"}  # fmt: skip
    steering = {"NCCL_ALGO": "Ring", "TORCH_COMPILE_DISABLE": "1", "JAX_ENABLE_X64": "1"}
    clean = environment.build_measuring_environment(kept | steering)
    assert kept.items() <= clean.items() and not clean.keys() & steering.keys()
    assert not environment.collect_steering(clean).keys() & kept.keys(), "they change no number"
    on = machine.load("local_processes") | {"environment": {"NCCL_ALGO": "Tree"}}
    (line,) = plan.describe_variables(sorted(steering), on)
    assert "do not get these variables of this shell: JAX_ENABLE_X64, TORCH_COMPILE_DISABLE (environment in" in line
    assert plan.describe_variables([], on) == []
