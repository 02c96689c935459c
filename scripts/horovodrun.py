"""Horovod's own launcher, with six changes.

- It does not check whether Horovod was built with Gloo. For this check horovodrun imports TensorFlow in a separate
  process, which takes three seconds. The set-up checks once, and a rank without Gloo reports the problem itself.
- It puts no environment on command lines, which all users of a host can read. Ranks of this host inherit it. Ranks of
  other hosts get the run's own variables through `study.machines.remote`.
- It takes every address 127.x.y.z for this host. Debian gives a host's own name the address 127.0.1.1.
- It does not check whether ssh reaches the hosts: `study.machines.run_layout` has done so.
- Its rendezvous server listens on the interface of the run only, not on all of this host's: it knows no key.
- The working directory is on no command line, where Horovod does not quote it: the guard on the host changes to it.

    horovodrun.py [--interfaces HOST=NAME,...] HOROVODRUN'S ARGUMENTS

--interfaces: the network interface of each host, which need not have the same name on all.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

from study.machines import remote

# Horovod is imported in functions: for each rank it spawns a Python that watches it, which imports this file once more.


def main() -> Any:
    """Run Horovod's launcher with the changes above."""
    from horovod.runner import gloo_run, launch
    from horovod.runner.http import http_server
    from horovod.runner.util import network

    interfaces = {}
    if sys.argv[1:2] == ["--interfaces"]:
        interfaces = dict(pair.split("=") for pair in sys.argv[2].split(","))
        del sys.argv[1:3]
    launch.gloo_built = lambda verbose=False: True
    launch._check_all_hosts_ssh_successful = lambda *_, **__: True
    gloo_run._slot_info_to_command_fn = lambda command, env: lambda slot: _build_rank_command(command, slot, interfaces)
    gloo_run.get_remote_command = _build_remote_command
    gloo_run.launch_gloo = _make_listening_launch(gloo_run.launch_gloo, http_server, network.find_port)
    resolve = network.resolve_host_address
    network.resolve_host_address = lambda host: re.sub(r"^127\..*", "127.0.0.1", resolve(host))
    return launch.run_commandline()


def _make_listening_launch(launch_gloo: Any, http_server: Any, find_port: Any) -> Any:
    """``launch_gloo`` with a rendezvous server that listens only at the address given to the ranks."""

    def launch_at_address(*arguments: Any) -> Any:
        address = arguments[-1]  # server_ip: of the interface between the hosts, 127.0.0.1 on one host
        http_server.find_port = lambda make: find_port(lambda anywhere: make((address, anywhere[1])))
        return launch_gloo(*arguments)

    return launch_at_address


def _build_rank_command(command: str, slot: Any, interfaces: dict[str, str]) -> str:
    """The shell command of one rank. command: begins with Horovod's settings that are the same for all ranks."""
    from horovod.runner import gloo_run

    if slot.hostname in interfaces:
        name = interfaces[slot.hostname]  # of `study.machines.run_layout.INTERFACE`, so no character of the shell
        command = re.sub(r"\b(HOROVOD_GLOO_IFACE|NCCL_SOCKET_IFNAME)=\S*", rf"\1={name}", command)
    own = shlex.join(f"{name}={value}" for name, value in gloo_run.create_slot_env_vars(slot).items())
    return f"env {own} {command}"


def _build_remote_command(local_command: str, host: str, **_: Any) -> str:
    """The shell command that runs ``local_command``, one quoted word, on ``host``.

    The shell stays as its parent: horovodrun ends the children of what it started, and would else end ssh itself.
    """
    (words,) = shlex.split(local_command)
    words = words.removeprefix(f"cd {Path.cwd()} > /dev/null 2>&1 ; ")
    return f"{shlex.join([sys.executable, '-I', '-S', remote.__file__, host, words])}; exit $?"


if __name__ == "__main__":
    sys.exit(main())
