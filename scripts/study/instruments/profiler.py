"""Time in functions of a profiled run, by cProfile on rank 0, in the columns of sc18's Tables 2 and 3.

sc18: Wu et al., "Performance, Power, and Scalability Analysis of the Horovod Implementation of the CANDLE NT3 Benchmark
on the Cray XC40 Theta", PyHPC at SC18. Some of its functions no longer exist; docs/telemetry.md lists what replaces
each of them, and why.
"""

import contextlib
import cProfile
import io
import marshal
import pstats
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from study.core.errors import StudyError
from study.core.files import AnyPath

TOP = 15  # functions of the profile that a record keeps
BUILTIN = "~"
LONGEST_S = 1e9  # of a run

Function = tuple[str, int, str]  # file, line, name, as in pstats


@dataclass(frozen=True)
class Functions:
    """Functions of a profile. file, name: regular expressions for the end of the path and for the whole name.

    own: whether only their own time counts, without the functions that they call.
    """

    file: str
    name: str
    own: bool = False

    def has(self, function: Function) -> bool:
        """Whether ``function``, (file, line, name) as in pstats, is one of them."""
        file, _, name = function
        return bool(re.search(f"(^|/){self.file}$", file) and re.fullmatch(self.name, name))


ANY_BUT_IMPORT = r"(?!<module>$).*"
OWN = r"study/(\w+/)*\w+\.py"  # any module of this library: a function that moves keeps its column
COLUMNS = {
    "tensorflow_s": [Functions(BUILTIN, r".*_pywrap_tfe\.TFE_Py_(Fast|Slow)?(Path)?Execute>")],
    "method_read_s": [Functions(r"pandas/io/parsers/c_parser_wrapper\.py", "read", own=True)],
    "keras_callbacks_s": [Functions(r"tf_keras/src/callbacks\.py", ANY_BUT_IMPORT)],
    "horovod_callbacks_s": [
        Functions(r"horovod/_keras/callbacks\.py", ANY_BUT_IMPORT),
        Functions(OWN, "broadcast_variables"),
        Functions(OWN, "(on_train_batch_begin|apply_schedule)"),
    ],
    "distributed_optimizer_s": [Functions(r"horovod/_keras/__init__\.py", ANY_BUT_IMPORT)],
    "broadcast_s": [Functions("<string>", "horovod_broadcast.*")],
    "allreduce_s": [Functions("<string>", "horovod_(grouped_)?allreduce.*")],
    "model_fit_s": [Functions(r"tf_keras/src/engine/training\.py", "fit")],
}  # fmt: skip

# What cProfile does at each event of Python 3.12 and later (sys.monitoring), by its method.
CALLBACKS = {
    "_pystart_callback": ("PY_START", "PY_RESUME", "PY_THROW"),
    "_pyreturn_callback": ("PY_RETURN", "PY_YIELD", "PY_UNWIND"),
    "_ccall_callback": ("CALL",),
    "_creturn_callback": ("C_RETURN", "C_RAISE"),
}


class SingleThreadProfile(cProfile.Profile):
    """cProfile of the thread that enables it, as it is up to Python 3.11.

    From Python 3.12 on, it is told of all threads and takes their calls for those of one: a thread that returns ends
    another one's function. A rank always has a second thread, which sends its heartbeats.
    """

    def enable(self, subcalls: bool = True, builtins: bool = True) -> None:
        """Start to record this thread."""
        super().enable(subcalls, builtins)
        if sys.version_info >= (3, 12):
            own = threading.get_ident()
            for method, events in CALLBACKS.items():
                callback = _limit_to_thread(own, getattr(self, method))
                for event in events:
                    number = getattr(sys.monitoring.events, event)
                    sys.monitoring.register_callback(sys.monitoring.PROFILER_ID, number, callback)


def _limit_to_thread(thread: int, callback: Callable[..., object]) -> Callable[..., None]:
    """``callback``, call_in_thread in the thread of this number only."""
    here = threading.get_ident

    def call_in_thread(*arguments: object) -> None:
        if here() == thread:
            callback(*arguments)

    return call_in_thread


def summarize(path: AnyPath) -> dict[str, Any]:
    """The record's ``profile`` from a file of pstats: seconds by column, and the top functions by their own time.

    A column is the time of its functions with everything that they call; None if the profile has none of them.
    ``total_s`` is the time of the whole profile.
    """
    try:
        with open(path, "rb") as handle, contextlib.redirect_stdout(io.StringIO()):  # pstats prints what it dislikes
            _check(marshal.load(handle))  # noqa: S302  the file's checksum is that of the run
            stats: Any = pstats.Stats(str(path))  # whose attributes have no types
    except (EOFError, ValueError, TypeError, LookupError, MemoryError) as error:  # all that marshal raises
        raise StudyError(f"{path}: is no whole profile ({error}); delete its folder to run again") from None
    columns = {name: _sum_time(stats.stats, functions) for name, functions in COLUMNS.items()}
    return {"total_s": stats.total_tt, **columns, "top": _list_top(stats.stats)}


def _check(stats: Any) -> None:
    """Raise ValueError unless this is {(file, line, name): (calls, all calls, own, cumulative, callers)}."""
    if not isinstance(stats, dict):
        raise ValueError("there is no list of functions")
    for function, timing in stats.items():
        calls = [timing, *timing[4].values()]
        if not all(_is_time(each[2]) and _is_time(each[3]) and type(each[1]) is int for each in calls):
            raise ValueError("a function has no calls or times")
        if [type(part) for part in function] != [str, int, str] or not all(len(c) == 3 for c in timing[4]):
            raise ValueError("a function has no file, line and name")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < LONGEST_S


def _sum_time(stats: dict[Function, Any], functions: list[Functions]) -> float | None:
    """Seconds inside the functions; calls from one of them to another are counted once."""
    ours = {function: each.own for function in stats for each in functions if each.has(function)}
    total = 0.0
    for function, own_only in ours.items():
        _, _, own, cumulative, callers = stats[function]
        if own_only or not callers:
            total += own if own_only else cumulative
        else:
            total += sum(edge[3] for caller, edge in callers.items() if caller not in ours)
    return total if ours else None


def _list_top(stats: dict[Function, Any]) -> list[dict[str, Any]]:
    by_own_time = sorted(stats.items(), key=lambda item: item[1][2], reverse=True)
    return [
        {"function": _format_function(function), "calls": calls, "own_s": own, "cumulative_s": cumulative}
        for function, (_, calls, own, cumulative, _) in by_own_time[:TOP]
    ]


def _format_function(function: Function) -> str:
    """``package/module.py:line name`` without the folders before the package, or a built-in's name."""
    file, line, name = function
    if file == BUILTIN:
        return name
    return f"{re.sub(r'^.*/(site-packages|python3[.][0-9]+|scripts)/', '', file)}:{line} {name}"
