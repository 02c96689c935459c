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
    share: float | None = 0.0
    named = ""
    if found is not None:
        passed, values, named = found
        others = values["others_cpu_s"]
        share = None if others is None else others / (passed * number)
    has = counted(number, "core")
    used = f"{has}, use unknown (/proc/stat)" if share is None else f"{100 * share:.0f} % of {has} in use"
    told = [f"machine: {used}, load {os.getloadavg()[0]:.2f}"]
    if share is not None and share > disturbance.LIMITS["others_cpu_share"]:
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
