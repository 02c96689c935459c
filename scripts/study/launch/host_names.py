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


def list_name_problems() -> list[str]:
    """The reason why this host's names keep ranks from starting, as one line; empty if they do not."""
    try:
        with make_names_known():
            return []
    except StudyError as error:
        return error.lines


@contextlib.contextmanager
def make_names_known() -> Iterator[list[str]]:
    """The words before a command whose processes need this host's names; none where the names lead to this host.

    Raises:
        StudyError: they do not, and this user may not mount anything.
    """
    own_name = socket.gethostname()
    names = [name for name in dict.fromkeys((own_name, LOCAL)) if not probe.is_own_name(name)]
    if not names:
        yield []
        return
    with TemporaryDirectory(prefix="study-hosts-") as folder:
        hosts = Path(folder) / "hosts"
        lines = HOSTS.read_text(errors="replace").splitlines() if HOSTS.exists() else []
        others = [line for line in lines if not {*names} & {*line.partition("#")[0].split()}]
        hosts.write_text("\n".join([*others, " ".join([ADDRESS, *dict.fromkeys((LOCAL, *names))]), ""]))
        hosts.chmod(0o644)
        mount_command = _make_mount_command(hosts)
        if not all(_resolves_to_loopback([*mount_command, "getent", "hosts", name]) for name in names):
            subject, need = (
                (f"this host's own name, {own_name},", "Gloo needs") if own_name in names else (LOCAL, "launchers need")
            )
            raise StudyError(
                f"{subject} does not resolve to an address of this host, and {need} it: put "
                f"'{ADDRESS} {' '.join(names)}' into {HOSTS}, or "
                f"start the container with that entry (docker run --add-host {names[0]}:{ADDRESS})"
            )
        yield mount_command


def _make_mount_command(hosts: Path) -> list[str]:
    """The words before a command that sees ``hosts`` in place of /etc/hosts."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount --bind {shlex.quote(str(hosts))} {HOSTS} && exec "$@"'
    return ["unshare", *user, "--mount", "sh", "-c", script, "sh"]


def _resolves_to_loopback(line: list[str]) -> bool:
    """True if a command line of getent gives the loopback address."""
    try:
        return commands.run_program(line, ANSWER_S).stdout.startswith(f"{ADDRESS} ")
    except (OSError, subprocess.TimeoutExpired):
        return False
