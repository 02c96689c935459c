"""Put faults into real runs and files, one after the other, and check that each ends as expected.

Each fault's result is a row of performance/faults.csv (outcome, seconds from the fault to its detection, commit), which
is written after each fault, with the page docs/reference/faults.md. Faults that passed since the last commit that
changed more than results and documents are not tried again, so all of them can be tried in several parts. Exits with
1 if one failed. The faults are in tests/faults/.
"""

import argparse
import contextlib
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import commits
import data_faults
import faults_page
import pandas as pd
from catalogue import FAULTS
from control_groups import slowed
from place import Place, make_data

from study.core.files import write_aside, write_text

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "performance" / "faults.csv"
PAGE = ROOT / "docs" / "reference" / "faults.md"
COLUMNS = ["group", "fault", "must", "speed", "cores", "outcome", "detected_s", "message", "commit"]
SHARE = 0.25  # of the machine's CPU time, on a slowed machine


def main():
    """Read the command line and do it."""
    arguments = _make_parser().parse_args()
    chosen = [each for each in FAULTS.values() if arguments.only in f"{each.group}: {each.name}"]
    if not chosen:
        raise SystemExit(f"error: no fault has {arguments.only!r} in its name or group")
    speed, rows = "slowed" if arguments.slowed else "full", read_rows(TABLE)
    since = arguments.since or commits.find_last_change()
    due = [each for each in chosen if arguments.again or not has_passed(rows, each, speed, since)]
    begun, outcomes = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        try:
            cores = stack.enter_context(slowed(SHARE)) if arguments.slowed else None
        except data_faults.NotHere as error:
            raise SystemExit(f"error: {error}") from None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults.")))
        data = make_data(str(folder / "data")) if due else None
        for number, fault in enumerate(due, start=1):
            row = _try_fault(fault, folder / f"{number:02d}", data)
            rows = replace_row(rows, {**row, "speed": speed, "cores": cores, "commit": commits.describe_commit()})
            write_results(rows)
            outcomes.append(row["outcome"])
            _print_row(row, number, len(due))
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
    print(f"{len(chosen)} faults, {len(due)} of them now, in {time.monotonic() - begun:.0f} s on {platform.node()}"
          + (f": {counts}" if counts else ""))  # fmt: skip
    sys.exit(0 if set(outcomes) <= {"pass", "skipped"} else 1)


def _make_parser():
    """Make the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults with this in their name or group")
    parser.add_argument("--since", help="faults that passed at this commit or a later one are not tried again")
    parser.add_argument("--again", action="store_true", help="also those that have passed")
    parser.add_argument("--slowed", action="store_true", help="on a quarter of the machine's CPU time; needs root")
    return parser


def read_rows(path):
    """Read the rows of earlier results."""
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"commit": str, "message": str}).reindex(columns=COLUMNS)


def has_passed(rows, fault, speed, since):
    """True if a fault passed at a speed as it is now, at the commit ``since`` or a later one."""
    row = faults_page.latest(rows, speed).get(fault.name)
    if not row or (row["outcome"], row["must"]) != ("pass", fault.truth) or pd.isna(row["commit"]):
        return False
    return commits.is_since(row["commit"], since)


def replace_row(rows, row):
    """Replace a fault's row at a speed by a new one; returns all rows in the order of the faults."""
    others = rows[(rows["fault"] != row["fault"]) | (rows["speed"] != row["speed"])]
    new_rows = [*others[others["fault"].isin(list(FAULTS))].to_dict("records"), row]
    names, speeds = list(FAULTS), list(faults_page.SPEEDS)
    new_rows.sort(key=lambda each: (names.index(each["fault"]), speeds.index(each["speed"])))
    return pd.DataFrame(new_rows, columns=COLUMNS)


def write_results(rows):
    """Write the table and the page."""
    with write_aside(TABLE) as aside:
        rows.to_csv(aside, index=False)
    write_text(PAGE, faults_page.page(FAULTS, rows))


def _print_row(row, number, faults):
    """Print the outcome of a fault."""
    detection_time = f"{row['detected_s']:6.1f} s" if row["detected_s"] is not None else " " * 8
    print(f"{number:2d}/{faults}  {row['outcome']:9s} {detection_time}  {row['group']}: {row['fault']}", flush=True)


def _try_fault(fault, folder, data):
    """Try a fault in a folder of its own; returns its row of the table."""
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
