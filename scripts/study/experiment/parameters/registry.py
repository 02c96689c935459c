"""The registry of the grid keys, and which of them are there to observe a run."""

import functools
from collections.abc import Mapping
from typing import Any

from study.core.registry import Registry
from study.experiment.parameter import FlagOrWord, Parameter, Refusal

PARAMETERS: Registry[Parameter] = Registry("grid key")


def declare(parameter: Parameter) -> Parameter:
    """Register a grid key."""
    return PARAMETERS.add(parameter.name, parameter)


def at_default(run: Any, name: str) -> bool:
    """Whether a run (``run[key]`` is a key's value) has a key's default value."""
    return run[name] == PARAMETERS[name].default


def not_combined(run: Any, what: str, refused: Mapping[str, str]) -> str | None:
    """Why ``what`` cannot be combined with a key that a run has set, or None. refused: {key: why}."""
    for name, why in refused.items():
        if not at_default(run, name):
            return f"{what} cannot be combined with {name}: {why}; give two grids"
    return None


def idle_alone(run: Any) -> str | None:
    """Why a key of the communication has no effect in a run, or None."""
    return "one rank has no communication" if run.gpus == 1 and not run["servers"] else None


def idle_in_one_rank(run: Any) -> str | None:
    """Why a key of how ranks train together has no effect in a run, or None; each member of an ensemble is asked it."""
    return "one rank trains alone" if run.trained_ranks == 1 and run["ensemble"] == 1 else None


def idle_untrained(run: Any) -> str | None:
    """Why a key of the learning rate or of the model's computation has no effect in a run, or None."""
    if run["measure"] == "peak_throughput":
        return "with measure: peak_throughput nothing is trained"
    return "with compute: simulated nothing is trained" if run["compute"] == "simulated" else None


def first_reason(*reasons: Refusal) -> Refusal:
    """A function from a run to the first of these functions' reasons."""
    return lambda run: next((why for each in reasons if (why := each(run))), None)


def observing() -> list[str]:
    """The keys of which runs with another value than the default give no timings."""
    return list(_observing(len(PARAMETERS)))


@functools.cache
def _observing(_: int) -> tuple[str, ...]:
    """`observing`, of so many declared keys: it is asked for each run by each table and figure."""
    return tuple(name for name, parameter in PARAMETERS.items() if parameter.observes)


def observed_by(run: Any) -> list[str]:
    """The keys by which a run (``run[key]`` is a key's value) is observed, so that it gives no timings.

    A key with a word instead of true is told with it: ``profile: operations`` is another instrument than ``profile``.
    """
    return [_told(name, run[name]) for name in observing() if run[name] != PARAMETERS[name].default]


def _told(name: str, value: Any) -> str:
    return f"{name}: {value}" if isinstance(PARAMETERS[name].kind, FlagOrWord) and isinstance(value, str) else name


def is_observed(run: Any, by: str | None) -> bool:
    """Whether a run is observed by this key, as `observed_by` tells it, and no other; by None, by no key."""
    return observed_by(run) == ([by] if by else [])
