"""Why a run failed: kind, phase, rank and message, from how its ranks ended and what they said last."""

import re

from study.instruments import phases

# What launchers put before a rank's line: ``[1]<stdout>:``, mpirun ``[1,0]<stdout>:``, srun ``1: ``.
TAG = re.compile(r"^(?:\[(?:\d+,)?|\s*)(?P<rank>\d+)(?:\]<std(?:out|err)>:\s?|: )")
OUT_OF_MEMORY = re.compile(r"MemoryError|ResourceExhaustedError|std::bad_alloc|Out of memory|OOM when|oom-kill", re.I)
KILLED = re.compile(r"SIGKILL|signal 9|[Ee]xit (code|status)[:=]? *(137|-9)\b")
TOLD = re.compile(r"^error: ")  # by a rank that knows why it cannot go on
ERROR = re.compile(r"^(error: |[A-Za-z_.]*(Error|Exception|Interrupt)\b)|: F .*Check failed")
ENDED_FIRST = re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)")  # says horovodrun
SIGNALLED = {137: "killed", 143: "killed", -9: "killed", -15: "killed"}
TOLD_LINES = 20  # of the log, in the record
RESULTS = ("metrics.json", "history.csv")  # of a run that is whole


def failure_of(folder, exit_code, stopped, last_lines):
    """Kind (timeout, hang, oom, killed, error), phase, rank and message of a failed run; None for one that is whole.

    stopped: (kind, message) where we ended it, or None. last_lines: of what its ranks and their launcher printed. Where
    it can be told which rank was the cause, what the others say of it is not the reason.
    """
    missing = [name for name in RESULTS if not (folder / name).exists()]
    if exit_code == 0 and not stopped and not missing:
        return None
    if stopped:
        return described(folder, *stopped, None, last_lines)
    culprit, code = _to_blame(last_lines)
    own = [line for line in last_lines if culprit is not None and _rank(line) == culprit]
    kind, rank, message = _reason(own or last_lines, code if own else exit_code)
    if kind is None:
        kind, rank, message = "error", culprit, _last_words(own or last_lines, code if own else exit_code, missing)
    return described(folder, kind, message, rank, own or last_lines)


def described(folder, kind, message, rank=None, log=()):
    """A failure with the phase in which it was, the rank in it where no other is known, and the log's last lines."""
    edges = phases.read(folder / "phases.jsonl")
    phase, open_rank = phases.furthest_behind(edges) if kind in ("hang", "timeout") else (None, None)
    if phase is None:
        phase, open_rank = phases.last(edges)
    told = [line[:500] for line in log if line.strip()][-TOLD_LINES:]
    rank = open_rank if rank is None else rank
    return {"kind": kind, "phase": phase, "rank": rank, "message": message, "log": told}


def _reason(lines, exit_code):
    """(kind, rank, message) by what the lines or the exit code say; three times None where they say nothing."""
    if found := _first(lines, OUT_OF_MEMORY):
        return "oom", *found
    if found := _first(lines, KILLED):
        return "killed", *found
    if exit_code in SIGNALLED:
        return SIGNALLED[exit_code], _rank(lines[-1]) if lines else None, f"exit code {exit_code}"
    found = _first(lines, ERROR)
    return ("error", *found) if found else (None, None, None)


def _last_words(lines, exit_code, missing):
    if exit_code == 0:
        return f"the ranks ended without writing {' and '.join(missing)}"
    said = [TAG.sub("", line).strip() for line in lines if re.search(r"\w", line)]
    return f"exit code {exit_code}" + (f"; the last line is: {said[-1][:300]}" if said else "")


def _to_blame(lines):
    """(rank, exit code) of the rank that was the cause; twice None where it cannot be told.

    It is the one that the launcher says ended first, but for one that tells why it cannot go on: the others hear of
    that from Horovod and may be quicker to end.
    """
    ended, code = _ended_first(lines)
    told = _first(lines, TOLD)
    if told and told[0] is not None and code not in SIGNALLED:
        return told[0], 1
    return ended, code


def _ended_first(lines):
    """(rank, exit code) of the rank that the launcher says ended first; twice None where it says nothing of it."""
    found = next(filter(None, map(ENDED_FIRST.match, lines)), None)
    return (int(found["rank"]), int(found["code"])) if found else (None, None)


def _rank(line):
    tag = TAG.match(line)
    return int(tag["rank"]) if tag else None


def _first(lines, pattern):
    """(rank, text) of the first line of a rank that matches, else of the launcher's first such line, else None."""
    matches = [(_rank(line), TAG.sub("", line).strip()[:500]) for line in lines if pattern.search(TAG.sub("", line))]
    by_rank = [each for each in matches if each[0] is not None]
    return (by_rank or matches or [None])[0]
