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


def read(reader, path, content):
    """``refused`` or ``read``; raises `Wrong` for anything else."""
    path.write_bytes(content)
    try:
        result = reader.read(path)
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
    if expected is not readers.NOTHING_TO_COMPARE and _plain(result) != _plain(expected):
        raise Wrong(f"another reader finds {str(expected)[:MOST_SHOWN]}, not {str(result)[:MOST_SHOWN]}")
    return "read"


def _plain(value):
    """A value in which a missing number equals another one, a number its float, and a list its tuple."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return repr(float(value)) if isinstance(value, int | float) and abs(value) < 2**53 or value != value else value


def fuzz(reader, folder, cases, number):
    """The counts of a reader, and what was wrong: one case of each kind, a short one."""
    folder.mkdir(parents=True)
    path = reader.prepare(folder)
    good = path.read_bytes()
    if read(reader, path, good) != "read":
        raise Wrong(f"{reader.name}: the valid file is refused")
    counts, wrong, contents = {"read": 0, "refused": 0}, {}, set()

    @seed(number)
    @settings(max_examples=cases, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def try_each(data):
        content = data.draw(reader.damage(good))
        contents.add(hashlib.sha256(content).digest())
        (folder.parent / "case").write_bytes(content)
        faulthandler.dump_traceback_later(CASE_S, exit=True)
        signal.setitimer(signal.ITIMER_PROF, CASE_CPU_S)
        try:
            counts[read(reader, path, content)] += 1
        except Exception as error:  # noqa: BLE001  whatever is raised is what was looked for
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if "/scripts/" in frame.filename] or frames
            where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
            kind = str(error)[:60] if isinstance(error, Wrong) else f"{type(error).__name__} at {where}"
            kept = wrong.setdefault(kind, {"times": 0, "what": "", "case": None})
            kept["times"] += 1
            if kept["case"] is None or len(content) < len(kept["case"]) // 2:
                kept["what"] = f"{type(error).__name__}: {error}"[:MOST_SHOWN] + f" ({where})"
                kept["case"] = content.hex()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()

    try_each()
    return {"cases": sum(counts.values()) + sum(each["times"] for each in wrong.values()), "different": len(contents),
            **counts, "wrong": list(wrong.values())}  # fmt: skip


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
    all_readers, output = readers.import_all(), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not get between the lines
    for place, name in enumerate(arguments.readers):
        (arguments.folder / "reader").write_text(name)
        begun = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):
            counts = fuzz(all_readers[name](), arguments.folder / f"{place:02d}", arguments.cases, arguments.seed)
        print(json.dumps({"reader": name, "seconds": time.perf_counter() - begun, **counts}), file=output, flush=True)


if __name__ == "__main__":
    main()
