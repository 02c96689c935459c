"""What happens to runs on several hosts while they run: links, hosts, their sshd, disks and clocks that fail."""

import os
import signal
import time

from place import WAIT_S
from registry import fault
from run_faults import ENDLESS_LOAD, LONG

from lab import Freezer, laboratory
from study.machines import remote

STALL_S = 120  # the least with which the guards' limits are those of longer ones
WATCHED = ["--stall-limit-s", str(STALL_S)]
GUARD_S = remote.compute_silence_s(STALL_S)
SSHD = {"sshd", "sshd-session"}
TINY = {"epochs": 2}
SAMPLED = {"power_model": {"idle_w": 50, "peak_w": 150}}  # then each host has a sampler too


def _link(place, state, host="h2"):
    place.lab.on(host, "ip", "link", "set", "br0", state)


def _lost(place, launch, *phases, rank=1, host="h2"):
    """The launch ends within the stall limit with a record of the lost host, and no rank outlives it anywhere."""
    launch.wait(WAIT_S)
    place.detected()
    failure = place.outcome()["failure"]
    expected = {"kind": "host_lost", "rank": rank, "host": host}
    assert {key: failure[key] for key in expected} == expected, failure
    assert failure["phase"] in phases, failure
    assert f"lost contact with {host}" in failure["message"], failure
    assert place.seconds < STALL_S, place.seconds


def _next_is_good(place, **changes):
    place.nothing_is_left()
    assert place.run("next", **TINY, **changes)["status"] == "ok"
    assert place.lab.left() == {}


def _cut(place, launch, phase):
    """Cut the link of h2 until the record is there; its ranks have ended by then, though it cannot be reached."""
    place.injected()
    _link(place, "down")
    _lost(place, launch, phase)
    assert place.lab.left() == {}, "when the run is recorded, they have ended on all hosts"
    _link(place, "up")
    _next_is_good(place)


@fault("a link goes down in training", "hosts", quick=True)
def link_down_in_training(place):
    """Kind host_lost with rank, host and phase, within the stall limit; no process is left on the host that cannot be
    reached; the next run is good.
    """
    with laboratory(place, 2) as place:
        launch = place.launch(options=["--stall-limit-s", "60"], machine=SAMPLED, **LONG)
        place.wait_for_epoch(2)
        assert any("sample_power.py" in line for line in place.lab.left()["h2"])
        _cut(place, launch, "train")


@fault("the launching host loses all links", "hosts")
def launching_host_cut_off(place):
    """Kind host_lost in training within the stall limit; all hosts end their ranks; the next run is good."""
    with laboratory(place, 2) as place:
        launch = place.launch(options=WATCHED, **LONG)
        place.wait_for_epoch(2)
        place.injected()
        _link(place, "down", "h0")
        _any_lost(place, launch)
        assert place.seconds < STALL_S, place.seconds
        assert place.lab.left() == {}
        _link(place, "up", "h0")
        _next_is_good(place)


def _any_lost(place, launch):
    launch.wait(WAIT_S)
    place.detected()
    failure = place.outcome()["failure"]
    assert (failure["kind"], failure["phase"]) == ("host_lost", "train"), failure
    assert (failure["rank"], failure["host"]) in ((0, "h1"), (1, "h2")), failure


@fault("the launching host freezes", "hosts")
def launching_host_freezes(place):
    """All hosts end their ranks meanwhile. When it goes on, it records kind host_lost; the next run is good."""
    with laboratory(place, 2) as place:
        launch = place.launch(options=[*WATCHED[:1], "600"], **LONG)  # it may be frozen for longer on a busy machine
        place.wait_for_epoch(2)
        place.lab.signal("h0", signal.SIGSTOP)
        place.wait_until(lambda: place.lab.left() == {}, "ranks to end")
        place.injected()
        place.lab.signal("h0", signal.SIGCONT)
        _any_lost(place, launch)
        _next_is_good(place)


@fault("the launching process is killed while a link is down", "hosts")
def launch_killed_with_link_down(place):
    """The host that cannot be reached ends its ranks by itself; nothing looks whole."""
    with laboratory(place, 2) as place:
        launch = place.launch(options=WATCHED, **ENDLESS_LOAD)  # so that the rank there waits for nobody
        place.wait_for_phase("load")
        _link(place, "down")
        launch.kill()
        launch.wait()
        place.injected()
        place.wait_until(lambda: place.lab.left() == {}, "ranks on h2 to end")
        place.detected()
        assert place.seconds < STALL_S, place.seconds
        assert not place.has_outcome()
        _link(place, "up")
        _next_is_good(place)


@fault("a link becomes slow in training", "hosts")
def slow_link(place):
    """Not a fault: steps take longer, no host is lost, and the run is good."""
    with laboratory(place, 2) as place:
        place.copy.hold_training(after=1)
        launch = place.launch(options=WATCHED, epochs=3)
        place.wait_for_epoch(1)
        for host, device in (("h0", "v2"), ("h2", "br0")):
            limit = ["rate", "1mbit", "burst", "64kb", "latency", "50ms"]
            place.lab.on(host, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *limit)
        place.injected()
        place.copy.release_training()
        launch.wait(WAIT_S)
        place.detected()
        assert place.outcome()["status"] == "ok", place.outcome()["failure"]
        assert place.seconds > 20, "gradients of 1 MB take 8 s a step"
        assert place.lab.left() == {}


