"""The state of this machine before runs are timed on it: what is at work, and what makes times vary."""

import os
import time
from pathlib import Path

from study.core import cores
from study.core.wording import counted
from study.instruments import disturbance
from study.instruments.background import Background

WATCHED_S = 2.0
GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
STEADY = ("performance", "")  # governors that keep the clock rate; empty where the kernel does not tell


def lines(seconds: float = WATCHED_S, root: Path = cores.ROOT) -> list[str]:
    """The machine's load, watched for some seconds, and a line for each thing that makes times vary.

    root: below which /proc and /sys are read; tests have others.
    """
    number = len(cores.allowed())
    seen = Background("", None, root)
    time.sleep(seconds)
    found = seen.changes()
    share, named = 0.0, ""
    if found is not None:
        passed, values, named = found
        share = (values["others_cpu_s"] or 0.0) / (passed * number)
    told = [f"machine: {100 * share:.0f} % of {counted(number, 'core')} in use, load {os.getloadavg()[0]:.2f}"]
    if share > disturbance.LIMITS["others_cpu_share"]:
        who = f" ({named})" if named else ""
        told.append(f"other processes use {100 * share:.0f} % of the cores{who}: runs that are timed now are disturbed")
    governors = {cores.contents(root / GOVERNOR.format(core)) for core in cores.allowed()} - set(STEADY)
    if governors:
        told.append(f"the clock rate changes with the load (CPU governor {', '.join(sorted(governors))})")
    physical, quota = cores.physical(root), cores.quota(root)
    if physical is not None and physical < number:
        told.append(f"{number} logical CPUs are {counted(physical, 'core')} with hyper-threads, which share its units")
    if quota is not None and quota < number:
        told.append(
            f"a control group allows the time of {quota:g} of {counted(number, 'core')}, and stops what uses more"
        )
    return told
