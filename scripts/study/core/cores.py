"""The cores that a rank may use: all that the host allows, or the first ones of them (``core_limit``).

Imports nothing of the study, so that a rank can call it before its other imports, whose processor time counts too.
"""

import os
from collections.abc import Mapping

VARIABLE = "STUDY_CORE_LIMIT"


def limit(variables: Mapping[str, str] = os.environ) -> None:
    """Keep this process, and threads and processes that it starts later, on the first cores that it may use.

    The number is in the environment; without it, nothing changes. With fewer cores than that, all of them stay.
    """
    number = int(variables.get(VARIABLE, 0))
    if number:
        os.sched_setaffinity(0, allowed()[:number])


def allowed() -> list[int]:
    """The cores that this process may use, ascending."""
    return sorted(os.sched_getaffinity(0))
