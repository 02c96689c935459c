"""Damage the files of some readers, in this process; prints a line of JSON for each reader.

A case that crashes the process, or that takes longer than `CASE_CPU_S`, ends it; the file ``case`` in the folder then
has the content that did it.
"""

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import readers
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from study.core.errors import LONGEST, StudyError

CASE_CPU_S = 30  # of a case; a thousand times what it takes: more is an endless loop
CASE_S = 1800  # for one that waits and does nothing; long, since the machine may be busy with others
MOST_SHOWN = 600


class Wrong(Exception):
    """A case that did not end as it must."""


def tried(reader, path, content):
    """``refused`` or ``read``; raises `Wrong` for anything else."""
    try:
        found = reader.read(path)
    except StudyError as error:
        message = str(error)
        if "\n" in message or len(message) > LONGEST + 20 or not any(name in message for name in reader.names(path)):
            raise Wrong(f"a message that does not name the file: {message}") from None
        return "refused"
    except OSError as error:
        if error.filename is None:
            raise
        return "refused"
    expected = reader.expect(path)
    if expected is not readers.NOTHING_TO_COMPARE and not _same(found, expected):
        raise Wrong(f"another reader finds {str(expected)[:MOST_SHOWN]}, not {str(found)[:MOST_SHOWN]}")
    return "read"


def _same(found, expected):
    """Whether two values are equal, where a missing number equals another one; arrays are compared as bytes."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in found)
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(found, float) and isinstance(expected, float) and found != found:
        return expected != expected
    return (
        type(found) is type(expected)
        and found == expected
        or (isinstance(found, int | float) and isinstance(expected, int | float) and found == expected)
    )


def fuzz(entry, folder, cases, number):
    """The counts of a reader, and what was wrong: one case of each kind, the shortest one."""
    folder.mkdir(parents=True)
    reader = entry.make()
    path = reader.prepare(folder)
    good = path.read_bytes()
    if tried(reader, path, good) != "read":
        raise Wrong(f"{entry.name}: the valid file is refused")
    seen, wrong, contents = {"read": 0, "refused": 0}, {}, set()

    @seed(number)
    @settings(max_examples=cases, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def each(data):
        content = data.draw(reader.damage(good))
        contents.add(hashlib.sha256(content).digest())
        _one(reader, path, content, seen, wrong, folder.parent / "case")

    for content in entry.found:
        _one(reader, path, content(good) if callable(content) else content, seen, wrong, folder.parent / "case")
    each()
    return {"cases": sum(seen.values()) + sum(each["times"] for each in wrong.values()), "different": len(contents),
            **seen, "wrong": list(wrong.values())}  # fmt: skip


def _one(reader, path, content, seen, wrong, kept_in):
    kept_in.write_bytes(content)
    path.write_bytes(content)
    faulthandler.dump_traceback_later(CASE_S, exit=True)
    signal.setitimer(signal.ITIMER_PROF, CASE_CPU_S)
    try:
        seen[tried(reader, path, content)] += 1
    except Exception as error:  # noqa: BLE001  whatever is raised is what was looked for
        where = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
        kind = f"{type(error).__name__} at {where[-1]}" if not isinstance(error, Wrong) else str(error)[:60]
        ours = next((place for f, place in zip(reversed(traceback.extract_tb(error.__traceback__)), reversed(where),
                     strict=True) if "/scripts/" in f.filename), "")  # fmt: skip
        kept = wrong.setdefault(f"{kind} {ours}", {"times": 0, "what": "", "case": None})
        kept["times"] += 1
        if kept["case"] is None or len(content) < len(kept["case"]) // 2:
            kept["what"] = f"{type(error).__name__}: {error}"[:MOST_SHOWN] + f" ({ours or where[-1]})"
            kept["case"] = content.hex()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()


def main():
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="+")
    parser.add_argument("--cases", type=int, required=True, help="of each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)  # shows where, then ends the process
    readers.import_all()
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not get between the lines
    for place, name in enumerate(arguments.readers):
        (arguments.folder / "reader").write_text(name)
        begun = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            found = fuzz(readers.READERS[name], arguments.folder / f"{place:02d}", arguments.cases, arguments.seed)
        print(json.dumps({"reader": name, "seconds": time.perf_counter() - begun, **found}), file=told, flush=True)


if __name__ == "__main__":
    main()
