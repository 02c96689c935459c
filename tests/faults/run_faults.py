"""What happens to runs: ranks and launchers that die, stop, hang or are cut off; real processes and real signals."""

import json
import signal

import psutil
from place import WAIT_S, signal_and_wait
from registry import fault

from study.core import files

LONG = {"epochs": 100_000}
ENDLESS_LOAD = {"loader": "read_csv", "straggler_loads": 10**9, "trace": True}  # of the last rank


def failed(place, kind, phase=None, name="run"):
    """The failure in the outcome, which must be of this kind."""
    failure = place.outcome(name)["failure"]
    assert failure["kind"] == kind, failure
    assert phase is None or failure["phase"] == phase, failure
    assert failure["message"], failure
    place.nothing_is_left(name)
    return failure


@fault("a rank is killed in training", "run", quick=True)
def rank_killed_in_training(place):
    """A failed record of kind killed with the rank; no process is left."""
    launch = place.launch(**LONG)
    place.wait_for_epoch(2)
    signal_and_wait(place, launch, place.ranks()[1], signal.SIGKILL)
    failure = failed(place, "killed", "train")
    assert failure["log"], "the last lines of the log are in the record"


@fault("a rank is killed while it loads", "run")
def rank_killed_while_loading(place):
    """A failed record of kind killed in phase load or broadcast, where the others wait; no process is left."""
    launch = place.launch(**ENDLESS_LOAD)
    place.wait_for_phase("load")
    place.wait_for_phase("broadcast", rank=0)
    signal_and_wait(place, launch, place.ranks()[1], signal.SIGKILL)
    assert failed(place, "killed")["phase"] in ("load", "broadcast")


@fault("the launcher is killed", "run")
def launcher_killed(place):
    """A failed record of kind killed; the ranks end with it."""
    launch = place.launch(**LONG)
    place.wait_for_epoch(1)
    (launcher,) = [p for p in place.processes() if _is_launcher(p)]
    signal_and_wait(place, launch, launcher, signal.SIGKILL)
    failed(place, "killed", "train")


def _is_launcher(process):
    """Whether it was started by the run's guard to start the ranks."""
    started = " ".join(process.parent().cmdline())
    return "guard.py" in started and "train.py" in " ".join(process.info["cmdline"])


@fault("the launching process is killed", "run", quick=True)
def launch_killed(place):
    """No process is left, nothing looks whole, and the run can be started again and is good."""
    launch = place.launch(**LONG)
    place.wait_for_epoch(1)
    signal_and_wait(place, launch, launch, signal.SIGKILL)
    place.nothing_is_left()
    place.detected()
    assert not place.has_outcome()
    assert place.run()["status"] == "ok"


@fault("a run and its guard are killed", "run")
def temporary_files(place):
    """No temporary file of a rank is left: neither of a run that ends well, nor of a killed one after the next run."""
    temporary = place.folder / "tmp"
    temporary.mkdir()
    place.variables = {"TMPDIR": str(temporary)}
    assert place.run()["status"] == "ok"
    assert list(temporary.iterdir()) == []
    launch = place.launch("broken", **LONG)
    place.wait_for_epoch(1, "broken")
    assert [each for each in temporary.glob("*/*") if each.suffix == ".py"], "TensorFlow writes some"
    (guard,) = [each for each in psutil.Process(launch.pid).children() if "guard.py" in " ".join(each.cmdline())]
    place.injected()
    launch.kill()
    guard.kill()
    for process in place.processes("broken"):
        process.kill()
    launch.wait()
    assert place.run("whole")["status"] == "ok"
    place.detected()
    assert list(temporary.iterdir()) == []


@fault("Ctrl-C", "run")
def interrupted(place):
    """The ranks are ended, and there is no record: it was cancelled, and runs again."""
    launch = place.launch(**LONG)
    place.wait_for_epoch(1)
    signal_and_wait(place, launch, launch, signal.SIGINT)
    assert not place.has_outcome()
    place.nothing_is_left()


@fault("a rank hangs in training", "run")
def rank_hangs_in_training(place):
    """Ended after the stall limit, not at the time limit; a failed record of kind hang."""
    launch = place.launch(options=["--stall-limit-s", "8"], **LONG)
    place.wait_for_epoch(2)
    signal_and_wait(place, launch, place.ranks()[1], signal.SIGSTOP)
    failed(place, "hang", "train")


