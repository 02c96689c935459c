"""A host whose own name, or ``localhost``, does not lead to it: Gloo and Horovod's launcher look them up.

In many containers the own name does not resolve; a Gloo without our changes crashes there (exit code 139). On a laptop
in another network, or with an old entry in ``/etc/hosts``, it resolves to an address that the host does not have (exit
code 134). Where ``localhost`` does not resolve, Horovod's launcher takes it for another host, and tries ssh.

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
LOCAL = "localhost"
ANSWER_S = 30


def why_not() -> list[str]:
    """Why ranks cannot start on this host for want of a name, as one line; empty if they can."""
    try:
        with made_known():
            return []
    except StudyError as error:
        return error.lines


@contextlib.contextmanager
def made_known() -> Iterator[list[str]]:
    """What goes before a command whose processes look up this host's names; nothing where they lead to this host.

    Raises:
        StudyError: they do not, and this user may not mount anything.
    """
    own = socket.gethostname()
    names = [name for name in dict.fromkeys((own, LOCAL)) if not probe.is_own_name(name)]
    if not names:
        yield []
        return
    with TemporaryDirectory(prefix="study-hosts-") as folder:
        hosts = Path(folder) / "hosts"
        known = HOSTS.read_text(errors="replace").splitlines() if HOSTS.exists() else []
        others = [line for line in known if not {*names} & {*line.partition("#")[0].split()}]
        hosts.write_text("\n".join([*others, " ".join([ADDRESS, *dict.fromkeys((LOCAL, *names))]), ""]))
        hosts.chmod(0o644)
        before = _with_hosts(hosts)
        if not all(_works([*before, "getent", "hosts", name]) for name in names):
            what, who = (f"this host's own name, {own},", "Gloo needs") if own in names else (LOCAL, "launchers need")
            raise StudyError(
                f"{what} does not resolve to an address of this host, and {who} it: put "
                f"'{ADDRESS} {' '.join(names)}' into {HOSTS}, or "
                f"start the container with that entry (docker run --add-host {names[0]}:{ADDRESS})"
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
