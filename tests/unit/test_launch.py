"""Launcher lines to the letter, and what is recorded of processes that end in different ways."""

import contextlib
import dataclasses
import gzip
import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from examples import define, expand
from fake_nvml import FakeNvml
from project import wait_for

from study.core import environment
from study.core.errors import StudyError
from study.data.images import conversion as image_conversion
from study.data.images.layouts import Source
from study.experiment import conversions
from study.experiment.definition import RunDefinition
from study.launch import launch, run_directory, supervision
from study.machines import launchers, run_layout
from study.machines.machine import load as machine


@pytest.mark.parametrize(
    ("name", "ranks", "line"),
    [
        ("local", 1, f"{sys.executable} {launchers.HOROVODRUN} --gloo -np 1 -H localhost:1 PROGRAM"),
        ("local", 4, f"{sys.executable} {launchers.HOROVODRUN} --gloo -np 4 -H localhost:4 PROGRAM"),
        ("local_mpi", 2, "mpirun -np 2 --oversubscribe --bind-to none -x PATH --tag-output PROGRAM"),
        ("summit", 384, "jsrun -n 384 -r 6 -a 1 -g 1 -c 7 -d packed -b packed:7 PROGRAM"),
        ("summit", 1, "jsrun -n 1 -r 1 -a 1 -g 1 -c 7 -d packed -b packed:7 PROGRAM"),
    ],
)
def test_lines(monkeypatch, name, ranks, line):
    monkeypatch.setattr(launchers.shutil, "which", lambda *_, **__: "/somewhere")
    assert " ".join(launchers.make_command(ranks, machine(name), ["PROGRAM"])) == line


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (6, 1), (7, 2), (384, 64), (3072, 512)])
def test_nodes_are_the_ceiling(ranks, nodes):
    assert launchers.count_nodes(ranks, machine("summit")) == nodes


def test_too_many_ranks_are_refused_with_the_reason():
    assert launchers.refuse_ranks(8, machine("local")) is None


@pytest.mark.parametrize(
    ("of_machine", "cores", "most"),
    [
        ({}, 2.0, 2),
        ({}, 0.5, 1),  # of a container; one rank can always be started
        ({}, 64.0, 8),  # as many as its file allows
        ({"cores_per_rank": 3}, 8.0, 2),
    ],
)
def test_this_host_carries_as_many_ranks_as_it_has_cores(monkeypatch, of_machine, cores, most):
    monkeypatch.setattr(launchers.cores, "count_usable_cores", lambda: cores)
    assert launchers.count_most_ranks({**machine("local"), **of_machine}) == most


@pytest.mark.parametrize(("visible", "most"), [(None, 3), ("0,2", 2), ("", 1), ("1,0,7,2", 2)])
def test_this_host_carries_as_many_ranks_as_it_has_gpus(monkeypatch, visible, most):
    monkeypatch.setattr(launchers.nvml, "import_library", lambda: FakeNvml(3))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launchers.count_most_ranks({**machine("local"), "gpus_per_rank": 1}) == most


def test_other_machines_carry_what_their_file_says():
    assert launchers.count_most_ranks(machine("summit")) == 4608 * 6
    assert launchers.count_most_ranks({**machine("local"), "hosts": {"a": 3, "b": 2}}) == 5
    assert "9 ranks need 2 nodes" in launchers.refuse_ranks(9, machine("local"))


SIDECAR = {"shape": [10, 61], "codes": [], "columns": [60, "a digest"], "sha256": "of the matrix",
           "has_plain_numbers": True, "source": {"bytes": 5, "sha256": "a checksum"},
           "read": {"files": 1, "bytes": 5, "digest": "d", "sample": None, "token": None}}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    run = define(expand(scaling="weak", gpus=1)[0])
    for split in ("train", "test"):
        made = conversions.describe_conversion(run.benchmark, run.dataset, split)
        (tmp_path / f"{split}.json").write_text(json.dumps(SIDECAR | made))
    data = {
        split: {"path": str(tmp_path / f"{split}.npy"), "sidecar": str(tmp_path / f"{split}.json")}
        for split in ("train", "test")
    }
    return dataclasses.replace(run, data=data)


