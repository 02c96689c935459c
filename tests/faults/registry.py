"""The faults by name.

A fault of `FAULTS` is a function of a `Place`; its docstring says what must be true afterwards. One of `STRIKES` hits a
study that runs, at any moment and together with others; what must be true afterwards is the same for all (`rounds`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault and the function that injects it.

    group: what it happens to. quick: tests/workflow/test_faults.py tries it too; others only ``make faults``.
    """

    name: str
    group: str
    quick: bool
    function: callable

    @property
    def truth(self):
        """What must be true afterwards."""
        return " ".join(self.function.__doc__.split())


FAULTS = {}


def fault(name, group, quick=False):
    """Register the decorated function."""

    def register(function):
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, group, quick, function)
        return function

    return register


@dataclass(frozen=True)
class Strike:
    """targets: names of what it may hit. function: of (`battlefield.Field`, what is hit, a number from 0 to 1).

    The function returns (text, undo): what was hit; and how it is undone, or None.
    """

    name: str
    targets: tuple
    function: callable


STRIKES = {}


def strike(name, targets):
    """Register the decorated function as a strike."""

    def register(function):
        assert name not in STRIKES, name
        STRIKES[name] = Strike(name, tuple(targets), function)
        return function

    return register
