"""Why a run failed: kind, phase, rank and message, from how its ranks ended and from their last output.

That a program with exit status 0 failed by its output's last words: `FAILURE` in `study.workloads.command.reading`.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study.core import free_space
from study.core.files import AnyPath
from study.instruments import phases
from study.launch import processes
from study.machines import remote
from study.machines.launchers import TAG
from study.training.divergence import MESSAGE
from study.training.program import LAST_LINES_ARE


def _compile_any_of(*phrases: str) -> re.Pattern[str]:
    """Compile a case-insensitive pattern that matches any of the phrases."""
    return re.compile("|".join(phrases), re.I)


OUT_OF_MEMORY = _compile_any_of("MemoryError", "ResourceExhaustedError", "std::bad_alloc", "Out of memory",
                                "OutOfMemoryError", "can't allocate memory", "OOM when", "oom[-_ ]kill")  # fmt: skip
KILLED = re.compile(r"SIGKILL|signal 9|[Ee]xit (code|status)[:=]? *(137|-9)\b|^srun: error: .*: Killed")
PYTORCH_TAG = re.compile(r"^\[rank(\d+)\]: ?")  # before the lines of a traceback
LAUNCHER_RANK = re.compile(r"process rank (?P<mpi>\d+) with PID|^srun: error: \S+: task (?P<srun>\d+): ")
DIVERGED = re.compile(rf"^error: .*{MESSAGE}")
LOST_HOST = re.compile(rf"{remote.LOST} (?P<host>[^:\s]+): .*")
REPORTED = re.compile(r"^error: ")  # a rank's report of its own error
# The last line of a traceback, `Type: message`, also within the frame of an exception group.
RAISED = re.compile(
    r"^(?:[\s|+-]*\s)?(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Group))\b(?P<text>:.*|$)"
)
ANY_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?P<text>: .*|$)")
ERROR = re.compile(r"^(error: |[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Group)\b)|: F .*Check failed")
TRACEBACK = "Traceback (most recent call last):"
# Errors by which a rank or the launcher only reports that another one has failed.
CONSEQUENCE = _compile_any_of("HorovodInternalError", "has been shut down", "another (rank|worker) has ended",
                              "Connection (closed|reset) by peer", "ranks? has? failed", "one or more processes exited",
                              "ChildFailedError", "Process(Raised|Exited)Exception", "CalledProcessError",
                              "DistBackendError", "NCCL communicator was aborted", "remote process exited",
                              "Broken ?pipe",
                              "of this node, which writes .*, has (failed|ended)")  # fmt: skip
CHAINED = re.compile(r"direct cause of the following exception|During handling of the above exception")
GROUP = re.compile(r"[\w.]*ExceptionGroup\b")
NATIVE = re.compile(
    r": F .*Check failed|^F\d{4} \d\d:\d\d:|^terminate called after|^Fatal Python error"
)  # F1130 of XLA
FRAME = re.compile(r'^\s*File "')
# What is no part of a message: the logs of TensorFlow, Horovod and launchers, and an error's line of its own.
NOT_MESSAGE = re.compile(
    r"^(\d{4}-\d\d-\d\d |\[?\d|[WIEF]\d{4} |WARNING|INFO|Process \d|epoch \d|-{5}|\[[^\[]|[\s|]*\+[-+])|"
    r"^[A-Za-z_][\w.]*(Error|Exception)\b"
)
BODY_LINES = 200  # of an error of several lines that are searched for its cause
ENDED_FIRST = re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>-?\d+)")  # from horovodrun
SIGNAL_EXIT_CODES = {137: "killed", 143: "killed", -9: "killed", -15: "killed"}
LOG_LINES = 20  # of the log, in the record
BUS_ERROR = _compile_any_of("SIGBUS", "signal 7", "Bus error", "exit (status|code)[:=]? *(135|-7)")
RESULTS = ("metrics.json", "history.csv")  # of a complete run


def diagnose_failure(
    folder: Path, exit_code: int, stopped: tuple[str, str] | None, last_lines: list[str], killed_for_memory: int = 0
) -> dict[str, Any] | None:
    """Kind, phase, rank, host and message of a run's failure; None if it did not fail.

    The kinds: timeout, hang, oom, killed, diverged, host_lost, workers_lost, error. stopped: (kind, message) if the
    launch ended the run, or None. last_lines: of the output of the ranks and their launcher. If the failing rank can be
    identified, only its own lines are used for the message. killed_for_memory: processes of the ranks' host that the
    kernel ended meanwhile for want of memory: it kills as a user does, and tells nobody else.
    """
    failure = _diagnose_from_output(folder, exit_code, stopped, last_lines)
    if failure and failure["kind"] == "killed" and killed_for_memory:
        ended = "a process" if killed_for_memory == 1 else f"{killed_for_memory} processes"
        memory = f"out of memory: the kernel ended {ended} of this host meanwhile"
        return failure | {"kind": "oom", "message": f"{memory}; {failure['message']}"}
    return failure


def _diagnose_from_output(
    folder: Path, exit_code: int, stopped: tuple[str, str] | None, last_lines: list[str]
) -> dict[str, Any] | None:
    """The failure by exit code, missing files, lost processes and output alone; None if there is none."""
    missing = [name for name in RESULTS if not (folder / name).exists()]
    lost_process = processes.find_first_lost(folder)
    if exit_code == 0 and not stopped and not missing and not lost_process:
        return None
    if stopped:
        return describe_failure(folder, *stopped, None, last_lines)
    if lost_process and (described := _describe_lost_process(folder, exit_code, lost_process, last_lines)):
        return described
    if not lost_process and (lost_host := find_lost_host(last_lines)):
        message, rank, host = lost_host
        own_lines = [line for line in last_lines if rank is not None and _read_rank(line) == rank]
        return describe_failure(
            folder, "host_lost", message, _find_rank_on_host(folder, rank, host), own_lines or last_lines
        )
    failed_rank, code = _find_first_failed_rank(last_lines)
    own_lines = [line for line in last_lines if failed_rank is not None and _read_rank(line) == failed_rank]
    reason = _find_reason(own_lines or last_lines, code if own_lines else exit_code)
    if own_lines and (reason is None or CONSEQUENCE.search(reason[2])):
        others = _find_reason([line for line in last_lines if _read_rank(line) != failed_rank], None)
        if others and not CONSEQUENCE.search(others[2]):
            reason = others
    if reason is None:
        reason = (
            "error",
            failed_rank,
            _describe_silent_end(own_lines or last_lines, code if own_lines else exit_code, missing),
        )
    kind, rank, message = reason
    if rank is None and (
        launcher_line := LAUNCHER_RANK.search(message)
    ):  # mpiexec's or srun's own line, which has no tag
        rank = int(launcher_line["mpi"] or launcher_line["srun"])
    return describe_failure(folder, kind, message, rank, own_lines or last_lines)


def find_lack_of_space(cause: dict[str, Any], lines: Iterable[str], folders: Iterable[AnyPath]) -> str | None:
    """Why a run failed for want of space in a file system, which is no result of the run; None if it did not.

    cause: its failure. lines: of its output. folders: to which it writes; a mapped file of a full one ends a process by
    SIGBUS.
    """
    line = free_space.find_message(TAG.sub("", line) for line in lines)
    full = [text for folder in folders if (text := free_space.explain_lack_of_space(folder))]
    if line is None and not (full and BUS_ERROR.search(cause["message"])):
        return None
    who = "" if cause["rank"] is None else f"rank {cause['rank']} on {cause['host']}: "
    return who + "; ".join([line or cause["message"], *full])


def find_lost_host(lines: list[str]) -> tuple[str, int | None, str] | None:
    """(message, rank, host) of the first host with which contact was lost; None if there is none."""
    losses = ((match[0], _read_rank(line), match["host"]) for line in lines if (match := LOST_HOST.search(line)))
    return next(losses, None)


def _find_rank_on_host(folder: Path, rank: int | None, host: str) -> int | None:
    """``rank``, or if it is None the first rank on ``host``: mpirun tags no output of what it runs besides ranks."""
    edges = phases.read_edges(folder / "phases.jsonl") if rank is None else []
    return min((edge["rank"] for edge in edges if edge["host"] == host), default=rank)


def _describe_lost_process(
    folder: Path, exit_code: int, lost: tuple[int, str, int], last_lines: list[str]
) -> dict[str, Any] | None:
    """The failure of a run that lost a process; None if the process itself reported its error.

    A run whose exit code is 0 went on without a worker to its end; that it lost one makes it a failed run.
    """
    number, name, code = lost
    if exit_code == 0:
        message = f"{name} ended ({processes.describe_exit_code(code)}), and the run continued without it"
        return describe_failure(folder, "workers_lost", message, number, last_lines)
    own_lines = [line for line in last_lines if _read_rank(line) == number]
    if lost_host := find_lost_host(own_lines):
        return describe_failure(folder, "host_lost", f"{name}: {lost_host[0]}", number, own_lines)
    if _find_first_match(own_lines, REPORTED) or (code >= 0 and _find_first_match(own_lines, ERROR)):
        return None
    kind = "killed" if code in SIGNAL_EXIT_CODES else "error"
    return describe_failure(
        folder, kind, f"{name} ended first: {processes.describe_exit_code(code)}", number, own_lines or last_lines
    )


def describe_failure(
    folder: Path, kind: str, message: str, rank: int | None = None, log: Iterable[str] = ()
) -> dict[str, Any]:
    """A failure as the record holds it: with its phase, rank, host, and the last lines of the log.

    The phase is that of the rank if it is known and has entered one; other ranks may be in a later one. rank: None to
    derive it from the phases.
    """
    edges = phases.read_edges(folder / "phases.jsonl")
    phase, open_rank = phases.find_furthest_behind(edges) if kind in ("hang", "timeout") else (None, None)
    if phase is None:
        of_rank = [edge for edge in edges if edge["rank"] == rank]
        phase, open_rank = phases.find_last_phase(of_rank or edges)
    log_tail = [line[:500] for line in log if line.strip()][-LOG_LINES:]
    rank = open_rank if rank is None else rank
    host = next((edge["host"] for edge in edges if edge["rank"] == rank), None)
    return {"kind": kind, "phase": phase, "rank": rank, "host": host, "message": message, "log": log_tail}


def _find_reason(lines: list[str], exit_code: int | None) -> tuple[str, int | None, str] | None:
    """(kind, rank, message) by the lines or the exit code; None if they give no reason."""
    if match := _find_first_match(lines, DIVERGED):
        return "diverged", *match
    if match := _find_memory_error(lines):
        return "oom", *match
    if match := _find_first_match(lines, KILLED):
        return "killed", *match
    if exit_code in SIGNAL_EXIT_CODES:
        return SIGNAL_EXIT_CODES[exit_code], _read_rank(lines[-1]) if lines else None, f"exit code {exit_code}"
    match = (
        _find_program_error(lines)
        or _find_first_match(lines, REPORTED)
        or _find_first_cause(lines)
        or _find_first_match(lines, ERROR)
    )
    return ("error", *match) if match else None


def _find_program_error(lines: list[str]) -> tuple[int | None, str] | None:
    """(rank, message) of a command that failed, with its own error before its last lines; None without one.

    Its last lines are often those of a launcher that it calls, which tell only that a process of it failed.
    """
    reported = _find_first_match(lines, REPORTED)
    if reported is None or LAST_LINES_ARE not in reported[1]:
        return None
    cause = _find_first_cause([_take_inner_tag(line) for line in lines if LAST_LINES_ARE not in line])
    ended, _, last_lines = reported[1].partition(LAST_LINES_ARE)
    last = _find_first_cause(last_lines.split(" | "))  # an error before it was survived
    if cause is None or CONSEQUENCE.search(cause[1]) or cause[1] in reported[1]:
        return None
    if last and not CONSEQUENCE.search(last[1]):
        return None
    return reported[0], f"{ended}: {cause[1][:300]}{LAST_LINES_ARE}{last_lines}"[:500]


def _take_inner_tag(line: str) -> str:
    """A line of a program with the tag of the launcher that it calls, in place of our launcher's; else as it is."""
    inner = PYTORCH_TAG.sub(r"[\1]<stderr>:", TAG.sub("", line))
    return inner if TAG.match(inner) else line


