"""Why a run failed: kind, phase, rank and message, from how its ranks ended and from their last output."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.instruments import phases
from study.launch import processes
from study.machines import remote
from study.machines.launchers import TAG
from study.training.divergence import WORDS


def _any_of(*phrases: str) -> re.Pattern[str]:
    """A pattern of several, in which capitals make no difference."""
    return re.compile("|".join(phrases), re.I)


OUT_OF_MEMORY = _any_of("MemoryError", "ResourceExhaustedError", "std::bad_alloc", "Out of memory", "OutOfMemoryError",
                        "can't allocate memory", "OOM when", "oom[-_ ]kill")  # fmt: skip
KILLED = re.compile(r"SIGKILL|signal 9|[Ee]xit (code|status)[:=]? *(137|-9)\b|^srun: error: .*: Killed")
OF_RANK = re.compile(r"process rank (?P<mpi>\d+) with PID|^srun: error: \S+: task (?P<srun>\d+): ")
DIVERGED = re.compile(rf"^error: .*{WORDS}")
LOST_HOST = re.compile(rf"{remote.LOST} (?P<host>[^:\s]+): .*")
TOLD = re.compile(r"^error: ")  # from a rank that reports its own error
# The last line of a traceback, `Type: message`, also within the frame of an exception group.
RAISED = re.compile(
    r"^(?:[\s|+-]*\s)?(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Group))\b(?P<said>:.*|$)"
)
ANY_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?P<said>: .*|$)")
ERROR = re.compile(r"^(error: |[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Group)\b)|: F .*Check failed")
TRACEBACK = "Traceback (most recent call last):"
# Errors by which a rank or the launcher only reports that another one has failed.
FOLLOWING = _any_of("HorovodInternalError", "has been shut down", "another (rank|worker) has ended",
                    "Connection (closed|reset) by peer", "ranks? has? failed", "one or more processes exited",
                    "of this node, which writes .*, has (failed|ended)")  # fmt: skip
CHAINED = re.compile(r"direct cause of the following exception|During handling of the above exception")
GROUP = re.compile(r"[\w.]*ExceptionGroup\b")
NATIVE = re.compile(r": F .*Check failed|^terminate called after|^Fatal Python error")
FRAME = re.compile(r'^\s*File "')
# What is no part of a message: the logs of TensorFlow, Horovod and launchers, and an error's line of its own.
OUTSIDE = re.compile(
    r"^(\d{4}-\d\d-\d\d |\[?\d|[WIEF]\d{4} |WARNING|INFO|Process \d|epoch \d|-{5}|\[[^\[]|[\s|]*\+[-+])|"
    r"^[A-Za-z_][\w.]*(Error|Exception)\b"
)
BODY_LINES = 200  # of an error of several lines that are searched for its cause
ENDED_FIRST = re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)")  # from horovodrun
SIGNALLED = {137: "killed", 143: "killed", -9: "killed", -15: "killed"}
TOLD_LINES = 20  # of the log, in the record
RESULTS = ("metrics.json", "history.csv")  # of a complete run


def failure_of(
    folder: Path, exit_code: int, stopped: tuple[str, str] | None, last_lines: list[str], killed_for_memory: int = 0
) -> dict[str, Any] | None:
    """Kind, phase, rank, host and message of a failed run, or None.

    The kinds: timeout, hang, oom, killed, diverged, host_lost, workers_lost, error. stopped: (kind, message) if the
    launch ended the run, or None. last_lines: of the output of the ranks and their launcher. If the failing rank can be
    identified, only its own lines are used for the message. killed_for_memory: processes of the ranks' host that the
    kernel ended meanwhile for want of memory: it kills as a user does, and tells nobody else.
    """
    found = _found(folder, exit_code, stopped, last_lines)
    if found and found["kind"] == "killed" and killed_for_memory:
        ended = "a process" if killed_for_memory == 1 else f"{killed_for_memory} processes"
        memory = f"out of memory: the kernel ended {ended} of this host meanwhile"
        return found | {"kind": "oom", "message": f"{memory}; {found['message']}"}
    return found


def _found(
    folder: Path, exit_code: int, stopped: tuple[str, str] | None, last_lines: list[str]
) -> dict[str, Any] | None:
    """The failure as far as the output and the exit code tell it."""
    missing = [name for name in RESULTS if not (folder / name).exists()]
    lost = processes.first_lost(folder)
    if exit_code == 0 and not stopped and not missing and not lost:
        return None
    if stopped:
        return described(folder, *stopped, None, last_lines)
    if lost and (named := _of_process(folder, exit_code, lost, last_lines)):
        return named
    if not lost and (out_of_reach := lost_host(last_lines)):
        message, rank, host = out_of_reach
        own = [line for line in last_lines if rank is not None and _rank(line) == rank]
        return described(folder, "host_lost", message, _rank_on(folder, rank, host), own or last_lines)
    culprit, code = _to_blame(last_lines)
    own = [line for line in last_lines if culprit is not None and _rank(line) == culprit]
    reason = _reason(own or last_lines, code if own else exit_code)
    if own and (reason is None or FOLLOWING.search(reason[2])):
        others = _reason([line for line in last_lines if _rank(line) != culprit], None)
        if others and not FOLLOWING.search(others[2]):
            reason = others
    if reason is None:
        reason = "error", culprit, _last_words(own or last_lines, code if own else exit_code, missing)
    kind, rank, message = reason
    if rank is None and (found := OF_RANK.search(message)):  # mpiexec's or srun's own line, which has no tag
        rank = int(found["mpi"] or found["srun"])
    return described(folder, kind, message, rank, own or last_lines)


def lost_host(lines: list[str]) -> tuple[str, int | None, str] | None:
    """(message, rank, host) of the first host that the launching host lost contact with; None if there is none."""
    found = ((match[0], _rank(line), match["host"]) for line in lines if (match := LOST_HOST.search(line)))
    return next(found, None)


def _rank_on(folder: Path, rank: int | None, host: str) -> int | None:
    """``rank``, or the first one on ``host`` if it is None: mpirun puts no tag before what it runs besides ranks."""
    edges = phases.read_edges(folder / "phases.jsonl") if rank is None else []
    return min((edge["rank"] for edge in edges if edge["host"] == host), default=rank)


def _of_process(
    folder: Path, exit_code: int, lost: tuple[int, str, int], last_lines: list[str]
) -> dict[str, Any] | None:
    """The failure of a run that lost a process; None if the process itself told its error.

    A run whose exit code is 0 went on without a worker to its end; that it lost one makes it a failed run.
    """
    number, name, code = lost
    if exit_code == 0:
        message = f"{name} ended ({processes.how(code)}), and the run continued without it"
        return described(folder, "workers_lost", message, number, last_lines)
    own = [line for line in last_lines if _rank(line) == number]
    if out_of_reach := lost_host(own):
        return described(folder, "host_lost", f"{name}: {out_of_reach[0]}", number, own)
    if _first(own, TOLD) or (code >= 0 and _first(own, ERROR)):
        return None
    kind = "killed" if code in SIGNALLED else "error"
    return described(folder, kind, f"{name} ended first: {processes.how(code)}", number, own or last_lines)


def described(
    folder: Path, kind: str, message: str, rank: int | None = None, log: Iterable[str] = ()
) -> dict[str, Any]:
    """A failure with phase, rank (by the phases if ``rank`` is None), host, and the last lines of the log.

    The phase is that of the rank if it is known and has entered one; the others may be in a later one.
    """
    edges = phases.read_edges(folder / "phases.jsonl")
    phase, open_rank = phases.find_furthest_behind(edges) if kind in ("hang", "timeout") else (None, None)
    if phase is None:
        of_rank = [edge for edge in edges if edge["rank"] == rank]
        phase, open_rank = phases.find_last_phase(of_rank or edges)
    told = [line[:500] for line in log if line.strip()][-TOLD_LINES:]
    rank = open_rank if rank is None else rank
    host = next((edge["host"] for edge in edges if edge["rank"] == rank), None)
    return {"kind": kind, "phase": phase, "rank": rank, "host": host, "message": message, "log": told}


def _reason(lines: list[str], exit_code: int | None) -> tuple[str, int | None, str] | None:
    """(kind, rank, message) from the lines or the exit code; None where they give no reason."""
    if found := _first(lines, DIVERGED):
        return "diverged", *found
    if found := _first(lines, OUT_OF_MEMORY):
        return "oom", *found
    if found := _first(lines, KILLED):
        return "killed", *found
    if exit_code in SIGNALLED:
        return SIGNALLED[exit_code], _rank(lines[-1]) if lines else None, f"exit code {exit_code}"
    found = _first(lines, TOLD) or _first_cause(lines) or _first(lines, ERROR)
    return ("error", *found) if found else None


def _first_cause(lines: list[str]) -> tuple[int | None, str] | None:
    """(rank, message) of the first error of a rank, or of the launcher, that only its own failure explains.

    An error that follows from another rank's is taken where there is no other; of errors of several lines, the cause
    within.
    """
    by_rank: dict[int | None, list[str]] = {}
    for line in lines:
        by_rank.setdefault(_rank(line), []).append(TAG.sub("", line, count=1).rstrip())
    found = [(place, rank, message) for rank, own in by_rank.items() for place, message in _errors(own)]
    order = {rank: number for number, rank in enumerate(by_rank)}
    found.sort(key=lambda each: (bool(FOLLOWING.search(each[2])), each[1] is None, order[each[1]], each[0]))
    return (found[0][1], found[0][2][:500]) if found else None


def _errors(lines: list[str]) -> list[tuple[int, str]]:
    """(line, message) of each error in the output of one process. A chain of errors is one, with its cause first.

    Python prints the cause of an error before the error ("The above exception was the direct cause", "During handling
    of the above exception").
    """
    found: list[tuple[int, str]] = []
    is_chained = in_traceback = False
    for number, line in enumerate(lines):
        if CHAINED.search(line):
            is_chained = bool(found)
        elif TRACEBACK in line:
            in_traceback = True
        elif raised := (ANY_RAISED if in_traceback else RAISED).match(line) or RAISED.match(line):
            message = _message(raised, lines[number + 1 :])
            if is_chained and not FOLLOWING.search(found[-1][1]):
                found[-1] = found[-1][0], f"{found[-1][1][:300]}; then {message}"
            else:
                found.append((number, message))
            is_chained = in_traceback = False
        elif NATIVE.search(line):
            what = next((each.strip() for each in lines[number + 1 : number + 2] if "what():" in each), "")
            found.append((number, f"{line.strip()} {what}".strip()))
    groups = [each for each in found if not GROUP.match(each[1])]
    return groups or found


def _message(raised: re.Match[str], following: list[str]) -> str:
    """The message of an error on one line, with its further lines, or with the cause that Keras prints within them."""
    body = _body(following)
    said = raised["said"].removeprefix(":").strip()
    inner = next((match for line in reversed(body) if (match := RAISED.match(line.strip()))), None)
    if inner and said in ("", "in user code", "in user code:", "Graph execution error", "Graph execution error:"):
        start = max(number for number, line in enumerate(body) if RAISED.match(line.strip()))
        return " ".join([inner[0].strip(), *(line.strip() for line in body[start + 1 :] if line.strip())])
    if said.rstrip(":") == "Graph execution error":
        told = [line.strip() for line in body if line.strip() and not FRAME.match(line)]
        body = [line for line in told if not line.startswith(("Detected at node", "Node:", "[[", "[Op:"))]
    return " ".join(
        [f"{raised['type']}{': ' + said if said else ''}", *(line.strip() for line in body if line.strip())]
    )


def _body(following: list[str]) -> list[str]:
    """The lines that belong to an error's message: up to a blank line that ends it, another traceback or our own."""
    found: list[str] = []
    for line in following[:BODY_LINES]:
        if TRACEBACK in line or CHAINED.search(line) or TOLD.match(line) or OUTSIDE.match(line):
            break
        found.append(line)
    while found and not found[-1].strip():
        found.pop()
    return found


def _last_words(lines: list[str], exit_code: int | None, missing: list[str]) -> str:
    if exit_code == 0:
        return f"the ranks ended without writing {' and '.join(missing)}"
    said = [TAG.sub("", line).strip() for line in lines if re.search(r"\w", line)]
    return f"exit code {exit_code}" + (f"; the last line is: {said[-1][:300]}" if said else "")


def _to_blame(lines: list[str]) -> tuple[int | None, int | None]:
    """(rank, exit code) of the rank that failed first; (None, None) if it cannot be identified.

    It is the rank that the launcher reports as the first to end, unless another one reported its own error: the other
    ranks hear of that through Horovod and may end sooner.
    """
    ended, code = _ended_first(lines)
    told = _first(lines, TOLD)
    if told and told[0] is not None and code not in SIGNALLED:
        return told[0], 1
    return ended, code


def _ended_first(lines: list[str]) -> tuple[int | None, int | None]:
    """(rank, exit code) of the rank that the launcher reports as the first to end; (None, None) without a report."""
    found = next(filter(None, map(ENDED_FIRST.match, lines)), None)
    return (int(found["rank"]), int(found["code"])) if found else (None, None)


def _rank(line: str) -> int | None:
    tag = TAG.match(line)
    return int(tag["rank"]) if tag else None


def _first(lines: list[str], pattern: re.Pattern[str]) -> tuple[int | None, str] | None:
    """(rank, text) of the first matching line of a rank, else of the launcher's first matching line, else None."""
    matches = [(_rank(line), TAG.sub("", line).strip()[:500]) for line in lines if pattern.search(TAG.sub("", line))]
    by_rank = [each for each in matches if each[0] is not None]
    return next(iter(by_rank or matches), None)
