"""Horovod's own launcher, with five changes.

- It does not check whether Horovod was built with Gloo. For this check horovodrun imports TensorFlow in a separate
  process, which takes three seconds. The set-up checks once, and a rank without Gloo reports the problem itself.
- It puts no environment on command lines, which all users of a host can read. Ranks of this host inherit it. Ranks of
  other hosts get the run's own variables through `study.machines.remote`.
- It takes every address 127.x.y.z for this host. Debian gives a host's own name the address 127.0.1.1.
- It does not check whether ssh reaches the hosts: `study.machines.hosts` has done so.
- In an ensemble whose members go on without one that fails, it does not end them: a failed rank counts as ended well.

    horovodrun.py [--interfaces HOST=NAME,...] HOROVODRUN'S ARGUMENTS

--interfaces: the network interface of each host, which need not have the same name on all.
"""

import os
import re
import shlex
import sys
from typing import Any

from study.core.environment import RANKS_GO_ON
from study.machines import remote

# Horovod is imported in functions: for each rank it spawns a Python that watches it, which imports this file once more.


def main() -> Any:
    """Replace what is changed, and run."""
    from horovod.runner import gloo_run, launch
    from horovod.runner.util import network

    interfaces = {}
    if sys.argv[1:2] == ["--interfaces"]:
        interfaces = dict(pair.split("=") for pair in sys.argv[2].split(","))
        del sys.argv[1:3]
    launch.gloo_built = lambda verbose=False: True
    launch._check_all_hosts_ssh_successful = lambda *_, **__: True
    gloo_run._slot_info_to_command_fn = lambda command, env: lambda slot: _rank_command(command, slot, interfaces)
    gloo_run.get_remote_command = _through_remote
    resolve = network.resolve_host_address
    network.resolve_host_address = lambda host: re.sub(r"^127\..*", "127.0.0.1", resolve(host))
    return launch.run_commandline()


def _rank_command(command: str, slot: Any, interfaces: dict[str, str]) -> str:
    """The shell command of one rank. command: begins with Horovod's settings that are the same for all ranks."""
    from horovod.runner import gloo_run

    if slot.hostname in interfaces:
        name = shlex.quote(interfaces[slot.hostname])
        command = re.sub(r"\b(HOROVOD_GLOO_IFACE|NCCL_SOCKET_IFNAME)=\S*", rf"\1={name}", command)
    own = " ".join(f"{name}={value}" for name, value in gloo_run.create_slot_env_vars(slot).items())
    line = f"env {own} {command}"
    if RANKS_GO_ON in os.environ:
        line += f' || echo "rank {slot.rank} has ended with exit code $?, the others go on" >&2'
    return line


def _through_remote(local_command: str, host: str, **_: Any) -> str:
    """The shell command that runs ``local_command``, one quoted word, on ``host``.

    The shell stays as its parent: horovodrun ends the children of what it started, and would else end ssh itself.
    """
    return f"{shlex.join([sys.executable, '-I', '-S', remote.__file__, host])} {local_command}; exit $?"


if __name__ == "__main__":
    sys.exit(main())