def outcome_of(run, tmp_path, monkeypatch, script, limit_s=30, stall_limit_s=30):
    """Launch a shell script in place of the ranks, anew if there is an outcome; $FOLDER is the run's directory."""
    folder = tmp_path / "run"
    (folder / "outcome.json").unlink(missing_ok=True)
    assert launched(run, folder, monkeypatch, script, limit_s, stall_limit_s)
    return json.loads((folder / "outcome.json").read_text())


def launched(run, folder, monkeypatch, script, limit_s=30, stall_limit_s=30):
    """Whether the run was trained."""
    monkeypatch.setenv("FOLDER", str(folder))
    monkeypatch.setattr(launchers, "make_command", lambda *_: ["bash", "-c", script])
    return launch.launch(run, folder, limit_s, None, stall_limit_s)


WHOLE = "echo {} > $FOLDER/metrics.json; echo epoch > $FOLDER/history.csv"


def test_a_whole_run(run, tmp_path, monkeypatch):
    outcome = outcome_of(run, tmp_path, monkeypatch, WHOLE)
    assert (outcome["status"], outcome["failure"], outcome["exit_code"]) == ("ok", None, 0)
    assert set(outcome["files"]) >= {"run.yaml", "provenance.json", "phases.jsonl", "train.log", "metrics.json"}
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["launch_line"][0] == "bash"
    assert provenance["packages"]["tensorflow"]


TRACED = 'echo "[{}]" > $HOROVOD_TIMELINE; echo $HOROVOD_CACHE_CAPACITY > $FOLDER/ranks/capacity; sleep 0.1; '


def test_a_traced_run_keeps_its_timeline_compressed(run, tmp_path, monkeypatch):
    run.parameters["trace"] = True
    outcome = outcome_of(run, tmp_path, monkeypatch, TRACED + WHOLE + "; cat $FOLDER/ranks/capacity")
    assert "timeline.json.gz" in outcome["files"]
    with gzip.open(tmp_path / "run" / "timeline.json.gz", "rt") as handle:
        assert handle.read() == "[{}]\n"
    assert (tmp_path / "run" / "train.log").read_text() == "0\n"  # no response cache, so that negotiations tell ranks


def test_a_killed_run_keeps_its_timeline_too(run, tmp_path, monkeypatch):
    run.parameters["trace"] = True
    outcome = outcome_of(run, tmp_path, monkeypatch, TRACED + "kill -9 $$")
    assert (outcome["status"], "timeline.json.gz" in outcome["files"]) == ("failed", True)


