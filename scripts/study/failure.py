"""Why a run failed: kind, phase, rank and message, from how its ranks ended and what they said last."""

import re

from study import phases

# What launchers put before a rank's line: ``[1]<stdout>:``, mpirun ``[1,0]<stdout>:``, srun ``1: ``.
TAG = re.compile(r"^(?:\[(?:\d+,)?|\s*)(?P<rank>\d+)(?:\]<std(?:out|err)>:\s?|: )")
OUT_OF_MEMORY = re.compile(r"MemoryError|ResourceExhaustedError|std::bad_alloc|Out of memory|OOM when|oom-kill", re.I)
KILLED = re.compile(r"SIGKILL|signal 9|[Ee]xit (code|status)[:=]? *(137|-9)\b")
ERROR = re.compile(r"^(error: |[A-Za-z_.]*(Error|Exception|Interrupt)\b)")
TOLD_LINES = 20  # of the log, in the record
RESULTS = ("metrics.json", "history.csv")  # of a run that is whole


def failure_of(folder, exit_code, stopped, last_lines):
    """Kind (timeout, hang, oom, killed, error), phase, rank and message of a failed run; None for one that is whole.

    stopped: (kind, message) where we ended it, or None. last_lines: of what its ranks and their launcher printed.
    """
    missing = [name for name in RESULTS if not (folder / name).exists()]
    if exit_code == 0 and not stopped and not missing:
        return None
    rank = None
    if stopped:
        kind, message = stopped
    elif found := _first(last_lines, OUT_OF_MEMORY):
        kind, (rank, message) = "oom", found
    elif exit_code in (-9, 137) or _first(last_lines, KILLED):
        kind, (rank, message) = "killed", _first(last_lines, KILLED) or (rank, f"exit code {exit_code}")
    elif found := _first(last_lines, ERROR):
        kind, (rank, message) = "error", found
    elif exit_code == 0:
        kind, message = "error", f"the ranks ended without writing {' and '.join(missing)}"
    else:
        said = [line.strip() for line in last_lines if re.search(r"\w", line)]
        kind, message = "error", f"exit code {exit_code}" + (f"; the last line is: {said[-1][:300]}" if said else "")
    return described(folder, kind, message, rank, last_lines)


def described(folder, kind, message, rank=None, log=()):
    """A failure with the phase in which it was, the rank in it where no other is known, and the log's last lines."""
    phase, open_rank = phases.last(phases.read(folder / "phases.jsonl"))
    told = [line[:500] for line in log if line.strip()][-TOLD_LINES:]
    rank = open_rank if rank is None else rank
    return {"kind": kind, "phase": phase, "rank": rank, "message": message, "log": told}


def _first(lines, pattern):
    """(rank, text) of the first line of a rank that matches, else of the launcher's first such line, else None."""
    matches = [(TAG.match(line), TAG.sub("", line)) for line in lines]
    matches = [(tag, text.strip()[:500]) for tag, text in matches if pattern.search(text)]
    by_rank = [(int(tag["rank"]), text) for tag, text in matches if tag]
    return (by_rank or [(None, text) for _, text in matches] or [None])[0]
