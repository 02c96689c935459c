"""What else used the hosts of a run while it ran, as shares of the run's cores over time; for figures over time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from study.instruments import disturbance
from study.instruments.power import telemetry

MOST_HOSTS = 4  # if there are more, only the one of which others used the most
OTHERS = "others' CPU"  # begins the label of each host
TAKEN = ["others_cpu_s", "steal_s"]  # processor time that the run's cores gave to other processes and machines

Values = NDArray[np.float64]


def shares(folder: Path, seconds: Callable[[pd.DataFrame, str], Values], grid: Values) -> dict[str, Values]:
    """{label of a host: the share of its cores that others used, at each time of ``grid``}.

    Empty without the file, and if several machines have one name, whose rows nobody can tell apart.

    A host that does not tell it, or had no ranks by which its clock is known, is left out: a line at 0 would say that
    nobody used it.

    Args:
        folder: the run's directory.
        seconds: from rows and the column with a monotonic time to seconds since the launch.
        grid: seconds since the launch, rising.
    """
    path = folder / disturbance.FILE
    if not path.exists() or telemetry.explain_shared_name(folder):
        return {}
    rows = disturbance.read_background(path)
    found = {
        str(host): _of_host(of_host, seconds, grid)
        for host, of_host in rows.groupby("host")
        if of_host[TAKEN].notna().any(axis=None) and np.isfinite(seconds(of_host, "end_monotonic_ns")).all()
    }
    if len(found) > MOST_HOSTS:
        most = max(found, key=lambda host: float(found[host].sum()))
        return {f"{OTHERS}, most on {most}": found[most]}
    return {f"{OTHERS} on {host}" if len(found) > 1 else OTHERS: share for host, share in found.items()}


def _of_host(rows: pd.DataFrame, seconds: Callable[[pd.DataFrame, str], Values], grid: Values) -> Values:
    """The share of the row that has the time; 0 where there is none, since nothing was noticed."""
    rows = rows.sort_values("end_monotonic_ns")
    ends, lengths = seconds(rows, "end_monotonic_ns"), rows["seconds"].to_numpy(dtype=float)
    available = rows["cores"].to_numpy(dtype=float) * lengths
    used = rows[TAKEN].sum(axis=1).to_numpy(dtype=float) / np.where(available > 0, available, np.inf)
    places = np.minimum(np.searchsorted(ends, grid), len(ends) - 1)
    is_within = ((ends - lengths)[places] <= grid) & (grid <= ends[places])
    return np.where(is_within, np.clip(used, 0.0, 1.0)[places], 0.0)