def _find_memory_error(lines: list[str]) -> tuple[int | None, str] | None:
    """(rank, text) of a line that says that memory ran out; None if its rank went on, and failed with another error."""
    messages: list[tuple[int | None, str]] = []
    for rank, own in _group_by_rank(lines).items():
        # The last lines in our own message only repeat what the program printed before.
        places = [n for n, line in enumerate(own) if OUT_OF_MEMORY.search(line.partition(LAST_LINES_ARE)[0])]
        others = [place for place, message in _list_errors(own)
                  if not OUT_OF_MEMORY.search(message) and not CONSEQUENCE.search(message)]  # fmt: skip
        if places and places[-1] > max(others, default=-1):
            place = next((place for place in places if not own[place].startswith(" ")), places[0])
            messages.append((rank, own[place].strip()[:500]))
    return next((each for each in messages if each[0] is not None), messages[0] if messages else None)


def _group_by_rank(lines: list[str]) -> dict[int | None, list[str]]:
    """The lines of each rank, and of the launcher (None), without tags."""
    by_rank: dict[int | None, list[str]] = {}
    for line in lines:
        by_rank.setdefault(_read_rank(line), []).append(TAG.sub("", line, count=1).rstrip())
    return by_rank


def _find_first_cause(lines: list[str]) -> tuple[int | None, str] | None:
    """(rank, message) of the first error of a rank or the launcher that is no consequence of another rank's.

    A consequence is taken where there is nothing else. Of an error of several lines the message is the cause within.
    """
    by_rank = _group_by_rank(lines)
    errors = [(place, rank, message) for rank, own in by_rank.items() for place, message in _list_errors(own)]
    order = {rank: number for number, rank in enumerate(by_rank)}
    errors.sort(key=lambda each: (bool(CONSEQUENCE.search(each[2])), each[1] is None, order[each[1]], each[0]))
    return (errors[0][1], errors[0][2][:500]) if errors else None


