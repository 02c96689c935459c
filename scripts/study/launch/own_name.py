"""A host whose own name does not resolve, such as many containers: Gloo looks it up and crashes (exit code 139).

Where this user may, the ranks get an ``/etc/hosts`` of their own, in which the name is loopback. It is mounted in a
namespace that only they see (unshare(1), mount_namespaces(7)). Elsewhere the run is refused before it starts.
"""

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from study.core import commands
from study.core.errors import StudyError

HOSTS = Path("/etc/hosts")
ADDRESS = "127.0.0.1"
ANSWER_S = 30


def resolves(name: str) -> bool:
    """Whether this host finds an address of that name."""
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def made_known() -> Iterator[list[str]]:
    """What goes before a command whose processes look up this host's own name; nothing where it resolves.

    Raises:
        StudyError: it does not resolve, and this user may not mount anything.
    """
    name = socket.gethostname()
    if resolves(name):
        yield []
        return
    with TemporaryDirectory(prefix="study-hosts-") as folder:
        hosts = Path(folder) / "hosts"
        known = HOSTS.read_text(errors="replace") if HOSTS.exists() else ""
        hosts.write_text(f"{known.rstrip()}\n{ADDRESS} localhost {name}\n")
        hosts.chmod(0o644)
        before = _with_hosts(hosts)
        if not _works([*before, "getent", "hosts", name]):
            raise StudyError(
                f"this host's own name, {name}, does not resolve, and Gloo needs it: add '{ADDRESS} {name}' to "
                f"{HOSTS}, or start the container with that entry (docker run --add-host {name}:{ADDRESS})"
            )
        yield before


def _with_hosts(hosts: Path) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount --bind {shlex.quote(str(hosts))} {HOSTS} && exec "$@"'
    return ["unshare", *user, "--mount", "sh", "-c", script, "sh"]


def _works(line: list[str]) -> bool:
    try:
        return commands.run(line, ANSWER_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
