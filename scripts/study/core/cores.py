"""The cores that a rank may use: all that the host allows, or the first ones of them (``core_limit``).

Imports nothing of the study, so that a rank can call it before its other imports, whose processor time counts too.
"""

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

VARIABLE = "STUDY_CORE_LIMIT"


class Limited(NamedTuple):
    """A process that is kept on some cores. before_s: CPU time that it had used until then."""

    cores: frozenset[int]
    before_s: float


limited: Limited | None = None  # this process, once `limit` has kept it on some cores


def limit(variables: Mapping[str, str] = os.environ) -> None:
    """Keep this process, and threads and processes that it starts later, on the first cores that it may use.

    The number is in the environment; without it, nothing changes. With fewer cores than that, all of them stay.
    """
    global limited
    number = int(variables.get(VARIABLE, 0))
    if number:
        cores = allowed()[:number]
        os.sched_setaffinity(0, cores)
        limited = Limited(frozenset(cores), time.process_time())


def allowed() -> list[int]:
    """The cores that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))