def _list_errors(lines: list[str]) -> list[tuple[int, str]]:
    """(line number, message) of each error in the output of one process.

    A chain of errors is one, with its cause first: Python prints the cause before the error ("The above exception was
    the direct cause", "During handling of the above exception").
    """
    errors: list[tuple[int, str]] = []
    is_chained = in_traceback = False
    for number, line in enumerate(lines):
        if CHAINED.search(line):
            is_chained = bool(errors)
        elif TRACEBACK in line:
            in_traceback = True
        elif raised := (ANY_RAISED if in_traceback else RAISED).match(line) or RAISED.match(line):
            message = _format_error(raised, lines[number + 1 :])
            if is_chained and not CONSEQUENCE.search(errors[-1][1]):
                errors[-1] = errors[-1][0], f"{errors[-1][1][:300]}; then {message}"
            else:
                errors.append((number, message))
            is_chained = in_traceback = False
        elif NATIVE.search(line):
            reason = next((each.strip() for each in lines[number + 1 : number + 2] if "what():" in each), "")
            errors.append((number, f"{line.strip()} {reason}".strip()))
    groups = [each for each in errors if not GROUP.match(each[1])]
    return groups or errors


def _format_error(raised: re.Match[str], following: list[str]) -> str:
    """An error and its further lines as one line; of Keras's own errors, the cause within them."""
    body = _take_message_lines(following)
    text = raised["text"].removeprefix(":").strip()
    inner = next((match for line in reversed(body) if (match := RAISED.match(line.strip()))), None)
    if inner and text in ("", "in user code", "in user code:", "Graph execution error", "Graph execution error:"):
        start = max(number for number, line in enumerate(body) if RAISED.match(line.strip()))
        return " ".join([inner[0].strip(), *(line.strip() for line in body[start + 1 :] if line.strip())])
    if text.rstrip(":") == "Graph execution error":
        lines = [line.strip() for line in body if line.strip() and not FRAME.match(line)]
        body = [line for line in lines if not line.startswith(("Detected at node", "Node:", "[[", "[Op:"))]
    return " ".join(
        [f"{raised['type']}{': ' + text if text else ''}", *(line.strip() for line in body if line.strip())]
    )


