"""How far each run of a study is, from the files in its directory. Only reads."""

import time
from collections.abc import Iterable
from pathlib import Path

from study.core import paths, validation
from study.core.errors import StudyError
from study.experiment.study import LoadingMeasurement, PlannedRun
from study.instruments.heartbeats import LONGEST_INTERVAL_S
from study.records import checks, failures
from study.records.checked_records import CheckedRecords
from study.records.record import read_record

STATES = ("done", "running", "silent", "failed", "to do")
GOING_ON = ("running", "silent")
SILENT_S = 3 * LONGEST_INTERVAL_S  # without a heartbeat: a run that makes progress sends one more often
Found = tuple[PlannedRun, str, str]  # a run, its state, and details for a reader


def list_states(runs: Iterable[PlannedRun], results: str) -> list[Found]:
    """The state of each run, in their order. results: of the machine, ``results/<machine>``."""
    checked_before = CheckedRecords(results)
    return [(run, *state(Path(paths.locate_run(results, run.directory)), checked_before)) for run in runs]


def loads_done(loading: Iterable[LoadingMeasurement], results: str) -> int:
    """How many of the loading measurements are there."""
    return sum(Path(paths.locate_loading(results, each.directory)).exists() for each in loading)


def state(folder: Path, checked_before: CheckedRecords | None = None) -> tuple[str, str]:
    """(one of `STATES`, details) of a run's directory; raises `StudyError` if a file in it is damaged.

    checked_before: of its results folder, for readers of many.
    """
    outcome = folder / "outcome.json"
    if outcome.exists():
        record = folder / "record.json"  # made from the outcome; it also has what the run's checks found
        is_made = record.exists() and record.stat().st_mtime >= outcome.stat().st_mtime
        read = checked_before.read if checked_before else read_record
        ended = read(record) if is_made else validation.load_valid_json(outcome, "outcome")
        if ended["status"] == "ok":
            return "done", ""
        failure = ended["failure"]
        phase = f" in {failure['phase']}" if failure["phase"] else " before the first phase"
        phase = "" if failure["kind"] == checks.KIND else phase
        where = f" on {failure['host']}" if failure.get("host") and hosts(folder) else ""
        return "failed", f": {failure['kind']}{phase}{where}: {failures.message(failure['message'])}"
    if not (folder / "ranks").exists():
        return "to do", ""
    named = hosts(folder)
    where = f" on {named}" if named else ""
    try:
        silent = time.time() - max(path.stat().st_mtime for path in [folder / "ranks", *(folder / "ranks").iterdir()])
    except FileNotFoundError:  # it is just ending, and its ranks' files are merged
        return "running", where
    if silent > SILENT_S:
        return "silent", f"{where}: no heartbeat for {silent:.0f} s; it was stopped, or it waits or hangs"
    return "running", where


def hosts(folder: Path) -> str:
    """The hosts of a run on a machine that lists hosts; else an empty text."""
    try:
        facts = validation.load_valid_json(folder / "provenance.json", "provenance")
    except StudyError:  # not written yet
        return ""
    return ", ".join(host["name"] for host in facts.get("hosts", []))
