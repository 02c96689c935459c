"""The two sides of a connection to another host that lose each other: the guard there, and the process here."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ended import ends, has_ended
from project import wait_for

from study.machines import guard, remote

WAIT_S = 60
SCRIPTS = Path(remote.__file__).parents[2]
CHILD = ["sh", "-c", "sleep 600 & echo $!; wait"]


class Guard:
    """A guard as ssh starts it, with a child that would sleep for long."""

    def __init__(self, silence_s, line=CHILD):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, "--remote"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True,
        )  # fmt: skip
        order = {"line": line, "folder": "/", "variables": {}, "without": [], "silence_s": silence_s}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def child(self):
        return psutil.Process(int(self.process.stdout.readline()))

    def hears_until(self, until):
        """Send it bytes until a condition holds."""
        deadline = time.monotonic() + WAIT_S
        while not until():
            assert time.monotonic() < deadline
            try:
                self.process.stdin.write(b".")
            except BrokenPipeError:
                return
            time.sleep(0.05)


def test_a_guard_that_hears_nothing_ends_its_child():
    it = Guard(silence_s=0.5)
    child = it.child()
    assert it.process.wait(WAIT_S) == -signal.SIGKILL
    assert ends(child)


def test_a_guard_whose_connection_closes_ends_its_child():
    it = Guard(silence_s=WAIT_S * 2)
    child = it.child()
    it.process.stdin.close()
    assert it.process.wait(WAIT_S) == -signal.SIGKILL
    assert ends(child)


@pytest.mark.slow
@pytest.mark.timed
def test_a_guard_that_was_frozen_for_its_limit_ends_its_child_though_bytes_wait():
    silence_s = 3
    it = Guard(silence_s)
    child = it.child()
    began = time.monotonic()
    it.hears_until(lambda: time.monotonic() - began > 0.5)
    assert it.process.poll() is None
    it.process.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    it.hears_until(lambda: time.monotonic() - frozen > silence_s + 0.2)
    assert not has_ended(child)
    it.process.send_signal(signal.SIGCONT)
    it.hears_until(lambda: it.process.poll() is not None)
    assert it.process.returncode == -signal.SIGKILL
    assert ends(child)


@pytest.mark.slow
@pytest.mark.timed
def test_a_guard_that_thaws_without_a_byte_does_not_wait_for_its_limit_once_more():
    """The kernel goes on with what was left of its wait when it was frozen."""
    silence_s = 4
    it = Guard(silence_s)
    child = it.child()
    time.sleep(0.5)  # so that it waits
    it.process.send_signal(signal.SIGSTOP)
    time.sleep(silence_s)
    assert not has_ended(child)
    it.process.send_signal(signal.SIGCONT)
    assert it.process.wait(0.75 * silence_s) == -signal.SIGKILL
    assert ends(child)


def test_a_guard_waits_for_longer_than_it_takes_until_the_next_byte():
    assert guard._compute_wait_s(20.0, 20.0) > 20.0 / remote.BEATS
    assert guard._compute_wait_s(-1.0, 20.0) == 0


def test_a_guard_that_is_killed_takes_its_child_along():
    it = Guard(silence_s=WAIT_S * 2)
    child = it.child()
    it.process.kill()
    it.process.wait()
    psutil.wait_procs([child], timeout=WAIT_S)
    assert ends(child)


def test_the_ranks_folder_for_temporary_files_is_their_guard_s_own(tmp_path, monkeypatch):
    """Hosts may share TMPDIR and have equal process ids; another user may have a folder of this name in /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own, killed = (guard.name_temporary_folder(number, os.environ) for number in (os.getpid(), 1))
    of_other_host = tmp_path / f"{guard.TEMPORARY}of-other-{os.getpid()}"  # its lock need not hold here
    killed.mkdir()
    of_other_host.mkdir()
    assert guard._make_temporary_folder() == own and own.is_dir()
    assert of_other_host.is_dir() and not killed.exists()
    assert guard._make_temporary_folder() is None, "there is one, and it is in use"
    guard.remove(None)


def test_an_ssh_is_waited_for_on_a_kernel_without_pidfd_open(monkeypatch):
    """pidfd_open(2) is of Linux 5.3; RHEL 8 has 4.18."""

    def missing(_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", missing)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ssh:
        assert remote._is_running(ssh, 0.01)
        ssh.stdin.close()
        assert not remote._is_running(ssh, WAIT_S)


def test_a_guard_without_an_order_ends(monkeypatch):
    reading, writing = os.pipe()  # stays open, and nothing comes
    monkeypatch.setattr(guard, "ORDER_S", 0.1)
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        with pytest.raises(SystemExit) as ended:
            guard._read_order()
    finally:
        os.dup2(before, 0)
        for each in (before, reading, writing):
            os.close(each)
    assert ended.value.code == 128 + signal.SIGHUP


def test_ssh_s_own_exit_code_is_none_of_a_command_s():
    it = Guard(WAIT_S * 2, ["sh", "-c", "exit 255"])
    it.hears_until(lambda: it.process.poll() is not None)
    assert it.process.returncode == guard.MOST < remote.SSH_LOST


ENDS_WHEN_TOLD = "trap 'exit 255' TERM; touch {here}; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "is_told", "code", "is_lost"),
    [("exit 255", False, 255, True), ("exit 3", False, 3, False), (ENDS_WHEN_TOLD, True, 255, False)],
)
def test_only_a_connection_that_ends_by_itself_is_a_lost_host(tmp_path, script, is_told, code, is_lost):
    program, here = tmp_path / "ssh", tmp_path / "here"
    program.write_text(f"#!/bin/sh\n{script.format(here=here)}\n")
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", remote.__file__, "elsewhere", "true"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if is_told:
        wait_for(here.exists, seconds=WAIT_S)
        process.terminate()
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, f"{remote.LOST} elsewhere: " in errors) == (code, is_lost), errors


SLEEP = f"600.{os.getpid()}"  # a number that no other process has
SIGNALLED_WHILE_IT_STARTS = """
import os, runpy, signal, subprocess, sys
class Signalled(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Signalled
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-I", "-S"], [remote.__file__, "elsewhere", "true"]),
        ([], [str(SCRIPTS / "run_processes.py"), "2", "sleep", SLEEP]),
    ],
)
def test_a_signal_that_comes_while_a_child_is_being_started_ends_the_child(tmp_path, options, words):
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\nexec sleep {SLEEP}\n")
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, *options, "-c", SIGNALLED_WHILE_IT_STARTS, *words],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert not [each for each in psutil.process_iter(["cmdline"]) if SLEEP in (each.info["cmdline"] or [])]


@pytest.mark.parametrize("stall_limit_s", [900, 120, 60, 30])
def test_the_limits_are_in_order(stall_limit_s):
    """The launching host gives up first, then the guard; both long before the stall limit."""
    silence_s = remote.compute_silence_s(stall_limit_s)
    options = dict(word.split("=") for word in remote._make_alive_options(silence_s) if "=" in word)
    interval_s, unanswered = int(options["ServerAliveInterval"]), int(options["ServerAliveCountMax"])
    gives_up_s = interval_s * (unanswered + 1)
    assert silence_s / 2 <= gives_up_s <= remote.compute_patience_s(silence_s) < silence_s
    assert gives_up_s + silence_s <= stall_limit_s / 2
    assert interval_s < silence_s / remote.BEATS, "asked before the next byte"
    assert remote.compute_silence_s(900) == remote.SILENCE_S