def _take_message_lines(following: list[str]) -> list[str]:
    """The lines that continue an error's message: up to another traceback, a log line, or an error of our own."""
    body: list[str] = []
    for line in following[:BODY_LINES]:
        if TRACEBACK in line or CHAINED.search(line) or REPORTED.match(line) or NOT_MESSAGE.match(line):
            break
        body.append(line)
    while body and not body[-1].strip():
        body.pop()
    return body


def _describe_silent_end(lines: list[str], exit_code: int | None, missing: list[str]) -> str:
    """The message of a run that ended without an error: its exit code and last line, or the ``missing`` files."""
    if exit_code == 0:
        return f"the ranks ended without writing {' and '.join(missing)}"
    lines_with_words = [TAG.sub("", line).strip() for line in lines if re.search(r"\w", line)]
    return f"exit code {exit_code}" + (f"; the last line is: {lines_with_words[-1][:300]}" if lines_with_words else "")


def _find_first_failed_rank(lines: list[str]) -> tuple[int | None, int | None]:
    """(rank, exit code) of the rank that failed first; (None, None) if it cannot be identified.

    It is the first rank to end by the launcher's report, unless another one reported its own error: other ranks learn
    of that error through Horovod and may end sooner.
    """
    ended, code = _find_first_ended_rank(lines)
    reported = _find_first_match(lines, REPORTED)
    if reported and reported[0] is not None and code not in SIGNAL_EXIT_CODES:
        return reported[0], 1
    return ended, code


def _find_first_ended_rank(lines: list[str]) -> tuple[int | None, int | None]:
    """(rank, exit code) of the rank that the launcher reports as the first to end; (None, None) without a report."""
    match = next(filter(None, map(ENDED_FIRST.match, lines)), None)
    return (int(match["rank"]), int(match["code"])) if match else (None, None)


def _read_rank(line: str) -> int | None:
    """The rank in the launcher's tag before a line; None if it has none."""
    tag = TAG.match(line)
    return int(tag["rank"]) if tag else None


def _find_first_match(lines: list[str], pattern: re.Pattern[str]) -> tuple[int | None, str] | None:
    """(rank, text) of the first matching line of a rank, else of the launcher; None if no line matches."""
    matches = [
        (_read_rank(line), TAG.sub("", line).strip()[:500]) for line in lines if pattern.search(TAG.sub("", line))
    ]
    by_rank = [each for each in matches if each[0] is not None]
    return next(iter(by_rank or matches), None)
