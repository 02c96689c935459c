"""A host whose own name does not lead to it: Gloo looks it up and crashes.

In many containers the name does not resolve (exit code 139). On a laptop in another network, or with an old entry in
``/etc/hosts``, it resolves to an address that the host does not have (exit code 134).

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
from study.machines import probe

HOSTS = Path("/etc/hosts")
ADDRESS = "127.0.0.1"
ANSWER_S = 30


@contextlib.contextmanager
def made_known() -> Iterator[list[str]]:
    """What goes before a command whose processes look up this host's own name; nothing where it leads to this host.

    Raises:
        StudyError: it does not, and this user may not mount anything.
    """
    name = socket.gethostname()
    if probe.is_own_name(name):
        yield []
        return
    with TemporaryDirectory(prefix="study-hosts-") as folder:
        hosts = Path(folder) / "hosts"
        known = HOSTS.read_text(errors="replace").splitlines() if HOSTS.exists() else []
        others = [line for line in known if name not in line.partition("#")[0].split()]
        hosts.write_text("\n".join([*others, f"{ADDRESS} localhost {name}", ""]))
        hosts.chmod(0o644)
        before = _with_hosts(hosts)
        if not _works([*before, "getent", "hosts", name]):
            raise StudyError(
                f"this host's own name, {name}, does not resolve to an address of this host, and Gloo needs it: put "
                f"'{ADDRESS} {name}' into {HOSTS}, or "
                f"start the container with that entry (docker run --add-host {name}:{ADDRESS})"
            )
        yield before


def _with_hosts(hosts: Path) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount --bind {shlex.quote(str(hosts))} {HOSTS} && exec "$@"'
    return ["unshare", *user, "--mount", "sh", "-c", script, "sh"]


def _works(line: list[str]) -> bool:
    try:
        return commands.run(line, ANSWER_S).stdout.startswith(f"{ADDRESS} ")
    except (OSError, subprocess.TimeoutExpired):
        return False
