"""Situations that were reported in public, rebuilt with the value that is right: `make cases` prints the table."""

import csv
import os
import sys
from datetime import date

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from study.core import provenance
from study.core.paths import ROOT

# commit, date and machine are the same in all rows, as a table has no other place for them.
COLUMNS = ("case", "source", "right", "result", "commit", "date", "machine")
MADE = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--case-table", metavar="FILE", help="write the table of cases to this CSV file")


def pytest_sessionstart(session):
    if session.config.getoption("--case-table", default=None):
        session.config.stash[MADE] = _made()  # beforehand: files may be edited while the tests run


def pytest_configure(config):
    config.addinivalue_line("markers", "case(name, source, right): a situation from a public report, and what is right")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if (case := item.get_closest_marker("case")) is not None:
        values = {"case": case.args[0], "source": case.kwargs["source"], "right": case.kwargs["right"]}
        report.user_properties = [("case", values)]
    return report


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("--case-table", default=None)
    rows = _rows(terminalreporter.stats) if path else []
    if not rows:
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        made = config.stash[MADE]
        writer.writerows({**row, **made} for row in rows)
    terminalreporter.section("cases")
    for row in rows:
        terminalreporter.line(f"{row['result']}  {row['case']} ({row['source']}): {row['right']}")
    wrong = sum(row["result"] != "pass" for row in rows)
    terminalreporter.line(f"{len(rows)} cases, {wrong} not as they should be; table: {path}")


def _made():
    """Of which commit, when and on what machine a table is made."""
    sys.path.insert(0, str(ROOT / "performance"))
    import commits

    host = provenance.collect_provenance()["host"]
    machine = f"{host['cpu']}, {host['cores_allowed']} cores, {host['system']}"
    return {"commit": commits.describe_commit(), "date": str(date.today()), "machine": machine}


def _rows(stats):
    """One row per test; a test that was skipped says so and does not look like a pass."""
    rows = {}
    for outcome, result in (("passed", "pass"), ("failed", "FAIL"), ("error", "FAIL"), ("skipped", "skipped")):
        for report in stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", []))
            if "case" in properties and (report.when == "call" or outcome != "passed"):
                rows[report.nodeid] = {**properties["case"], "result": result}
    return sorted(rows.values(), key=lambda row: row["case"])
