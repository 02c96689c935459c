"""Which grid keys can have an effect in a run; the values of the others say nothing about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from study.experiment import programs
from study.experiment.parameters import pytorch, strategy
from study.experiment.parameters.workload import PYTORCH
from study.workloads import command

DERIVED = {"batch_size_per_rank": "batch_size"}  # columns that follow from a key


def lacking(values: Mapping[str, Any], spec: Mapping[str, Any]) -> set[str]:
    """The grid keys that a run does not have, although its record has their defaults, and columns that follow from one.

    Of a command those that it does not get and the launch does not obey; of our own training those of other frameworks
    and strategies.

    Args:
        values: {grid key: value} of the run.
        spec: its benchmark's YAML, or what the run's definition has of it.
    """
    keys = programs.lacking(values, spec) if command.is_command(spec) else _of_others(values)
    return keys | {column for column, key in DERIVED.items() if key in keys}


def _of_others(values: Mapping[str, Any]) -> set[str]:
    of_framework = pytorch.lacking(values["strategy"]) if values["framework"] == PYTORCH else set()
    return of_framework | strategy.lacking(values["strategy"])