@fault("a rank hangs while it loads", "run")
def rank_hangs_in_loading(place):
    """The others wait in the broadcast; ended after the stall limit, a failed record of kind hang."""
    launch = place.launch(options=["--stall-limit-s", "8"], **ENDLESS_LOAD)
    place.wait_for_phase("broadcast", rank=0)
    signal_and_wait(place, launch, place.ranks()[1], signal.SIGSTOP)
    failed(place, "hang")


LOADING_FOR_LONG = """import os, pathlib, time
import pandas
read = pandas.read_csv
def read_for_long(*arguments, **options):
    until = time.monotonic() + float(pathlib.Path({file!r}).read_text())
    while time.monotonic() < until:
        read(*arguments, **options)
    return read(*arguments, **options)
if os.environ["HOROVOD_RANK"] == "1":
    pandas.read_csv = read_for_long
"""


@fault("a rank loads for long", "run")
def slow_loading_is_no_hang(place):
    """Not a fault: the others wait for longer than the stall limit, and the run is good."""
    seconds = place.copy.root / "seconds"
    place.copy.in_ranks(LOADING_FOR_LONG.format(file=str(seconds)))
    for limit_s in (6, 30):  # until it is one within which this machine starts the ranks
        seconds.write_text(str(limit_s + 4))
        place.injected()
        outcome = place.run(options=["--stall-limit-s", str(limit_s)], loader="read_csv")
        place.detected()
        if outcome["status"] == "ok" or outcome["failure"]["phase"]:
            break
    assert outcome["status"] == "ok", outcome["failure"]
    assert place.seconds_in("load", rank=1) > limit_s + 4 + place.seconds_in("load", rank=0)


@fault("the run takes longer than it may", "run", quick=True)
def time_limit(place):
    """Ended at its limit; a failed record of kind timeout; no process is left."""
    for limit_s in (12, 60, 300):  # until it is one within which this machine begins to train
        place.injected()
        place.run(options=["--time-limit-s", str(limit_s)], **LONG)
        place.detected()
        if place.outcome()["failure"]["phase"] == "train":
            break
    failed(place, "timeout", "train")
    assert limit_s <= place.outcome()["runtime_s"] < limit_s + 18


@fault("a rank gets no more memory", "run")
def out_of_memory(place):
    """A failed record of that rank, not of the others that ended with it; no process is left."""
    launch = place.launch(**LONG)
    place.wait_for_epoch(1)
    rank = place.ranks()[1]
    place.injected()
    rank.rlimit(9, (rank.memory_info().vms + (1 << 20),) * 2)  # RLIMIT_AS
    launch.wait(WAIT_S)
    place.detected()
    failure = place.outcome()["failure"]
    assert failure["kind"] in ("oom", "killed", "error") and failure["rank"] == 1, failure
    place.nothing_is_left()


@fault("an error in a rank's Python", "run", quick=True)
def python_error(place):
    """A failed record of kind error with the rank's own message; no process is left."""
    broken = place.folder / "train.npy"
    broken.write_bytes(b"not a matrix")
    described = files.read_json(place.definition()["data"]["train"]["sidecar"])
    sidecar = place.folder / "train.json"
    files.write_sealed(sidecar, described | {"sha256": files.sha256(broken)})  # so that only the rank sees the fault
    place.injected()
    place.run(data={"train": {"path": str(broken), "sidecar": str(sidecar)}})
    place.detected()
    assert "train.npy" in failed(place, "error", "load")["message"]


def _weights(folder):
    return [rank["final_weights_crc32"] for rank in json.loads((folder / "metrics.json").read_text())["ranks"]]


@fault("the last checkpoint is damaged", "checkpoint")
def damaged_checkpoint(place):
    """The one before it is used; the weights are those of a run without a break."""
    point = {"gpus": 1, "epochs": 9, "checkpoint_epochs": 1}
    place.run("whole", **point)
    place.copy.hold_training(after=7)
    launch = place.launch("broken", **point)
    place.wait_for_epoch(6, "broken")
    launch.kill()
    launch.wait()
    place.nothing_is_left("broken")
    place.copy.release_training()
    last = max((place.folder / "broken" / "checkpoints").glob("epoch-*.npz"))
    last.write_bytes(last.read_bytes()[:-100])
    place.injected()
    assert place.run("broken", **point)["status"] == "ok"
    place.detected()
    assert f"resumed after epoch {int(last.stem[6:]) - 1}" in (place.folder / "broken" / "train.log").read_text()
    assert _weights(place.folder / "whole") == _weights(place.folder / "broken")
