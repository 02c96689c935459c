"""The faults by name. A fault is a function of a `Place`; its docstring says what must be true afterwards."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """group: what it happens to. quick: part of every test run, not of ``make faults`` alone."""

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
