"""Run a command line, and kill it with all its descendants once whoever started it is gone, for any reason.

    python -I -S guard.py LINE ...     standard input: a pipe whose other end the launching process holds
    python -I -S guard.py --remote     on another host; standard input comes from `study.machines.remote` through ssh

The launcher and its ranks must not outlive the launch, which cannot end them itself if it gets SIGKILL or if the
network fails. The guard is started in its own session; it imports only the standard library, and little of it.

From `study.machines.remote` the first line is an order in JSON; then comes a byte every few seconds. So no variable is
on a command line, where all users of the host could read it, and a host that no longer hears from the launching host
ends its ranks by itself. The order has ``line``, the command line; ``folder``, where it runs; ``variables`` to set;
``without``, prefixes of variables to clear, which steer training and may be set in the host's own shell files; and
``silence_s``, the longest time without a byte. A host that was frozen or suspended for so long ends its ranks when it
goes on.

The ranks get a folder for temporary files of their own, which is removed when they have ended: TensorFlow leaves files
there when a rank ends at once or is killed. Hosts may share the folder that it is in, so its name depends on the host.
Where another user has one of this name, the ranks use the host's folder. While the ranks run, the guard opens no other
file but those of /proc, so it does not hang with a file server that is out of reach.
"""

import binascii
import contextlib
import ctypes
import fcntl
import json
import os
import runpy
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

TEMPORARY = "study-ranks-"  # begin of the name of a folder for temporary files, by host and process id of the guard
ORDER_S = 30.0  # within which the order comes
# The longest wait at once, as a share of the longest silence. A wait in which the host was frozen goes on with the rest
# of it, so it must be short. On a good connection bytes come sooner.
WAIT_SHARE = 1 / 4
MOST = 254  # the highest exit code through ssh, whose own is 255
open_own = runpy.run_path(str(Path(__file__).parents[1] / "core" / "ownership.py"))["open_own"]
SET_CHILD_SUBREAPER = 36  # of prctl: descendants whose parent has ended become children of this process


def main() -> None:
    """Start the command line, wait for its end or for the end of the pipe; exits with the command line's exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the command line, whose end the guard awaits
    if sys.argv[1:] == ["--remote"]:
        order = _read_order()
        _set_up(order)
        _start_second()
        sys.exit(min(_guard(order["line"], order["silence_s"]), MOST))
    sys.exit(_guard(sys.argv[1:], None))


def _read_order() -> dict:
    """The first line of standard input; what follows it in the same read are bytes without a meaning."""
    text, until = b"", _now() + ORDER_S
    while b"\n" not in text:
        is_there, _, _ = select.select([0], [], [], max(0.0, until - _now()))
        more = os.read(0, 1 << 16) if is_there else b""
        if not more:
            sys.exit(128 + signal.SIGHUP)
        text += more
    return json.loads(text.partition(b"\n")[0])


def _set_up(order: dict) -> None:
    """Change to the order's folder and set its variables; this Python's own folder goes first in PATH."""
    for name in [name for name in os.environ if name.startswith(tuple(order["without"]))]:
        del os.environ[name]
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    os.environ.update({"PATH": os.pathsep.join(path), **order["variables"]})
    try:
        os.chdir(order["folder"])
    except OSError as error:
        sys.exit(f"error: {os.uname().nodename}: {order['folder']}: {error.strerror}")


def _start_second() -> None:
    """Start a process that kills this process group if the guard itself is killed: nobody else could on this host."""
    ends, open_end = os.pipe()
    if os.fork():
        os.close(ends)
        return  # and hold the other end until this process ends
    os.close(open_end)
    os.read(ends, 1)
    os.killpg(0, signal.SIGKILL)


def _guard(line: list[str], silence_s: float | None) -> int:
    """Run ``line`` and return its exit code. silence_s: the longest time without a byte, None for no limit."""
    child_ended, to_child_ended = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it is written to the pipe
    signal.set_wakeup_fd(to_child_ended)
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)
    folder = _make_temporary_folder()
    child = _start(line, folder)
    heard = _now()
    while True:
        status = _reap(child)
        if status is not None:
            _kill_descendants()
            remove(folder)
            return status
        wait_s = None if silence_s is None else _compute_wait_s(heard + silence_s - _now(), silence_s)
        ready, _, _ = select.select([0, child_ended], [], [], wait_s)
        if silence_s is not None and _now() - heard >= silence_s:
            _give_up(folder)  # also if bytes wait: then this host was frozen, and they are old
        if child_ended in ready:
            os.read(child_ended, 1024)
        if 0 in ready:
            if not os.read(0, 4096):
                _give_up(folder)
            heard = _now()


def _compute_wait_s(left_s: float, silence_s: float) -> float:
    return min(max(0.0, left_s), WAIT_SHARE * silence_s)


def _now() -> float:
    """Seconds of a clock that goes on while the host is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _start(line: list[str], folder: Path | None) -> int:
    """Start the command line; returns its process id. folder: for its temporary files, None for the host's."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the child no longer ignores it
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return child
    if folder:
        os.environ["TMPDIR"] = str(folder)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        os.execvp(line[0], line)  # noqa: S606  a list, no shell
    except OSError as error:
        print(f"error: {line[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


def _reap(child: int) -> int | None:
    """Collect ended children: the exit code of ``child`` if it has ended, else None."""
    exit_code = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_code
        if not ended:
            return exit_code
        if ended == child:
            exit_code = _as_exit_code(status)


def _give_up(folder: Path | None) -> None:
    _kill_descendants()
    remove(folder)
    os.killpg(0, signal.SIGKILL)


def _make_temporary_folder() -> Path | None:
    """Make the ranks' folder for temporary files and lock it; None if that cannot be: then they use the host's.

    Folders of this host's guards that were killed are removed. Another host's are left alone: locks of a file system
    that hosts share may hold on one host only. What another user has put there under such a name is left alone too.
    """
    folder = name_temporary_folder(os.getpid(), os.environ)
    for other in folder.parent.glob(f"{_make_name_begin()}*"):
        _remove_if_abandoned(other)
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder


def _remove_if_abandoned(folder: Path) -> None:
    try:
        descriptor = open_own(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)
    except OSError:
        return  # its guard lives
    finally:
        os.close(descriptor)


def name_temporary_folder(guard: int, variables: Mapping[str, str]) -> Path:
    """The ranks' folder for temporary files. guard: the guard's process id. variables: its environment."""
    return Path(variables.get("TMPDIR") or "/tmp") / f"{_make_name_begin()}{guard}"  # noqa: S108  as tempfile does


def _make_name_begin() -> str:
    """Begin of the names of this host's folders: short, since paths of sockets have 107 bytes at most (unix(7))."""
    return f"{TEMPORARY}{binascii.crc32(os.uname().nodename.encode()):08x}-"


def remove(folder: Path | None) -> None:
    """Remove a folder of ranks that have ended, if there is one."""
    import shutil  # not before the ranks have started

    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _kill_descendants() -> None:
    """Kill all processes that were started here; repeated, since one may start another meanwhile."""
    for _ in range(20):
        descendants = list(_list_descendants())
        for process in descendants:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not descendants:
            return
        time.sleep(0.01)


def _list_descendants() -> Iterator[int]:
    """Process ids of all living descendants of this process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text("latin1").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(folder.name))
    waiting = children.get(os.getpid(), [])
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process, [])


def _as_exit_code(status: int) -> int:
    """Exit code as in shells: 128 plus the signal's number for a process that was ended by a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
