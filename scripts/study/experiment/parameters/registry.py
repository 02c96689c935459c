"""The registry of the grid keys, and which of them are there to observe a run."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from study.core.registry import Registry
from study.experiment.parameter import Parameter, Refusal

PARAMETERS: Registry[Parameter] = Registry("grid key")


Declaration = ParamSpec("Declaration")


def _build_declare(make: Callable[Declaration, Parameter]) -> Callable[Declaration, Parameter]:
    """A function that makes and registers a grid key from the arguments of ``make``."""

    def declare(*arguments: Declaration.args, **others: Declaration.kwargs) -> Parameter:
        parameter = make(*arguments, **others)
        return PARAMETERS.add(parameter.name, parameter)

    return declare


declare = _build_declare(Parameter)


def is_at_default(run: Any, name: str) -> bool:
    """Whether a run (``run[key]`` is a key's value) has a key's default value."""
    return run[name] == PARAMETERS[name].default


def refuse_combination(run: Any, subject: str, refused: Mapping[str, str]) -> str | None:
    """The reason why ``what`` cannot be combined with a key that a run sets, or None. refused: {key: why}."""
    for name, why in refused.items():
        if not is_at_default(run, name):
            return f"{subject} cannot be combined with {name}: {why}; give two grids"
    return None


def explain_idle_communication(run: Any) -> str | None:
    """Why a key of the communication has no effect in a run, or None."""
    return "one rank has no communication" if run.gpus == 1 and not run["servers"] else None


def explain_idle_scaling(run: Any) -> str | None:
    """Why a key that scales with the ranks has no effect in a run, or None; it has one in ensembles."""
    return "one rank trains alone" if run.trained_ranks == 1 and run["ensemble"] == 1 else None


def explain_idle_training(run: Any) -> str | None:
    """Why a key of the learning rate or of the model's computation has no effect in a run, or None."""
    if run["measure"] == "peak_throughput":
        return "with measure: peak_throughput nothing is trained"
    return "with compute: simulated nothing is trained" if run["compute"] == "simulated" else None


def combine_reasons(*reasons: Refusal) -> Refusal:
    """Combine functions from a run to a reason or None into one that returns the first reason."""
    return lambda run: next((why for each in reasons if (why := each(run))), None)


def list_observing_keys() -> list[str]:
    """The keys that observe a run: with another value than the default it gives no timings."""
    return list(_find_observing_keys(len(PARAMETERS)))


@functools.cache
def _find_observing_keys(_: int) -> tuple[str, ...]:
    """As `list_observing_keys`, cached by the number of declared keys: each table and figure needs it for each run."""
    return tuple(name for name, parameter in PARAMETERS.items() if parameter.observes)


def list_observers(run: Any) -> list[str]:
    """The keys by which a run (``run[key]`` is a key's value) is observed, so that it gives no timings."""
    return [name for name in list_observing_keys() if run[name] != PARAMETERS[name].default]


def is_observed(run: Any, by: str | None) -> bool:
    """Whether a run is observed by this key of `list_observers` and no other; by None: whether by no key."""
    return list_observers(run) == ([by] if by else [])
