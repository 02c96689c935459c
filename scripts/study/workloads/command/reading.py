"""What a program's output shows: the numbers of its patterns, that it did its work, and whether it failed or restarted.

Lines are read while the program runs. Where a pattern of the benchmark's file is corrected later, the stored output is
read again, so this needs nothing of the run but its lines. How a failure is named: `study.launch.failure`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from study.core.quantities import remove_colours
from study.workloads.command import events, patterns

LAST_LINES = 40  # of an output, at whose end words of failure are looked for
FIRST_LINES = 3  # of an output, by which a program that starts again is known
WENT_ON_S = 60.0  # after words of failure: a program that ran on for so long has not ended with them
PRINTS_S = 1.0  # in which an error and its traceback are printed
APART_S = 0.1  # by which a line of another stream is surely later
LONGEST_QUOTE = 200  # characters of a line in a message
TRACEBACK = "Traceback (most recent call last):"
FAILURE = re.compile(
    rf"{re.escape(TRACEBACK)}|out of memory|OutOfMemoryError|(^|[\s:])Killed(\s{{2}}|\s*$)|NCCL error|nccl\w+Error\b|"
    r"Unable to locate sufficient|Segmentation fault|core dumped|Bus error|CUDA error|No space left on device|"
    r"ChildFailedError|command not found|can't open file|^(srun|slurmstepd|mpirun|torchrun): error|"
    r"(?-i:\b(ERROR|FATAL|CRITICAL)\b)(?![\])]?[:=\s\[]*[-+]?[0-9.])",
    re.I,
)
# A shell's words for a process of its own that died: bash's with the line of the script, and those of other shells.
DIED = re.compile(r": line \d+: +\d+ (Killed|Segmentation fault|Aborted|Bus error|Illegal instruction)\b|^Killed$")
# An elastic agent's or wrapper's words for another start of the program; torchrun tells each failed worker so.
RESTART = re.compile(
    r"failed \(exitcode: -?\d+\) local_rank:|will restart|\b(restarting|respawning|relaunching)\b", re.I
)
# Words for going on from a checkpoint: of minGPT and nanoGPT, Lightning, Transformers and PyTorch's examples.
RESUMED = re.compile(
    r"\bresum(ing|ed)\b.*\b(from|epoch|step|checkpoint|snapshot)\b|\bloading snapshot\b|restored all states from|"
    r"continuing training from|loaded checkpoint .*\(epoch",
    re.I,
)
HARMLESS = ("Exception ignored in", "Exception in thread", "--- Logging error")  # before a harmless traceback
RAISED = re.compile(r"[A-Za-z_][\w.]*(: .*)?$")  # the last line of a traceback
RANK_TAG = re.compile(r"^\[rank\d+\]: ?")  # of PyTorch, before the lines of a traceback


class OutputReader:
    """Reads the lines of one process's output, of both of its streams in the order in which they come.

    Only in the main thread, where `patterns.SearchLimit` ends searches.

    Args:
        spec: the benchmark's YAML, or its part in a run's definition.
        ranks: of the run.
        nodes: of the run.
        is_shared: whether several ranks print into it.
    """

    def __init__(self, spec: Mapping[str, Any], ranks: int, nodes: int, is_shared: bool) -> None:
        metrics = [patterns.parse_metric(*each) for each in spec.get("metrics", {}).items()]
        self._patterns = patterns.PatternReader(metrics, ranks, nodes, is_shared)
        self._success = {each: re.compile(each) for each in spec.get("success", [])}
        self._faults: dict[str, str] = {}  # of patterns of success
        self._matched: set[str] = set()  # patterns of success
        self._succeeded_s = -math.inf  # when the last line came that one of them matches
        self._failure, self._lines_since = "", 0  # the last line with words of failure; cleared by a sign of work
        self._failed_source, self._failed_s = 0, -math.inf  # its stream, and when it came
        self._last_s = -math.inf  # when the last line came
        self._errors: list[str] = []  # all lines with words of failure
        self._restart = self._resumed = ""  # the first line with such words
        # Of each stream, until words of failure in it: and how often each was printed.
        self._first_lines: dict[int, Counter[str]] = {}
        self._failed_streams: set[int] = set()
        self._most_printers = ranks if is_shared else 1  # of one line
        self._line_before = ""

    def take(self, line: bytes, is_event: bool = False, source: int = 0, at_s: float = math.inf) -> None:
        """Take a line. source: a number of its stream. at_s: when it came (monotonic); unknown by default.

        is_event: whether it is an event, which is a sign of work as a match of a pattern is.
        """
        has_number = self._patterns.take(line)
        if text := remove_colours(line.decode(errors="replace")).strip():
            self._take_text(text, is_event or has_number, source, at_s)

    def to_json(
        self, command_again: str = "", ended_s: float = math.nan, deaths: Iterable[tuple[float, str]] = ()
    ) -> dict[str, Any]:
        """What was read, for `study.training.program_results`.

        command_again: that was started again after its end. ended_s: the program's end (monotonic), if it is known.
        deaths: (when it was last seen alive (monotonic), how it ended) of each process that failed.
        """
        went_on = ended_s - self._failed_s > WENT_ON_S or self._lines_since >= LAST_LINES
        values = self._patterns.read_values()
        return {
            "values": {name: value for name, (value, _) in values.items()},
            "faults": {name: why for name, (_, why) in values.items() if why} | self._faults,
            "printers": self._patterns.count_printers(),
            "success": sorted(self._matched),
            "failure": "" if went_on else self._failure,
            "error": self._errors[0] if self._errors else "",
            "restart": self._find_restart(command_again),
            "resumed": self._resumed,
            "death": next((how for alive_s, how in deaths if self._succeeded_s <= alive_s), ""),
        }

    def has_ended_with_failure(self, ended_s: float) -> bool:
        """Whether the program printed nothing more after its last words of failure, and ended. ended_s: its end."""
        return bool(self._failure) and max(self._last_s, ended_s - WENT_ON_S) <= self._failed_s + PRINTS_S

    def list_divergences(self) -> list[str]:
        """``name nan`` of each loss that was not finite at the end of the output."""
        return self._patterns.list_divergences()

    def _take_text(self, text: str, shows_work: bool, source: int, at_s: float) -> None:
        """Take the words of a line that is not empty. shows_work: whether it is an event or has a number."""
        self._last_s = at_s
        matched = self._find_success(text)
        self._matched |= matched
        self._succeeded_s = at_s if matched else self._succeeded_s
        self._lines_since += 1
        # Lines of two streams may come in another order than that in which they were written.
        is_later = source == self._failed_source or at_s > self._failed_s + APART_S
        if (matched or shows_work) and is_later and not DIED.search(self._failure):  # a shell goes on to its next line
            self._failure = ""
        elif FAILURE.search(text) and not self._line_before.startswith(HARMLESS):
            self._failure, self._lines_since = text[:LONGEST_QUOTE], 0
            self._failed_source, self._failed_s = source, at_s
            self._errors.append(self._failure)
            self._failed_streams.add(source)
        if RESTART.search(text):
            self._restart = self._restart or text[:LONGEST_QUOTE]
        if RESUMED.search(text):
            self._resumed = self._resumed or text[:LONGEST_QUOTE]
        line, first_lines = patterns.TIMES.sub("", text), self._first_lines.setdefault(source, Counter())
        may_be_first = len(first_lines) < FIRST_LINES and source not in self._failed_streams
        if line in first_lines or (may_be_first and re.search(r"[A-Za-z]{2}", line)):
            first_lines[line] += 1
        self._line_before = text

    def _find_success(self, text: str) -> set[str]:
        """The patterns of success that match a line; one that takes too long is given up."""
        matched = set()
        for name, pattern in list(self._success.items()):
            try:
                with patterns.SearchLimit():
                    matched |= {name} if pattern.search(text) else set()
            except TimeoutError:
                del self._success[name]
                self._faults[name] = patterns.explain_slow_search(pattern, text)
        return matched

    def _find_restart(self, command_again: str) -> str:
        """What shows that the program was started again; "" without a sign.

        A program that begins again prints its first lines again: once for each error that ended it, or a command of its
        was started again. Either alone may be what it does.
        """
        most = max((number for lines in self._first_lines.values() for number in lines.values()), default=0)
        if self._restart or most <= self._most_printers:
            return self._restart
        return self._errors[0] if most <= self._most_printers + len(self._errors) else command_again


def find_final_error(lines: Sequence[str]) -> str | None:
    """The uncaught error of Python with which an output ends; None if it ends otherwise."""
    texts = [RANK_TAG.sub("", line).rstrip() for line in lines if line.strip()]
    begins = [number for number, text in enumerate(texts) if text.endswith(TRACEBACK)]
    if not begins or (begins[-1] and texts[begins[-1] - 1].startswith(HARMLESS)):
        return None
    body = [text for text in texts[begins[-1] + 1 :] if not text.startswith(" ")]
    return body[0] if len(body) == 1 and RAISED.match(body[0]) and texts[-1] == body[0] else None


def merge(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the outputs of a run's processes show together: the numbers of the first one, and the signs of all."""

    def first(key: str) -> str:
        return next((each[key] for each in readings if each[key]), "")

    return {
        **{key: readings[0][key] for key in ("values", "faults")},
        "printers": dict(sum((Counter(each["printers"]) for each in readings), Counter())),
        "success": sorted({pattern for each in readings for pattern in each["success"]}),
        **{key: first(key) for key in ("failure", "error", "restart", "resumed", "death")},
    }


def read_again(
    lines_by_process: Mapping[int, Iterable[bytes]], spec: Mapping[str, Any], ranks: int, nodes: int, is_shared: bool
) -> dict[str, Any]:
    """As `merge`, from stored lines of each process, by its number."""
    readings = []
    for number in sorted(lines_by_process):
        reader = OutputReader(spec, ranks, nodes, is_shared)
        for line in lines_by_process[number]:
            reader.take(line, is_event=events.MARK in line)
        readings.append(reader.to_json())
    return merge(readings)
