"""Records of finished runs: written at a run's end, and made again from its folder wherever one is missing or old."""

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core.errors import StudyError
from study.core.files import parse_json_file, read_json, write_aside, write_json, write_sealed
from study.experiment.definition import RunDefinition
from study.instruments.timeline import read_communication
from study.records import record
from study.records.checked_records import CheckedRecords, note_new

FILE, OUTCOME = "record.json", "outcome.json"
PROGRESS_S = 10.0


def make(folder: str | Path, keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make the record of a finished run and write it; of a traced run, first the summary of its timeline.

    Where the folder cannot be written, such as somebody else's results, the record is only returned. keys: as of
    `record.make_record`.

    Raises:
        StudyError: a file of the run is missing or was changed after the run.
    """
    folder = Path(folder)
    if RunDefinition.read(folder / "run.yaml")["trace"]:
        summarize_timeline(folder)
    made_record = record.make_record(folder, keys)
    with contextlib.suppress(OSError):
        write_sealed(folder / FILE, made_record)
        note_new(folder / FILE, made_record)
    return made_record


def summarize_timeline(folder: str | Path) -> None:
    """Write the summary of a traced run's timeline and its activity over time; raises `StudyError` as `make`."""
    communication = read_communication(folder)
    summary, activity = (Path(folder) / name for name in record.DERIVED)
    with contextlib.suppress(OSError):
        with write_aside(activity) as aside:
            communication.activity.to_csv(aside, index=False)
        write_json(summary, communication.summary)


def has_ended(path: str | Path) -> bool:
    """Whether there is a run to the record at a path: the record itself, or a finished run without one."""
    return Path(path).exists() or (Path(path).parent / OUTCOME).exists()


def current_record(
    path: str | Path, checked: CheckedRecords | None = None, keys: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The record at a path. That of a finished run is made again if it is missing, or if other code made it.

    So is that of a command whose output was read by other keys of its benchmark's file.

    A record without its run's other files, such as one of a published sample, stays as it is.

    Args:
        path: of the record.
        checked: the records of its results folder that need not be checked again, for readers of many.
        keys: by which the output of a command is to be read; None for those of the record.

    Raises:
        StudyError: there is neither a record nor a finished run, a file was changed, or the record has another schema.
    """
    path = Path(path)
    data: bytes | None = None
    if checked is not None:
        with contextlib.suppress(OSError):  # a missing one is made, and one that cannot be read is refused below
            data = path.read_bytes()
    if checked is not None and data is not None:
        accepted = checked.find_accepted(data)
        if accepted and (_is_current(accepted, keys) or not (path.parent / OUTCOME).exists()):
            return accepted
    content, was_made = _update(path, data, keys)
    stored = record.as_read(content, path)
    if checked is not None and data is not None and not was_made:
        checked.note_accepted(data)
    return stored


def _update(path: Path, data: bytes | None = None, keys: Mapping[str, Any] | None = None) -> tuple[Any, bool]:
    """The content of a record, and whether it was made again. data: the record's bytes, if they were read already."""
    is_with_run = (path.parent / OUTCOME).exists()
    if data is not None:
        content = parse_json_file(data, path)
    else:
        content = None if is_with_run and not path.exists() else read_json(path)
    if not is_with_run or (content is not None and _is_current(content, keys)):
        return content, False
    read_with = _read_part(content, "program").get("read_with")
    return json.loads(json.dumps(make(path.parent, read_with if keys is None else keys))), True  # as it is in the file


def _is_current(content: Any, keys: Mapping[str, Any] | None) -> bool:
    """Whether a record is of this code, and if it is of a command with results, read by these keys; None for any."""
    program = _read_part(content, "program")
    is_read = keys is None or not program or program.get("read_with") == keys
    return is_read and _read_part(content, "provenance").get("record_code") == record.code()


def _read_part(content: Any, key: str) -> Mapping[str, Any]:
    """A group of a record whose content may be anything; {} if it has none."""
    part = content.get(key) if isinstance(content, dict) else None
    return part if isinstance(part, dict) else {}


def make_at_end(folder: str | Path) -> None:
    """Make the record of a run that has just ended.

    What is wrong is only printed: it stops what reads the record, and a job that fails would train again.
    """
    try:
        make(folder)
    except StudyError as error:
        print("\n".join(f"warning: {line}" for line in error.lines), file=sys.stderr)


def update(paths: Iterable[str | Path]) -> int:
    """Make the records of finished runs again that are missing or of other code; returns their number.

    A record with a wrong file does not keep the others from being made; what reads it refuses it.
    """
    every, number_made, told_s = list(paths), 0, time.monotonic()
    for number, path in enumerate(every, 1):
        with contextlib.suppress(StudyError):
            number_made += _update(Path(path))[1]
        if time.monotonic() - told_s > PROGRESS_S:
            print(f"{number} of {len(every)} records are of this version of the code", file=sys.stderr)
            told_s = time.monotonic()
    return number_made


def restore(paths: Iterable[str | Path]) -> None:
    """Make records that were deleted; what reads one that cannot be made says why."""
    for path in map(Path, paths):
        if not path.exists() and has_ended(path):
            with contextlib.suppress(StudyError):
                make(path.parent)
