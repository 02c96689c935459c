"""The parts of ``make test-long``: one for each weekday, with about equal durations.

``long_tests.csv`` has the seconds of a file's long tests, or of one test where a file has too many for one part. Tests
of one row stay together, as they share fixtures. A test without a row is in a part that its file's name decides.
"""

import csv
import datetime
import zlib
from pathlib import Path

import pytest

PARTS = 7
TABLE = Path(__file__).with_name("long_tests.csv")
# Files of `make test` that take some seconds: the longest begin first. `pytest -n 3 --store-durations` writes it anew.
FILES = Path(__file__).with_name("durations.csv")
LEAST_S = 5
COLLECTED = pytest.StashKey()  # of a session: as from `long_by_file`
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def durations(path=TABLE):
    """The seconds by file or test: ``{"tests/workflow/test_soak.py": 60.0, ...}``."""
    with open(path, newline="", encoding="utf-8") as file:
        return {row["test"]: float(row["seconds"]) for row in csv.DictReader(file)}


def store(seconds, path=FILES):
    """Write the seconds by file, the longest first, of those of `LEAST_S` or more."""
    rows = sorted(
        ((file, round(value)) for file, value in seconds.items() if value >= LEAST_S), key=lambda row: -row[1]
    )
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("test", "seconds"), *rows])


def long_by_file(items):
    """{file: the node ids of its long tests} of all files of the collected tests."""
    found = {}
    for item in items:
        of_file = found.setdefault(item.nodeid.partition("::")[0], [])
        if item.get_closest_marker("long"):
            of_file.append(item.nodeid)
    return found


def divided(seconds):
    """The part, 1 to `PARTS`, of each file or test: the longest first, each into the part with the least so far."""
    totals, parts = [0.0] * PARTS, {}
    for test in sorted(seconds, key=lambda test: (-seconds[test], test)):
        part = totals.index(min(totals))
        totals[part] += seconds[test]
        parts[test] = part + 1
    return parts


def row_of(test, rows):
    """The row, of all in ``rows``, that a test's node id belongs to: its own, or that of its file; None without one."""
    function, file = test.partition("[")[0], test.partition("::")[0]
    return next((row for row in (test, function, file) if row in rows), None)


def part_of(test, parts):
    """The part of a test by its node id. parts: as from `divided`."""
    row = row_of(test, parts)
    return parts[row] if row else zlib.crc32(test.partition("::")[0].encode()) % PARTS + 1


def chosen(text, today=None):
    """The part that ``--part`` names: a number, None for ``all``, and that of the weekday for ``today``."""
    if text == "all":
        return None
    part = (today or datetime.date.today()).isoweekday() if text == "today" else int(text) if text.isdecimal() else 0
    if not 1 <= part <= PARTS:
        raise ValueError(f"part {text!r} is not a number from 1 to {PARTS}, today or all")
    return part