def test_what_a_killed_launch_left_half_written_is_removed(run, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    left = tmp_path / "run" / ".metrics.json.4711.part"
    left.write_text("{")
    outcome = outcome_of(run, tmp_path, monkeypatch, f"test ! -e {left} && echo > {left}; {WHOLE}")
    assert outcome["status"] == "ok"
    assert left.exists() and left.name not in outcome["files"]


@pytest.mark.slow
def test_checkpoints_of_other_data_are_removed(run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    kept = "mkdir -p $FOLDER/checkpoints; ls $FOLDER/checkpoints; touch $FOLDER/checkpoints/epoch-1.npz; exit 1"
    outcome_of(run, tmp_path, monkeypatch, kept)
    outcome_of(run, tmp_path, monkeypatch, kept)
    assert (folder / "train.log").read_text() == "epoch-1.npz\n"
    described = json.loads((tmp_path / "train.json").read_text())
    (tmp_path / "train.json").write_text(json.dumps({**described, "source": {"bytes": 5, "sha256": "another"}}))
    outcome_of(run, tmp_path, monkeypatch, kept)
    assert (folder / "train.log").read_text() == ""


EXPORTED = {"HOROVOD_FUSION_THRESHOLD": "0", "OMP_NUM_THREADS": "7", "KMP_BLOCKTIME": "9", "TF_XLA_FLAGS": "--x",
            "NCCL_ALGO": "Ring", "ONEDNN_MAX_CPU_ISA": "AVX2", "STUDY_CORE_LIMIT": "1",
            "HOROVOD_TIMELINE": "/tmp/of_the_user.json", "PYTHONHASHSEED": "0", "PYTHONPATH": "/usr",
            "KERAS_BACKEND": "theano"}  # fmt: skip


def test_what_the_shell_exports_steers_nothing(run, tmp_path, monkeypatch):
    """Only what machine and run ask for is set, and the record shows all of it."""
    for name, value in EXPORTED.items():
        monkeypatch.setenv(name, value)
    run.machine["environment"] = {"KMP_AFFINITY": "compact"}
    shown = "env | grep -E '^((HOROVOD|OMP|KMP|TF|NCCL|ONEDNN|KERAS)_|PYTHON(H|P|N)|STUDY_(CORE|RANKS))' | sort; "
    outcome_of(run, tmp_path, monkeypatch, shown + WHOLE)
    wanted = {"KMP_AFFINITY": "compact", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}
    all_set = sorted({**wanted, **environment.SET}.items())
    assert (tmp_path / "run" / "train.log").read_text().split() == [f"{name}={value}" for name, value in all_set]
    told = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert {name: value for name, value in told["steering"].items() if environment.is_cleared(name)} == wanted
    assert told["isolation"] == []


ENDED = "Process {} exit with status code {}."


@pytest.mark.parametrize(
    ("printed", "kind", "rank", "words"),
    [
        (["[1]<stderr>:ValueError: shapes differ", "RuntimeError: Horovod says"], "error", 1, "shapes differ"),
        (["3: MemoryError: no more"], "oom", 3, "no more"),
        (["17:30:32 MemoryError: of the launcher"], "oom", None, "of the launcher"),
        (["error: a message of ours"], "error", None, "a message of ours"),
        (["[0]<stderr>:ResourceExhaustedError: OOM when allocating"], "oom", 0, "OOM when"),
        (["terminate called: std::bad_alloc"], "oom", None, "bad_alloc"),
        (["1: RuntimeError: DefaultCPUAllocator: cannot, can't allocate memory"], "oom", 1, "allocate"),
        (["2: torch.OutOfMemoryError: CUDA"], "oom", 2, "CUDA"),
        (["Exit code: 137"], "killed", None, "137"),
        (["[0]<stderr>:HorovodInternalError: shut down", "[1]<stderr>:x: F a] Check failed: no thread",
          ENDED.format(1, 134), ENDED.format(0, 143)], "error", 1, "Check failed: no thread"),
        (["[0]<stderr>:HorovodInternalError: shut down", "[1]<stdout>:epoch 3", ENDED.format(1, 137)],
         "killed", 1, "exit code 137"),
        (["[1]<stderr>:Segmentation fault", ENDED.format(1, 139)],
         "error", 1, "exit code 139; the last line is: Segmentation fault"),
        (["[1]<stderr>:tf.errors.UnknownError: HorovodAllgather", "[0]<stderr>:error: no room", ENDED.format(1, 1)],
         "error", 0, "no room"),
        (["mpirun does not run as root", "------"], "error", None, "mpirun does not run as root"),
        (["[0]<stderr>:tf.errors.UnknownError: Horovod", "[1]<stderr>:Timeout, server b not responding.",
          "[1]<stderr>:cut oferror: lost contact with b: its link"],
         "host_lost", 1, "error: lost contact with b: its link"),
    ],
)  # fmt: skip
def test_a_failed_run_has_the_cause_that_its_log_tells(run, tmp_path, monkeypatch, printed, kind, rank, words):
    script = "".join(f"echo {shlex.quote(line)}; " for line in printed)
    is_failure(outcome_of(run, tmp_path, monkeypatch, f"{script}exit 1"), kind, rank, words)


def is_failure(outcome, kind, rank, words):
    assert outcome["status"] == "failed"
    assert (outcome["failure"]["kind"], outcome["failure"]["rank"]) == (kind, rank)
    assert words in outcome["failure"]["message"]


def entered(*of_ranks):
    """A shell line as whose ranks on these hosts have entered these phases, one after the other; (host, phase) each."""
    edges = [
        {"phase": phase, "edge": "begin", "rank": rank, "host": host, "wall_ns": rank, "monotonic_ns": 1}
        for rank, (host, phase) in enumerate(of_ranks)
    ]
    return "".join(f"echo '{json.dumps(edge)}' >> $FOLDER/ranks/phases-{edge['rank']}.jsonl; " for edge in edges)


def test_a_lost_host_without_a_rank_s_tag_is_told_with_its_first_rank_and_its_phase(run, tmp_path, monkeypatch):
    """As mpirun prints it: what it runs besides ranks has no tag."""
    lines = entered(("a", "broadcast"), ("b", "load"), ("b", "startup"))
    failure = outcome_of(run, tmp_path, monkeypatch, lines + "echo 'error: lost contact with b: x'; exit 1")["failure"]
    found = [failure[key] for key in ("kind", "rank", "host", "phase")]
    assert found == ["host_lost", 1, "b", "load"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[0]<stderr>:error: no room", ("error", 0, "a", "train")),
        ("[0]<stderr>:MemoryError: no more", ("oom", 0, "a", "train")),
        ("an error of the launcher", ("error", 1, "b", "evaluate")),
    ],
)
def test_the_phase_is_that_of_the_rank_that_failed(run, tmp_path, monkeypatch, line, expected):
    """Another one was in a later phase by then; its phase is told only where no rank is known."""
    script = entered(("a", "train"), ("b", "evaluate")) + f"echo '{line}'; exit 1"
    failure = outcome_of(run, tmp_path, monkeypatch, script)["failure"]
    assert tuple(failure[key] for key in ("kind", "rank", "host", "phase")) == expected


@pytest.mark.parametrize(
    ("script", "limit_s", "waits"),
    [("echo 'error: lost contact with b: x'; exit 1", 60, True), ("sleep 60", 0.5, True), ("exit 1", 60, False)],
)
def test_a_run_is_recorded_after_ranks_out_of_reach_have_ended(run, tmp_path, monkeypatch, script, limit_s, waits):
    waited = []
    monkeypatch.setattr(launch, "_check_hosts", lambda *_: ([], run_layout.Links({}, "eno1", "10.0.0.0/24", {})))
    monkeypatch.setattr(launch, "_wait_for_guards", lambda stall_limit_s: waited.append(has_outcome()))

    def has_outcome():
        return (tmp_path / "run" / "outcome.json").exists()

    outcome_of(run, tmp_path, monkeypatch, script, limit_s)
    assert (waited, has_outcome()) == ([False] * waits, True)


def ended(pid):
    """Whether a process ends within two minutes; one that only waits to be reaped has ended."""
    for _ in range(1200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_the_time_limit_ends_the_run_and_all_it_started(run, tmp_path, monkeypatch):
    known = tmp_path / "child"
    script = f"(sleep 600 & echo $! > {known}; wait)"
    for limit_s in (1, 10, 100):  # until it is one within which this machine starts a shell
        outcome = outcome_of(run, tmp_path, monkeypatch, script, limit_s)
        assert outcome["failure"]["kind"] == "timeout"
        assert limit_s <= outcome["runtime_s"] < limit_s + 19
        if known.exists():
            break
    assert ended(int(known.read_text()))


def test_a_folder_that_is_not_a_run_s_is_not_emptied(run, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(StudyError, match="is not a run's directory, it holds thesis.txt"):
        outcome_of(run, tmp_path, monkeypatch, WHOLE)
    assert (tmp_path / "run" / "thesis.txt").exists()


def test_a_link_in_a_run_s_folder_is_removed_and_what_it_points_to_stays(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "thesis.txt").write_text("years of work")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoints").symlink_to(scratch)
    run_directory.remove_leftovers(folder)
    assert list(folder.iterdir()) == []
    assert (scratch / "thesis.txt").exists()


def test_two_launches_do_not_share_a_folder(run, tmp_path, monkeypatch):
    with run_directory.lock_folder(tmp_path / "run"):
        monkeypatch.setattr(launchers, "make_command", lambda *_: ["true"])
        monkeypatch.setattr(launch, "OVERHEAD_S", -9.5)
        with pytest.raises(StudyError, match="an earlier launch of this run is still at work"):
            launch.launch(run, tmp_path / "run", 10)
    assert list((tmp_path / "run").iterdir()) == []


def launched_elsewhere(run, tmp_path, job=None):
    """Launch, in a process of its own, a child that sleeps; returns that process and the child's pid."""
    run.write(tmp_path / "elsewhere.yaml")
    program = f"""
from study.experiment.definition import RunDefinition
from study.launch import launch
from study.machines import launchers
launchers.make_command = lambda *_: ["bash", "-c", "echo $$ > {tmp_path}/child; exec sleep 600"]
launch.launch(RunDefinition.read({str(tmp_path / "elsewhere.yaml")!r}), {str(tmp_path / "run")!r}, 500, {job!r})
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    known = tmp_path / "child"
    wait_for(
        lambda: known.exists() and known.read_text().strip() and handles(process.pid, signal.SIGTERM, signal.SIGHUP),
        process,
        120,
    )
    return process, int(known.read_text())


def handles(pid, *numbers):
    """Whether a process has set handlers for some signals."""
    handled = int(Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0], 16)
    return all(handled >> (number - 1) & 1 for number in numbers)


@pytest.mark.slow
def test_a_launch_that_is_killed_takes_its_ranks_along(run, tmp_path, monkeypatch):
    """SIGKILL gives it no chance to end them itself. Until they have ended the folder is theirs."""
    process, child = launched_elsewhere(run, tmp_path)
    process.kill()
    process.wait()
    assert ended(child)
    assert outcome_of(run, tmp_path, monkeypatch, WHOLE)["status"] == "ok"


@pytest.mark.parametrize(("took_s", "stall_s", "pause_s"), [(0.001, 900, 1), (0.5, 900, 25), (60, 900, 90), (9, 2, 1)])
def test_looking_for_the_heartbeats_of_thousands_of_ranks_takes_little_of_the_time(took_s, stall_s, pause_s):
    assert supervision._compute_pause_s(took_s, stall_s) == pause_s


BEATING = "for i in 1 2 3 4 5 6; do touch $FOLDER/ranks/heartbeat-00000; sleep 0.5; done; "


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize(
    ("script", "kind"), [("sleep 60", "hang"), (BEATING + WHOLE, None), (BEATING + "sleep 60", "hang")]
)
def test_a_run_without_heartbeats_is_ended(run, tmp_path, monkeypatch, script, kind):
    outcome = outcome_of(run, tmp_path, monkeypatch, script, stall_limit_s=2)
    assert (outcome["failure"] or {}).get("kind") == kind
    assert outcome["runtime_s"] < 40, "not the minute that it would have slept"
    if kind:
        message = "no rank sent a heartbeat for 2 s (stall_limit_s), and the run was ended"
        assert outcome["failure"]["message"] == message


def test_the_record_of_a_failure_has_the_last_lines_of_the_log(run, tmp_path, monkeypatch):
    outcome = outcome_of(run, tmp_path, monkeypatch, "for i in $(seq 100); do echo line $i; done; exit 3")
    assert outcome["failure"]["log"] == [f"line {i}" for i in range(81, 101)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_launch_ends_its_ranks_and_leaves_no_outcome(run, tmp_path, number):
    """SIGTERM, as a batch system sends it, or the SIGHUP of a closed terminal must not leave ranks behind."""
    process, child = launched_elsewhere(run, tmp_path)
    process.send_signal(number)
    assert process.wait(120) == 128 + number
    assert ended(child)
    assert not (tmp_path / "run" / "outcome.json").exists()


def lost_launch(run, tmp_path, job=None):
    """A launch that was killed with all that belonged to it, as when its node dies."""
    process, child = launched_elsewhere(run, tmp_path, job)
    process.kill()
    process.wait()
    assert ended(child)


@pytest.mark.slow
def test_a_launch_that_was_lost_twice_is_recorded(run, tmp_path):
    lost_launch(run, tmp_path)
    assert not launch.record_lost_run(run, tmp_path / "run"), "it is tried once more"
    lost_launch(run, tmp_path)
    time.sleep(0.5)  # until its sampler has ended, too
    lost_s = time.time()
    time.sleep(0.1)
    assert launch.record_lost_run(run, tmp_path / "run")
    outcome = json.loads((tmp_path / "run" / "outcome.json").read_text())
    assert (outcome["status"], outcome["failure"]["kind"], outcome["exit_code"]) == ("failed", "killed", None)
    assert outcome["runtime_s"] >= 0
    assert outcome["started_wall_ns"] / 1e9 + outcome["runtime_s"] <= lost_s, "until its last heartbeat"
    assert {"run.yaml", "provenance.json", "phases.jsonl"} <= set(outcome["files"])
    assert not launch.record_lost_run(run, tmp_path / "run"), "it has its outcome"


def test_a_run_that_has_its_outcome_is_not_trained_again(run, tmp_path, monkeypatch):
    outcome_of(run, tmp_path, monkeypatch, WHOLE)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert not launched(run, tmp_path / "run", monkeypatch, "exit 1")
    assert not launched(dataclasses.replace(run, attempt=2), tmp_path / "run", monkeypatch, "exit 1")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "run" / "run.yaml").write_text("damaged")
    assert not launched(run, tmp_path / "run", monkeypatch, "exit 1"), "nothing shows that it is another run"


@pytest.mark.parametrize("is_other", ["definition", "data"])
def test_an_outcome_of_another_definition_or_of_other_data_is_kept(run, tmp_path, monkeypatch, is_other):
    """With the earlier attempts of that run, which are not the new one's."""
    results = tmp_path / "results" / "local"
    name = Path("runs", "nt3", "data", "point")
    assert launched(run, results / name, monkeypatch, WHOLE)
    first = (results / name / "outcome.json").read_bytes()
    (results / "attempts" / "1" / name).mkdir(parents=True)
    if is_other == "definition":
        run = dataclasses.replace(run, fingerprint="another")
    else:
        described = json.loads((tmp_path / "test.json").read_text())
        described["source"]["sha256"] = "another checksum"
        (tmp_path / "test.json").write_text(json.dumps(described))
    assert launched(run, results / name, monkeypatch, WHOLE)
    assert (results / "replaced" / "1" / name / "outcome.json").read_bytes() == first
    assert (results / "replaced" / "1" / "attempts" / "1" / name).is_dir()
    assert not (results / "attempts" / "1" / name).exists()
    assert RunDefinition.read(results / name / "run.yaml").fingerprint == run.fingerprint
    assert launched(dataclasses.replace(run, fingerprint="a third"), results / name, monkeypatch, WHOLE)
    assert (results / "replaced" / "2" / name / "outcome.json").exists()
    outcome_of(run, tmp_path, monkeypatch, WHOLE)
    with pytest.raises(StudyError, match="holds the outcome of another run, which is never overwritten; give a new"):
        launched(dataclasses.replace(run, fingerprint="a fourth"), tmp_path / "run", monkeypatch, WHOLE)


def test_a_launch_waits_for_another_one_and_takes_its_outcome(run, tmp_path, monkeypatch, capfd):
    """As of two Snakemakes with one results folder; the one that waits is not there when the folder is put aside."""
    folder = tmp_path / "run"
    monkeypatch.setattr(run_directory, "LOCK_S", 0.1)
    outcome_of(run, tmp_path, monkeypatch, WHOLE)
    (folder / "outcome.json").rename(tmp_path / "outcome.json")
    with contextlib.ExitStack() as stack:
        stack.enter_context(run_directory.lock_folder(folder))
        waiting = threading.Thread(target=lambda: trained.append(launched(run, folder, monkeypatch, "exit 1")))
        trained = []
        waiting.start()
        time.sleep(1)
        folder.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", folder)
        (tmp_path / "outcome.json").rename(folder / "outcome.json")
    waiting.join(20)
    assert trained == [False]
    assert "waiting for the end of an earlier launch of this run" in capfd.readouterr().err


@pytest.mark.parametrize(
    "layout", [{}, {"layout": "mnist"}, {"layout": "tfrecord", "first_label": 0}, {"layout": "folder"}]
)
def test_images_are_described_alike_by_the_plan_and_by_their_conversion(layout):
    spec = {"files": {"train": {"kind": "images"}}, "model": {"classes": 10, "channels": 3, "resize": 32}}
    source = Source(layout.get("layout", "tfrecord"), "a path", layout.get("first_label"))
    converted = image_conversion.describe_conversion(
        Source.from_param(source.as_param), conversions.select_image_options(spec)
    )
    assert conversions.describe_conversion(spec, layout, "train") == converted


@pytest.mark.slow
def test_a_launch_that_was_lost_at_its_walltime_is_not_tried_again(run, tmp_path):
    lost_launch(run, tmp_path, job={"id": "7", "ends_s": time.time() + 20})
    assert launch.record_lost_run(run, tmp_path / "run")
    failure = json.loads((tmp_path / "run" / "outcome.json").read_text())["failure"]
    assert (failure["kind"], failure["message"]) == ("timeout", "its batch job 7 reached its walltime and was killed")


@pytest.mark.slow
def test_nothing_is_given_up_that_was_not_launched_or_is_another_run_s(run, tmp_path, monkeypatch):
    assert not launch.record_lost_run(run, tmp_path / "run")
    lost_launch(run, tmp_path)
    assert not launch.record_lost_run(dataclasses.replace(run, fingerprint="another"), tmp_path / "run")
    monkeypatch.setenv("STUDY_SESSION", "another")
    assert not launch.record_lost_run(run, tmp_path / "run")
    assert not (tmp_path / "run" / "outcome.json").exists()


@pytest.mark.slow
def test_the_signal_of_the_walltime_is_a_timeout_with_its_record(run, tmp_path):
    """At any other moment a SIGTERM is a cancelled job: no record, so that it runs again."""
    process, child = launched_elsewhere(run, tmp_path, job={"id": "7", "ends_s": time.time() + 20})
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert ended(child)
    failure = json.loads((tmp_path / "run" / "outcome.json").read_text())["failure"]
    assert (failure["kind"], "reached its walltime" in failure["message"]) == ("timeout", True)


def test_a_launch_leaves_the_signal_handlers_that_it_found(run, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    outcome_of(run, tmp_path, monkeypatch, WHOLE)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before


NO_ANSWER = "srun: error: Unable to create step for job 7: Unable to contact slurm controller (connect failure)"


def test_a_launch_that_slurm_did_not_answer_is_no_failed_run(run, tmp_path, monkeypatch):
    run = dataclasses.replace(run, machine={**run.machine, "launcher": "srun"})
    with pytest.raises(StudyError, match="could not start the ranks: srun: error: Unable to create step"):
        outcome_of(run, tmp_path, monkeypatch, f"echo '{NO_ANSWER}' >&2; exit 1")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["provenance.json"]
    assert not launch.record_lost_run(run, tmp_path / "run"), "the next job trains"


def test_a_run_that_had_begun_is_recorded_whatever_slurm_says(run, tmp_path, monkeypatch):
    run = dataclasses.replace(run, machine={**run.machine, "launcher": "srun"})
    script = f"echo begun > $FOLDER/ranks/begun; echo '{NO_ANSWER}' >&2; exit 1"
    assert outcome_of(run, tmp_path, monkeypatch, script)["status"] == "failed"
