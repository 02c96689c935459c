"""Whether the priors hold for the library versions with which the runs were measured."""

from __future__ import annotations

import re
from collections.abc import Iterable

from study.core import validation
from study.prediction import mechanisms


def note(packages: Iterable[str]) -> str | None:
    """A sentence if runs used versions outside ``versions`` of config/prediction/mechanisms.yaml, else None.

    packages: of the runs, as in the column ``packages``: ``horovod 0.28.1, tensorflow 2.18.1``. A library that a run
    did not record is not compared.
    """
    declared = mechanisms.declared()["versions"]
    used = {tuple(entry.split(" ")) for each in packages for entry in each.split(", ")}
    outside = sorted(
        " ".join(entry) for entry in used if entry[0] in declared and not is_within(entry[1], declared[entry[0]])
    )
    if not outside:
        return None
    told = ", ".join(f"{name} {versions}" for name, versions in declared.items())
    return (
        f"measured with {', '.join(outside)}, but the priors hold for {told}: predictions may be off "
        f"({validation.shorten_path(mechanisms.FILE)}: versions)"
    )


def is_within(version: str, declared: str) -> bool:
    """Whether a version is in a range such as ``2.15 to 2.18``, whose ends include their patches: 2.18.1 is in it."""
    low, _, high = declared.partition(" to ")
    return _begins(version, low) >= _numbers(low) and _begins(version, high or low) <= _numbers(high or low)


def _begins(version: str, end: str) -> list[int]:
    """As many numbers of the version as the range's end has."""
    return _numbers(version)[: len(_numbers(end))]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
