"""Put faults into real runs, files and downloads, one after the other, and check that each ends as expected.

Prints a table (fault, outcome, seconds from the fault to its detection) and writes it to performance/faults.csv, which
keeps its lines of faults that were not tried. Exits with 1 if one did not. The faults are in
tests/faults/.
"""

import argparse
import contextlib
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import artefact_faults  # noqa: F401  these register their faults
import data_faults
import download_faults  # noqa: F401
import host_faults  # noqa: F401
import network_faults  # noqa: F401
import pandas as pd
import run_faults  # noqa: F401
import workflow_faults  # noqa: F401
from place import Place, make_data
from registry import FAULTS

ROOT = Path(__file__).resolve().parents[1]


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="",
        help="faults with this in their name or group",
    )
    arguments = parser.parse_args()
    chosen = [each for each in FAULTS.values() if arguments.only in f"{each.group}: {each.name}"]
    if not chosen:
        raise SystemExit(f"error: no fault has {arguments.only!r} in its name or group")
    begun, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="faults.") as folder:
        data = make_data(str(Path(folder) / "data"))
        for number, fault in enumerate(chosen, start=1):
            rows.append(_tried(fault, Path(folder) / f"{number:02d}", data))
            shown = f"{rows[-1]['detected_s']:6.1f} s" if rows[-1]["detected_s"] is not None else " " * 8
            print(
                f"{number:2d}/{len(chosen)}  {rows[-1]['outcome']:9s} {shown}  {fault.group}: {fault.name}", flush=True
            )
    table = pd.DataFrame(rows)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in table["outcome"].value_counts().items())
    print(f"{len(chosen)} faults in {time.monotonic() - begun:.0f} s on {platform.node()}: {counts}")
    _write(table, ROOT / "performance" / "faults.csv")
    sys.exit(0 if set(table["outcome"]) <= {"pass", "skipped"} else 1)


def _write(table, path):
    """Write the table; of faults that were not tried this time an earlier one's lines stay."""
    if path.exists():
        before = pd.read_csv(path)
        table = pd.concat([table, before[~before["fault"].isin(table["fault"])]])
    order = [fault.name for fault in FAULTS.values()]
    table = table[table["fault"].isin(order)].sort_values("fault", key=lambda names: names.map(order.index))
    table.to_csv(path, index=False)


def _tried(fault, folder, data):
    """A row of the table."""
    folder.mkdir()
    place, message = Place(folder, data), ""
    try:
        fault.function(place)
        outcome = "pass"
    except data_faults.NotHere as error:
        outcome, message = "skipped", str(error)
    except Exception as error:  # noqa: BLE001  the others are tried all the same
        outcome, message = "FAIL", " ".join(f"{type(error).__name__}: {error}".split())[:500]
        traceback.print_exc()
        for name in ("run", "broken", "whole", "disk/run"):  # nothing of it may disturb the next one
            with contextlib.suppress(Exception):
                for process in place.processes(name):
                    process.kill()
    seconds = None if place.seconds is None else round(place.seconds, 2)
    return {"group": fault.group, "fault": fault.name, "must": fault.truth, "outcome": outcome, "detected_s": seconds,
            "message": message}  # fmt: skip


if __name__ == "__main__":
    main()
