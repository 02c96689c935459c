"""The page docs/reference/faults.md: all faults, what must be true after each, and their latest results."""

import textwrap
from collections import Counter

SPEEDS = {"full": "at full speed", "slowed": "slowed"}
OUTCOMES = ("pass", "FAIL", "skipped")
INTRODUCTION = (
    "`make faults` injects these into real runs, files and Snakemake processes, and checks what must be true "
    "afterwards ([failures](../failures.md#fault-injection)). It writes this page. The commit of each result, and "
    "the time from the fault to its detection, are in [faults.csv](../../performance/faults.csv). An empty cell means "
    "that `make faults` has not tried the fault at this speed. Results without a commit were made before "
    "commits were recorded; the next `make faults` tries these faults again."
)
QUICK = "Those marked * are also tests, in `make test` or `make test-long`, whose results are not on this page."


def page(faults, table):
    """The page's text. faults: as in `registry.FAULTS`. table: the rows of performance/faults.csv, a DataFrame."""
    parts = ["# Injected faults", textwrap.fill(INTRODUCTION, 120), _counts(faults, table), QUICK]
    for group in dict.fromkeys(fault.group for fault in faults.values()):
        own = [fault for fault in faults.values() if fault.group == group]
        parts += [f"## {group[0].upper()}{group[1:]}", _listed(own, table)]
    return "\n\n".join(parts) + "\n"


def latest(table, speed):
    """{fault: its row} of the results at one speed, a key of `SPEEDS`."""
    return {row["fault"]: row for row in table[table["speed"] == speed].to_dict("records")}


def _counts(faults, table):
    head = [f"{len(faults)} faults", *OUTCOMES, "not tried", "commits of these results"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for speed, words in SPEEDS.items():
        found = [row for name, row in latest(table, speed).items() if name in faults]
        counts = Counter(row["outcome"] for row in found)
        commits = Counter(row["commit"] if isinstance(row["commit"], str) else "not recorded" for row in found)
        cells = [words, *(counts[outcome] for outcome in OUTCOMES), len(faults) - len(found),
                 ", ".join(f"{commit}: {count}" for commit, count in commits.items())]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _listed(faults, table):
    results = [latest(table, speed) for speed in SPEEDS]
    lines = [f"| fault | must be true afterwards | {' | '.join(SPEEDS.values())} |", "|---" * (len(SPEEDS) + 2) + "|"]
    for fault in faults:
        cells = [row["outcome"] if (row := found.get(fault.name)) else "" for found in results]
        lines.append(f"| {fault.name}{' *' * fault.quick} | {fault.truth} | {' | '.join(cells)} |")
    return "\n".join(lines)
