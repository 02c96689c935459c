"""The network laboratory: hosts that are namespaces of this machine, see scripts/lab.sh."""

import socket
import subprocess
from typing import Any

from study.core import commands
from study.core.errors import StudyError
from study.core.paths import SCRIPTS

PROGRAM = str(SCRIPTS / "lab.sh")
LAUNCHING_HOST = "h0"


def refusal(machine: dict[str, Any]) -> str | None:
    """Why nothing can be started on the machine from here, or None: its hosts exist for the laboratory only."""
    if not machine.get("laboratory") or socket.gethostname() == LAUNCHING_HOST:
        return None
    return (
        f"laboratory: the hosts of {machine['name']} are reached from inside the laboratory only; as root: "
        f"scripts/lab.sh up {len(machine['hosts'])}, then scripts/lab.sh exec .venv/bin/snakemake --profile lab ..."
    )


def rate_refusal(link_mbit_per_s: int, machine: dict[str, Any]) -> str | None:
    """Why a run's links cannot have that rate on the machine, or None."""
    if link_mbit_per_s and not machine.get("laboratory"):
        return (
            f"link_mbit_per_s: {link_mbit_per_s} needs the laboratory (machine: lab); elsewhere links are as they are"
        )
    return None


def set_rate(link_mbit_per_s: int) -> None:
    """Limit the links of all hosts, in both directions; 0 removes the limit."""
    rate = f"{link_mbit_per_s}mbit" if link_mbit_per_s else "none"
    try:
        done = commands.run([PROGRAM, "rate", rate], 60)
    except subprocess.TimeoutExpired:
        raise StudyError(f"the laboratory's links cannot be limited to {rate}: lab.sh rate gives no answer") from None
    if done.returncode != 0:
        raise StudyError(f"the laboratory's links cannot be limited to {rate}: {done.stderr.strip()}")
