"""What is wrong with a study after chaos: its tables beside those of an undisturbed one, its files, what is left."""

import json
import math
import re

import pandas as pd
from battlefield import MADE, RUN

from study.core import fields, validation
from study.core.errors import StudyError
from study.core.files import read_json
from study.launch.run_directory import RUN_FILES
from study.records.record import read_record, verify

# Columns of what is measured, by the ends of their names: they differ from run to run.
UNITS = re.compile(r"_(s|ns|w|j|js)$|_per_s$|_per_j$|per_ci95|_per_step$|_read_mb$|_read_ci95_mb$|peak_memory")
OF_OTHERS = {each.column for each in fields.find_section("background").fields}  # how busy the hosts were by chance
NOT_COMPARED = {"session", "started_wall_ns", "started_monotonic_ns", "overlapped"} | OF_OTHERS
MEASURED = {"load_share", "cpu_busy", "cpu_limited", "step_time_jitter",
            "flop_utilisation", "flop_per_s_per_rank", "power_gap_s", "timeline_lost"}  # fmt: skip
# Energy of phases that may be shorter than the time between two readings.
SHORT = {f"{phase}_energy_j" for phase in ("load", "preprocess", "broadcast", "evaluate")}
# What tells how a run ended.
ENDING = {"status", "failure_kind", "failure_phase", "failure_message", "failures", "repeats_ok", "repeats_failed",
          "repeats_resumed", "resumed_after_epoch", "workers_lost", "checks"}  # fmt: skip
# What a run lacks whose sampler was lost, with this reason.
POWER = re.compile(r"power|energy|_w$|_j$|_per_j$")
LOST_SAMPLER = "the sampler does not cover it"
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")
LARGEST = 1e15


def is_measured(column):
    return column in MEASURED or bool(UNITS.search(column))


def wrong_now(field, reference):
    """Wrong cells of the tables that are there, files that were not made whole; what was struck itself aside."""
    return _wrong_tables(field, reference, complete=False) + _wrong_files(field)


def wrong_at_the_end(field, reference):
    """The same, and tables, rows and cells that are missing."""
    return _wrong_tables(field, reference, complete=True) + _wrong_files(field, everything=True)


def _wrong_tables(field, reference, complete):
    wrong = []
    ours, theirs = field.disk / MADE, reference.project.root / "disk" / MADE
    for path in sorted(theirs.rglob("*.csv")):
        mine = ours / path.relative_to(theirs)
        if not mine.exists() or (not complete and mine in field.struck):
            wrong += [f"{path.name} is missing"] if complete else []
            continue
        wrong += _wrong_cells(path.name, mine, path, complete)
    if complete:
        for path in sorted(each for form in ("md", "tex", "html") for each in (theirs / "tables").glob(f"*.{form}")):
            mine = ours / path.relative_to(theirs)
            if not mine.exists() or _shape(mine) != _shape(path):
                wrong.append(f"{path.name} is not as it was")
    return wrong


def _shape(path):
    """The text without numbers and without what depends on their widths."""
    return re.sub(r"[\s-]+", " ", NUMBER.sub("#", path.read_text(errors="replace")))


def _wrong_cells(name, path, reference, complete):
    try:
        ours, theirs = pd.read_csv(path), pd.read_csv(reference)
    except (ValueError, pd.errors.ParserError) as error:
        try:
            if path.read_bytes() == reference.read_bytes():
                return []  # a table without rows
        except OSError:
            pass
        return [f"{name} cannot be read: {error}"]
    if list(ours.columns) != list(theirs.columns) or len(ours) != len(theirs):
        return [f"{name} has other columns or rows"]
    wrong = []
    for (_, mine), (_, other) in zip(ours.iterrows(), theirs.iterrows(), strict=True):
        failed = mine.get("status") == "failed" or mine.get("repeats_ok") == 0
        reason = mine.get("failure_message", mine.get("failures"))
        unpowered = not complete and LOST_SAMPLER in str(mine.get("power_reason"))
        if failed and (complete or not isinstance(reason, str)):
            wrong.append(f"{name}: failed, {reason}")
        for column in theirs.columns:
            if column in NOT_COMPARED or (failed and (column in ENDING or column.endswith("_reason"))):
                continue
            if unpowered and POWER.search(column) and (pd.isna(mine[column]) or column == "power_reason"):
                continue
            if fault := _wrong_cell(mine[column], other[column], is_measured(column), failed, column in SHORT):
                wrong.append(f"{name}: {column} {fault}")
    return wrong


def _wrong_cell(mine, other, measured, failed, may_be_empty):
    """What is wrong with a cell, or None. failed: its run has failed, with a reason, so it may be empty."""
    if pd.isna(mine):
        return None if pd.isna(other) or failed or may_be_empty else f"is empty, {other!r} was expected"
    if measured:
        sane = not isinstance(mine, float) or (math.isfinite(mine) and 0 <= mine < LARGEST)
        return None if sane else f"is {mine!r}"
    if isinstance(mine, float) and isinstance(other, (int, float)):
        same = math.isclose(mine, other, rel_tol=1e-5)
    else:
        same = mine == other
    return None if same else f"is {mine!r}, {other!r} was expected"


def _wrong_files(field, everything=False):
    """Files under their final names that are not whole, or do not fit their schema."""
    wrong = []
    for outcome in field.disk.glob(f"{RUN}/outcome.json"):
        of_run = set(outcome.parent.iterdir())
        record = outcome.parent / "record.json"
        try:
            if not of_run & field.struck:
                content = read_json(outcome)
                validation.validate(content, "outcome", str(outcome))
                verify(outcome.parent, content["files"])
            if record.exists() and (everything or record not in field.struck):
                read_record(record)
        except StudyError as error:
            wrong.append(str(error))
    for path in field.disk.rglob("*.json"):
        if path not in field.struck:
            try:
                json.loads(path.read_text())
            except (ValueError, OSError) as error:
                wrong.append(f"{path.relative_to(field.disk)}: {error}")
    if everything:
        wrong += _left_files(field)
    return wrong


def _left_files(field):
    """Temporary files, files that no run has, and locks."""
    left = list(field.disk.rglob(".*.part"))
    left += [path for path in field.temporary.iterdir() if not path.name.startswith("snakemake")]  # its own
    left += [path for path in field.disk.glob(f"{RUN}/*") if path.name not in RUN_FILES or path.name == "ranks"]
    left += list((field.root / ".snakemake" / "locks").glob("*"))
    return [f"left: {path.relative_to(field.root.parent)}" for path in dict.fromkeys(left)]


def left_behind(field):
    """Processes that are still there."""
    return [f"left: process {each.pid}" for each in field.processes()]


def runs_to_repeat(field):
    """(folder, message) of each run whose record says that it has failed, or that its sampler was lost."""
    found = []
    for path in field.disk.glob(f"{RUN}/record.json"):
        record = json.loads(path.read_text())
        if record["status"] == "failed":
            found.append((path.parent, record["failure"]["message"]))
        elif LOST_SAMPLER in str(record["power"]["reason"]):
            found.append((path.parent, record["power"]["reason"]))
    return found


def tracebacks(said):
    """The last lines of Python's tracebacks in a text."""
    found, lines = [], said.splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith("Traceback (most recent"):
            last = next((each for each in lines[number + 1 :] if each and not each.startswith(" ")), "")
            found.append(last[:300])
    return found