@fault("a host freezes", "hosts")
def host_freezes(place):
    """Kind host_lost with rank, host and phase, within the stall limit; when the host goes on, its ranks end; the next
    run is good.
    """
    with laboratory(place, 2) as place:
        launch = place.launch(options=WATCHED, **LONG)
        place.wait_for_epoch(2)
        place.injected()
        place.lab.signal("h2", signal.SIGSTOP)
        _lost(place, launch, "train")
        assert set(place.lab.left()) == {"h2"}, "they are stopped there"
        place.lab.signal("h2", signal.SIGCONT)
        _next_is_good(place)


@fault("a host freezes, and thaws without a link", "hosts")
def host_thaws_without_link(place):
    """As before; its guard finds its limit passed, and does not wait for it once more."""
    with laboratory(place, 2) as place, Freezer(f"faults-{os.getpid()}") as freezer:
        launch = place.launch(options=WATCHED, **LONG)
        place.wait_for_epoch(2)
        place.injected()
        freezer.freeze(place.lab.processes("h2"))
        _link(place, "down")
        _lost(place, launch, "train")
        assert set(place.lab.left()) == {"h2"}
        freezer.thaw()
        thawed = time.monotonic()
        place.wait_until(lambda: place.lab.left() == {}, "ranks on h2 to end")
        assert time.monotonic() - thawed < GUARD_S / 2, "it would take nearly GUARD_S if it waited once more"
        _link(place, "up")
        _next_is_good(place)


@fault("a host's sshd is killed with its connections", "hosts")
def sshd_killed(place):
    """Kind host_lost with rank, host and phase; no process is left; with an sshd again, the next run is good."""
    with laboratory(place, 2) as place:
        launch = place.launch(options=WATCHED, **LONG)
        place.wait_for_epoch(2)
        place.injected()
        place.lab.signal("h2", signal.SIGKILL, SSHD)
        _lost(place, launch, "train")
        assert place.lab.left() == {}
        place.lab("sshd", "h2")
        _next_is_good(place)


@fault("a host's sshd no longer listens", "hosts")
def sshd_does_not_listen(place):
    """Not a fault: the run's connections are there, and it is good; the next one is refused with one line."""
    with laboratory(place, 2) as place:
        place.copy.hold_training(after=1)
        launch = place.launch(options=WATCHED, **TINY)
        place.wait_for_epoch(1)
        place.injected()
        place.lab.on("h2", "sh", "-c", "kill -9 $(cat $LAB_DIR/h2/sshd.pid)")
        place.copy.release_training()
        launch.wait(WAIT_S)
        place.detected()
        assert place.outcome()["status"] == "ok", place.outcome()["failure"]
        refused = place.launch("next", **TINY)
        _, errors = refused.communicate(timeout=WAIT_S)
        assert refused.returncode == 1 and "error: h2: ssh cannot reach it" in errors, errors


@fault("a host's guard is killed", "hosts")
def guard_killed(place):
    """Kind host_lost with rank, host and phase; the ranks end with their guard; the next run is good."""
    with laboratory(place, 2) as place:
        launch = place.launch(options=WATCHED, **LONG)
        place.wait_for_epoch(2)
        guards = [each for each in place.lab.processes("h2") if "--remote" in each.info["cmdline"]]
        place.injected()
        min(guards, key=lambda each: each.create_time()).kill()  # the other one is there for this
        _lost(place, launch, "train")
        _next_is_good(place)


@fault("a host's own storage is full while files are staged", "hosts", quick=True)
def storage_of_a_host_full(place):
    """One line with rank, host and the words of the system, and no outcome; the next run is good."""
    with laboratory(place, 2) as place:
        place.lab.on("h2", "mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "/mnt")
        launch = place.launch(options=WATCHED, staging="local_copy", **LONG)
        place.wait_for_phase("stage")
        place.injected()
        _disk_was_full(place, launch)
        place.lab.on("h2", "umount", "/mnt")
        _next_is_good(place, staging="local_copy")


@fault("a host's disk fills in training", "hosts")
def disk_of_a_host_full(place):
    """As while files are staged, when the rank writes its next line."""
    with laboratory(place, 2) as place:
        ranks = place.folder / "run" / "ranks"
        place.copy.hold_training(after=1)
        launch = place.launch(options=WATCHED, **TINY)
        place.wait_for_epoch(1)
        place.lab.on("h2", "mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", ranks)
        place.lab.on("h2", "sh", "-c", f"head -c 1M /dev/zero > '{ranks}/filler' || true")
        place.injected()
        place.copy.release_training()
        assert "ranks/phases-00001.jsonl" in _disk_was_full(place, launch)
        _next_is_good(place)  # the launching host has removed the folder, and with it what was mounted there


def _disk_was_full(place, launch):
    _, errors = launch.communicate(timeout=WAIT_S)
    place.detected()
    (line,) = (line for line in errors.splitlines() if "that is no result" in line)
    assert line.startswith("error: rank 1 on h2: ") and "No space left on device" in line, errors[-800:]
    assert not place.has_outcome("run") and place.seconds < STALL_S, place.seconds
    return line
