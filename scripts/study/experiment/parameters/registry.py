"""The registry of the grid keys, and which of them are there to observe a run."""

import functools
from typing import Any

from study.core.registry import Registry
from study.experiment.parameter import NOT_STATED, Parameter

PARAMETERS: Registry[Parameter] = Registry("grid key")


def declare(parameter: Parameter) -> Parameter:
    """Register a grid key."""
    return PARAMETERS.add(parameter.name, parameter)


def of_all_papers(value: Any) -> dict[str, Any]:
    """``papers`` of a switch that no paper mentions: runs in which it is turned are compared with none of them."""
    return dict.fromkeys(("icpp2019", "sc18", "han2019", "pittman2018"), value)


def not_stated_by(*papers: str) -> dict[str, str]:
    """``papers`` of a setting that these papers' method has, and of which they print no value."""
    return dict.fromkeys(papers, NOT_STATED)


def at_default(run: Any, name: str) -> bool:
    """Whether a run (``run[key]`` is a key's value) has a key's default value."""
    return run[name] == PARAMETERS[name].default


def observing() -> list[str]:
    """The keys of which runs with another value than the default give no timings."""
    return list(_observing(len(PARAMETERS)))


@functools.cache
def _observing(_: int) -> tuple[str, ...]:
    """`observing`, of so many declared keys: it is asked for each run by each table and figure."""
    return tuple(name for name, parameter in PARAMETERS.items() if parameter.observes)


def observed_by(run: Any) -> list[str]:
    """The keys by which a run (``run[key]`` is a key's value) is observed, so that it gives no timings."""
    return [name for name in observing() if run[name] != PARAMETERS[name].default]


def is_observed(run: Any, by: str | None) -> bool:
    """Whether a run is observed by this key and no other; by None, by no key."""
    return observed_by(run) == ([by] if by else [])
